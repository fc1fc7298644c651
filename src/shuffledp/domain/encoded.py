"""Checks of encoded values: indices into a domain, positions in an interval, counts per index."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain.values import is_real
from shuffledp.errors import DomainError

Indices = NDArray[np.int64]


def check_index(index: int, size: int) -> int:
    """Check one index into a domain of the given size."""
    if isinstance(index, float) or not 0 <= (checked := operator.index(index)) < size:
        raise DomainError(f"The index {index} is not an integer in 0 .. {size - 1:,}.", index=index)
    return checked


def check_positions(values: NDArray[Any]) -> NDArray[np.float64]:
    """Check positions in an interval: numbers from 0.0 to 1.0, one per user."""
    positions = np.asarray(values)
    if positions.ndim != 1 or not is_real(positions.dtype):
        raise DomainError("Positions in an interval must be a flat array of numbers.")
    positions = positions.astype(np.float64, copy=False)
    if len(positions) and not (float(positions.min()) >= 0.0 and float(positions.max()) <= 1.0):
        raise DomainError("Positions in an interval must lie between 0.0 and 1.0.")
    return positions


def check_counts(counts: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Check the number of users per index of a domain of the given size."""
    array = np.asarray(counts)
    if array.shape != (size,) or not np.issubdtype(array.dtype, np.integer) or int(array.min()) < 0:
        raise DomainError(f"Counts must be {size:,} non-negative integers.", size=size)
    return array.astype(np.int64, copy=False)


def check_indices(values: NDArray[Any], size: int) -> Indices:
    """Check indices into a domain of the given size."""
    if values.ndim != 1:
        raise DomainError(f"Indices must be a flat array, not one of {values.ndim} dimensions.", ndim=values.ndim)
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise DomainError(f"Indices must be integers, not {values.dtype}.", dtype=str(values.dtype))
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= size):
        outside = int(((values < 0) | (values >= size)).sum())
        raise DomainError(
            f"{outside:,} of {len(values):,} indices are outside 0 .. {size - 1:,}.", count=outside, size=size
        )
    return values.astype(np.int64, copy=False)
