"""Trees over ordered bins: their nodes, and least squares from noisy counts of all nodes (Hay et al. 2010).

Every level divides the bins into cells of equal width, the last one into single bins. Counts of all levels are noisy;
weighted least squares with the public total give consistent and unbiased counts of every bin, and the error of every
linear function of them is a linear function of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import MAX_BINS
from shuffledp.errors import DomainError

Floats = NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)

_LEAST_VARIANCE = 1e-12  # used for a level without noise, so that weights stay finite


@dataclass(frozen=True)
class Tree:
    """The cells of each level, from the coarsest to single bins; ``branching`` is the number of children per node.

    >>> Tree(8, (2, 4)).sizes
    (2, 8)
    """

    bins: int
    branching: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= MAX_BINS:
            raise DomainError(f"A tree has between 2 and {MAX_BINS:,} bins, not {self.bins:,}.", bins=self.bins)
        if len(self.branching) > self.bins.bit_length():  # before anything is computed for each of them
            raise DomainError(f"A tree over {self.bins:,} bins has fewer than {len(self.branching):,} levels.")
        if not self.branching or min(self.branching) < 2:
            raise DomainError(f"Every level divides a node into at least 2, not {self.branching}.")
        if math.prod(self.branching) < self.bins or self.sizes[0] < 2:
            raise DomainError(
                f"Levels with {', '.join(map(str, self.branching))} children per node do not fit {self.bins:,} bins."
            )
        if self.branching[0] != self.sizes[0]:  # one form per tree: more children of the root would be empty
            raise DomainError(
                f"The first level of this tree has {self.sizes[0]:,} cells over {self.bins:,} bins; give "
                f"{self.sizes[0]:,} as its branching, not {self.branching[0]:,}.",
                branching=self.branching,
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of bins in a cell, per level."""
        return tuple(math.prod(self.branching[level + 1 :]) for level in range(len(self.branching)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells, per level."""
        return tuple(-(-self.bins // width) for width in self.widths)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The index of the first node of each level, with nodes numbered level by level; then the number of nodes."""
        return tuple(sum(self.sizes[:level]) for level in range(len(self.sizes) + 1))

    @property
    def nodes(self) -> int:
        """The number of cells of all levels."""
        return self.offsets[-1]

    def nodes_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The node of each bin on each level: one row per bin."""
        widths = np.array(self.widths, dtype=np.int64)
        return indices[:, None] // widths + np.array(self.offsets[:-1], dtype=np.int64)

    def levels_of(self, numbers: NDArray[_Number]) -> list[NDArray[_Number]]:
        """An array over all nodes, divided into one array per level."""
        return [numbers[start:end] for start, end in zip(self.offsets, self.offsets[1:], strict=False)]

    def counts_of(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The true count of every node, from those of the bins."""
        return np.concatenate([np.add.reduceat(counts, np.arange(0, self.bins, width)) for width in self.widths])

    def sums_of_children(self, level: int, numbers: Floats) -> Floats:
        """Per node of a level the sum over its children, along the last axis."""
        starts = np.arange(0, self.sizes[level + 1], self.branching[level + 1])
        return np.add.reduceat(numbers, starts, axis=-1)

    def to_children(self, level: int, numbers: Floats) -> Floats:
        """Per node of the next level the number of its parent, along the last axis."""
        parents = np.arange(self.sizes[level + 1]) // self.branching[level + 1]
        result: Floats = numbers[..., parents]
        return result


@dataclass(frozen=True)
class TreeFit:
    """Weighted least squares over a tree with a public total.

    ``variances`` are those of the noise of one cell, per level. Noise whose sum over a level is 0 (a multinomial
    count less its mean) has the same solution as independent noise, since the total is known.
    """

    tree: Tree
    variances: tuple[float, ...]

    @cached_property
    def _below(self) -> list[Floats]:
        """Per level, the variance of the best estimate of each node from its own count and those below it."""
        variances = [np.empty(0)] * len(self.variances)
        for level in reversed(range(len(self.variances))):
            own = max(self.variances[level], _LEAST_VARIANCE)
            if level == len(self.variances) - 1:
                variances[level] = np.full(self.tree.sizes[level], own)
            else:
                children = self.tree.sums_of_children(level, variances[level + 1])
                variances[level] = own * children / (own + children)
        return variances

    @cached_property
    def _own_weights(self) -> list[Floats]:
        """Per level, the weight of a node's own count in the estimate of the node."""
        own = [max(variance, _LEAST_VARIANCE) for variance in self.variances]
        return [below / variance for below, variance in zip(self._below, own, strict=True)]

    def bin_counts(self, levels: Sequence[Floats], total: float) -> Floats:
        """The estimated count of every bin, from the unbiased noisy counts of all levels."""
        last = len(levels) - 1
        upward = [np.asarray(levels[last], dtype=np.float64)]
        for level in reversed(range(last)):
            weight = self._own_weights[level]
            children = self.tree.sums_of_children(level, upward[0])
            upward.insert(0, weight * levels[level] + (1 - weight) * children)
        counts: Floats = upward[0] + (total - upward[0].sum()) * self._below[0] / self._below[0].sum()
        for level in range(last):
            missing = counts - self.tree.sums_of_children(level, upward[level + 1])
            share = missing / self.tree.sums_of_children(level, self._below[level + 1])
            counts = upward[level + 1] + self.tree.to_children(level, share) * self._below[level + 1]
        return counts

    def _means(self, weights: Floats) -> list[Floats]:
        """Per level and node, the mean of the weights of its bins, averaged by the variances of ``_below``."""
        means = [weights]
        for level in reversed(range(len(self.variances) - 1)):
            below = self._below[level + 1]
            mean = self.tree.sums_of_children(level, means[0] * below) / self.tree.sums_of_children(level, below)
            means.insert(0, mean)
        return means

    def coefficients(self, weights: Floats) -> list[Floats]:
        """Per level, by how much the noise of each node moves the estimate of sum(weights * counts).

        ``weights`` may have several rows, one linear function each.
        """
        means = self._means(np.asarray(weights, dtype=np.float64))
        total = (means[0] * self._below[0]).sum(axis=-1, keepdims=True) / self._below[0].sum()
        passed = means[0] - total
        result = []
        for level in range(len(means)):
            result.append(self._own_weights[level] * passed)
            if level + 1 < len(means):
                inherited = (1 - self._own_weights[level]) * passed - means[level]
                passed = means[level + 1] + self.tree.to_children(level, inherited)
        return result

    @cached_property
    def variances_below_edges(self) -> Floats:
        """The variance of the estimated number of users below each inner edge, without listing coefficients.

        Given the count of a node, the number of its users below an edge inside it is ``share`` of that count, up to
        an error of variance ``inner``; both follow level by level from the bottom.
        """
        edges = np.arange(1, self.tree.bins)
        share, inner = np.zeros(len(edges)), np.zeros(len(edges))
        for level in reversed(range(len(self.variances))):
            below = self._below[level]
            sums = np.concatenate(([0.0], np.cumsum(below)))
            node = edges // self.tree.widths[level]
            siblings = self.tree.branching[level] if level else self.tree.sizes[0]
            first = node // siblings * siblings
            last = np.minimum(first + siblings, self.tree.sizes[level])
            inside = edges % self.tree.widths[level] > 0
            own = np.where(inside, below[np.minimum(node, len(below) - 1)], 0.0)
            left, total = sums[node] - sums[first], sums[last] - sums[first]
            mean = left + share * own
            inner = np.where(inside, inner, 0.0) + left + share**2 * own - mean**2 / total
            share = mean / total
        return np.maximum(inner, 0.0)
