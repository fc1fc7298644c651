"""How many of many uniform balls fall into each cell, exactly."""

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
_MANY_BALLS = 1 << 24  # from here on halving is faster, if there are many per cell
_MANY_PER_CELL = 64


def uniform_counts(balls: int, cells: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """The numbers of balls in each cell when every ball falls into a uniform cell, independently.

    Few balls are thrown one by one. Many are halved: those of 2^m cells are binomially many in the
    first half of the cells, and so on; what falls beyond the last cell is thrown again.
    """
    if not 0 <= balls <= _LARGEST_BALLS or cells < 1:
        raise ParameterError(
            f"{balls} balls cannot fall into {cells} cells: there must be 0 to 2^40 balls and 1 or more cells.",
            balls=balls,
            cells=cells,
        )
    out = np.zeros(cells, dtype=np.int64)
    left = balls
    while left >= max(_MANY_BALLS, _MANY_PER_CELL * cells):
        counts = _halve(left, (cells - 1).bit_length(), source)
        out += counts[:cells]
        left = int(counts[cells:].sum())
    chunk = max(_CHUNK, cells)  # counting a chunk passes over all cells
    for start in range(0, left, chunk):
        thrown = integers(cells, min(chunk, left - start), source)
        out += np.bincount(thrown.view(np.int64), minlength=cells)
    return out


def _halve(balls: int, levels: int, source: RandomSource) -> NDArray[np.int64]:
    """The counts of ``balls`` balls in 2^levels cells."""
    counts = np.array([balls], dtype=np.int64)
    for _ in range(levels):
        first = binomials(counts, _HALF, source)
        counts = np.column_stack((first, counts - first)).ravel()
    return counts
