"""tanh(epsilon / 2) against epsilon / sqrt(m): why Corollary 24 of Balcer and Cheu (2020) has the constant 5.

The ratio tanh(epsilon / 2) / epsilon decreases from 1/2 at 0 towards 0. So for m <= 4 the inequality
tanh(epsilon / 2) >= epsilon / sqrt(m) holds for no epsilon > 0, and for m > 4 up to exactly one crossing point.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal

from shuffledp.checks import check_positive_epsilon
from shuffledp.errors import ParameterError
from shuffledp.search import bisect_integers

_DIGITS = 50


def surplus(epsilon: float, m: float) -> float:
    """tanh(epsilon / 2) - epsilon / sqrt(m), which is at least 0 where the inequality holds."""
    return math.tanh(epsilon / 2) - epsilon / math.sqrt(m)


def crossing(m: int, digits: int = 30) -> tuple[Decimal, Decimal]:
    """Bounds on the epsilon > 0 at which tanh(epsilon / 2) = epsilon / sqrt(m), ``10 ** -digits`` apart.

    The sign of the surplus, computed with 50 digits, differs at the two bounds. For m <= 4 there is no such epsilon,
    and both bounds are 0.
    """
    if m < 1 or not 1 <= digits <= _DIGITS - 15:
        raise ParameterError(f"m must be at least 1 and digits between 1 and {_DIGITS - 15}; got {m} and {digits}.")
    if m <= 4:
        return Decimal(0), Decimal(0)
    context = Context(prec=_DIGITS)
    root = context.sqrt(Decimal(m))

    def positive(epsilon: Decimal) -> bool:
        growth = context.exp(epsilon)
        tanh = context.divide(context.subtract(growth, Decimal(1)), context.add(growth, Decimal(1)))
        return tanh > context.divide(epsilon, root)

    # in units of 10^-digits; the surplus is positive near 0, and negative from sqrt(m) on, since tanh < 1
    above = bisect_integers(lambda units: not positive(Decimal(units).scaleb(-digits)), 1, int(root.scaleb(digits)) + 1)
    return Decimal(above - 1).scaleb(-digits), Decimal(above).scaleb(-digits)


def least_m(epsilon: float) -> float:
    """The least real m with tanh(e / 2) >= e / sqrt(m) for all e in (0, epsilon]: (epsilon / tanh(epsilon / 2))^2."""
    check_positive_epsilon(epsilon)
    return (epsilon / math.tanh(epsilon / 2)) ** 2
