"""Hockey-stick divergence of discrete distributions: how far apart two distributions are at each epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.errors import ConditionError, ParameterError

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # relative; the masses themselves are good to about 1e-12
_UNIT = 2e-15
"""Relative rounding error of a product or ratio; e^epsilon is rounded down by it, so that delta stays a bound."""
_TINIEST = 5e-324
MASS_TOLERANCE = 1e-6
"""How far the sum of the masses may lie below 1, besides the mass that is declared as left out."""
_ROUNDING_OF_SUMS = 1e-11
"""Rounding error of a sum of masses; in all distributions of this package it is below 1e-14."""
SURPLUS_TOLERANCE = 1e-5
"""How far the sum may lie above 1: some masses are rounded up on purpose, which only increases a divergence."""


def as_delta(value: float) -> float:
    """``value`` clipped to [0, 1]; ConditionError if it is not a finite number.

    Every accountant returns its delta through this function: ``max(0.0, nan)`` is 0.0 in Python, so that a clip alone
    turns an undefined result into a proof of perfect privacy.
    """
    if not math.isfinite(value):
        raise ConditionError(
            f"The privacy of these parameters cannot be computed in floating point: the result for delta is {value}. "
            "Choose probabilities and numbers of users that are less extreme.",
            delta=value,
        )
    return min(1.0, max(0.0, float(value)))


def positive_part(values: ArrayLike) -> Floats:
    """max(x, 0) of every entry; ConditionError if one of them is not a finite number."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ConditionError(
            "The privacy of these parameters cannot be computed in floating point: a term of delta is not a finite "
            "number. Choose probabilities and numbers of users that are less extreme."
        )
    return np.maximum(array, 0.0)


def check_masses(masses: NDArray[Any], *, left_out: float = 0.0, tolerance: float = MASS_TOLERANCE) -> float:
    """ConditionError unless the masses are finite, at least 0, and sum to 1 but for ``left_out`` and the tolerance.

    Returns the mass that is missing besides ``left_out`` and rounding, usually 0; callers treat it as left out too.
    """
    total = float(masses.sum())  # not finite if a mass is not
    if not (
        math.isfinite(total) and 1 - left_out - tolerance <= total <= 1 + SURPLUS_TOLERANCE and (masses >= 0).all()
    ):
        raise ConditionError(
            f"The distribution of these parameters cannot be computed in floating point: its masses sum to {total}, "
            "not to 1. Choose probabilities and numbers of users that are less extreme.",
            sum=total,
            left_out=left_out,
        )
    return _missing(total, left_out)


def _missing(total: float, left_out: float) -> float:
    """By how much ``total`` and ``left_out`` together fall short of 1; 0 if rounding explains it."""
    lacking = 1 - left_out - total
    return lacking if lacking > _ROUNDING_OF_SUMS else 0.0


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """Upper bound on the sum over outcomes of max(p - e^epsilon q, 0), exact except for rounding.

    If the masses of p or q sum to less than 1, the missing mass (a truncated tail) counts as fully distinguishing.
    """
    return DiscretePair.of(p, q).delta(epsilon)


