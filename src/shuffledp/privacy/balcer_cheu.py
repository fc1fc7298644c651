"""Calibration of ``balcer-cheu``: the least token noise that meets a target, exactly or by the theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from shuffledp.checks import MAX_USERS, check_target
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.calibration import excess_over
from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.privacy.smoothness import corollary_24_mean, corollary_24_users
from shuffledp.randomness import Dyadic
from shuffledp.search import Bracket, Excess, least_integer, narrow

CurveOf = Callable[[Binomial], PrivacyCurve]

_HALF = Dyadic(1, 1)
_LARGEST_RIPPLE = math.log(1.3)  # measured: delta rises by up to 18 % with the rate
_RIPPLE_STEP = 0.9975
_RIPPLE_REACH = 0.85  # measured: the least feasible rate is up to 8 % below the first crossing
_RIPPLES_VANISH_FROM = 2_000  # mean noise; beyond, delta falls steadily with the rate


def tight_noise(users: int, epsilon: float, delta: float, curve_of: CurveOf) -> Dyadic:
    """The least probability q <= 1/2 at which Bin(users, q) noise is (epsilon, delta)-private by exact accounting.

    ``curve_of`` maps the noise to the privacy curve of the protocol. The result can be sampled exactly, and the target
    is checked at exactly that probability. If little noise is needed, delta is not monotone in q; so the rates just
    below the first crossing are searched for a smaller feasible one.
    """
    check_target(epsilon, delta)
    excess = _excess(users, epsilon, delta, curve_of)
    feasible = _some_feasible_rate(users, excess)
    if feasible is None:
        needed = least_users(epsilon, delta, curve_of)
        raise InfeasibleError(
            f"{users:,} users are too few for epsilon = {epsilon:g} and delta = {delta:g}; {needed:,} are needed.",
            users=users,
            needed=needed,
            epsilon=epsilon,
            delta=delta,
        )
    # with probability (1 - q)^n nobody leaves a token out, and then the count is exact
    floor = -math.expm1(math.log(delta) / users)
    rate = _crossing(excess, min(floor * (1 - 1e-9), feasible), feasible)
    if users * rate < _RIPPLES_VANISH_FROM:
        rate = _least_below(excess, rate, floor)
    return Dyadic.at_least(rate)


def paper_noise(users: int, epsilon: float, delta: float, *, coordinates: int) -> Dyadic:
    """The noise of Theorem 11 (one coordinate) or Theorem 12 (two) for an overall (epsilon, delta).

    Theorem 12 loses a factor of two in epsilon and in delta, so the noise is that of (epsilon/2, delta/2).
    """
    check_target(epsilon, delta)
    per_coordinate = epsilon / coordinates, delta / coordinates
    theorem = {1: "Theorem 11", 2: "Theorem 12"}[coordinates]
    if per_coordinate[0] > 1:
        raise ConditionError(
            f"{theorem} needs epsilon <= {coordinates}; given {epsilon:g}. "
            "Use the tight calibration, which has no such limit.",
            epsilon=epsilon,
        )
    needed = corollary_24_users(*per_coordinate)
    if users < needed:
        factor = 100 * coordinates**2
        raise ConditionError(
            f"{theorem} needs n >= ({factor}/epsilon^2) ln({2 * coordinates}/delta) = {needed:,} users for "
            f"epsilon = {epsilon:g} and delta = {delta:g}; given {users:,}. The tight calibration needs far fewer.",
            users=users,
            needed=needed,
        )
    return min(Dyadic.at_least(corollary_24_mean(users, *per_coordinate) / users), _HALF, key=float)


@lru_cache(maxsize=1024)
def least_users(epsilon: float, delta: float, curve_of: CurveOf) -> int:
    """The fewest users for which some noise rate up to 1/2 meets the target."""
    check_target(epsilon, delta)

    def feasible(users: int) -> bool:
        return _some_feasible_rate(users, _excess(users, epsilon, delta, curve_of)) is not None

    users = least_integer(feasible, low=1, high=2, limit=MAX_USERS)
    if users is None:
        raise InfeasibleError(f"More than {MAX_USERS:,} users would be needed for this target.", users=MAX_USERS)
    return users


def _excess(users: int, epsilon: float, delta: float, curve_of: CurveOf) -> Excess:
    """From a rate to ln(its delta / the target): above 0 if the rate is too small, smooth in its logarithm."""

    def excess(rate: float) -> float:
        achieved = curve_of(Binomial(users, Dyadic.at_least(rate))).delta_at(epsilon)
        return excess_over(achieved, delta, smallest=math.ulp(0.0))

    return excess


def _some_feasible_rate(users: int, excess: Excess) -> float | None:
    """1/2 if it is feasible, else a feasible rate slightly below, which can exist for few users; None if neither."""
    at_half = excess(0.5)
    if at_half <= 0:
        return 0.5
    if users > _RIPPLES_VANISH_FROM * 10 or at_half > _LARGEST_RIPPLE:
        return None
    return next((rate for rate in (0.5 - np.geomspace(1e-4, 0.1, 60)).tolist() if excess(rate) <= 0), None)


def _crossing(excess: Excess, low: float, high: float) -> float:
    """A rate with excess <= 0 just above one with excess > 0, searched in the logarithm."""
    bracket = Bracket(math.log(low), excess(low), math.log(high), excess(high))
    if bracket.excess_low <= 0:
        return low
    end = bracket.high
    # rates closer than this round to the same 64-bit probability
    log_rate = narrow(
        lambda log_rate: excess(math.exp(log_rate)),
        bracket,
        next_point=_inside,
        enough=lambda ends: ends.width <= max(1e-11, 2.0**-64 / math.exp(ends.high)) or ends.excess_high > -1e-10,
    )
    return high if log_rate == end else math.exp(log_rate)


def _inside(bracket: Bracket) -> float:
    """The zero of the secant, or the midpoint if rounding moves it to an end."""
    x = bracket.secant_from_high()
    return x if bracket.low < x < bracket.high else bracket.midpoint


def _least_below(excess: Excess, rate: float, floor: float) -> float:
    """The least feasible rate found by small steps below ``rate``, until delta is clearly too large."""
    least = candidate = rate
    lowest = max(floor, rate * _RIPPLE_REACH)
    while candidate * _RIPPLE_STEP > lowest and (y := excess(candidate * _RIPPLE_STEP)) <= _LARGEST_RIPPLE:
        candidate *= _RIPPLE_STEP
        least = candidate if y <= 0 else least
    return rate if least == rate else _crossing(excess, least * _RIPPLE_STEP, least)
