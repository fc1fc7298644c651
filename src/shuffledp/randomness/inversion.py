"""Exact draws from a law on the integers by comparing random bits with its distribution function."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffledp.randomness.source import RandomSource, draw_words

__all__ = ["CdfBounds", "InversionTable"]

_WORD = 64
_GUARD = 32


@dataclass(frozen=True)
class CdfBounds:
    """Whole numbers around 2^precision Pr[K <= k] for k = first, first + 1, ...; never on the wrong side.

    Below ``first`` and above the last entry lies less mass than one unit of the precision, unless
    the last entry is exactly one.
    """

    first: int
    lower: list[int]
    upper: list[int]


class InversionTable:
    """Draws K = min{k : U < Pr[K <= k]} for a uniform real U of which as many bits are drawn as needed.

    64 bits decide all but a 2^-64 share per table entry; what is left is decided by drawing further
    bits of U against bounds of higher precision, so that the law is met exactly.
    """

    def __init__(self, cdf_bounds: Callable[[int], CdfBounds]) -> None:
        self._cdf_bounds = cdf_bounds
        bounds = cdf_bounds(_WORD + _GUARD)
        floors = [value >> _GUARD for value in bounds.lower]
        top = (1 << _WORD) - 1
        # entries whose 64 leading bits are all zero or all one are left to the exact branch
        start = bisect_right(floors, 0)
        stop = next((i for i in range(start, len(floors)) if floors[i] >= top), len(floors))
        self._ambiguous = {0, top} | {
            min(value >> _GUARD, top)
            for value, floor in zip(bounds.upper, floors, strict=True)
            if value >> _GUARD != floor
        }
        self._first = bounds.first + start
        self._thresholds = np.array(floors[start:stop], dtype=np.uint64)
        self.last = bounds.first + len(floors) - 1
        """The largest value in the table."""

    @property
    def nbytes(self) -> int:
        """Memory held by the table."""
        return self._thresholds.nbytes

    def draw(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """``size`` independent draws."""
        words = draw_words(size, np.uint64, source)
        places = np.searchsorted(self._thresholds, words, side="right")
        out: NDArray[np.int64] = places.astype(np.int64) + self._first
        for i in self._undecided(words, places):
            out[i] = self._decide(int(words[i]), source)
        return out

    def _undecided(self, words: NDArray[np.uint64], places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the 64 bits equal those of a boundary, so that they do not decide."""
        tied = np.zeros(len(words), dtype=np.bool_)
        if len(self._thresholds):
            tied |= (self._thresholds[np.maximum(places, 1) - 1] == words) & (places > 0)
        for word in self._ambiguous:
            tied |= words == np.uint64(word)
        return np.flatnonzero(tied)

    def _decide(self, prefix: int, source: RandomSource) -> int:
        """Draw further bits of U until one value of K remains."""
        precision = _WORD
        while True:
            prefix = prefix << _WORD | int(draw_words(1, np.uint64, source)[0])
            precision += _WORD
            bounds = self._cdf_bounds(precision + _GUARD)
            low, high = prefix << _GUARD, (prefix + 1) << _GUARD  # U lies in [low, high)
            place = next((i for i, value in enumerate(bounds.lower) if high <= value), None)
            if place is not None and (place == 0 or bounds.upper[place - 1] <= low):
                return bounds.first + place
