"""Privacy loss of shifting M = min(U+, U-), the smaller of the numbers of "+1" and "-1" of ``almost-central``.

M is the number of copies of the atom {+1, -1} plus the smaller of two geometric numbers, which is geometric with the
square of their ratio. Both are log-concave, and so is their sum: the loss of a shift decreases with M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.almost_central.losses import NO_LOSS, Losses, losses_of_tails, trimmed
from shuffledp.privacy.almost_central.shifts import AtomNoise, ShiftLosses
from shuffledp.privacy.discrete_laplace import decay_of
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.loss_grid import discounted

Floats = NDArray[np.float64]

_MAX_OUTCOMES = 1 << 17
_FARTHEST = 45.0  # values above, in the scale of an exponential tail, are left out
_DEVIATIONS = 10.0
_MAX_EXPONENT = 480.0  # a mass of e^-480 does not underflow, nor if ``discounted`` multiplies it by e^-200


@dataclass(frozen=True, eq=False)
class _Table:
    """The pmf of M up to a value: its logarithms, its tails Pr[M <= k] and Pr[M > k], and the mass that is left out."""

    logs: Floats
    lower: Floats
    upper: Floats
    left_out: float


class SmallerNumber:
    """The losses of M + copies against M on one grid."""

    def __init__(self, noise: AtomNoise, width: float) -> None:
        self.noise, self.width = noise, width
        self._shifts = ShiftLosses(noise, width)
        self._both: dict[int, tuple[Losses, Losses]] = {}

    def of(self, copies: int) -> Losses:
        """The loss of a shift. If M has too many values, that of its number of atoms alone, which is larger."""
        if not copies:
            return NO_LOSS
        if self._table is None:
            return self._shifts.of((self.noise.atoms[0].reach, self.noise.atoms[0].factor, copies))
        if abs(copies) not in self._both:
            self._both[abs(copies)] = self._losses(self._table, abs(copies))
        return self._both[abs(copies)][0 if copies > 0 else 1]

    @cached_property
    def _table(self) -> _Table | None:
        ends, shape = self.noise.atoms[0], self.noise.shape
        ratio = self.noise.flood_ratio(ends.reach, ends.factor)
        complement, decay = float(ratio.complement), 2 * decay_of(self.noise.ratio)
        size = (shape + _DEVIATIONS * math.sqrt(shape) + _FARTHEST) / complement + _FARTHEST / decay + ends.reach
        if size > _MAX_OUTCOMES or -shape * math.log(complement) > _MAX_EXPONENT:
            return None
        k = np.arange(1, math.ceil(size))
        logs = np.cumsum(np.log1p(-complement) + np.log1p((shape - 1) / k), dtype=np.longdouble)  # of many terms
        masses = np.exp(shape * math.log(complement) + np.concatenate(([0.0], logs.astype(np.float64))))
        masses = discounted(masses[::-1], decay)[::-1] * -math.expm1(-decay)
        upper = np.cumsum(masses[::-1])[::-1]
        left_out = as_delta(1 - float(masses.sum()))
        return _Table(np.log(masses), np.cumsum(masses), np.append(upper[1:], 0.0), left_out)

    def _losses(self, table: _Table, copies: int) -> tuple[Losses, Losses]:
        """Of more copies, and of fewer."""
        loss = table.logs[copies:] - table.logs[:-copies]  # of fewer copies, at M = copies, copies + 1, ...
        ends = self.noise.atoms[0]
        spare = math.ceil(self.noise.largest_loss(ends.factor, copies / ends.reach) / self.width)
        high = min(math.ceil(float(loss[0]) / self.width), spare)
        low = max(math.floor(float(loss[-1]) / self.width), -spare)
        edges = np.arange(low, high + 1) * self.width
        above = np.searchsorted(-loss, -edges)  # numbers of losses above each edge
        last = above + copies - 1
        stay = table.lower[last], table.upper[last]
        some = above > 0
        moved = np.where(some, table.lower[above - 1], 0.0), np.where(some, table.upper[above - 1], 1.0)
        up, down = losses_of_tails(stay, moved, low, self.width)
        return self._trimmed(up, table), self._trimmed(down, table)

    @staticmethod
    def _trimmed(losses: Losses, table: _Table) -> Losses:
        return trimmed(Losses(losses.masses, losses.first, losses.infinite + table.left_out))
