"""Privacy curve of the number of ones among unlabelled flipped bits: a count or a sum of bounded numbers.

K is the number of ones among the N bits of the users who are not replaced. The curve is the maximum over all K, bounded
on cells, which are ranges of K.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.privacy.cheu.cells import bit_epsilon, check_bits, edges
from shuffledp.privacy.cheu.coordinates import coordinate
from shuffledp.privacy.cheu.differences import PRECISIONS, divergences
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Cell = tuple[int, ...]

_CELLS = 32  # initial number of ranges of K
_CELLS_OF_QUICK_BOUND = 96
_REFINEMENTS = 6
_MOST_REFINED = 48  # number of the worst cells that are subdivided at a time
_ALWAYS_REFINED, _ROUNDS_OF_WORST = 4, 3  # the worst of them are in any case, so often
_PARTS = 4
_CLOSE = 0.01  # relative distance of the bound from a divergence that data reach
_CELLS_OF_DIRECTIONS = 8


@dataclass(frozen=True)
class FlippedSum:
    """The number of ones among ``bits`` unlabelled bits of each user, every bit flipped with probability ``flip``."""

    users: int
    flip: Dyadic
    bits: int

    def __post_init__(self) -> None:
        check_bits(self.users, self.flip, self.bits)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of all bits of one user, without shuffling."""
        return self.bits * bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, for all values of the other users.

        The worst replacement changes all bits of a user from one to zero. The other direction is its mirror image, with
        N - K instead of K.
        """
        return self.worst(epsilon)[0]

    def delta_to_check(self, epsilon: float, claimed: float) -> float:
        """``delta_at``, or a looser bound from fewer cells if it is at most ``claimed``."""
        return self.worst(epsilon, enough=claimed)[0]

    def quick_delta_at(self, epsilon: float) -> float:
        """A looser bound than ``delta_at``, from the first cells: by some per cent while delta is not small."""
        return self.worst(epsilon, cells=_CELLS_OF_QUICK_BOUND, refinements=0)[0]

    def delta_in(self, cell: Cell, epsilon: float) -> float:
        """Upper bound on the least delta if the number of ones that the others hold lies in the cell."""
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        others = (self.users - 1) * self.bits
        return float(_bounds(self, np.array([cell[0]]), np.array([others - cell[1]]), min(epsilon, LARGEST_EPSILON))[0])

    def worst(
        self, epsilon: float, *, enough: float = 0.0, cells: int = _CELLS, refinements: int = _REFINEMENTS
    ) -> tuple[float, Cell]:
        """The bound of ``delta_at``, and the first and last K of the cell where it is largest.

        A bound of at most ``enough`` is not refined.
        """
        check_epsilon(epsilon)
        others = (self.users - 1) * self.bits
        starts = edges(others, cells)
        ends, starts = starts[1:] - 1, starts[:-1]
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0, (int(starts[-1]), others)
        epsilon = min(epsilon, LARGEST_EPSILON)
        bounds, reached = _bounds(self, starts, others - ends, epsilon, enough), 0.0
        for round_ in range(refinements):
            if bounds.max() <= enough:
                break
            worst = int(np.argmax(bounds))
            corners = np.array([starts[worst], ends[worst]])
            reached = max(reached, float(_bounds(self, corners, others - corners, epsilon).max()))
            order = np.argsort(bounds)[-_MOST_REFINED:]
            is_loose = bounds[order] > reached * (1 + _CLOSE)
            is_loose[-_ALWAYS_REFINED:] |= round_ < _ROUNDS_OF_WORST
            loose = order[is_loose & (starts[order] < ends[order])]
            if len(loose) == 0 or starts[worst] == ends[worst]:
                break  # close enough, or exact: the divergence at a single K
            finer = [starts[i] + edges(int(ends[i] - starts[i]), _PARTS) for i in loose]
            new_starts, new_ends = (
                np.concatenate([parts[:-1] for parts in finer]),
                np.concatenate([parts[1:] - 1 for parts in finer]),
            )
            parts = _bounds(self, new_starts, others - new_ends, epsilon, enough)
            starts, ends = np.append(np.delete(starts, loose), new_starts), np.append(np.delete(ends, loose), new_ends)
            bounds = np.append(np.delete(bounds, loose), parts)
        at = int(np.argmax(bounds))
        return as_delta(float(bounds[at])), (int(starts[at]), int(ends[at]))


def _bounds(curve: FlippedSum, ones: Integers, zeros: Integers, epsilon: float, enough: float = 0.0) -> Floats:
    """Upper bounds on delta, one per cell; those of at most ``enough`` need not be precise."""
    bounds = np.ones(len(ones))
    for precision in PRECISIONS:
        bounds = np.minimum(bounds, positive_part(divergences(ones, zeros, curve.bits, curve.flip, epsilon, precision)))
        if bounds.max() > 1e6 * precision.cut or bounds.max() <= enough:
            break
    return bounds


@dataclass(frozen=True)
class FlippedCount:
    """The number of ones among one bit per user: the binary sum of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019)."""

    users: int
    flip: Dyadic

    def __post_init__(self) -> None:
        check_bits(self.users, self.flip)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of one report, without shuffling."""
        return bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, for all values of the other users."""
        return FlippedSum(self.users, self.flip, 1).delta_at(epsilon)

    def delta_to_check(self, epsilon: float, claimed: float) -> float:
        """``delta_at``, or a looser bound if it is at most ``claimed``."""
        return FlippedSum(self.users, self.flip, 1).delta_to_check(epsilon, claimed)

    def quick_delta_at(self, epsilon: float) -> float:
        """A looser bound than ``delta_at``, from few cells."""
        return FlippedSum(self.users, self.flip, 1).quick_delta_at(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per cell of K and direction of the replacement, one pair that bounds the privacy loss."""
        starts = edges(self.users - 1, _CELLS_OF_DIRECTIONS)
        cells = [coordinate(start, self.users - end, self.flip) for start, end in pairwise(starts.tolist())]
        return tuple((cell.pair(cut),) for cell in cells) + tuple((cell.reversed_pair(cut),) for cell in cells)
