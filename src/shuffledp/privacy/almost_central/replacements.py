"""The privacy loss of replacing any message of ``almost-central`` by any other: one bound for all pairs of messages.

A message shifts the number of copies of each atom that it consists of: up if the leading number of the atom is
positive, and down if it is negative. Messages are grouped by their distance from the nearer end of 1 .. levels + 1;
groups are small near the ends. For every pair of groups, the loss is bounded by that of the worst message of either
group, and of noise in the sum that is shifted by the largest distance between the groups. So messages in the middle,
which may have larger losses by their atoms, never meet the largest shift of the sum.

Pairs of groups whose bound exceeds the loss of the worst pair of messages that is known are then replaced by all their
pairs of messages, on a finer grid, as long as these are not too many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.almost_central import atoms as atoms_module
from shuffledp.privacy.almost_central.atoms import Atom, decompositions, groups_of
from shuffledp.privacy.almost_central.losses import NO_LOSS, Losses, from_deltas, trimmed, worst_of
from shuffledp.privacy.almost_central.pairs import PairLosses
from shuffledp.privacy.almost_central.shifts import AtomNoise, Shift, ShiftLosses, Shifts, rounded_away
from shuffledp.privacy.almost_central.sums import Sums, curves, range_of, worst_of_sums
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, decay_of
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.loss_grid import on_grid

Floats = NDArray[np.float64]

_MAX_CELLS = 2000  # grid cells of the privacy loss of one atom with factor 1, on either side of 0
_MAX_STAYING_CELLS = 20_000  # of the noise that stays in the sum
_ROUNDING = 5e-13  # rounding error of the Fourier transforms, added to delta
_FARTHEST_LOSS = 600.0
_SURPLUS = 1e-6  # of the sum of the masses of the second distribution
_NEGLIGIBLE = 1e-17  # mass of a negative loss that is cut off
_MAX_SEPARATE = 600  # messages of a group that are considered one by one
_PARTS = 8  # copies are rounded up to multiples of this fraction of the reach
_GROUPS_IN_SEARCH = 4  # at either end
_CELLS_PER_DEVIATION = 8  # of the loss of one atom, about step / sqrt(shape)
_FEW_LEVELS = 32  # with more of them, a pair has more atoms, and half as many cells suffice
_FINEST = 8  # cells in one for groups
_FAR_APART = 2.0
_ENTRIES = 1 << 20  # of the curves of all pairs of messages
_LARGEST_PART = 4  # of the pairs of messages that remain possible, for one pair of groups: at most a quarter
_ALL = 16  # pairs of groups that are all replaced by their pairs of messages
_ENTRIES_AT_FIRST = 1 << 16
_KEPT_ENTRIES = 1 << 22  # of the curves of all pairs of groups; if they are more, only every second (third, ...)
_COMPARED = (1e-12, 1e-3)  # deltas
_NEVER = 1e-14  # larger losses than those of this delta count as infinite
_CLOSE = (
    0.98  # pairs of groups whose deltas are at most this fraction of that of a pair of messages are left as they are
)


def replacement_pair(noise: AtomNoise, cells: int, *, thorough: bool) -> DiscretePair:
    """The loss of all replacements; if not thorough, only of messages near the ends, which are nearly the worst."""
    pure = DiscreteLaplaceCurve(noise.ratio, noise.levels).pure_epsilon
    width = max(noise.step / cells, noise.spare / _MAX_CELLS, pure / _MAX_STAYING_CELLS)
    ranges = groups_of(noise.levels)
    if not thorough:
        if len(ranges) > 2 * _GROUPS_IN_SEARCH:
            ranges = (*ranges[:_GROUPS_IN_SEARCH], *ranges[-_GROUPS_IN_SEARCH:])
        sums = GroupLosses(noise, width).sums(ranges)
        return _as_pair(worst_of_sums([each.losses for each in sums], width), width)
    fine, ratio = _finer(noise, width)
    return _as_pair(_refined(noise, GroupLosses(noise, fine * ratio).sums(ranges), fine, ratio), fine)


def _finer(noise: AtomNoise, width: float) -> tuple[float, int]:
    """The width of the grid for pairs of messages, and how many of its cells are in one for groups.

    If the losses of the noise in the sum are far apart, they are points of the grid.
    """
    cells = _CELLS_PER_DEVIATION if noise.levels <= _FEW_LEVELS else _CELLS_PER_DEVIATION // 2
    aim = max(min(width, noise.step / (cells * math.sqrt(noise.shape))), width / _FINEST)
    decay = decay_of(noise.ratio)
    fine = decay / math.ceil(decay / aim) if decay > _FAR_APART * aim else aim
    return fine, max(1, math.floor(width / fine * (1 + 1e-9)))


def _as_pair(total: Losses, width: float) -> DiscretePair:
    losses = (total.first + np.arange(len(total.masses))) * width
    # at far negative losses, masses are rounding errors, which e^-loss would magnify
    keep = np.where(losses < 0, total.masses > _NEGLIGIBLE, total.masses > 0) & (losses > -_FARTHEST_LOSS)
    cut = as_delta(total.infinite + _ROUNDING + float(total.masses[~keep].sum()))
    masses, losses = _lowest_raised(total.masses[keep], losses[keep])
    return DiscretePair(masses, masses * np.exp(-losses), cut)


def _lowest_raised(masses: Floats, losses: NDArray[np.floating[Any]]) -> tuple[Floats, Floats]:
    """The lowest losses rounded up to one, the least for which the second distribution sums to about 1 at most.

    Otherwise rounding errors of small masses, times e^-loss, may add up to far more than 1.
    """
    decay: Floats = np.exp(-losses)
    below = np.cumsum(masses) - masses
    sums = np.cumsum((masses * decay)[::-1])[::-1] + below * decay  # of the second, if rounded up to this loss
    low = min(int(np.searchsorted(-sums, -(1 + _SURPLUS))), len(sums) - 1)
    raised = masses[low:].copy()
    raised[:1] += masses[:low].sum()
    return raised, np.asarray(losses[low:], dtype=np.float64)


def _refined(noise: AtomNoise, bounds: Sequence[_Bound], fine: float, ratio: int) -> Losses:
    """The worst loss on the fine grid, of pairs of messages where bounds for their groups are not enough."""
    of_groups = _GroupCurves([each.losses for each in bounds], fine * ratio)
    at, samples = of_groups.compared()
    low, high = of_groups.window
    window = low * ratio, high * ratio
    exact = np.zeros(window[1] - window[0] + 1)
    left, at_once = _ENTRIES // len(exact), _ENTRIES_AT_FIRST
    of_pairs = PairLosses(replace(noise, spare=noise.spare + fine * ratio), fine)  # spares what the coarse grid does
    refined = np.zeros(len(bounds), dtype=bool)
    waiting = np.argsort(-(samples / of_groups.worst[at]).max(axis=1, initial=0.0), kind="stable")
    while left > 0:
        pairs: list[tuple[int, int]] = []
        exceeding = (samples > exact[at * ratio] * _CLOSE).any(axis=1) & ~refined
        if len(bounds) <= _ALL:
            exceeding = ~refined
        for place in waiting[exceeding[waiting]]:
            if bounds[place].count <= left // _LARGEST_PART:
                pairs += bounds[place].pairs
                left -= bounds[place].count
                refined[place] = True
            if len(pairs) * len(exact) >= at_once:
                break
        if not pairs:
            break
        exact = np.maximum(exact, of_pairs.worst(pairs, window))
        at_once *= 2
    if not refined.all():
        exact = np.maximum(exact, interpolated(of_groups.worst_of(~refined), fine, ratio))
    return trimmed(from_deltas(exact, window[0], fine))


class _GroupCurves:
    """Deltas of the bounds of all pairs of groups."""

    def __init__(self, sums: Sums, width: float) -> None:
        self.sums, self.width = sums, width
        self.range = low, high = range_of(sums)
        self._every = 1 + len(sums) * (high - low + 1) // _KEPT_ENTRIES
        self._blocks: list[Floats] = []
        self.worst = np.zeros(high - low + 1)
        """The largest deltas."""
        for deltas in curves(sums, self.range, width):
            self.worst = np.maximum(self.worst, deltas.max(axis=0))
            self._blocks.append(deltas if self._every == 1 else deltas[:, :: self._every].copy())

    @property
    def window(self) -> tuple[int, int]:
        """The losses, without those that are too rare."""
        low, high = self.range
        rare = self.worst <= _NEVER
        return low, low + max(1, int(np.argmax(rare))) if rare.any() else high

    def compared(self) -> tuple[NDArray[np.int64], Floats]:
        """Where the curves are compared, and the deltas of each sum there."""
        worst = self.worst[:: self._every]
        positive = self.range[0] + self._every * np.arange(len(worst)) >= 0
        at = np.flatnonzero((worst >= _COMPARED[0]) & (worst <= _COMPARED[1]) & positive)
        return at * self._every, np.concatenate([block[:, at] for block in self._blocks])

    def worst_of(self, chosen: NDArray[np.bool_]) -> Floats:
        """The largest deltas of these sums in the window."""
        low, high = self.window
        worst = np.zeros(high - low + 1)
        if self._every == 1:
            start = 0
            for block in self._blocks:
                rows = np.flatnonzero(chosen[start : start + len(block)])
                worst = np.maximum(worst, block[rows, : len(worst)].max(axis=0, initial=0.0))
                start += len(block)
            return worst
        for deltas in curves(
            [each for each, is_chosen in zip(self.sums, chosen, strict=True) if is_chosen], self.window, self.width
        ):
            worst = np.maximum(worst, deltas.max(axis=0))
        return worst


def interpolated(deltas: Floats, fine: float, ratio: int) -> Floats:
    """Deltas on the fine grid, linear in e^epsilon between those of the coarse one: above a convex function."""
    share = np.expm1(np.arange(ratio) * fine) / math.expm1(ratio * fine)
    between = deltas[:-1, None] * (1 - share) + deltas[1:, None] * share
    return np.append(between.ravel(), deltas[-1])


@dataclass(frozen=True, eq=False)
class _Bound:
    """A sum of losses that bounds the loss of some pairs of messages."""

    losses: tuple[Losses, ...]
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def count(self) -> int:
        """The number of pairs of messages, or more."""
        (first, last), (new_first, new_last) = self.before, self.after
        return (last + 1 - first) * (new_last + 1 - new_first)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of messages, without those of equal ones."""
        old, new = (range(first, last + 1) for first, last in (self.before, self.after))
        return [(i, j) for i, j in itertools.product(old, new) if i != j]


