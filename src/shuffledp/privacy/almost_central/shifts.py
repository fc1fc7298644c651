"""The noise of all atoms, and the privacy losses of shifting numbers of copies by it, each computed once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shuffledp.privacy.almost_central.atoms import Atom
from shuffledp.privacy.almost_central.losses import NO_LOSS, Losses, NoisyShift, shift_losses, trimmed
from shuffledp.randomness import Dyadic

Shift = tuple[int, float, int]
"""Reach and factor of an atom, and by how many copies replacing a user increases their number; negative: decreases."""
Shifts = tuple[Shift, ...]

_NEGLIGIBLE = 1e-18
_MOST_ABOVE = 1 << 12  # cells of the grid, far more than calibrated noise has; larger losses count as infinite
_CELLS = 5000  # of the losses of several shifts that are computed at once


@dataclass(frozen=True, eq=False)
class AtomNoise:
    """Independent numbers of copies of atoms, NB(shape, 1 - step factor/reach), the first of them {+1, -1}."""

    levels: int
    parts: int
    ratio: Dyadic
    shape: int
    step: float
    spare: float
    atoms: tuple[Atom, ...]

    def flood_ratio(self, reach: int, factor: float) -> Dyadic:
        """The ratio of the number of copies of an atom."""
        return Dyadic.at_least(1 - self.step * factor / reach)

    def largest_loss(self, factor: float, part: float) -> float:
        """The largest loss that counts as finite, of a shift by this part of the reach. Every number is valid.

        N times step factor/reach is about a gamma variable X, and the loss about shape step factor part / X. With
        Pr[X <= x] <= x^shape / shape!, the losses that are left out have the negligible mass, unless ``spare`` is less.
        """
        rarest = math.exp((math.lgamma(self.shape + 1) + math.log(_NEGLIGIBLE)) / self.shape)
        return factor * min(self.spare, self.shape * self.step * part / rarest)


class ShiftLosses:
    """Privacy losses of N + copies against N on one grid, for the number N of copies of an atom."""

    def __init__(self, noise: AtomNoise, width: float) -> None:
        self.noise, self.width = noise, width
        self._both: dict[Shift, tuple[Losses, Losses]] = {}

    def of(self, shift: Shift) -> Losses:
        """The loss of a shift."""
        reach, factor, copies = shift
        if not copies:
            return NO_LOSS
        magnitude = reach, factor, abs(copies)
        if magnitude not in self._both:
            self.compute((shift,))
        return self._both[magnitude][0 if copies > 0 else 1]

    def compute(self, shifts: Iterable[Shift]) -> None:
        """The losses of many shifts at once, and of their opposites."""
        magnitudes = dict.fromkeys((reach, factor, abs(copies)) for reach, factor, copies in shifts if copies)
        waiting: dict[Shift, NoisyShift] = {}
        cells = 0
        for shift in [*(each for each in magnitudes if each not in self._both), None]:
            if waiting and (shift is None or cells > _CELLS):
                losses = shift_losses(self.noise.shape, list(waiting.values()), self.width)
                for done, (up, down) in zip(waiting, losses, strict=True):
                    self._both[done] = trimmed(up), trimmed(down)
                waiting, cells = {}, 0
            if shift is not None:
                reach, factor, copies = shift
                above = min(math.ceil(self.noise.largest_loss(factor, copies / reach) / self.width), _MOST_ABOVE)
                waiting[shift] = NoisyShift(self.noise.flood_ratio(reach, factor), copies, above)
                cells += above


def rounded_away(copies: int, reach: int, parts: int) -> int:
    """Copies rounded away from 0 to a multiple of this fraction of the reach, and at most the reach."""
    unit = max(1, reach // parts)
    magnitude = min(reach, -(-abs(copies) // unit) * unit)
    return magnitude if copies >= 0 else -magnitude
