"""Exact sampling of occupancy counts: the uniform multinomial distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.binomial import binomials
from shuffledp.randomness.dyadic import Dyadic
from shuffledp.randomness.samplers import integers
from shuffledp.randomness.source import SYSTEM, RandomSource

_HALF = Dyadic(1, 1)
_LARGEST_BALLS = 1 << 40
_CHUNK = 1 << 18
_MANY_BALLS = 1 << 24  # from here on recursive splitting is faster, if there are many balls per cell
_MANY_PER_CELL = 64


def uniform_counts(balls: int, cells: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """The number of balls in each cell if every ball falls into an independent uniform cell.

    A few balls are assigned one by one. Many are split recursively: of the balls in 2^m cells, a binomial
    number fall into the first half of the cells. Balls beyond the last cell are assigned again.
    """
    if not 0 <= balls <= _LARGEST_BALLS or cells < 1:
        raise ParameterError(
            f"balls must lie between 0 and 2^40 and cells must be at least 1; got {balls} balls and {cells} cells.",
            balls=balls,
            cells=cells,
        )
    out = np.zeros(cells, dtype=np.int64)
    left = balls
    while left >= max(_MANY_BALLS, _MANY_PER_CELL * cells):
        counts = _split_recursively(left, (cells - 1).bit_length(), source)
        out += counts[:cells]
        left = int(counts[cells:].sum())
    chunk = max(_CHUNK, cells)  # bincount visits every cell once per chunk
    for start in range(0, left, chunk):
        thrown = integers(cells, min(chunk, left - start), source)
        out += np.bincount(thrown.view(np.int64), minlength=cells)
    return out


def _split_recursively(balls: int, levels: int, source: RandomSource) -> NDArray[np.int64]:
    """The counts of ``balls`` balls in 2^levels cells."""
    counts = np.array([balls], dtype=np.int64)
    for _ in range(levels):
        first = binomials(counts, _HALF, source)
        counts = np.column_stack((first, counts - first)).ravel()
    return counts
