"""Discrete Laplace noise on integers: its distribution, its exact privacy curve and its calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon, check_positive_epsilon
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.binomial import LEAST_PROBABILITY_BITS
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain

MAX_SENSITIVITY = 10**9
_MAX_OUTCOMES = 1 << 22
_UP = 1 + 4e-16  # a factor larger than the rounding error of a product
_ROUNDING = 1e-14  # relative rounding error of a closed form


@dataclass(frozen=True)
class DiscreteLaplace:
    """The distribution Pr[X = x] = (1 - ratio) / (1 + ratio) * ratio^|x| on all integers."""

    ratio: Dyadic

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    @property
    def mean(self) -> float:
        """The expected value, which is 0."""
        return 0.0

    @cached_property
    def variance(self) -> float:
        """The variance 2 ratio / (1 - ratio)^2."""
        return 2 * float(self.ratio) / float(self.ratio.complement) ** 2

    @cached_property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def upper_tail(self, k: int) -> float:
        """Pr[X >= k]."""
        if k <= 0:
            return 1.0 - self.upper_tail(1 - k)
        return math.exp(-k * decay_of(self.ratio)) / (1 + float(self.ratio))

    def upper_tails(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """Pr[X >= k] for each k."""
        above = k >= 1
        outer = np.exp(-decay_of(self.ratio) * np.where(above, k, 1 - k)) / (1 + float(self.ratio))
        tails: NDArray[np.float64] = np.where(above, outer, 1 - outer)
        return tails

    def lower_tail(self, k: int) -> float:
        """Pr[X <= k]."""
        return self.upper_tail(-k)

    def radius(self, risk: float) -> int:
        """The least t >= 0 with Pr[|X| >= t + 1] <= risk."""
        if not 0 < risk <= 1:
            raise ParameterError(f"The risk must be above 0 and at most 1, not {risk}.", risk=risk)
        needed = -math.log(risk * (1 + float(self.ratio)) / 2) / decay_of(self.ratio)
        radius = max(0, math.floor(needed) - 2)
        while 2 * self.upper_tail(radius + 1) > risk:
            radius += 1
        return radius


@dataclass(frozen=True)
class DiscreteLaplaceCurve:
    """Integers released with discrete Laplace noise: the privacy curve of a count, a sum or a histogram.

    Replacing one user changes one number by up to ``sensitivity`` (``coordinates`` = 1), or two numbers by up to that
    much in opposite directions (``coordinates`` = 2). The noise is log-concave, so the largest change is the worst at
    every epsilon.
    """

    ratio: Dyadic
    sensitivity: int = 1
    coordinates: int = 1

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        _check_sensitivity(self.sensitivity, self.coordinates)

    @cached_property
    def pure_epsilon(self) -> float:
        """The epsilon that holds with delta = 0, rounded up."""
        return self.sensitivity * self.coordinates * decay_of(self.ratio) * _UP**2

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy; 0 from the pure epsilon on."""
        check_epsilon(epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        if self.coordinates == 2:
            return self._pair.delta_with_reversed_twin(epsilon)
        return self._delta_of_one(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One direction; the other is its mirror image. No outcome is left out."""
        return ((self._pair,) * self.coordinates,)  # the reversed pair has the same privacy loss

    def _delta_of_one(self, epsilon: float) -> float:
        """Pr[X <= t] - e^epsilon Pr[X <= t - sensitivity] at the last t whose likelihood ratio exceeds e^epsilon."""
        decay, ratio, moved = decay_of(self.ratio), float(self.ratio), self.sensitivity
        turning = math.floor((moved - epsilon / decay) / 2)
        best = 0.0
        for t in range(max(0, turning - 1), min(turning + 1, (moved - 1) // 2) + 1):
            # both terms are positive at the maximum, so nothing cancels
            excess = -math.expm1(epsilon - (moved - t) * decay) - ratio * math.expm1(-t * decay)
            best = max(best, as_delta(excess / (1 + ratio)))
        return as_delta(best * (1 + _ROUNDING) + 1e-15 * self.pure_epsilon)

    @cached_property
    def _pair(self) -> DiscretePair:
        """The noise, and the noise shifted by the sensitivity, with outcomes of equal likelihood ratio added up.

        The ratio is constant for all outcomes up to 0, and for all outcomes from the sensitivity on.
        """
        if self.sensitivity > _MAX_OUTCOMES:
            raise ParameterError(
                f"A sensitivity of {self.sensitivity:,} has too many outcomes to list; at most {_MAX_OUTCOMES:,}.",
                sensitivity=self.sensitivity,
            )
        decay, ratio = decay_of(self.ratio), float(self.ratio)
        masses = np.exp(-decay * np.arange(self.sensitivity + 1)) / (1 + ratio)
        masses[1:-1] *= float(self.ratio.complement)
        return DiscretePair(masses[::-1].copy(), masses, ordered=True)  # in increasing order of their ratio


def least_ratio(epsilon: float, sensitivity: int = 1, coordinates: int = 1) -> Dyadic:
    """The least ratio, hence the least noise, whose pure epsilon is at most ``epsilon``."""
    check_positive_epsilon(epsilon)
    _check_sensitivity(sensitivity, coordinates)
    decay = epsilon / (sensitivity * coordinates)
    ratio = Dyadic.at_least(max(math.exp(-decay), 2.0**-64))
    while ratio.numerator < 1 << ratio.bits:
        if DiscreteLaplaceCurve(ratio, sensitivity, coordinates).pure_epsilon <= epsilon:
            return ratio
        ratio = Dyadic.at_least(math.nextafter(float(ratio), 2.0))
    raise InfeasibleError(
        f"epsilon = {epsilon:g} at sensitivity {sensitivity:,} needs a ratio closer to 1 than 64 bits can represent; "
        "use a larger epsilon or fewer levels.",
        epsilon=epsilon,
        sensitivity=sensitivity,
    )


def decay_of(ratio: Dyadic) -> float:
    """-ln(ratio), accurate for ratios near 1 too."""
    return -math.log1p(-float(ratio.complement)) if 2 * ratio.fraction > 1 else -math.log(float(ratio))


def check_ratio(ratio: Dyadic) -> None:
    """Reject a ratio outside (0, 1), or too close to 0 or 1 to be exact as a double."""
    check_uncertain("ratio", ratio)
    if min(ratio.numerator, ratio.complement.numerator) << LEAST_PROBABILITY_BITS < 1 << ratio.bits:
        raise ParameterError(
            f"The ratio must lie between 2^-{LEAST_PROBABILITY_BITS} and 1 - 2^-{LEAST_PROBABILITY_BITS}."
        )


def _check_sensitivity(sensitivity: int, coordinates: int) -> None:
    if not 1 <= sensitivity <= MAX_SENSITIVITY:
        raise ParameterError(
            f"The sensitivity must lie between 1 and {MAX_SENSITIVITY:,}, not {sensitivity}.", sensitivity=sensitivity
        )
    if coordinates not in (1, 2):
        raise ParameterError(f"coordinates must be 1 or 2, not {coordinates}.", coordinates=coordinates)
