"""The privacy loss of replacing one message of ``almost-central`` by another, with small upward roundings.

The numbers of copies of atoms are independent, and replacing message i by j shifts each by the difference between i and
j. Of "+1" and "-1", the difference D = U+ - U- is discrete Laplace noise and the smaller number M = min(U+, U-) is
independent of it. With message i instead of j, U+ is shifted by p = n_+(i) - n_+(j) and U- by m = n_-(j) - n_-(i), and
p - m = i - j. If the difference is d then, M is shifted by max(p - max(d, 0), m - max(-d, 0)): by max(p, m) if the loss
of D is least, by one less for each of the next larger losses, and by min(p, m) if it is largest. D has |i - j| + 1
different losses, so the loss of both numbers is a mixture of as many shifts of M.

Every rounding is upward: a shift of log-concave noise by more copies in the same direction is worse at every epsilon,
also given D, and masses are split between the ends of a cell of the grid ("connect the dots", Doroshenko 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.almost_central import atoms
from shuffledp.privacy.almost_central.atoms import decompositions
from shuffledp.privacy.almost_central.losses import Losses, trimmed
from shuffledp.privacy.almost_central.shifts import AtomNoise, Shift, ShiftLosses, rounded_away
from shuffledp.privacy.almost_central.smaller import SmallerNumber
from shuffledp.privacy.almost_central.sums import curves
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.loss_grid import split_on_grid

_SIMILAR = 4  # shifts of M for losses of D that are lower than the largest by k steps are rounded to multiples of k/4
_RANGES = 25  # and to multiples of this fraction of the distance
_PARTS = 32  # copies are rounded away from 0 to multiples of this fraction of the reach


class PairLosses:
    """Losses of pairs of messages of one noise on one grid."""

    def __init__(self, noise: AtomNoise, width: float) -> None:
        self.noise, self.width = noise, width
        self._shifts = ShiftLosses(noise, width)
        self._smaller = SmallerNumber(noise, width)
        self._remaining: dict[tuple[int, int], Losses] = {}

    def worst(self, pairs: Sequence[tuple[int, int]], window: tuple[int, int]) -> NDArray[np.float64]:
        """The largest delta of replacing the first by the second message of any pair, at each loss of the window."""
        shifts = [self.shifts(*pair) for pair in pairs]
        self._shifts.compute(shift for each in shifts for shift in each)
        sums = [
            [self.remaining(*pair), *(self._shifts.of(shift) for shift in each)]
            for pair, each in zip(pairs, shifts, strict=True)
        ]
        worst = np.zeros(window[1] - window[0] + 1)
        for deltas in curves(sums, window, self.width):
            worst = np.maximum(worst, deltas.max(axis=0))
        return worst

    @cached_property
    def _copies(self) -> list[dict[int, int]]:
        """Of each message, the number of copies of each atom by its leading number, with its sign."""
        listed = []
        for depths, _ in decompositions(self.noise.levels, self.noise.parts):
            copies: dict[int, int] = {}
            for depth in depths:
                for leader, n in depth:
                    copies[leader] = copies.get(leader, 0) + atoms.signed(leader, n)
            listed.append(copies)
        return listed

    @cached_property
    def _atoms(self) -> dict[int, tuple[int, float]]:
        return {atom.members[0]: (atom.reach, atom.factor) for atom in self.noise.atoms[1:]}

    def shifts(self, before: int, after: int) -> list[Shift]:
        """Of all atoms but {+1, -1}."""
        old, new = self._copies[before - 1], self._copies[after - 1]
        moves = {leader: old.get(leader, 0) - new.get(leader, 0) for leader in old | new}
        return [
            (*self._atoms[leader], rounded_away(move, self._atoms[leader][0], _PARTS))
            for leader, move in moves.items()
            if move
        ]

    def remaining(self, before: int, after: int) -> Losses:
        """The joint loss of the numbers of "+1" and "-1"."""
        listed = decompositions(self.noise.levels, self.noise.parts)
        (old_plus, old_minus), (new_plus, new_minus) = listed[before - 1][1], listed[after - 1][1]
        key = max(old_plus - new_plus, new_minus - old_minus), abs(before - after)
        if key not in self._remaining:
            self._remaining[key] = self._mixture(*key)
        return self._remaining[key]

    def _mixture(self, start: int, distance: int) -> Losses:
        """D is shifted by the distance, and given its t-th least loss M is shifted by start - t copies."""
        reach = self.noise.atoms[0].reach
        ((pair,),) = DiscreteLaplaceCurve(self.noise.ratio, distance).directions(0.0)  # in increasing order of losses
        finite = np.isfinite(pair.loss)
        p, moves = pair.p[finite], start - np.flatnonzero(finite)
        cells, share_up = split_on_grid(pair.loss[finite], self.width)
        starts = _starts(moves, start - distance)
        ends = [*starts[1:], len(moves)]
        lengths = np.diff(starts, append=len(moves))
        at = cells - np.repeat(cells[starts], lengths)
        most = int(at.max()) + 2
        at += most * np.repeat(np.arange(len(starts)), lengths)
        masses = np.bincount(at, weights=p * (1 - share_up), minlength=most * len(starts))
        masses += np.bincount(at + 1, weights=p * share_up, minlength=most * len(starts))
        parts = []
        for row, begin, end in zip(masses.reshape(-1, most), starts, ends, strict=True):
            worst = max(int(moves[begin]), int(moves[end - 1]), key=abs)
            shifted = self._smaller.of(rounded_away(worst, reach, _PARTS))
            parts.append((shifted, row[: cells[end - 1] - cells[begin] + 2], int(cells[begin]) + shifted.first))
        first = min(low for _, _, low in parts)
        total = np.zeros(max(low + len(shifted.masses) + len(row) for shifted, row, low in parts) - first)
        infinite = pair.cut + float(pair.p[pair.q == 0].sum())
        for shifted, row, low in parts:
            sums = np.convolve(shifted.masses, row)
            total[low - first : low - first + len(sums)] += sums
            infinite += float(row.sum()) * shifted.infinite
        return trimmed(Losses(total, first, infinite))


def _starts(moves: NDArray[np.int64], last: int) -> list[int]:
    """Where ranges of moves begin, each of which is replaced by the worst move in it.

    Moves decrease by 1, and the last has the largest loss of D. Ranges of larger losses are shorter, and do not contain
    moves in both directions.
    """
    distance = int(moves[0]) - last
    edges = [0]
    while edges[-1] <= distance:
        edges.append(edges[-1] + max(1, edges[-1] // _SIMILAR, distance // _RANGES))
    part = np.searchsorted(edges, moves - last, side="right")
    return [0, *(np.flatnonzero((np.diff(part) != 0) | (np.diff(np.sign(moves)) != 0)) + 1).tolist()]
