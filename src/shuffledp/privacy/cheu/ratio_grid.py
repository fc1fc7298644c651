"""Two categories of flipped bits at once: bounds on the divergence for all pairs of ranges of K and K'.

The masses of every category are moved to a common grid of likelihood ratios, such that both masses of an outcome are
preserved. That spreads the ratio, so every divergence becomes an upper bound. The bounds of all pairs of ranges are
then sums over the grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.cheu.coordinates import Coordinate
from shuffledp.privacy.divergence import positive_part

Floats = NDArray[np.float64]

_STEPS_PER_DEVIATION = 16
_DEVIATIONS = 14
_GROWTH = 1.08  # of the steps beyond
_LEAST_LOSS = 1e-9  # the ratios of the grid must differ as floats
_ROUNDING = 1e-9


class RatioGrid:
    """Likelihood ratios e^-l .. e^l, finest around 1; ``deviation`` is the typical size of their logarithm."""

    def __init__(self, epsilon: float, deviation: float, largest_loss: float) -> None:
        largest_loss = max(largest_loss, _LEAST_LOSS)
        step = min(max(deviation, _LEAST_LOSS), largest_loss) / _STEPS_PER_DEVIATION
        losses = [*(step * np.arange(_DEVIATIONS * _STEPS_PER_DEVIATION + 1))]
        while losses[-1] < largest_loss:
            step *= _GROWTH
            losses.append(losses[-1] + step)
        half = np.array([loss for loss in losses if loss < largest_loss] + [largest_loss * (1 + 1e-9)])
        self._ratios: Floats = np.exp(np.concatenate((-half[:0:-1], half)))
        growth = math.exp(epsilon) * (1 - 1e-14)
        self._grown: Floats = growth * self._ratios
        # the ratio of the mirrored category is 1/r, and that of both is 1/(r r')
        self._below = np.searchsorted(self._ratios, 1 / self._grown)

    def masses(self, coordinate: Coordinate) -> Floats:
        """The masses of q at each ratio p/q of the grid; the last entry is mass without a p."""
        p, q = coordinate.p, coordinate.q * (1 + 2 * coordinate.error)
        below, low, high = self._split(p, q)
        size = len(self._ratios) + 1
        masses = np.asarray(np.bincount(below, low, size) + np.bincount(below + 1, high, size), dtype=np.float64)
        beyond = p / q < self._ratios[0]
        masses[-1] = float((q[beyond] - p[beyond] / self._ratios[0]).sum())
        return masses

    def _split(self, p: Floats, q: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """The grid point below each ratio, and the masses of q that are moved to it and to the next one.

        Beyond the ends only the lesser of p and q is moved completely, with its share of the other one.
        """
        ratios = self._ratios
        below = np.clip(np.searchsorted(ratios, p / q, side="right") - 1, 0, len(ratios) - 2)
        first, second = ratios[below], ratios[below + 1]
        moved = np.minimum(q, p / ratios[0])
        high = np.clip((p - first * moved) / (second - first), 0.0, moved)
        return below, moved - high, high

    def divergences(self, masses: Floats) -> Floats:
        """For every two rows of ``masses``, a bound on the divergence but for the missing mass.

        The first row is that of a mirrored category, whose masses of p are these masses of q at the inverse ratios.
        """
        inside = np.pad(masses[:, :-1], ((0, 0), (1, 0)))
        sums, of_ratios = np.cumsum(inside, axis=1), np.cumsum(inside[:, 1:] * self._ratios, axis=1)
        tails = sums[:, self._below]
        advantage = tails * (1 + _ROUNDING / 100) - self._grown * np.pad(of_ratios, ((0, 0), (1, 0)))[:, self._below]
        advantage = np.append(advantage, sums[:, -1:], axis=1) + masses[:, -1:]
        # not by the threads of a matrix product, which are slow on a busy machine
        bounds: Floats = positive_part(np.einsum("ia,ja->ij", positive_part(advantage), masses)) * (1 + _ROUNDING)
        return bounds
