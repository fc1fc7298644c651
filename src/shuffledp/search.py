"""Searches for the least number that meets a condition: bisection, and the Illinois method for a decreasing function.

Calibrated parameters are part of signed documents, so the points that a search evaluates must not change, not even in
the last bit: the two forms of the secant differ in rounding, and both stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

Excess = Callable[[float], float]
"""From a noise parameter to a number that is above 0 if and only if there is too little noise."""


def bisect_integers(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer above ``low`` at which the condition holds, given that it holds at ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@overload
def least_integer(holds: Callable[[int], bool], *, low: int = 0, high: int = 1) -> int: ...
@overload
def least_integer(holds: Callable[[int], bool], *, low: int = 0, high: int = 1, limit: int) -> int | None: ...
def least_integer(holds: Callable[[int], bool], *, low: int = 0, high: int = 1, limit: int | None = None) -> int | None:
    """The least integer above ``low`` at which the condition holds, by doubling ``high``; None if above the limit."""
    while not holds(high):
        low, high = high, 2 * high
        if limit is not None and high > limit:
            return None
    return bisect_integers(holds, low, high)


def least_integer_near(holds: Callable[[int], bool], guess: int, low: int, high: int, *, step: int) -> int:
    """The least integer above ``low`` at which the condition holds, given that it holds at ``high``.

    Steps from the guess are doubled until the result lies between two of them; then bisection.
    """
    lowest, highest = low, high
    while high - low > 1:
        point = min(max(guess, low + 1), high - 1)
        if holds(point):
            high, guess = point, point - step
        else:
            low, guess = point, point + step
        step *= 2
        if low > lowest and high < highest:
            guess = (low + high) // 2
    return high


def bisect(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    steps: int | None = None,
) -> float:
    """A number at which the condition holds, slightly above one at which it fails, given that it holds at ``high``.

    ``relative`` (of ``high``) and ``absolute`` are the tolerances; ``steps`` limits the evaluations.
    """
    while steps != 0 and high - low > max(absolute, relative * high):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
        steps = None if steps is None else steps - 1
    return high


def bisect_ratio(holds: Callable[[float], bool], low: float, high: float, *, ratio: float) -> tuple[float, float]:
    """Two positive numbers within this ratio of each other, of which the condition holds at the larger one only."""
    while high > low * ratio:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


@dataclass
class Bracket:
    """Two points around the crossing: the excess is above 0 at ``low`` and not above 0 at ``high``.

    The weights are the excesses, halved at an end that stays where it is twice in a row (Illinois method; without
    halving, the method of false position).
    """

    low: float
    excess_low: float
    high: float
    excess_high: float
    halving: bool = True

    def __post_init__(self) -> None:
        self.weight_low, self.weight_high = self.excess_low, self.excess_high
        self._last_moved = 0

    @property
    def width(self) -> float:
        """Distance of the two ends."""
        return self.high - self.low

    @property
    def midpoint(self) -> float:
        """Half way between the two ends."""
        return (self.low + self.high) / 2

    def secant_from_high(self, low_margin: float = 0.0, high_margin: float = 0.0) -> float:
        """Where the chord crosses 0, not nearer to either end than these shares of the width."""
        if not self.weight_low > self.weight_high:
            return self.midpoint
        x = self.high - self.weight_high * self.width / (self.weight_high - self.weight_low)
        return min(max(x, self.low + low_margin * self.width), self.high - high_margin * self.width)

    def secant_from_low(self, margin: float) -> float:
        """Where the chord crosses 0, computed from the lower end; the margin is a share of the width."""
        gap = self.weight_low - self.weight_high
        share = self.weight_low / gap if gap > 0 else 0.5
        return self.low + min(max(share, margin), 1 - margin) * self.width

    def move(self, x: float, excess: float) -> None:
        """Replace the end on the same side of the crossing as x."""
        if not excess <= 0:  # a NaN is not enough noise
            self.low, self.excess_low, self.weight_low = x, excess, excess
            self.weight_high /= 2 if self.halving and self._last_moved > 0 else 1
            self._last_moved = 1
        else:
            self.high, self.excess_high, self.weight_high = x, excess, excess
            self.weight_low /= 2 if self.halving and self._last_moved < 0 else 1
            self._last_moved = -1


def find_bracket(
    excess: Excess, guess: float, lowest: float, highest: float, *, step: float, growth: float
) -> Bracket | None:
    """A bracket by growing steps from the guess; None if the excess is above 0 at ``highest``.

    If the excess is not above 0 even at ``lowest``, both ends of the bracket are ``lowest``.
    """
    x = min(max(guess, lowest), highest)
    y = excess(x)
    while True:
        if not y <= 0 and x >= highest:
            return None
        if y <= 0 and x <= lowest:
            return Bracket(x, y, x, y)
        following = max(x - step, lowest) if y <= 0 else min(x + step, highest)
        y_following = excess(following)
        if (y_following <= 0) != (y <= 0):
            return Bracket(following, y_following, x, y) if y <= 0 else Bracket(x, y, following, y_following)
        x, y, step = following, y_following, step * growth


def narrow(
    excess: Excess,
    bracket: Bracket,
    *,
    next_point: Callable[[Bracket], float],
    enough: Callable[[Bracket], bool],
    steps: int | None = None,
) -> float:
    """The upper end of the bracket once it is narrow enough, or after this many steps."""
    while steps != 0 and not enough(bracket):
        x = next_point(bracket)
        bracket.move(x, excess(x))
        steps = None if steps is None else steps - 1
    return bracket.high
