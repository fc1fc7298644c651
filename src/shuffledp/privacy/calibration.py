"""The calibration search: the least noise parameter whose privacy curve meets a target.

Every search works on the excess, ln(delta at the parameter / target delta), which is positive where there is too little
noise. It brackets the crossing from a guess and narrows the bracket by the Illinois method (``shuffledp.search``). The
result is always a parameter at which the excess was computed and is not above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.randomness import Dyadic
from shuffledp.search import Excess, find_bracket, narrow

CALIBRATIONS = ("tight", "paper")

_RATE_TOLERANCE = 1e-6
_DELTA_TOLERANCE = 1e-4
_LEAST_LOG_RATE = -43.0
_MAX_STEPS = 60


def honest_count(users: int, honest_fraction: float) -> int:
    """Number of users who are assumed to follow the protocol, rounded down."""
    return math.floor(Fraction(str(honest_fraction)) * users)  # the decimal number 0.6, not the float nearest to it


def excess_over(achieved: float, delta: float, *, smallest: float = 1e-300) -> float:
    """ln(max(achieved, smallest) / delta), positive if and only if ``achieved`` > delta."""
    difference = math.log(max(achieved, smallest)) - math.log(delta)
    return min(difference, 0.0) if achieved <= delta else max(difference, 1e-300)  # rounding must not change the sign


def least_rate(
    curve_of: Callable[[Dyadic], PrivacyCurve], epsilon: float, delta: float, *, guess: float, highest: float
) -> Dyadic | None:
    """The least rate up to ``highest`` that meets the target, to about five digits; None if none does.

    The target is checked at exactly the probability that is returned.
    """

    def excess(log_rate: float) -> float:
        return excess_over(curve_of(Dyadic.at_least(math.exp(log_rate))).delta_at(epsilon), delta)

    log_rate = crossing(excess, math.log(guess), math.log(highest))
    return None if log_rate is None else Dyadic.at_least(math.exp(log_rate))


def crossing(excess: Excess, guess: float, highest: float, *, step: float = 0.2) -> float | None:
    """A point just above the root of the excess, where it is not positive; None if it is positive at ``highest``."""
    start = min(max(guess, _LEAST_LOG_RATE + 3), highest - min(0.01, step))
    bracket = find_bracket(excess, start, _LEAST_LOG_RATE, highest, step=step, growth=2)
    if bracket is None:
        return None
    return narrow(
        excess,
        bracket,
        next_point=lambda ends: ends.secant_from_low(0.001),
        enough=lambda ends: ends.width < _RATE_TOLERANCE or ends.excess_high > -_DELTA_TOLERANCE,
        steps=_MAX_STEPS,
    )
