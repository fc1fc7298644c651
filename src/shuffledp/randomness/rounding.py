"""Exact randomized rounding of floating-point numbers to whole ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.source import SYSTEM, RandomSource, draw_words

_LARGEST_BITS = 40
_CHUNK = 1 << 15  # a chunk and its words stay in the cache


def round_randomly(values: NDArray[np.float64], source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """floor(v) plus a bit that is one with exactly the fraction v - floor(v), for each v in [0, 2^40).

    The expected result is v itself. The fraction of a float is a float, so nothing is rounded before.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.size and not (given.min() >= 0 and given.max() < 1 << _LARGEST_BITS):  # false for a NaN too
        raise ParameterError(
            f"Values from {given.min()} to {given.max()} cannot be rounded; "
            f"each must be a number of at least 0 and below 2^{_LARGEST_BITS}.",
            smallest=float(given.min()),
            largest=float(given.max()),
        )
    flat = np.ascontiguousarray(given).ravel()
    out = np.empty(len(flat), dtype=np.int64)
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        whole = np.floor(chunk)
        out[start : start + _CHUNK] = whole
        out[start : start + _CHUNK] += _uniform_below(chunk - whole, source)
    return out.reshape(given.shape)


def _uniform_below(fractions: NDArray[np.float64], source: RandomSource) -> NDArray[np.bool_]:
    """Whether a fresh uniform number lies below each fraction: 64 bits, and further ones where these are equal.

    Multiplying by 2^64, cutting and subtracting are exact in floating point.
    """
    scaled = np.ldexp(fractions, 64)
    leading = scaled.astype(np.uint64)
    words = draw_words(len(fractions), np.uint64, source)
    below: NDArray[np.bool_] = words < leading
    ties = np.flatnonzero(words == leading)
    if len(ties):
        rest = scaled[ties] - np.floor(scaled[ties])
        open_ties = rest > 0  # equal to the end is not below
        if open_ties.any():
            below[ties[open_ties]] = _uniform_below(rest[open_ties], source)
    return below
