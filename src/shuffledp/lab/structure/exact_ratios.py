"""Exact comparison of probability ratios with e^epsilon, unaffected by rounding."""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from numbers import Rational

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.errors import ParameterError
from shuffledp.privacy.pure import log_ratio_above

Exact = Rational | int
"""An exact number: a Fraction or an integer."""

Ratio = Fraction | float
"""A ratio of probabilities: exact, or ``math.inf`` if the denominator is 0."""

_DIGITS = 40


def check_ratio(ratio: object) -> Fraction:
    """Check the ratio e^epsilon, an exact number of at least 1, and return it as a Fraction."""
    if not isinstance(ratio, Rational):
        raise ParameterError(
            f"The ratio {ratio!r} must be an exact number, such as Fraction(3, 2); for a float give epsilon.",
            ratio=ratio,
        )
    if ratio < 1:
        raise ParameterError(f"The ratio e^epsilon must be at least 1, not {ratio}.", ratio=ratio)
    return Fraction(ratio)


def epsilon_above(ratio: Ratio) -> float:
    """ln(ratio) rounded up; exactly 0 for 1."""
    if isinstance(ratio, float):
        return math.inf
    return 0.0 if ratio == 1 else log_ratio_above(ratio.numerator, ratio.denominator)


def exceeds(ratio: Ratio, epsilon: float) -> bool:
    """Whether the ratio is above e^epsilon, decided exactly.

    Apart from e^0 = 1, the exponential of a rational number is irrational (Lindemann), so the loop ends: with enough
    digits the bounds on the logarithm lie on one side of epsilon.
    """
    check_epsilon(epsilon)
    if isinstance(ratio, float) or math.isinf(epsilon):
        return isinstance(ratio, float) and not math.isinf(epsilon)
    if ratio <= 1 or epsilon == 0:
        return ratio > 1
    digits = _DIGITS
    while True:
        low, high = _logarithm_between(ratio, digits)
        if low > epsilon or high < epsilon:
            return low > epsilon
        digits *= 2


def _logarithm_between(ratio: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds on ln(ratio): both logarithms are correctly rounded, and widened by one unit in the last digit each."""
    context = _context(digits)
    above, below = (context.ln(Decimal(part)) for part in (ratio.numerator, ratio.denominator))
    slack = 2 * Fraction(10) ** (max(above.adjusted(), below.adjusted(), 0) - digits + 1)
    value = Fraction(above) - Fraction(below)
    return value - slack, value + slack


def growth_below(epsilon: float) -> Fraction:
    """A rational lower bound on e^epsilon, at least 1 and very close."""
    check_epsilon(epsilon)
    exponential = _context(_DIGITS).exp(Decimal(min(epsilon, LARGEST_EPSILON)))
    return max(Fraction(1), Fraction(exponential) * (1 - Fraction(1, 10 ** (_DIGITS - 2))))


def float_above(value: Fraction) -> float:
    """The smallest float that is at least ``value``, a number of at most 1."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _context(digits: int) -> Context:
    return Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, rounding=ROUND_HALF_EVEN)
