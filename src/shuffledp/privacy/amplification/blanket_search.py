"""Parts of the calibration of blankets: the excess over a target and a first guess."""

from __future__ import annotations

import math

from shuffledp.search import Excess


def typical_mean(epsilon: float, delta: float) -> float:
    """Approximate number of blanket messages that each cell needs, as the starting point of a search."""
    need = math.log(1 / delta)
    return need * (2.2 / epsilon**2 + 0.6 / epsilon + 0.4) + 1


def excess_of(delta_of: Excess, delta: float) -> Excess:
    """From a point to ln(its delta / the target), positive if and only if its delta exceeds the target."""

    def excess(x: float) -> float:
        achieved = delta_of(x)
        difference = math.log(max(achieved, 1e-300) / delta)
        return min(difference, 0.0) if achieved <= delta else max(difference, 1e-300)

    return excess
