"""What the calibrations of blankets share: the excess over a target, a first guess and the check of users."""

from __future__ import annotations

import math

from shuffledp.checks import MOST_USERS
from shuffledp.errors import ParameterError
from shuffledp.search import Excess


def check_blanket_users(users: int) -> None:
    """Reject a number of users outside 1 to 10^15."""
    if not 1 <= users <= MOST_USERS:
        raise ParameterError(f"The number of users must lie between 1 and {MOST_USERS:,}, not {users:,}.", users=users)


def typical_mean(epsilon: float, delta: float) -> float:
    """Roughly how many blanket messages each cell needs; only a start for a search."""
    need = math.log(1 / delta)
    return need * (2.2 / epsilon**2 + 0.6 / epsilon + 0.4) + 1


def excess_of(delta_of: Excess, delta: float) -> Excess:
    """From a point to ln(its delta / the target), above 0 exactly if delta is."""

    def excess(x: float) -> float:
        achieved = delta_of(x)
        difference = math.log(max(achieved, 1e-300) / delta)
        return min(difference, 0.0) if achieved <= delta else max(difference, 1e-300)

    return excess
