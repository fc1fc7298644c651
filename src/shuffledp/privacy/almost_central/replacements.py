"""The privacy loss of replacing any message of ``almost-central`` by any other: one bound for all pairs of messages.

A message shifts the number of copies of each atom that it consists of. Messages are grouped by their distance from the
nearer end of 1 .. levels + 1; groups are small near the ends. For every pair of groups, the loss is bounded by that of
the worst message of either group, and of noise in the sum that is shifted by the largest distance between the groups.
So messages in the middle, which may have larger losses by their atoms, never meet the largest shift of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.almost_central.atoms import Atom, decompositions, groups_of
from shuffledp.privacy.almost_central.losses import (
    NO_LOSS,
    Losses,
    NoisyShift,
    deltas_of,
    either,
    from_deltas,
    shift_losses,
    trimmed,
    worst_of,
)
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.loss_grid import on_grid
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

Shift = tuple[int, float, int]
"""Reach and factor of an atom, and the number of copies by which it is shifted."""
Shifts = tuple[Shift, ...]

_MAX_CELLS = 2000  # grid cells of the privacy loss of one atom with factor 1, on either side of 0
_MAX_STAYING_CELLS = 20_000  # of the noise that stays in the sum
_ROUNDING = 5e-13  # rounding error of the Fourier transforms, added to delta
_FARTHEST_LOSS = 600.0
_NEGLIGIBLE = 1e-17  # mass of a negative loss that is cut off
_MAX_SEPARATE = 600  # messages of a group that are considered one by one
_ROWS = 1 << 18  # entries of the arrays of one block
_PARTS = 8  # copies are rounded up to multiples of this fraction of the reach
_CELLS = 5000  # of the losses of several shifts that are computed at once
_GROUPS_IN_SEARCH = 4  # at either end


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


def replacement_pair(noise: AtomNoise, cells: int, *, thorough: bool) -> DiscretePair:
    """The loss of all replacements; if not thorough, only of messages near the ends, which are nearly the worst."""
    pure = DiscreteLaplaceCurve(noise.ratio, noise.levels).pure_epsilon
    width = max(noise.step / cells, noise.spare / _MAX_CELLS, pure / _MAX_STAYING_CELLS)
    ranges = groups_of(noise.levels)
    if not thorough and len(ranges) > 2 * _GROUPS_IN_SEARCH:
        ranges = (*ranges[:_GROUPS_IN_SEARCH], *ranges[-_GROUPS_IN_SEARCH:])
    return _Composition(noise, width).of_groups(ranges)


@dataclass(frozen=True, eq=False)
class _Group:
    """Messages first .. last: the worst loss of their shifts up and down, and their numbers of "+1" and "-1"."""

    first: int
    last: int
    up: Losses
    down: Losses
    plus: tuple[int, int]
    minus: tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Messages:
    """Messages first .. last: their shifts, and the ranges of their numbers of "+1" and "-1"."""

    first: int
    last: int
    candidates: tuple[tuple[Shifts, ...], ...]
    """The shifts of each message; if these are many, depth by depth, whose worst losses are then added."""
    plus: tuple[int, int]
    minus: tuple[int, int]

    @cached_property
    def shifts(self) -> frozenset[Shift]:
        """All that occur."""
        return frozenset(shift for each in self.candidates for shifts in each for shift in shifts)


@lru_cache(maxsize=32)
def _messages(
    levels: int, parts: int, atoms: tuple[Atom, ...], ranges: tuple[tuple[int, int], ...]
) -> tuple[_Messages, ...]:
    """The shifts of the messages of each range, which do not depend on the noise but for the factors of its atoms."""
    reaches = {atom.members[0]: (atom.reach, atom.factor) for atom in atoms[1:]}
    groups = []
    for first, last in ranges:
        by_depth: dict[int, set[Shifts]] = {}
        together: set[Shifts] = set()
        listed = decompositions(levels, parts)[first - 1 : last]
        for depths, _ in listed:
            shifts = [
                tuple(sorted((*reaches[leader], _rounded(n, reaches[leader][0])) for leader, n in copies))
                for copies in depths
            ]
            together.add(tuple(sorted(shift for each in shifts for shift in each)))
            for depth, each in enumerate(shifts):
                by_depth.setdefault(depth, {()}).add(each)  # messages may differ in their depth
        candidates = [together] if len(together) <= _MAX_SEPARATE else list(by_depth.values())
        plus, minus = zip(*(ends for _, ends in listed), strict=True)
        groups.append(
            _Messages(
                first,
                last,
                tuple(tuple(each) for each in candidates),
                (min(plus), max(plus)),
                (min(minus), max(minus)),
            )
        )
    return tuple(groups)


class _Composition:
    """Losses of one noise on one grid; what occurs in several groups is computed once."""

    def __init__(self, noise: AtomNoise, width: float) -> None:
        self.noise, self.width = noise, width
        self.shifts: dict[Shift, tuple[Losses, Losses]] = {}
        self.staying: dict[int, Losses] = {}
        self.ends: dict[tuple[int, int], Losses] = {}

    def of_groups(self, ranges: Sequence[tuple[int, int]]) -> DiscretePair:
        """The worst loss of all pairs of groups, as a pair of distributions."""
        listed = _messages(self.noise.levels, self.noise.parts, self.noise.atoms, tuple(ranges))
        self.compute(shift for each in listed for shift in each.shifts)
        groups = [self.group(each) for each in listed]
        sums = [
            (before.up, after.down, self.staying_losses(_distance(before, after)), self.end_losses(before, after))
            for before in groups
            for after in groups
            if _distance(before, after)
        ]
        total = self.worst_of_sums(sums)
        losses = (total.first + np.arange(len(total.masses))) * self.width
        # at far negative losses, masses are rounding errors, which e^-loss would magnify
        keep = np.where(losses < 0, total.masses > _NEGLIGIBLE, total.masses > 0) & (losses > -_FARTHEST_LOSS)
        cut = as_delta(total.infinite + _ROUNDING + float(total.masses[~keep].sum()))
        return DiscretePair(total.masses[keep], total.masses[keep] * np.exp(-losses[keep]), cut)

    def staying_losses(self, distance: int) -> Losses:
        """The loss of the discrete Laplace noise of the sum that is shifted by a distance."""
        if distance not in self.staying:
            ((pair,),) = DiscreteLaplaceCurve(self.noise.ratio, distance).directions(0.0)
            on = on_grid(pair, self.width)
            self.staying[distance] = Losses(on.masses, on.first, on.infinite)
        return self.staying[distance]

    def end_losses(self, before: _Group, after: _Group) -> Losses:
        """The worst shift of {+1, -1}: by between the differences of n_+ and of -n_- of the two messages."""
        ends = self.noise.atoms[0]
        up = max(0, before.plus[1] - after.plus[0], after.minus[1] - before.minus[0])
        down = max(0, after.plus[1] - before.plus[0], before.minus[1] - after.minus[0])
        copies = _rounded(up, ends.reach), _rounded(down, ends.reach)
        if copies not in self.ends:
            shifts = {side: (ends.reach, ends.factor, n) for side, n in enumerate(copies) if n}
            self.compute(shifts.values())
            candidates = [self.shifts[shift][side] for side, shift in shifts.items()]
            self.ends[copies] = worst_of(candidates, self.width) if candidates else NO_LOSS
        return self.ends[copies]

    def group(self, messages: _Messages) -> _Group:
        """The worst losses of these messages."""
        up, down = (
            reduce(
                lambda one, other: trimmed(one.and_then(other)),
                [
                    self.worst_of_sums([[self.shifts[shift][side] for shift in shifts] or [NO_LOSS] for shifts in each])
                    for each in messages.candidates
                ],
            )
            for side in (0, 1)
        )
        return _Group(messages.first, messages.last, up, down, messages.plus, messages.minus)

    def compute(self, shifts: Iterable[Shift]) -> None:
        """The losses of more copies of an atom, and of fewer, for each of these shifts, many at once."""
        waiting: dict[Shift, NoisyShift] = {}
        cells = 0
        for shift in [*dict.fromkeys(shift for shift in shifts if shift not in self.shifts), None]:
            if waiting and (shift is None or cells > _CELLS):
                losses = shift_losses(self.noise.shape, list(waiting.values()), self.width)
                for done, (up, down) in zip(waiting, losses, strict=True):
                    self.shifts[done] = trimmed(up), trimmed(down)
                waiting, cells = {}, 0
            if shift is not None:
                reach, factor, copies = shift
                either_side = math.ceil(self.noise.spare * factor / self.width)
                waiting[shift] = NoisyShift(self.noise.flood_ratio(reach, factor), copies, either_side)
                cells += either_side

    def worst_of_sums(self, sums: Sequence[Sequence[Losses]]) -> Losses:
        """The worst of several sums of independent losses."""
        first = min(sum(losses.first for losses in each) for each in sums)
        last = max(sum(losses.first + len(losses.masses) - 1 for losses in each) for each in sums)
        size, length = last - first + 1, _fast_length(last - first + 1)
        row: dict[Losses, int] = {NO_LOSS: 0}
        for each in sums:
            for losses in each:
                row.setdefault(losses, len(row))
        around_zero = np.zeros((len(row), length))  # a negative loss is at the end
        for losses, place in row.items():
            around_zero[place, np.arange(losses.first, losses.first + len(losses.masses)) % length] = losses.masses
        spectra = np.fft.rfft(around_zero)
        most = max(len(each) for each in sums)
        index = np.array([[row[losses] for losses in each] + [0] * (most - len(each)) for each in sums])
        infinite = np.array([reduce(either, (losses.infinite for losses in each)) for each in sums])
        worst = np.zeros(size)
        rows = max(1, _ROWS // length)
        for start in range(0, len(sums), rows):
            block = index[start : start + rows]
            product = spectra[block[:, 0]]
            for column in block[:, 1:].T:
                product *= spectra[column]
            masses = np.roll(np.fft.irfft(product, length), -first, axis=1)[:, :size]
            deltas = deltas_of(positive_part(masses), self.width) + infinite[start : start + rows, None]
            worst = np.maximum(worst, deltas.max(axis=0))
        return trimmed(from_deltas(worst, first, self.width))


def _fast_length(least: int) -> int:
    """The least length from ``least`` on for which Fourier transforms are fast: 2^a times 1, 3, 5, 9, 15, 25 or 27."""
    return min(odd << max(0, (-(-least // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15, 25, 27))


def _distance(before: _Group, after: _Group) -> int:
    return max(before.last - after.first, after.last - before.first)


def _rounded(copies: int, reach: int) -> int:
    """The number of copies rounded up to a multiple of an eighth of the reach, and at most the reach."""
    unit = max(1, reach // _PARTS)
    return min(reach, -(-copies // unit) * unit)
