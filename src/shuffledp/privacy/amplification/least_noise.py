"""The least blanket of randomized response, and the fewest uniform blanket messages, that meet a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification.clones import ClonesCurve, probability_at_most
from shuffledp.privacy.amplification.privacy_blanket import BlanketCurve
from shuffledp.privacy.amplification.randomized_response import RandomizedResponseCurve
from shuffledp.privacy.binomial import MOST_TRIALS, Binomial
from shuffledp.privacy.guarantee import PrivacyCurve, check_target
from shuffledp.randomness import Dyadic

LARGEST_BLANKET = 0.999
"""A blanket above it leaves nothing to be learnt."""

_CLOSE_ENOUGH = 1e-6  # of delta below the target, relative
_CLOSE = 1e-3  # the same where each delta takes long
_MOST_ROUNDS = 40
_NARROW = 2e-8
_FURTHEST = 60.0
_MOST_PER_CELL = 1e13
_MOST_MESSAGES = 10**9
_MOST_USERS = 10**15

Excess = Callable[[float], float]


@dataclass(frozen=True)
class Slots:
    """How many uniform messages each user adds: ``whole`` ones, and one more with probability ``rest``."""

    whole: int
    rest: Dyadic

    def __post_init__(self) -> None:
        if self.whole < 0:
            raise ParameterError(f"A user cannot add {self.whole} messages.", messages=self.whole)
        if self.whole > _MOST_MESSAGES:
            raise InfeasibleError(
                f"Every user would have to add about {self.whole:.2g} blanket messages, more than {_MOST_MESSAGES:,}.",
                messages=self.whole,
            )

    @property
    def mean(self) -> float:
        """Expected number of messages that a user adds."""
        return self.whole + float(self.rest)

    def curve(self, users: int, cells: int) -> ClonesCurve:
        """The privacy of a value among the uniform messages over ``cells`` cells of these (honest) users.

        Each message is a trial that hits one of two cells with probability 2/cells; probabilities that
        are no floats are rounded to fewer hits.
        """
        if cells < 2:
            raise ParameterError(f"At least 2 cells are needed to hide in, not {cells}.", cells=cells)
        parts, sure = [], 0
        for trials, rate in (
            (users * self.whole, Fraction(2, cells)),
            (users, 2 * self.rest.fraction / cells),
        ):
            if rate == 1:
                sure += trials
            elif trials > 0 and rate > 0 and (probability := probability_at_most(rate)).numerator:
                parts.append(Binomial(min(trials, MOST_TRIALS), probability))  # fewer clones are worse
        return ClonesCurve(tuple(parts), alpha=1.0, sure=sure)


def least_blanket(users: int, values: int, epsilon: float, delta: float) -> Dyadic:
    """The least probability of sending a uniform value at which shuffled randomized response meets the target.

    ``RandomizedResponseCurve`` at just the returned probability is at most delta.
    """
    check_target(epsilon, delta)
    _check_users(users)
    if values < 1:
        raise ParameterError(f"At least one value is needed, not {values}.", values=values)
    if values == 1:
        return Dyadic(0)
    found = _least_of(lambda blanket: RandomizedResponseCurve(users, blanket, values), users, values, epsilon, delta)
    if found is None:
        raise InfeasibleError(
            f"{users:,} users are too few for randomized response on {values:,} values with epsilon = {epsilon:g} "
            f"and delta = {delta:g}: nearly every answer would be random. "
            f"Roughly {math.ceil(2 * values * _typical_mean(epsilon, delta)):,} users, fewer values or a larger "
            "epsilon would do.",
            users=users,
            values=values,
            epsilon=epsilon,
            delta=delta,
        )
    return found


def _least_of(
    curve_of: Callable[[Dyadic], RandomizedResponseCurve], users: int, values: int, epsilon: float, delta: float
) -> Dyadic | None:
    """Found roughly first, then by the distribution itself."""

    def combined(blanket: float) -> float:
        return curve_of(Dyadic.at_least(blanket)).delta_at(epsilon)

    def roughly(blanket: float) -> float:
        curve = curve_of(Dyadic.at_least(blanket))
        rough = BlanketCurve(users, curve.blanket, values).rough_delta_at(epsilon)
        return min([rough, *(clones.delta_at(epsilon) for clones in curve.clone_pmfs)])

    guess = min(_typical_mean(epsilon, delta) * values / users, LARGEST_BLANKET / 2)
    low, high = _logit(1e-18), _logit(LARGEST_BLANKET)
    start = _descend(_excess(lambda x: roughly(_rate(x)), delta), (_logit(guess), math.log(delta)), low, high, 0.05)
    if start is None:
        return None
    found = _descend(_excess(lambda x: combined(_rate(x)), delta), start, low, high, _CLOSE)
    return None if found is None else Dyadic.at_least(_rate(found[0]))


def least_slots(users: int, cells: int, epsilon: float, delta: float) -> Slots:
    """The fewest uniform messages over ``cells`` cells for each user that make one more message private.

    ``users`` are those that can be relied on. The distribution of the result at just its probabilities is at
    most delta.
    """
    check_target(epsilon, delta)
    _check_users(users)
    if cells < 1:
        raise ParameterError(f"At least one cell is needed, not {cells}.", cells=cells)
    if cells == 1:
        return Slots(0, Dyadic(0))
    curve_of: Callable[[float], PrivacyCurve] = lambda x: _slots(math.exp(x)).curve(users, cells)  # noqa: E731
    typical = _typical_mean(epsilon, delta)
    if typical > _MOST_PER_CELL:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} would need about {typical:.2g} blanket messages for each of "
            f"{cells:,} cells; relax the target.",
            epsilon=epsilon,
            delta=delta,
        )
    guess = math.log(typical * cells / users)
    found = _least(_excess(lambda x: curve_of(x).delta_at(epsilon), delta), guess, guess - _FURTHEST, guess + _FURTHEST)
    if found is None:
        raise InfeasibleError(
            f"No number of blanket messages makes {users:,} users private with epsilon = {epsilon:g} and "
            f"delta = {delta:g} in float precision; relax the target.",
            users=users,
            epsilon=epsilon,
            delta=delta,
        )
    return _slots(math.exp(found))


def _slots(mean: float) -> Slots:
    whole = math.floor(mean)
    rest = Dyadic.at_least(mean - whole)
    return Slots(whole, rest) if rest.numerator < 1 << rest.bits else Slots(whole + 1, Dyadic(0))


def _check_users(users: int) -> None:
    if not 1 <= users <= _MOST_USERS:
        raise ParameterError(f"The number of users must lie between 1 and {_MOST_USERS:,}, not {users:,}.", users=users)


def _typical_mean(epsilon: float, delta: float) -> float:
    """Roughly how many blanket messages each cell needs; only a start for a search."""
    need = math.log(1 / delta)
    return need * (2.2 / epsilon**2 + 0.6 / epsilon + 0.4) + 1


def _logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def _rate(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _excess(delta_of: Excess, delta: float) -> Excess:
    """From a point to ln(its delta / the target), above 0 exactly if delta is."""

    def excess(x: float) -> float:
        achieved = delta_of(x)
        difference = math.log(max(achieved, 1e-300) / delta)
        return max(difference, 1e-300) if achieved > delta else min(difference, 0.0)

    return excess


def _least(
    excess: Excess, guess: float, low: float, high: float, *, step: float = 0.1, close: float = _CLOSE_ENOUGH
) -> float | None:
    """A point with excess <= 0 just above one with excess > 0, between low and high; None if there is none."""
    guess = min(max(guess, low), high)
    bracket = _bracket(excess, guess, low, high, step)
    if bracket is None:
        return None
    x_low, y_low, x_high, y_high = bracket
    last_moved = 0
    while x_high - x_low > _NARROW and not -close < y_high <= 0:
        x = x_high - y_high * (x_high - x_low) / (y_high - y_low)
        x = min(max(x, x_low + 0.01 * (x_high - x_low)), x_high - 1e-3 * (x_high - x_low))
        y = excess(x)
        if y > 0:
            x_low, y_low, y_high = x, y, y_high / 2 if last_moved > 0 else y_high
            last_moved = 1
        else:
            x_high, y_high, y_low = x, y, y_low / 2 if last_moved < 0 else y_low
            last_moved = -1
    return x_high


def _descend(
    excess: Excess, start: tuple[float, float], low: float, high: float, close: float
) -> tuple[float, float] | None:
    """A point with excess from -close to 0, and the slope there; None if there is none up to ``high``.

    From a start with about its slope, by the secant method, kept between points on either side.
    """
    x, slope = min(max(start[0], low), high), start[1]
    above, below = -math.inf, math.inf  # the last point with excess > 0, and the first with excess <= 0
    before: tuple[float, float] | None = None
    for _ in range(_MOST_ROUNDS):
        y = excess(x)
        above, below = (x, below) if y > 0 else (above, x)
        if (y <= 0 and (y >= -close or x <= low)) or below - above < _NARROW:
            return below, slope
        if y > 0 and x >= high:
            return None
        if before is not None and before[0] != x:
            slope = min(max((y - before[1]) / (x - before[0]), -1e6), -0.1)
        before = x, y
        x = min(max(x + min(max((-close / 2 - y) / slope, -1.0), 1.0), low), high)
        if not above < x < below:
            x = (above + below) / 2
    return None if math.isinf(below) else (below, slope)


def _bracket(
    excess: Excess, guess: float, low: float, high: float, step: float
) -> tuple[float, float, float, float] | None:
    """Two points around the crossing with their excess, by growing steps from the guess."""
    x, y = guess, excess(guess)
    while True:
        if y > 0 and x >= high:
            return None
        if y <= 0 and x <= low:
            return x, 1e-300, x, y
        following = min(x + step, high) if y > 0 else max(x - step, low)
        y_following = excess(following)
        if (y_following > 0) != (y > 0):
            return (x, y, following, y_following) if y > 0 else (following, y_following, x, y)
        x, y, step = following, y_following, step * 4
