"""Privacy curve of labelled flipped bits, one per category and user: a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.privacy.cheu.cells import bit_epsilon, check_bits, edges
from shuffledp.privacy.cheu.coordinates import CUTS, Coordinate, coordinate
from shuffledp.privacy.cheu.ratio_grid import RatioGrid
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic

Cell = tuple[int, ...]
Range = tuple[int, int]
Floats = NDArray[np.float64]

_RANGES = 12  # initial number of equal ranges of each of K and K'
_FINEST_SHARE, _HALVINGS = 2.0**-9, 6  # and finer ones at the ends
_REFINEMENTS = 10
_PARTS = 2
_CLOSE = (0.001, 0.004)  # share of noise by which the bound may exceed the truth; the first that is affordable
_MOST_RANGES = 160
_FEW_USERS = 100  # for whom single data sets are compared
_DIVISIONS = 24
_TRIALS, _LEAST_PROGRESS = 6, 0.2  # so many divisions must reduce the excess by this share
_CELLS_OF_DIRECTIONS = 8


@dataclass(frozen=True)
class FlippedHistogram:
    """One labelled bit per category and user; the analyzer sees the number of ones of each category.

    Replacing a user changes two categories in opposite directions. K and K' of the other users hold these two, with K +
    K' <= users - 1, and the bound holds for all such pairs: a cell, which is a range of K and one of K', is bounded by
    the least noise in it, and the ranges of the worst cells are subdivided.
    """

    users: int
    flip: Dyadic

    def __post_init__(self) -> None:
        check_bits(self.users, self.flip)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of the two bits of one user that change, without shuffling."""
        return 2 * bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, for all values of the other users."""
        return self.worst(epsilon)[0]

    def delta_to_check(self, epsilon: float, claimed: float) -> float:
        """``delta_at``, or a looser bound from fewer cells if it is at most ``claimed``."""
        return self.worst(epsilon, enough=claimed)[0]

    def worst(self, epsilon: float, *, enough: float = 0.0) -> tuple[float, Cell]:
        """The bound of ``delta_at``, and the cell of (K, K') where it is largest.

        A bound of at most ``enough`` is not refined.
        """
        check_epsilon(epsilon)
        bound: float = 1.0
        cell: Cell = (self.users - 1, self.users, 0, 1)  # usually the worst data
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0, cell
        for cut in CUTS:
            finer, worst = _Search(self, min(epsilon, LARGEST_EPSILON), cut).worst(enough)
            bound, cell = min((bound, cell), (finer, worst))
            if finer > 1e6 * cut or bound <= enough:
                break
        return as_delta(bound), cell

    def delta_in(self, cell: Cell, epsilon: float) -> float:
        """Upper bound on the least delta if (K, K') lies in the cell."""
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        bound = 1.0
        for cut in CUTS:
            first, second = self.coordinates(cell, cut)
            bound = min(bound, first.delta_against(second, min(epsilon, LARGEST_EPSILON)))
            if bound > 1e6 * cut:
                break
        return bound

    def coordinates(self, cell: Cell, cut: float) -> tuple[Coordinate, Coordinate]:
        """The distributions of the two categories with the least noise in the cell."""
        start, end, other_start, other_end = cell
        return self.coordinate((start, end), cut), self.coordinate((other_start, other_end), cut)

    def coordinate(self, ends: Range, cut: float) -> Coordinate:
        """The distributions of one category with the least noise in the range of its K."""
        return coordinate(ends[0], self.users - ends[1], self.flip, cut)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per cell of (K, K'), two independent pairs that bound the privacy loss."""
        others = self.users - 1
        ranges = list(pairwise(edges(others, _CELLS_OF_DIRECTIONS).tolist()))
        cells = [coordinate(start, others - end + 1, self.flip) for start, end in ranges]
        return tuple(
            (cells[i].pair(cut), cells[j].reversed_pair(cut))
            for i in range(len(ranges))
            for j in range(len(ranges))
            if ranges[i][0] + ranges[j][0] <= others
        )


class _Search:
    """Ranges of K', subdivided where the bound is largest; those of K are their mirror images.

    Exchanging ones and zeros exchanges the two categories: K and K' are equivalent to N - K' and N - K, where N is the
    number of the other users. So the mirrored tables of K' are those of K, and the bounds form a symmetric matrix.
    """

    def __init__(self, curve: FlippedHistogram, epsilon: float, cut: float) -> None:
        self._curve, self._epsilon, self._cut = curve, epsilon, cut
        f = float(curve.flip)
        deviation = (1 - 2 * f) / math.sqrt((curve.users - 1) * f * (1 - f))
        self._grid = RatioGrid(epsilon, deviation, bit_epsilon(curve.flip))
        self._tables: dict[Range, tuple[Floats, float]] = {}

    def worst(self, enough: float) -> tuple[float, Cell]:
        """The largest bound of all pairs of ranges that data can reach, and the pair; refined if above ``enough``."""
        ranges = list(pairwise(_first_edges(self._curve.users - 1)))
        reached, bounds = 0.0, self._bounds(ranges)
        for _ in range(_REFINEMENTS):
            if bounds.max() <= enough:
                i, j = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
                return float(bounds[i, j]), self._cell(ranges[i], ranges[j])
            for corner in self._corners(*_largest(bounds, ranges)):
                reached = max(reached, self._exact(corner))
            finer = self._refined(ranges, bounds.max(axis=0), reached)
            if len(finer) == len(ranges):
                break
            ranges, bounds = finer, self._bounds(finer)
        return self._with_worst_divided(bounds, ranges, reached)

    def _with_worst_divided(self, bounds: Floats, ranges: list[Range], reached: float) -> tuple[float, Cell]:
        """The largest bound, after the worst cells were computed without the grid and divided further."""
        parts: list[tuple[float, Cell]] = []
        computed: set[tuple[int, int]] = set()
        excess = float(bounds.max()) - reached
        for division in range(_DIVISIONS):
            at = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
            cell = self._cell(ranges[at[0]], ranges[at[1]])
            worst = max([(float(bounds[at]), cell), *parts])
            if worst[0] - reached > excess * (1 - _LEAST_PROGRESS * (division // _TRIALS)):
                break  # many cells are equally bad
            key = (int(at[0]), int(at[1]))
            if worst[1] == cell and key not in computed:
                bounds[at] = min(bounds[at], self._exact(cell))
                computed.add(key)
                continue
            divided = _divided(worst[1], self._curve.users - 1)
            if len(divided) == 1:
                break  # exact: the divergence at a single (K, K')
            if worst[1] == cell:
                bounds[at] = 0.0
            else:
                parts.remove(worst)
            parts += [(self._exact(part), part) for part in divided]
        i, j = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
        return max([(float(bounds[i, j]), self._cell(ranges[i], ranges[j])), *parts])

    def _refined(self, ranges: list[Range], bounds: Floats, reached: float) -> list[Range]:
        """The ranges, those in parts whose bound is far above the largest divergence that was reached.

        Delta falls with a power of the noise, so a small share of noise is a share of delta that is ln(1/delta) times
        as large.
        """
        for close in (0.0, *_CLOSE) if self._curve.users <= _FEW_USERS else _CLOSE:
            loose = bounds > reached * (1 - close * math.log(min(max(reached, 1e-300), 0.5)))
            if len(ranges) + np.count_nonzero(loose) <= _MOST_RANGES:
                break
        else:
            return ranges
        return [
            part
            for (start, end), divide in zip(ranges, loose.tolist(), strict=True)
            for part in (pairwise((start + edges(end - start - 1, _PARTS)).tolist()) if divide else ((start, end),))
        ]

    def _cell(self, mirrored: Range, other: Range) -> Cell:
        return (self._curve.users - mirrored[1], self._curve.users - mirrored[0], *other)

    def _corners(self, mirrored: Range, other: Range) -> list[Cell]:
        """The single (K, K') at the ends of both ranges that data can reach."""
        start, end = self._cell(mirrored, other)[:2]
        ends = {(k, other_k) for k in (start, end - 1) for other_k in (other[0], other[1] - 1)}
        return [(k, k + 1, other_k, other_k + 1) for k, other_k in ends if k + other_k < self._curve.users]

    def _exact(self, cell: Cell) -> float:
        first, second = self._curve.coordinates(cell, self._cut)
        return first.delta_against(second, self._epsilon)

    def _bounds(self, ranges: list[Range]) -> Floats:
        """The bound of every pair of a mirrored range of K and a range of K'; 0 where no data are."""
        for ends in ranges:
            if ends not in self._tables:
                table = self._curve.coordinate(ends, self._cut)
                self._tables[ends] = self._grid.masses(table), table.missing
        masses, missing = (np.array(column) for column in zip(*(self._tables[ends] for ends in ranges), strict=True))
        bounds = self._grid.divergences(masses) + np.add.outer(missing, missing)
        starts, stops = np.array(ranges).T
        return np.where(starts[None, :] < stops[:, None], bounds, 0.0)


def _largest(bounds: Floats, ranges: list[Range]) -> tuple[Range, Range]:
    i, j = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    return ranges[i], ranges[j]


def _first_edges(last: int) -> list[int]:
    """Boundaries of ranges that cover 0 .. last, finer towards both ends, where the divergence is usually largest."""
    near = {round((last + 1) * _FINEST_SHARE * 2**i) for i in range(_HALVINGS)}
    inner = set(edges(last, _RANGES).tolist())
    return sorted(inner | near | {last + 1 - edge for edge in near})


def _divided(cell: Cell, others: int) -> list[Cell]:
    """The parts of the cell, without those that no data set can reach."""
    first = pairwise((cell[0] + edges(cell[1] - cell[0] - 1, _PARTS)).tolist())
    second = list(pairwise((cell[2] + edges(cell[3] - cell[2] - 1, _PARTS)).tolist()))
    return [(*a, *b) for a in first for b in second if a[0] + b[0] <= others]
