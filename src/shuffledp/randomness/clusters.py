"""Exact sampling of Poisson clusters, whose sizes come from a finite table of integer weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.poisson import poisson
from shuffledp.randomness.samplers import integers
from shuffledp.randomness.source import SYSTEM, RandomSource

Ranges = Sequence[tuple[int, int, int]]
"""First and last size of a range, and the weight of every size in it; in increasing order."""

_MAX_TOTAL_WEIGHT = 1 << 63
_CHUNK = 1 << 20


def cluster_sizes(ranges: Ranges, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent sizes, each with a probability exactly proportional to its weight."""
    firsts, lasts, weights = _columns(ranges)
    ends = np.cumsum((lasts - firsts + 1) * weights)
    drawn = integers(int(ends[-1]), size, source).view(np.int64)
    index = np.searchsorted(ends, drawn, side="right")
    before = np.concatenate(([0], ends[:-1]))
    sizes: NDArray[np.int64] = firsts[index] + (drawn - before[index]) // weights[index]
    return sizes


def scattered_clusters(
    rate: Fraction, ranges: Ranges, cells: int, source: RandomSource = SYSTEM
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Poisson(rate) clusters in each of ``cells`` cells: sorted indices of the nonzero cells and their sums of sizes.

    Time and memory grow with the number of clusters, which is Poisson with mean cells times rate, not with the number
    of cells: independent Poisson counts of many cells are one Poisson count whose items fall into uniform cells.
    """
    if not 0 <= cells < 1 << 63:
        raise ParameterError(f"The number of cells {cells} must lie between 0 and 2^63 - 1.", cells=cells)
    _columns(ranges)
    if cells == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    number = int(poisson(cells * rate, 1, source)[0])
    hit = integers(cells, number, source).view(np.int64)
    hit.sort()  # the sizes, drawn next, do not depend on the cells
    sizes = cluster_sizes(ranges, number, source)
    new = np.ones(number, dtype=np.bool_)
    np.not_equal(hit[1:], hit[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if len(starts) == number:
        return hit, sizes
    return hit[starts], np.add.reduceat(sizes, starts)


def clusters_in_bins(rate: Fraction, ranges: Ranges, bins: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """The sum of the sizes of Poisson(rate) clusters, independently for each bin."""
    out = np.zeros(bins, dtype=np.int64)
    left = int(poisson(bins * rate, 1, source)[0]) if bins else 0
    while left:
        number = min(left, _CHUNK)
        hit = integers(bins, number, source).view(np.int64)
        np.add.at(out, hit, cluster_sizes(ranges, number, source))
        left -= number
    return out


def _columns(ranges: Ranges) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The ranges by columns; ParameterError if they do not increase or the weights are too large."""
    before = total = 0
    for first, last, weight in ranges:
        if not before < first <= last or not weight >= 1:
            raise ParameterError(
                f"Ranges of sizes must increase and have weights of at least 1; got {first} to {last} with weight "
                f"{weight}, after {before}."
            )
        before, total = last, total + (last - first + 1) * weight
    if not 0 < total < _MAX_TOTAL_WEIGHT:
        raise ParameterError(f"The weights of all sizes must add up to a number from 1 to 2^63 - 1, not {total}.")
    columns = np.array(ranges, dtype=np.int64).T
    return columns[0], columns[1], columns[2]