@dataclass(frozen=True, eq=False)
class DiscretePair:
    """Two distributions on the same finitely many outcomes: the masses ``p`` and ``q`` of each outcome.

    ``cut`` bounds the mass of either distribution on outcomes that were left out; it is added to every divergence. If
    the first distribution lacks more mass than that, ``cut`` is increased accordingly.
    """

    p: Floats
    q: Floats
    cut: float = 0.0
    ordered: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.cut < math.inf:
            raise ConditionError(f"The mass that is left out must be at least 0, not {self.cut}.", cut=self.cut)
        missing = check_masses(self.p, left_out=self.cut)
        if missing > 0:
            object.__setattr__(self, "cut", self.cut + missing)
        if not float(self.q.sum()) <= 1 + SURPLUS_TOLERANCE or not (self.q >= 0).all():
            raise ConditionError(
                f"The masses of the second distribution must be at least 0 and sum to at most 1, not {self.q.sum()}."
            )

    @classmethod
    def of(cls, p: ArrayLike, q: ArrayLike) -> DiscretePair:
        """Check two lists of masses; if they sum to less than 1, the rest is treated as cut off."""
        first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        if first.ndim != 1 or first.shape != second.shape or len(first) == 0:
            raise ParameterError("A pair needs two equally long, non-empty lists of masses.")
        for masses in (first, second):
            if not np.isfinite(masses).all() or (masses < 0).any() or math.fsum(masses) > 1 + 1e-9:
                raise ParameterError("Masses must be at least 0 and sum to at most 1.", sum=float(masses.sum()))
        return cls(first, second, cut=as_delta(1 - min(math.fsum(first), math.fsum(second))))

    @cached_property
    def loss(self) -> Floats:
        """ln(p/q) of each outcome, infinite where one of the two is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(self.p) - np.log(self.q)

    @cached_property
    def finite_losses(self) -> tuple[Floats, Floats]:
        """The losses of the outcomes that have mass under both distributions, and their masses under the first."""
        finite = np.isfinite(self.loss)
        return (self.loss, self.p) if finite.all() else (self.loss[finite], self.p[finite])

    @property
    def _error_of_loss(self) -> Floats:
        """Upper bound on the rounding of finite losses."""
        with np.errstate(divide="ignore"):
            size = np.abs(np.log(self.p)) + np.abs(np.log(self.q))
        return _UNIT * (1 + np.where(np.isfinite(size), size, 0.0))

    def sorted_by_loss(self) -> DiscretePair:
        """Outcomes in increasing order of p/q; outcomes without mass are dropped."""
        has_mass = (self.p > 0) | (self.q > 0)
        pair = DiscretePair(self.p[has_mass], self.q[has_mass], self.cut)
        order = np.argsort(pair.loss, kind="stable")
        return DiscretePair(pair.p[order], pair.q[order], self.cut, ordered=True)

    @property
    def reversed(self) -> DiscretePair:
        """The pair with the two distributions exchanged."""
        return DiscretePair(self.q, self.p, self.cut)

    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence of ``p`` from ``q``."""
        check_epsilon(epsilon)
        with np.errstate(over="ignore", under="ignore"):
            excess = self.p - _growth_below(epsilon) * self.q
        return _rounded_up(math.fsum(excess[excess > 0]), self.cut)

    def delta_with_reversed_twin(self, epsilon: float) -> float:
        """Upper bound on the divergence of (p, q) from (q, p) on two independent coordinates.

        This is the histogram, where one user moves from one category to another. Given outcome b of the second
        coordinate, an outcome of the first contributes if its ratio exceeds e^epsilon times that of b, so upper tail
        sums over the sorted outcomes suffice.
        """
        check_epsilon(epsilon)
        pair = self if self.ordered else self.sorted_by_loss()
        upper_p, upper_q = _upper_sums(pair.p), _upper_sums(pair.q)
        loss, error = pair.loss, pair._error_of_loss
        start = np.searchsorted(loss, loss - error + min(epsilon, LARGEST_EPSILON), side="right")
        gained = pair.q * upper_p[start]
        lost = _growth_below(epsilon) * pair.p * upper_q[start]
        rounding = len(pair.p) * float(np.finfo(np.longdouble).eps) * float((gained + lost).sum())
        rounding += float((error * gained).sum())  # outcomes that are counted because of the error of their ratio
        missing = _missing(float(pair.q.sum()), pair.cut)  # q is the first distribution of the second coordinate
        return _rounded_up(float(positive_part(gained - lost).sum()), 2 * pair.cut + missing + rounding)


def _growth_below(epsilon: float) -> float:
    """e^epsilon, rounded down."""
    return math.exp(min(epsilon, LARGEST_EPSILON)) * (1 - _UNIT)


def _upper_sums(masses: Floats) -> NDArray[np.longdouble]:
    """The sum of the masses from each index to the end, and 0 at the end; in extended precision if available."""
    sums = np.zeros(len(masses) + 1, dtype=np.longdouble)
    sums[:-1] = np.cumsum(masses[::-1], dtype=np.longdouble)[::-1]
    return sums


def _rounded_up(value: float, cut: float) -> float:
    return as_delta(value * (1 + _ROUNDING) + cut + _TINIEST)
