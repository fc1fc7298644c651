"""Privacy curve of labelled flipped bits, one per category and user: a histogram."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.privacy.cheu.cells import bit_epsilon, check_bits, edges
from shuffledp.privacy.cheu.coordinates import coordinate
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic

Cell = tuple[int, ...]

_CELLS = 10  # initial number of ranges of each of K and K'
_REFINEMENTS = 8
_PARTS = 4
_CELLS_OF_DIRECTIONS = 8


@dataclass(frozen=True)
class FlippedHistogram:
    """One labelled bit per category and user; the analyzer sees the number of ones of each category.

    Replacing a user changes two categories in opposite directions. K and K' of the other users hold these two, with K +
    K' <= users - 1, and the bound holds for all such pairs: a cell of pairs is bounded by the least noise in it, and
    the worst cells are subdivided.
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

    def worst(self, epsilon: float) -> tuple[float, Cell]:
        """The bound of ``delta_at``, and the cell of (K, K') where it is largest."""
        check_epsilon(epsilon)
        others = self.users - 1
        ranges = list(pairwise(edges(others, _CELLS).tolist()))
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0, (*ranges[0], *ranges[0])
        cells = [(*first, *second) for first in ranges for second in ranges if first[0] + second[0] <= others]
        worst_first = [(-self.delta_in(cell, epsilon), cell) for cell in cells]
        heapq.heapify(worst_first)
        for _ in range(_REFINEMENTS):
            parts = _divided(worst_first[0][1], others)
            if len(parts) == 1:
                break  # exact: the divergence at a single (K, K')
            heapq.heappop(worst_first)
            for part in parts:
                heapq.heappush(worst_first, (-self.delta_in(part, epsilon), part))
        bound, cell = worst_first[0]
        return as_delta(-bound), cell

    def delta_in(self, cell: Cell, epsilon: float) -> float:
        """Upper bound on the least delta if (K, K') lies in the cell."""
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        start, end, other_start, other_end = cell
        others = self.users - 1
        first = coordinate(start, others - end + 1, self.flip)
        second = coordinate(other_start, others - other_end + 1, self.flip)
        return first.delta_against(second, min(epsilon, LARGEST_EPSILON))

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


def _divided(cell: Cell, others: int) -> list[Cell]:
    """The parts of the cell, without those that no data set can reach."""
    first = pairwise((cell[0] + edges(cell[1] - cell[0] - 1, _PARTS)).tolist())
    second = list(pairwise((cell[2] + edges(cell[3] - cell[2] - 1, _PARTS)).tolist()))
    return [(*a, *b) for a in first for b in second if a[0] + b[0] <= others]
