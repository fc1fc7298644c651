"""Discrete Laplace noise conditioned on a total of 0: the distribution of each number, and its exact privacy curve.

The noise x of n counts has a probability proportional to the product of ratio^|x_i|, on all integers x that sum to 0.
Replacing one user shifts x by e_i - e_j, which keeps the total and changes the sum of |x_i| by at most 2; so the
release of the counts is private with epsilon = -2 ln(ratio) and delta = 0, as with independent noise, but the noise is
smaller. The privacy loss is epsilon if x_i >= 0 and x_j <= 0, -epsilon if x_i < 0 and x_j > 0, and 0 otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, check_ratio, decay_of
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

_FEW = 200  # up to this many terms, their sum has a finite series with positive terms
_TAIL = 55.0  # the masses beyond e^-55 are bounded, not computed
_DEVIATIONS = 14.0  # standard deviations of a sum that the Fourier grid covers; aliases from beyond are below 1e-40
_MAX_NODES = 1 << 22
_ROUNDING = 1e-8  # relative; tests compare with direct convolutions at 1e-10


@dataclass(frozen=True)
class ConditionedLaplace:
    """The distribution of one of ``numbers`` discrete Laplace numbers, given that they sum to 0; it is symmetric."""

    ratio: Dyadic
    numbers: int

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if self.numbers < 1:
            raise ParameterError(f"There must be at least one number, not {self.numbers}.", numbers=self.numbers)

    @property
    def mean(self) -> float:
        """The expected value, which is 0."""
        return 0.0

    @cached_property
    def variance(self) -> float:
        """The variance."""
        masses = self.masses
        return 2 * float(np.square(np.arange(len(masses), dtype=np.float64)) @ masses)

    @cached_property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    @cached_property
    def masses(self) -> Floats:
        """Pr[X = 0], Pr[X = 1], ...; what follows has a mass of about e^-55."""
        if self.numbers == 1:
            return np.ones(1)
        decay = decay_of(self.ratio)
        reach = _reach(decay)
        own = np.exp(-decay * np.arange(reach + 1)) * math.tanh(decay / 2)
        others = sum_masses(self.ratio, self.numbers - 1, reach)
        weights = own * others
        masses: Floats = weights / (2 * math.fsum(weights) - weights[0])
        return masses

    @cached_property
    def _upper_tails(self) -> Floats:
        """Pr[X >= 0], Pr[X >= 1], ... within the listed masses."""
        tails: Floats = np.cumsum(self.masses[::-1])[::-1]
        return tails

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[X >= k], exact except for rounding."""
        if k <= 0:
            return 1.0 - self.upper_tail(1 - k) * (1 - 2 * _ROUNDING)
        if self.numbers == 1:
            return 0.0
        listed = float(self._upper_tails[k]) if k < len(self.masses) else 0.0
        last = len(self.masses) - 1
        beyond = (
            float(self.masses[-1])
            * math.exp(-decay_of(self.ratio) * max(0, k - last))
            / -math.expm1(-decay_of(self.ratio))
        )  # masses decrease at least as fast as those of independent noise
        return as_delta((listed + beyond) * (1 + _ROUNDING))

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[X <= k]."""
        return self.upper_tail(-k)

    def radius(self, risk: float) -> int:
        """The least t >= 0 with Pr[|X| >= t + 1] <= risk."""
        if not 0 < risk <= 1:
            raise ParameterError(f"The risk must be above 0 and at most 1, not {risk}.", risk=risk)
        radius = 0
        while 2 * self.upper_tail(radius + 1) > risk:
            radius += 1
        return radius


@dataclass(frozen=True)
class ConditionedLaplaceCurve:
    """A histogram of ``categories`` counts released with discrete Laplace noise of total 0: its privacy curve."""

    ratio: Dyadic
    categories: int

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if self.categories < 1:
            raise ParameterError(f"There must be at least one category, not {self.categories}.")

    @cached_property
    def pure_epsilon(self) -> float:
        """The epsilon that holds with delta = 0, rounded up; 0 for a single category, whose count is public."""
        return DiscreteLaplaceCurve(self.ratio, coordinates=2).pure_epsilon if self.categories > 1 else 0.0

    @cached_property
    def chance_of_largest_loss(self) -> float:
        """Upper bound on Pr[x_i >= 0 and x_j <= 0], the probability of a loss of epsilon.

        It is sum over s of Pr[all other numbers sum to s] ratio^|s| / (1 - ratio^2), up to a common factor.
        """
        decay = decay_of(self.ratio)
        largest = 1 / (1 + math.exp(-2 * decay))  # its value if every loss is epsilon or -epsilon
        if self.categories == 2:
            return largest
        reach = _reach(decay)
        others = sum_masses(self.ratio, self.categories - 2, reach)
        weights = np.exp(-decay * np.arange(reach + 1)) * others
        same_sign = math.tanh(decay / 2) ** 2 / -math.expm1(-2 * decay)
        chance = same_sign * (2 * math.fsum(weights) - weights[0]) / sum_masses(self.ratio, self.categories, 0)[0]
        if not 0 < chance <= 1 + _ROUNDING:
            raise ConditionError(f"The probability of the largest privacy loss cannot be computed: {chance}.")
        return float(min(largest, chance * (1 + 10 * _ROUNDING)))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy; 0 from the pure epsilon on."""
        check_epsilon(epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        return as_delta(-self.chance_of_largest_loss * math.expm1(epsilon - self.pure_epsilon) * (1 + _ROUNDING))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One direction; the other is its mirror image. There are three privacy losses."""
        if self.categories == 1:
            return ((DiscretePair(np.ones(1), np.ones(1), ordered=True),),)
        gain = self.chance_of_largest_loss
        loss = gain * math.exp(-self.pure_epsilon)
        masses = np.array([loss, as_delta(1 - gain - loss), gain])
        return ((DiscretePair(masses, masses[::-1].copy(), ordered=True),),)


def _reach(decay: float) -> int:
    """The largest number whose mass is computed; ConditionError if there would be too many."""
    if not _TAIL / decay < _MAX_NODES / 4:
        raise ConditionError(
            f"Noise that decreases by a factor of e within {1 / decay:.3g} has too many likely values to compute "
            "with; use less noise.",
            decay=decay,
        )
    return math.ceil(_TAIL / decay)


def sum_masses(ratio: Dyadic, terms: int, reach: int) -> Floats:
    """Pr[S = 0], ..., Pr[S = reach] for a sum S of independent discrete Laplace numbers.

    For few terms, S is a difference of two negative binomial numbers, and Pfaff's transformation of its hypergeometric
    series has finitely many terms, all positive. For many, the characteristic function is inverted.
    """
    if terms == 0:
        masses = np.zeros(reach + 1)
        masses[0] = 1.0
        return masses
    return _series(ratio, terms, reach) if terms <= _FEW else _inverted(ratio, terms, reach)


def _series(ratio: Dyadic, terms: int, reach: int) -> Floats:
    """In logarithms: q^s C(s + m - 1, s) ((1 - q) / (1 + q))^m sum over j < m of a positive term."""
    decay = decay_of(ratio)
    value = np.arange(reach + 1, dtype=np.float64)
    weight = -2 * decay - math.log(-math.expm1(-2 * decay))  # ln(q^2 / (1 - q^2))
    term = np.zeros(reach + 1)
    total = np.zeros(reach + 1)
    for j in range(terms - 1):
        term = term + (math.log((terms + j) * (terms - 1 - j) / (j + 1)) + weight) - np.log(value + 1 + j)
        total = np.logaddexp(total, term)
    steps = np.zeros(reach + 1)
    steps[1:] = np.log1p((terms - 1) / value[1:])
    logarithms = total + np.cumsum(steps) - decay * value + terms * math.log(math.tanh(decay / 2))
    masses: Floats = np.exp(logarithms)
    return masses


def _inverted(ratio: Dyadic, terms: int, reach: int) -> Floats:
    """The characteristic function ((1 - q)^2 / (1 - 2 q cos t + q^2))^m, inverted on a grid of angles."""
    q, decay = float(ratio), decay_of(ratio)
    deviation = math.sqrt(terms * 2 * q) / float(ratio.complement)
    nodes = 1 << math.ceil(math.log2(2 * (reach + _DEVIATIONS * deviation + 100 / decay)))
    if nodes > _MAX_NODES:
        raise ConditionError(
            f"A total of {terms:,} numbers with the ratio {ratio} has too many likely values to compute with; "
            "use fewer categories or less noise.",
            terms=terms,
        )
    angles = np.arange(nodes // 2 + 1) * (2 * math.pi / nodes)
    # 1 - 2 q cos t + q^2 = (1 - q)^2 + 4 q sin^2(t / 2): without cancellation near 0
    logarithms = -terms * np.log1p(4 * q * np.square(np.sin(angles / 2) / float(ratio.complement)))
    inverse = np.fft.irfft(np.exp(logarithms), nodes)[: reach + 1]
    masses: Floats = np.maximum(inverse, 0.0) + 1e-15 * inverse[0]  # more than the rounding error of the transform
    return masses
