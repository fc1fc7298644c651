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

_LEAST_SPARE = 0.25  # the losses of few copies are small, so that less has to be spared for them
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
                spare = self.noise.spare * factor * max(copies / reach, _LEAST_SPARE)
                waiting[shift] = NoisyShift(
                    self.noise.flood_ratio(reach, factor), copies, math.ceil(spare / self.width)
                )
                cells += waiting[shift].cells


def rounded_away(copies: int, reach: int, parts: int) -> int:
    """Copies rounded away from 0 to a multiple of this fraction of the reach, and at most the reach."""
    unit = max(1, reach // parts)
    magnitude = min(reach, -(-abs(copies) // unit) * unit)
    return magnitude if copies >= 0 else -magnitude
