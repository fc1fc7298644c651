"""Privacy accounting of uniform blanket messages: ``uniform-blanket``, ``hashed-blanket``, ``hadamard-blanket``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shuffledp.checks import check_number_of_users, check_target
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification.blanket_search import excess_of, typical_mean
from shuffledp.privacy.amplification.clones import ClonesCurve, probability_at_most
from shuffledp.privacy.amplification.hashed_blanket import HashedBlanketCurve
from shuffledp.privacy.binomial import MAX_TRIALS, Binomial
from shuffledp.randomness import Dyadic
from shuffledp.search import find_bracket, narrow

_CLOSE_ENOUGH, _CLOSE_ENOUGH_FOR_HASHES = 1e-6, 1e-3  # relative distance of delta from the target
_NO_COLLISIONS = Fraction(0)
_NARROW = 2e-8
_FURTHEST = 60.0  # distance from the guess, in the logarithm of the mean
_MAX_PER_CELL = 1e13
_MAX_MESSAGES = 10**9


@dataclass(frozen=True)
class Slots:
    """The number of uniform messages that each user adds: ``whole``, and one more with probability ``rest``."""

    whole: int
    rest: Dyadic

    def __post_init__(self) -> None:
        if self.whole < 0:
            raise ParameterError(f"A user cannot add {self.whole} messages.", messages=self.whole)
        if self.whole > _MAX_MESSAGES:
            raise InfeasibleError(
                f"Every user would have to add about {self.whole:.2g} blanket messages, more than {_MAX_MESSAGES:,}.",
                messages=self.whole,
            )

    @classmethod
    def at_least(cls, mean: float) -> Slots:
        """The fewest messages with a mean of at least ``mean``, where ``rest`` is a multiple of 2^-64."""
        whole = math.floor(mean)
        rest = Dyadic.at_least(mean - whole)
        return cls(whole, rest) if rest.numerator < 1 << rest.bits else cls(whole + 1, Dyadic(0))

    @property
    def mean(self) -> float:
        """Expected number of messages that a user adds."""
        return self.whole + float(self.rest)

    def curve(self, users: int, cells: int) -> ClonesCurve:
        """The privacy curve of a value among the uniform messages of ``users`` honest users over ``cells`` cells.

        Each message is a trial that hits one of the two cells that an attacker tries to distinguish, with probability
        2/cells. Probabilities are rounded down, to fewer hits.
        """
        if cells < 2:
            raise ParameterError(f"At least 2 cells are needed, not {cells}.", cells=cells)
        parts, sure = [], 0
        for trials, rate in (
            (users * self.whole, Fraction(2, cells)),
            (users, 2 * self.rest.fraction / cells),
        ):
            if rate == 1:
                sure += trials
            elif trials > 0 and rate > 0 and (probability := probability_at_most(rate)).numerator:
                parts.append(Binomial(min(trials, MAX_TRIALS), probability))  # fewer clones are worse
        return ClonesCurve(tuple(parts), alpha=1.0, sure=sure)

    def hashed_curve(self, users: int, buckets: int, collision: Fraction) -> HashedBlanketCurve:
        """As ``curve`` for hashed values, two of which have the same hash with this probability."""
        messages = (users * self.whole, Fraction(1)), (users, self.rest.fraction)
        return HashedBlanketCurve(messages, buckets, collision, self.curve(users, buckets))


def least_slots(users: int, cells: int, epsilon: float, delta: float, *, collision: Fraction = _NO_COLLISIONS) -> Slots:
    """The fewest uniform messages per user over ``cells`` cells that make one more message private.

    ``users`` is the number of honest users. If cells are buckets of hashes, ``collision`` is the probability that two
    values have the same one. The target is checked at exactly the returned probabilities.
    """
    check_target(epsilon, delta)
    check_number_of_users(users)
    if cells < 1:
        raise ParameterError(f"At least one cell is needed, not {cells}.", cells=cells)
    if cells == 1:
        return Slots(0, Dyadic(0))
    typical = typical_mean(epsilon, delta)
    if typical > _MAX_PER_CELL:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} would need about {typical:.2g} blanket messages for each of "
            f"{cells:,} cells; relax the target.",
            epsilon=epsilon,
            delta=delta,
        )

    def delta_of(log_mean: float) -> float:
        slots = Slots.at_least(math.exp(log_mean))
        curve = slots.hashed_curve(users, cells, collision) if collision else slots.curve(users, cells)
        return curve.delta_at(epsilon)

    close_enough = _CLOSE_ENOUGH_FOR_HASHES if collision else _CLOSE_ENOUGH
    guess = math.log(typical * cells / users)
    excess = excess_of(delta_of, delta)
    bracket = find_bracket(excess, guess, guess - _FURTHEST, guess + _FURTHEST, step=0.1, growth=4)
    if bracket is None:
        raise InfeasibleError(
            f"No number of blanket messages makes {users:,} users private with epsilon = {epsilon:g} and "
            f"delta = {delta:g} in float precision; relax the target.",
            users=users,
            epsilon=epsilon,
            delta=delta,
        )
    log_mean = narrow(
        excess,
        bracket,
        next_point=lambda ends: ends.secant_from_high(0.01, 1e-3),
        enough=lambda ends: ends.width <= _NARROW or ends.weight_high > -close_enough,
    )
    return Slots.at_least(math.exp(log_mean))