@dataclass(frozen=True, eq=False)
class _Group:
    """Messages first .. last: the worst loss of adding and of removing one, and their numbers of "+1" and "-1"."""

    first: int
    last: int
    adding: Losses
    removing: Losses
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
                tuple(
                    sorted(
                        (*reaches[leader], rounded_away(atoms_module.signed(leader, n), reaches[leader][0], _PARTS))
                        for leader, n in copies
                    )
                )
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


class GroupLosses:
    """Losses of groups of messages of one noise on one grid; what occurs in several groups is computed once."""

    def __init__(self, noise: AtomNoise, width: float) -> None:
        self.noise, self.width = noise, width
        self.shifts = ShiftLosses(noise, width)
        self.staying: dict[int, Losses] = {}
        self.ends: dict[Shifts, Losses] = {}

    def sums(self, ranges: Sequence[tuple[int, int]]) -> list[_Bound]:
        """For every pair of groups, what bounds the loss of all replacements of a message of the first."""
        listed = _messages(self.noise.levels, self.noise.parts, self.noise.atoms, tuple(ranges))
        self.shifts.compute(shift for each in listed for shift in each.shifts)
        groups = [self.group(each) for each in listed]
        chosen = [(before, after) for before in groups for after in groups if _distance(before, after)]
        self.shifts.compute(shift for each in chosen for shift in self.end_shifts(*each))
        return [
            _Bound(
                (
                    before.adding,
                    after.removing,
                    self.staying_losses(_distance(before, after)),
                    self.end_losses(self.end_shifts(before, after)),
                ),
                (before.first, before.last),
                (after.first, after.last),
            )
            for before, after in chosen
        ]

    def staying_losses(self, distance: int) -> Losses:
        """The loss of the discrete Laplace noise of the sum that is shifted by a distance."""
        if distance not in self.staying:
            ((pair,),) = DiscreteLaplaceCurve(self.noise.ratio, distance).directions(0.0)
            on = on_grid(pair, self.width)
            self.staying[distance] = Losses(on.masses, on.first, on.infinite)
        return self.staying[distance]

    def end_shifts(self, before: _Group, after: _Group) -> Shifts:
        """The worst shifts of {+1, -1} up and down: between the differences of n_+ and of -n_- of the two messages."""
        ends = self.noise.atoms[0]
        up = max(0, before.plus[1] - after.plus[0], after.minus[1] - before.minus[0])
        down = max(0, after.plus[1] - before.plus[0], before.minus[1] - after.minus[0])
        return tuple((ends.reach, ends.factor, rounded_away(n, ends.reach, _PARTS)) for n in (up, -down) if n)

    def end_losses(self, shifts: Shifts) -> Losses:
        """The worst of the losses of these shifts."""
        if shifts not in self.ends:
            candidates = [self.shifts.of(shift) for shift in shifts]
            self.ends[shifts] = worst_of(candidates, self.width) if candidates else NO_LOSS
        return self.ends[shifts]

    def group(self, messages: _Messages) -> _Group:
        """The worst losses of these messages."""
        adding, removing = (
            reduce(
                lambda one, other: trimmed(one.and_then(other)),
                [
                    worst_of_sums(
                        [
                            [self.shifts.of((reach, factor, sign * copies)) for reach, factor, copies in shifts]
                            or [NO_LOSS]
                            for shifts in each
                        ],
                        self.width,
                    )
                    for each in messages.candidates
                ],
            )
            for sign in (1, -1)
        )
        return _Group(messages.first, messages.last, adding, removing, messages.plus, messages.minus)


def _distance(before: _Group, after: _Group) -> int:
    return max(before.last - after.first, after.last - before.first)
