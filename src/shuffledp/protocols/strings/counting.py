"""Counts of found strings: the best linear combination of the cells of each.

The c holders of a string are divided among the L levels, so the numbers on two levels have covariance -c / L^2, and
their sum over all levels is c, without variance. A cell that other found strings share also has the variance of their
messages. With the covariance matrix D - (c / L^2) 1 1', D diagonal, generalized least squares weights each level by the
reciprocal of its entry of D, and the variance of the estimated count is L^2 / (sum of these) - c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROUNDS = 4
_GRAIN = 8
"""Numbers of cells are rounded down to multiples of 1/_GRAIN."""


@dataclass(frozen=True, eq=False)
class StringCounts:
    """Estimated counts, and for each the number of unshared cells that would give the same precision."""

    counts: Floats
    cells: Floats


def estimate_counts(cells: Counts, seen: Counts, *, background: float, variance: float) -> StringCounts:
    """The counts of strings from the messages ``seen`` in their ``cells``: a row per string, a column per level.

    ``background`` and ``variance`` are the mean and the variance of the number of messages of others in a cell.
    """
    strings, levels = cells.shape
    counts = np.maximum(0.0, levels * (np.median(seen, axis=1) - background)) if strings else np.zeros(0)
    _, inverse = np.unique(cells, return_inverse=True)
    inverse = inverse.reshape(cells.shape)
    weights = np.ones(cells.shape)
    for _ in range(_ROUNDS):
        own = np.repeat(counts[:, None] / levels, levels, axis=1)
        others = np.bincount(inverse.ravel(), weights=own.ravel())[inverse] - own
        values = seen - others
        usual = values <= 3 * np.median(values, axis=1)[:, None] + 12 if strings else values > 0
        weights = np.where(usual, 1 / np.maximum(variance + others + own, 1e-9), 0.0)
        counts = np.maximum(0.0, levels * ((weights * values).sum(axis=1) / weights.sum(axis=1) - background))
    precise = weights.sum(axis=1) * (variance + counts / levels)
    return StringCounts(counts, np.clip(np.floor(_GRAIN * precise) / _GRAIN, 1 / _GRAIN, levels))
