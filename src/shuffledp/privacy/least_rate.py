"""The least rate of noise that meets a target: one search for all distributions with one parameter."""

from __future__ import annotations

import math
from collections.abc import Callable

from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.randomness import Dyadic

Excess = Callable[[float], float]

_RATE_TOLERANCE = 1e-6
_DELTA_TOLERANCE = 1e-4
_LEAST_LOG_RATE = -43.0


def least_rate(
    curve_of: Callable[[Dyadic], PrivacyCurve], epsilon: float, delta: float, *, guess: float, highest: float
) -> Dyadic | None:
    """The least rate up to ``highest`` whose distribution meets the target, to about five digits; None if none does.

    The distribution is checked at just the probability that is returned.
    """

    def excess(log_rate: float) -> float:
        return excess_over(curve_of(Dyadic.at_least(math.exp(log_rate))).delta_at(epsilon), delta)

    found = crossing(excess, math.log(guess), math.log(highest))
    return None if found is None else Dyadic.at_least(math.exp(found))


def excess_over(achieved: float, delta: float) -> float:
    """ln(achieved / delta), above 0 exactly if ``achieved`` is above delta."""
    difference = math.log(max(achieved, 1e-300)) - math.log(delta)
    return max(difference, 1e-12) if achieved > delta else min(difference, 0.0)


def crossing(excess: Excess, guess: float, top: float, *, step: float = 0.2) -> float | None:
    """Where the excess comes down to 0, from the side where it is not above; None if it is not down at the top."""
    x = min(max(guess, _LEAST_LOG_RATE + 3), top - min(0.01, step))
    low = high = (x, excess(x))
    while low[1] <= 0 and low[0] > _LEAST_LOG_RATE:
        high, low = low, (low[0] - step, excess(low[0] - step))
        step *= 2
    while high[1] > 0:
        if high[0] >= top:
            return None
        further = min(high[0] + step, top)
        low, high = high, (further, excess(further))
        step *= 2
    return _within(excess, low, high)


def _within(excess: Excess, low: tuple[float, float], high: tuple[float, float]) -> float:
    """The crossing between a point where the excess is above 0 and one where it is not (Illinois method)."""
    last_moved = 0
    weights = [low[1], high[1]]
    for _ in range(60):
        if high[0] - low[0] < _RATE_TOLERANCE or low[1] <= 0 or high[1] > -_DELTA_TOLERANCE:
            break
        share = weights[0] / (weights[0] - weights[1]) if weights[0] > weights[1] else 0.5
        x = low[0] + min(max(share, 0.001), 0.999) * (high[0] - low[0])
        y = excess(x)
        if y > 0:
            low, weights = (x, y), [y, weights[1] / 2 if last_moved > 0 else weights[1]]
            last_moved = 1
        else:
            high, weights = (x, y), [weights[0] / 2 if last_moved < 0 else weights[0], y]
            last_moved = -1
    return high[0]
