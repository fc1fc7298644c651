"""Exact randomized rounding of floating-point numbers to integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.source import SYSTEM, RandomSource, draw_words

_LARGEST_BITS = 40
_CHUNK = 1 << 15  # a chunk and its words stay in the cache
_EXACT_SUM = 2.0**53


def round_randomly(values: NDArray[np.float64], source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """floor(v) plus a bit that is one with exactly the fraction v - floor(v), for each v in [0, 2^40).

    The expected result is v itself. The fractional part of a float is a float, so there is no rounding error.
    """
    inputs = _checked(values)
    flat = np.ascontiguousarray(inputs).ravel()
    out = np.empty(len(flat), dtype=np.int64)
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        floors = np.floor(chunk)
        out[start : start + _CHUNK] = floors
        out[start : start + _CHUNK] += _uniform_below(chunk - floors, source)
    return out.reshape(inputs.shape)


def sum_rounded_randomly(values: NDArray[np.float64], source: RandomSource = SYSTEM) -> int:
    """A draw with the distribution of the sum of ``round_randomly(values)``, from a quarter of the random bits."""
    flat = np.ascontiguousarray(_checked(values)).ravel()
    total = 0
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        floors = np.floor(chunk)
        floor_sum = floors.sum()  # of integers, so exact below 2^53
        total += int(floor_sum if floor_sum < _EXACT_SUM else floors.sum(dtype=np.int64))
        total += _count_below(chunk - floors, source)
    return total


def _count_below(fractions: NDArray[np.float64], source: RandomSource) -> int:
    """The number of fractions that exceed an independent uniform number: 16 bits each, more bits in case of a tie.

    Scaling by 2^16, truncation and subtraction are exact in floating point.
    """
    scaled = fractions * (1 << 16)
    leading = scaled.astype(np.uint16)
    words = draw_words(len(fractions), np.uint16, source)
    below = int(np.count_nonzero(words < leading))
    ties = np.flatnonzero(words == leading)
    return below + int(np.count_nonzero(_uniform_below(scaled[ties] - leading[ties], source)))


def _checked(values: NDArray[np.float64]) -> NDArray[np.float64]:
    inputs = np.asarray(values, dtype=np.float64)
    if inputs.size and not (inputs.min() >= 0 and inputs.max() < 1 << _LARGEST_BITS):  # also rejects NaN
        raise ParameterError(
            f"values must lie in [0, 2^{_LARGEST_BITS}); got values from {inputs.min()} to {inputs.max()}.",
            smallest=float(inputs.min()),
            largest=float(inputs.max()),
        )
    return inputs


def _uniform_below(fractions: NDArray[np.float64], source: RandomSource) -> NDArray[np.bool_]:
    """Whether an independent uniform number lies below each fraction: 64 bits, and further bits in case of a tie.

    Scaling by 2^64, truncation and subtraction are exact in floating point.
    """
    scaled = np.ldexp(fractions, 64)
    leading = scaled.astype(np.uint64)
    words = draw_words(len(fractions), np.uint64, source)
    below: NDArray[np.bool_] = words < leading
    ties = np.flatnonzero(words == leading)
    if len(ties):
        fractions_left = scaled[ties] - np.floor(scaled[ties])
        open_ties = fractions_left > 0  # a tie in all bits counts as not below
        if open_ties.any():
            below[ties[open_ties]] = _uniform_below(fractions_left[open_ties], source)
    return below
