"""Linear estimates: their errors, confidence intervals and maximum error.

An observation is ``offset + slope * (true number) + noise``. The error is either noise that does not depend on the true
number (``FixedNoise``), or a sum of independent bounded terms whose variance is linear in the true number
(``IndependentTerms``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.search import bisect, least_integer

__all__ = [
    "LINEAR_ESTIMATORS",
    "ErrorDistribution",
    "FixedNoise",
    "IndependentTerms",
    "LinearAnalysis",
]

Floats = NDArray[np.float64]

_BERRY_ESSEEN = 0.56  # Shevtsova 2010, for terms of different distributions
_ROUNDING = 2.0**-46  # of the ends of intervals, relative to the numbers that they are computed from
_FEW = 32  # quantiles up to this number are computed one by one
LINEAR_ESTIMATORS = ("unbiased", "clipped")


class ErrorDistribution(Protocol):
    """The distribution of the error, estimate minus true number, in the unit of the estimate."""

    def variance(self, truth: Floats) -> Floats:
        """The mean squared error at these true numbers; linear in them."""

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """Confidence interval: the true numbers that this estimate does not reject at level ``risk``."""

    def radius(self, risk: float, largest_truth: float) -> float:
        """A bound on the error that is exceeded with a probability of at most ``risk``, for every true number."""


class NoiseDistribution(Protocol):
    """A distribution on the integers; hashable, so that its tables can be cached."""

    def __hash__(self) -> int: ...

    @property
    def mean(self) -> float:
        """The expected value."""

    @property
    def variance(self) -> float:
        """The variance."""

    def upper_tail(self, k: Any) -> Any:
        """Pr[N >= k]."""

    def lower_tail(self, k: Any) -> Any:
        """Pr[N <= k]."""


@dataclass(frozen=True)
class FixedNoise:
    """Noise ``step * (N - E[N])`` that does not depend on the true number; intervals are shifted quantiles."""

    noise: NoiseDistribution
    step: float = 1.0

    def variance(self, truth: Floats) -> Floats:
        """Constant."""
        return np.full(np.shape(truth), self.step**2 * self.noise.variance)

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """The estimate minus the likely range of the noise."""
        low, high = self._likely_range(risk / 2)
        return estimate - self.step * (high - self.noise.mean), estimate - self.step * (low - self.noise.mean)

    def radius(self, risk: float, largest_truth: float) -> float:  # noqa: ARG002
        """The least distance from the mean that the noise exceeds with a probability of at most ``risk``."""
        low, high = self._likely_range(risk / 2)
        bound = max(high - self.noise.mean, self.noise.mean - low)
        distance = bisect(lambda distance: self._risk_of(distance) <= risk, 0.0, bound, relative=1e-6, absolute=1e-6)
        return self.step * distance

    def _risk_of(self, distance: float) -> float:
        """The probability that the noise is farther than ``distance`` from its mean."""
        above = float(self.noise.upper_tail(math.floor(self.noise.mean + distance) + 1))
        return above + float(self.noise.lower_tail(math.ceil(self.noise.mean - distance) - 1))

    def _likely_range(self, risk: float) -> tuple[int, int]:
        """Bounds on the noise, each violated with a probability of at most ``risk``."""
        centre = round(self.noise.mean)
        above = least_integer(lambda k: float(self.noise.upper_tail(centre + k + 1)) <= risk, low=-1)
        below = least_integer(lambda k: float(self.noise.lower_tail(centre - k - 1)) <= risk, low=-1)
        return centre - below, centre + above


@dataclass(frozen=True)
class IndependentTerms:
    """A sum of independent terms, one or more per user, in the unit of the estimate.

    Intervals and radii are valid for every number of users: they use Bernstein's inequality, or the normal distribution
    with the Berry-Esseen correction if that is sharper.
    """

    same_for_all: ClassVar[bool] = True
    """Whether equal estimates have equal error distributions; False if categories differ."""

    base_variance: float
    """The variance if nobody holds the value."""
    variance_per_holder: float
    """Increase of the variance per user who holds the value."""
    largest_term: float
    """Bound on the distance of a term from its mean; or on the ratio of its third absolute moment to its variance."""
    heaviest_tail: float | None = None
    """Bernstein's constant, for unbounded terms; by default a third of the largest term."""

    def variance(self, truth: Floats) -> Floats:
        """Linear in the true number."""
        return np.maximum(self.base_variance + self.variance_per_holder * np.asarray(truth, dtype=np.float64), 0.0)

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """The solutions of |estimate - truth| <= width(truth), on both sides."""
        if not self.same_for_all:
            return self._outermost(estimate, -1.0, risk), self._outermost(estimate, 1.0, risk)
        distinct, inverse = np.unique(estimate, return_inverse=True)
        low, high = (self._outermost(distinct, side, risk) for side in (-1.0, 1.0))
        return low[inverse], high[inverse]

    def _outermost(self, estimate: Floats, side: float, risk: float) -> Floats:
        """The farthest true number on one side of the estimate whose width reaches the estimate, rounded outwards."""
        inside = estimate
        if side > 0:  # near 0 the width may grow faster than the truth: then likely truths start above the estimate
            peak = np.full_like(estimate, self._peak(risk))
            inside = np.where((estimate < peak) & (peak - estimate <= self._width(peak, risk)), peak, estimate)
        outside = inside + side * np.maximum(self._width(inside, risk), 1.0)
        for _ in range(64):  # until no truth beyond is likely
            likely = side * (outside - estimate) <= self._width(outside, risk)
            if not likely.any():
                break
            outside = np.where(likely, inside + 2 * (outside - inside), outside)
        for _ in range(60):
            middle = (inside + outside) / 2
            likely = side * (middle - estimate) <= self._width(middle, risk)
            inside, outside = np.where(likely, middle, inside), np.where(likely, outside, middle)
            if np.allclose(inside, outside, rtol=1e-12, atol=1e-9):
                break
        return outside

    def _peak(self, risk: float) -> float:
        """The truth beyond which Bernstein's width grows more slowly than the truth."""
        if self.variance_per_holder <= 0:
            return 0.0
        tail = self.largest_term / 3 if self.heaviest_tail is None else self.heaviest_tail
        level = math.log(2 / risk)
        slope = level * self.variance_per_holder
        return max(0.0, (slope**2 - (tail * level) ** 2 - 2 * level * self.base_variance) / (2 * slope))

    def radius(self, risk: float, largest_truth: float) -> float:
        """The width at the true number with the largest variance."""
        return float(np.max(self._width(np.array([0.0, largest_truth]), risk)))

    def _width(self, truth: Floats, risk: float) -> Floats:
        """The distance from the true number that the estimate exceeds with a probability of at most ``risk``."""
        variance = self.variance(np.maximum(truth, 0.0))
        tail = self.largest_term / 3 if self.heaviest_tail is None else self.heaviest_tail
        level = math.log(2 / risk)
        bernstein: Floats = tail * level + np.sqrt((tail * level) ** 2 + 2 * variance * level)
        deviation = np.sqrt(np.maximum(variance, 1e-300))
        normal_risk = risk / 2 - _BERRY_ESSEEN * self.largest_term / deviation
        normal = np.full(np.shape(variance), np.inf)
        is_useful = normal_risk > 1e-3 * risk
        if np.any(is_useful):
            normal[is_useful] = -_normal_quantiles(normal_risk[is_useful]) * deviation[is_useful]
        width: Floats = np.minimum(bernstein, normal)
        return width


