"""Estimators of counts from token counts, whose noise is never positive: errors, intervals and thresholds.

The analyzer observes the surplus o = c - N, the true count minus the noise N ~ Bin(n, q) >= 0. All estimators are
functions of the surplus, so they have the same privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence, check_open_unit
from shuffledp.errors import UnknownNameError
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.search import bisect

_PLAUSIBLY_WITHHELD = 0.025  # as in an interval of 95 % confidence
_TUNING_RISK = 0.05  # risk that tunes the last two estimators

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

ESTIMATORS = {
    "threshold": "the paper's: 0 unless the surplus is positive, so an empty category is exactly 0",
    "unbiased": "the surplus plus the mean noise; unbiased, can be negative",
    "clipped": "the unbiased estimate, but at least 0",
    "midpoint": "the surplus plus the midpoint of the likely noise, at least 0; least maximum error",
    "relaxed-threshold": "0 unless the surplus exceeds that of an empty category; detects smaller categories",
}
"""Every estimator by name, with its purpose."""


@dataclass(frozen=True)
class SurplusAnalysis:
    """Estimates, intervals and errors for ``categories`` counts that share one distribution of noise."""

    noise: Binomial
    categories: int
    estimator: str = "threshold"
    risk: float = 0.05
    """The probability that the maximum error exceeds the predicted radius."""

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise UnknownNameError(
                f"There is no estimator {self.estimator!r}; choose one of {', '.join(ESTIMATORS)}.",
                estimator=self.estimator,
            )
        check_open_unit("risk", self.risk)

    @cached_property
    def _occupied(self) -> int:
        """Maximum number of non-empty categories."""
        return min(self.noise.trials, self.categories)

    @cached_property
    def _likely_noise(self) -> tuple[int, int]:
        """Bounds on the noise: from below for all categories, from above for all non-empty ones."""
        low = self.noise.least_with_lower_tail(_TUNING_RISK / (2 * self.categories), strictly=True)
        return low, self._upper_quantile(_TUNING_RISK / (2 * self._occupied))

    @cached_property
    def _midpoint(self) -> float:
        return sum(self._likely_noise) / 2

    def _upper_quantile(self, risk: float) -> int:
        """The least M with Pr[N > M] <= risk."""
        return self.noise.trials - self.noise.mirrored.least_with_lower_tail(risk, strictly=True)

    def estimate(self, surplus: Counts) -> Floats:
        """The estimated counts; all except the unbiased ones are clipped at the number of users."""
        unbiased: Floats = surplus.astype(np.float64) + self.noise.mean
        users = float(self.noise.trials)
        rules: dict[str, Callable[[], Floats]] = {
            "threshold": lambda: np.where(surplus > 0, np.minimum(unbiased, users), 0.0),
            "unbiased": lambda: unbiased,
            "clipped": lambda: np.clip(unbiased, 0.0, users),
            "midpoint": lambda: np.clip(surplus + self._midpoint, 0.0, users),
            "relaxed-threshold": lambda: np.where(surplus > -self._likely_noise[0], np.minimum(unbiased, users), 0.0),
        }
        return rules[self.estimator]()

    def standard_errors(self, surplus: Counts) -> Floats:
        """The root mean squared error of the estimator at the count that is estimated.

        For a withheld count (see ``withheld_below``): the largest error at any count that is withheld with a
        probability above 2.5 %, as in an interval of 95 % confidence. Clipping only reduces the error, and is not
        accounted for.
        """
        if self._withheld_margin is None:
            bias = self._midpoint - self.noise.mean if self.estimator == "midpoint" else 0.0
            return np.full(len(surplus), math.hypot(self.noise.deviation, bias))
        estimate = self.estimate(surplus)
        shown = np.sqrt(self._squared_errors(np.rint(estimate).astype(np.int64)))
        if np.all(estimate > 0):
            return shown
        return np.where(estimate > 0, shown, self._error_of_withheld)

    @cached_property
    def _error_of_withheld(self) -> float:
        least_noise = int(self._noise_table[0][0])
        margin = self._withheld_margin or 0
        largest = min(self._withheld_at_most(_PLAUSIBLY_WITHHELD), self.noise.trials)
        # smaller counts are always withheld; their error is the count itself, which is smaller
        counts = np.arange(max(0, min(least_noise - margin, largest)), largest + 1, dtype=np.int64)
        return math.sqrt(float(np.max(self._squared_errors(counts))))

    @cached_property
    def _withheld_margin(self) -> int | None:
        """A count c is withheld if the noise is at least c plus this; None if the estimator never withholds."""
        return {"threshold": 0, "relaxed-threshold": self._likely_noise[0]}.get(self.estimator)

    def _squared_errors(self, counts: Counts) -> Floats:
        """E (estimate - count)^2 at each count, summed over the exact distribution of the noise."""
        points = self._noise_table[0]
        squares, withheld = self._error_sums
        # a count is reported for this many of the values of the noise, the least ones
        reported = np.clip(counts + (self._withheld_margin or 0) - points[0], 0, len(points))
        errors: Floats = squares[reported] + counts.astype(np.float64) ** 2 * withheld[reported]
        return errors

    @cached_property
    def _error_sums(self) -> tuple[Floats, Floats]:
        """For each value of the noise: the sum of squared errors below it, and the probability at or above it."""
        points, mass = self._noise_table
        squares = np.append(0.0, np.cumsum(mass * (points - self.noise.mean) ** 2))
        return squares, np.append(np.cumsum(mass[::-1])[::-1], 0.0)

    def _withheld_at_most(self, risk: float) -> int:
        """The largest count that is withheld with a probability above ``risk``; 0 is always withheld."""
        return max(0, self._upper_quantile(risk) - (self._withheld_margin or 0))

    def withheld_below(self, confidence: float) -> int | None:
        """The least count that is withheld with probability (1 - confidence) / 2 or less; None if none is withheld."""
        if self._withheld_margin is None:
            return None
        return min(self._withheld_at_most((1 - confidence) / 2), self.noise.trials) + 1

    def intervals(self, surplus: Counts) -> Callable[[float], Floats]:
        """From a confidence to intervals [low, high] with at least this coverage for every true count.

        The noise does not depend on the count, so its exact quantiles are shifted by the surplus. If the estimate was
        set to 0, the interval starts at 0.
        """
        return partial(self._intervals_at, surplus)

    def _intervals_at(self, surplus: Counts, confidence: float) -> Floats:
        half = (1 - confidence) / 2
        low = surplus + self.noise.least_with_lower_tail(half, strictly=True)
        high = surplus + self._upper_quantile(half)
        if self.estimator != "unbiased":
            low = np.where(self.estimate(surplus) == 0, 0, low)
        ends = np.stack((low, high), axis=-1).astype(np.float64)
        return np.clip(ends, 0.0, float(self.noise.trials))

    def expected_error(self, counts: Counts | None = None) -> ExpectedError:
        """The predicted error: of given true counts, or of a count well above the noise."""
        if counts is None:
            bias = self._midpoint - self.noise.mean if self.estimator == "midpoint" else 0.0
            rmse = math.hypot(self.noise.deviation, bias)
        else:
            distinct, repeats = np.unique(counts, return_counts=True)
            errors = [self.mean_squared_error(int(count)) for count in distinct]
            rmse = math.sqrt(float(np.average(errors, weights=repeats)))
        return ExpectedError(rmse=rmse, max_error=self.radius(), confidence=round(1 - self.risk, 12))

    def mean_squared_error(self, count: int) -> float:
        """E (estimate - count)^2, summed over the exact distribution of the noise."""
        points, mass = self._noise_table
        error = self.estimate(count - points) - count
        return float(mass @ error**2)

    def bias(self, count: int) -> float:
        """E (estimate - count), summed over the exact distribution of the noise."""
        points, mass = self._noise_table
        return float(mass @ (self.estimate(count - points) - count))

    @cached_property
    def _noise_table(self) -> tuple[Counts, Floats]:
        first = self.noise.least_with_lower_tail(1e-18)
        last = self._upper_quantile(1e-18)
        points = np.arange(first, last + 1, dtype=np.int64)
        return points, self.noise.pmf(points)

    def radius(self) -> float:
        """A bound on the errors of all counts together that is exceeded with a probability of at most ``risk``."""

        def enough(radius: float) -> bool:
            return self._risk_of(radius) <= self.risk

        radius = bisect(enough, 0.0, float(self.noise.trials) + self.noise.mean, relative=1e-6, absolute=1e-6)
        rounded_down = float(math.floor(radius))
        return rounded_down if enough(rounded_down) else radius

    def _risk_of(self, radius: float) -> float:
        """Union bound over the categories, each at its worst count, on the probability of an error above ``radius``.

        The error of a reported count is the deviation of the noise from its correction. The error of a withheld count
        is the count itself; the worst one is just above the radius. The error of an empty category is never negative.
        """
        centre = self._midpoint if self.estimator == "midpoint" else self.noise.mean
        above = float(self.noise.upper_tail(math.floor(centre + radius) + 1))
        below = float(self.noise.lower_tail(math.ceil(centre - radius) - 1))
        occupied, empty = self._occupied, self.categories - self._occupied
        if self.estimator == "unbiased":
            return self.categories * (above + below)
        if self.estimator in ("clipped", "midpoint"):
            return occupied * (above + below) + empty * below
        margin = self._withheld_margin or 0
        withheld = float(self.noise.upper_tail(math.floor(radius) + 1 + margin))
        missed = float(self.noise.lower_tail(min(margin, math.ceil(centre - radius)) - 1))
        return occupied * (max(above, withheld) + below) + empty * missed


@lru_cache(maxsize=64)
def surplus_analysis(noise: Binomial, categories: int, estimator: str, risk: float = 0.05) -> SurplusAnalysis:
    """A cached analysis, shared by the rounds of one protocol."""
    return SurplusAnalysis(noise, categories, estimator, risk)


@dataclass(frozen=True)
class TokenAnalysis:
    """The analysis of token counts: every user sends one noise token per category unless it is omitted."""

    noise: Binomial
    categories: int
    estimator: str

    def estimate(self, observed: Counts, estimator: str) -> Floats:
        """The estimated counts."""
        return surplus_analysis(self.noise, self.categories, estimator).estimate(self._surplus(observed))

    def standard_errors(self, observed: Counts) -> Floats:
        """The root mean squared error of each estimate."""
        return self._analysis.standard_errors(self._surplus(observed))

    def intervals(self, observed: Counts) -> Callable[[float], Floats]:
        """From a confidence to intervals with at least this coverage for every true count."""
        return self._analysis.intervals(self._surplus(observed))

    def withheld_below(self, confidence: float) -> int | None:
        """The least count that is withheld with probability (1 - confidence) / 2 or less; None if none is withheld."""
        return self._analysis.withheld_below(confidence)

    def expected_error(self, confidence: float, truth: Counts | None = None) -> ExpectedError:
        """The predicted error: of given true counts, or of a count well above the noise."""
        check_confidence(confidence)
        return surplus_analysis(self.noise, self.categories, self.estimator, 1 - confidence).expected_error(truth)

    def mean_squared_error(self, count: int) -> float:
        """The mean squared error at a true count."""
        return self._analysis.mean_squared_error(count)

    def _surplus(self, observed: Counts) -> Counts:
        return observed - self.noise.trials

    @property
    def _analysis(self) -> SurplusAnalysis:
        return surplus_analysis(self.noise, self.categories, self.estimator)
