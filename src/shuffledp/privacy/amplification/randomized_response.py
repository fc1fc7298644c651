"""Privacy accounting of shuffled randomized response on k values: ``shuffled-k-rr`` and ``privacy-blanket``.

The curve is the minimum of all bounds that are proved for it. On two values a report is a bit that is flipped with half
the probability of a uniform report, so the accountant of ``cheu`` applies, which is nearly exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from shuffledp.checks import check_epsilon, check_number_of_users, check_target
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification.blanket_search import excess_of, typical_mean
from shuffledp.privacy.amplification.clones import ClonesCurve, fewest_clones
from shuffledp.privacy.amplification.exact import two_response_delta
from shuffledp.privacy.amplification.privacy_blanket import BlanketCurve
from shuffledp.privacy.cheu import FlippedCount, least_count_flip
from shuffledp.privacy.guarantee import PrivacyCurve, QuickCurve
from shuffledp.randomness import Dyadic
from shuffledp.search import Excess

LARGEST_BLANKET = 0.999
"""Largest blanket probability that a calibration may choose; with a larger one hardly any report is true."""

_ENUMERATED_USERS = 200
_MAX_FLIPPED_USERS = 10**12  # beyond, rounding makes the accountant of flipped bits loose
_TINY = 1e-30
_CLOSE = 1e-3  # relative distance of delta from the target
_MAX_STEPS = 40
_NARROW = 2e-8


@dataclass(frozen=True)
class RandomizedResponseCurve:
    """With probability ``blanket`` a user sends a uniformly random one of k = ``values`` values, else the true one."""

    users: int
    blanket: Dyadic
    values: int

    def __post_init__(self) -> None:
        _ = self._blanket_curve  # checks the numbers

    @cached_property
    def _blanket_curve(self) -> BlanketCurve:
        return BlanketCurve(self.users, self.blanket, self.values)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of one report without shuffling, which remains if the shuffler and the analyzer collude."""
        return self._blanket_curve.local_epsilon

    @property
    def theorem(self) -> str:
        """The theorem that proves the curve."""
        if self._is_enumerated:
            return "exact enumeration of shuffled randomized response on two values"
        if self._flipped_bits is not None:
            return "the number of ones among randomly flipped bits, bounded over all data"
        return (
            "the least of the privacy blanket (Balle, Bell, Gascon and Nissim 2019, Lemma 5.3, summed exactly) and of "
            "hiding among clones (Feldman, McMillan and Talwar 2023, proved for randomized response)"
        )

    @property
    def _is_enumerated(self) -> bool:
        return self.values == 2 and self.users <= _ENUMERATED_USERS

    @property
    def _flip(self) -> Dyadic:
        """The probability that a report on two values is not the true one."""
        return Dyadic(self.blanket.numerator, self.blanket.bits + 1)

    @cached_property
    def _flipped_bits(self) -> FlippedCount | None:
        """The same mechanism on two values, if it is one with noise."""
        if self.values != 2 or not 1 < self.users <= _MAX_FLIPPED_USERS or self.blanket.numerator == 0:
            return None
        return FlippedCount(self.users, self._flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy."""
        check_epsilon(epsilon)
        if self._is_enumerated:
            exact = two_response_delta(self.users, self._flip, epsilon)
            # a tiny value may be pure rounding error; the bound of the blanket is exactly 0 where delta is 0
            return exact if exact > _TINY else min(exact, self._blanket_curve.delta_at(epsilon))
        if self._flipped_bits is not None:
            return self._flipped_bits.delta_at(epsilon)
        return min(curve.delta_at(epsilon) for curve in self.curves)

    def quick_delta_at(self, epsilon: float) -> float:
        """A looser bound than ``delta_at``, from coarse grids and few cells."""
        if not self.curves:
            return self.delta_at(epsilon) if self._flipped_bits is None else self._flipped_bits.quick_delta_at(epsilon)
        bounds = (curve.quick_delta_at if isinstance(curve, QuickCurve) else curve.delta_at for curve in self.curves)
        return min(delta_at(epsilon) for delta_at in bounds)

    @property
    def curves(self) -> tuple[PrivacyCurve, ...]:
        """The bounds whose minimum this is; none for two values, which have an accountant of their own."""
        is_least = not self._is_enumerated and self._flipped_bits is None
        return (self._blanket_curve, *self.clone_curves) if is_least else ()

    @cached_property
    def clone_curves(self) -> tuple[ClonesCurve, ...]:
        """Stronger clones, and clones among the reports of the two values that an attacker tries to distinguish."""
        local_epsilon = self.local_epsilon
        if not 0 < local_epsilon < 700:
            return ()
        inverse_ratio = math.exp(-local_epsilon)
        rate = 2 * inverse_ratio / (1 + inverse_ratio) * (1 - 2.0**-48)
        stronger = fewest_clones(self.users - 1, rate, local_epsilon * (1 + 1e-15))
        value_rate = self.blanket.fraction / self.values
        weight = min(1.0, float(value_rate) * (1 + math.exp(local_epsilon)) * (1 + 1e-12))
        revealed = fewest_clones(self.users - 1, 2 * value_rate, local_epsilon * (1 + 1e-15), weight=weight)
        return (stronger,) if self.values == 2 else (stronger, revealed)


def least_blanket(users: int, values: int, epsilon: float, delta: float) -> Dyadic:
    """The least probability of sending a uniform value at which shuffled randomized response meets the target.

    The target is checked at exactly the returned probability.
    """
    check_target(epsilon, delta)
    check_number_of_users(users)
    if values < 1:
        raise ParameterError(f"At least one value is needed, not {values}.", values=values)
    if values == 1:
        return Dyadic(0)
    solution = _least_of(lambda blanket: RandomizedResponseCurve(users, blanket, values), users, values, epsilon, delta)
    if solution is None:
        raise InfeasibleError(
            f"{users:,} users are too few for randomized response on {values:,} values with epsilon = {epsilon:g} "
            f"and delta = {delta:g}: nearly every answer would be random. "
            f"Roughly {math.ceil(2 * values * typical_mean(epsilon, delta)):,} users, fewer values or a larger "
            "epsilon would do.",
            users=users,
            values=values,
            epsilon=epsilon,
            delta=delta,
        )
    return solution


def _least_of(
    curve_of: Callable[[Dyadic], RandomizedResponseCurve], users: int, values: int, epsilon: float, delta: float
) -> Dyadic | None:
    """The least blanket, by a search with a fast bound and then with the exact curve."""
    if values == 2 and _ENUMERATED_USERS < users <= _MAX_FLIPPED_USERS:
        try:
            flip = least_count_flip(users, epsilon, delta)
        except InfeasibleError:
            return None
        blanket = Dyadic(flip.numerator, flip.bits - 1)
        return blanket if float(blanket) <= LARGEST_BLANKET else None

    def exact_delta(blanket: float) -> float:
        return curve_of(Dyadic.at_least(blanket)).delta_at(epsilon)

    def rough_delta(blanket: float) -> float:
        curve = curve_of(Dyadic.at_least(blanket))
        rough = BlanketCurve(users, curve.blanket, values).rough_delta_at(epsilon)
        return min([rough, *(clones.delta_at(epsilon) for clones in curve.clone_curves)])

    guess = min(typical_mean(epsilon, delta) * values / users, LARGEST_BLANKET / 2)
    low, high = _logit(1e-18), _logit(LARGEST_BLANKET)
    start = _descend(
        excess_of(lambda x: rough_delta(_rate(x)), delta), (_logit(guess), math.log(delta)), low, high, 0.05
    )
    if start is None:
        return None
    solution = _descend(excess_of(lambda x: exact_delta(_rate(x)), delta), start, low, high, _CLOSE)
    return None if solution is None else Dyadic.at_least(_rate(solution[0]))


def _descend(
    excess: Excess, start: tuple[float, float], low: float, high: float, close: float
) -> tuple[float, float] | None:
    """A point with excess from -close to 0, and the slope there; None if there is none up to ``high``.

    By the secant method within a bracket, from a starting point and an approximate slope.
    """
    x, slope = min(max(start[0], low), high), start[1]
    above, below = -math.inf, math.inf  # the last point with excess > 0, and the first with excess <= 0
    before: tuple[float, float] | None = None
    for _ in range(_MAX_STEPS):
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


def _logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def _rate(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