def _normal_quantiles(levels: Floats) -> Floats:
    """The quantiles of the standard normal distribution."""
    if levels.size <= _FEW:
        return np.array([NormalDist().inv_cdf(level) for level in levels.tolist()])
    from scipy.special import ndtri  # takes long to import

    return np.asarray(ndtri(levels), dtype=np.float64)


@dataclass(frozen=True)
class LinearAnalysis:
    """Linear estimates of ``numbers`` true numbers between 0 and ``largest``."""

    offset: float
    """Expected observation if the true number is 0."""
    slope: float
    """Increase of the expected observation per unit of the true number."""
    error: ErrorDistribution
    largest: float
    numbers: int = 1

    def estimate(self, observed: NDArray[Any], estimator: str) -> Floats:
        """The unbiased estimates, or these clipped to the possible range."""
        unbiased: Floats = (observed - self.offset) / self.slope
        return np.clip(unbiased, 0.0, self.largest) if estimator == "clipped" else unbiased

    def standard_errors(self, observed: NDArray[Any]) -> Floats:
        """The standard deviation of each estimate, at the estimated number."""
        return np.sqrt(self.error.variance(self.estimate(observed, "clipped")))

    def withheld_below(self, confidence: float) -> int | None:  # noqa: ARG002
        """None: no count is withheld."""
        return None

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], Floats]:
        """From a confidence to intervals [low, high] with at least this coverage for every true number."""
        return partial(self._intervals_at, observed)

    def _intervals_at(self, observed: NDArray[Any], confidence: float) -> Floats:
        estimate = self.estimate(observed, "unbiased")
        ends = np.stack(self.error.interval(estimate, 1 - confidence), axis=-1)
        return np.clip(self._on_whole_numbers(ends, observed), 0.0, self.largest)

    def _on_whole_numbers(self, ends: Floats, observed: NDArray[Any]) -> Floats:
        """The ends of intervals, moved to a whole number where they differ from it by rounding alone.

        An end is often a possible true number, which 3.000000000000006 instead of 3 would leave out. The whole numbers
        are those of ``slope`` times the true number: of users, or of the levels of a sum.
        """
        scaled = ends * self.slope
        size = abs(self.offset) + self.largest * self.slope + float(np.max(np.abs(observed), initial=0.0))
        whole = np.rint(scaled)
        return np.where(np.abs(scaled - whole) <= _ROUNDING * size, whole / self.slope, ends)

    def expected_error(self, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:
        """The root mean squared error over all numbers, and the maximum error.

        The variance is linear in the true count, and the counts of a histogram sum to the number of users; so the mean
        over the categories is the same for every data set, and ``truth`` matters for single numbers only.
        """
        check_confidence(confidence)
        at = self._typical() if truth is None else np.asarray(truth, dtype=np.float64)
        return ExpectedError(
            rmse=math.sqrt(float(np.mean(self.error.variance(at)))),
            max_error=self.error.radius((1 - confidence) / self.numbers, self.largest),
            confidence=confidence,
        )

    def _typical(self) -> Floats:
        """The mean count of a histogram; for a single number, the true number with the largest variance."""
        if self.numbers > 1:
            return np.array([self.largest / self.numbers])
        ends = np.array([0.0, self.largest])
        return ends[[int(np.argmax(self.error.variance(ends)))]]
