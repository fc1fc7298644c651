"""Exact inversion sampling on the integers: random bits are compared with a cumulative distribution function."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.native import ACTIVE
from shuffledp.randomness.source import BUFFER_BYTES, RandomSource, draw_words, stream_of

if ACTIVE:
    from shuffledp.native import _tables

_WORD = 64
_GUARD = 32
_LARGEST_GUIDE_BITS = 17  # a larger guide no longer stays in the cache beside the thresholds
_PADDING = 3  # entries after the upper halves, which the kernel may read
_SHORT_TABLE = 1 << 15
_MANY_DRAWS = 1 << 10
_CHUNK = BUFFER_BYTES // 8


@dataclass(frozen=True)
class CdfBounds:
    """Integer lower and upper bounds on 2^precision Pr[K <= k] for k = first, first + 1, ...

    The probability below ``first`` and above the last entry is less than 2^-precision, unless the last
    entry is exactly 2^precision.
    """

    first: int
    lower: list[int]
    upper: list[int]


class InversionTable:
    """Draws K = min{k : U < Pr[K <= k]} for a uniform real U, of which as many bits are drawn as needed.

    64 bits are decisive except with probability 2^-64 per table entry. In the remaining cases further
    bits of U are compared with bounds of higher precision, so the distribution is exact.
    """

    def __init__(self, cdf_bounds: Callable[[int], CdfBounds]) -> None:
        self._cdf_bounds = cdf_bounds
        bounds = cdf_bounds(_WORD + _GUARD)
        floors = [value >> _GUARD for value in bounds.lower]
        top = (1 << _WORD) - 1
        # entries whose 64 leading bits are all zeros or all ones are handled by _decide
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

    def draw(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        """``size`` independent draws."""
        out = np.empty(size, dtype=np.int64)
        if ACTIVE:
            self._draw_natively(out, source, add=False)
        else:
            for start in range(0, size, _CHUNK):
                chunk = out[start : start + _CHUNK]
                chunk[:] = self._search(len(chunk), source)
        return out

    def add_to(self, sums: NDArray[np.int64], source: RandomSource) -> None:
        """Add an independent draw to each entry of a contiguous array."""
        if ACTIVE:
            self._draw_natively(sums, source, add=True)
            return
        for start in range(0, len(sums), _CHUNK):
            chunk = sums[start : start + _CHUNK]
            chunk += self._search(len(chunk), source)

    def _search(self, size: int, source: RandomSource) -> NDArray[np.int64]:
        words = draw_words(size, np.uint64, source)
        positions = np.searchsorted(self._thresholds, words, side="right")
        drawn: NDArray[np.int64] = positions.astype(np.int64) + self._first
        for i in self._undecided(words, positions):
            drawn[i] = self._decide(int(words[i]), source)
        return drawn

    def _draw_natively(self, out: NDArray[np.int64], source: RandomSource, *, add: bool) -> None:
        """Draw with the kernels, which stop at each word that is not decisive; such a word is resolved here.

        Many draws from a short table begin with 32 bits each, which are nearly always enough.
        """
        upper, guide, ambiguous = self._kernel_tables
        narrow = len(out) >= _MANY_DRAWS and len(self._thresholds) <= _SHORT_TABLE
        buffer: NDArray[Any] = np.empty(min(len(out), _CHUNK), dtype=np.uint32 if narrow else np.uint64)
        fill = stream_of(source, buffer.itemsize * len(out))
        try:
            for start in range(0, len(out), _CHUNK):
                chunk = out[start : start + _CHUNK]
                words = buffer[: len(chunk)]
                fill(words.view(np.uint8))
                done = 0
                while True:
                    output = (self._first, add, chunk[done:])
                    if narrow:
                        done += _tables.draw_halves(words[done:], upper, guide, self._ambiguous_halves, *output)
                    else:
                        done += _tables.draw(words[done:], self._thresholds, upper, guide, ambiguous, *output)
                    if done == len(chunk):
                        break
                    word = int(words[done])
                    drawn = self._extend_half(word, source) if narrow else self._decide(word, source)
                    chunk[done] = drawn + (chunk[done] if add else 0)
                    done += 1
        finally:
            buffer.fill(0)  # the words reveal what was drawn

    def _extend_half(self, half: int, source: RandomSource) -> int:
        """A draw that begins with these 32 bits."""
        word = half << 32 | int(draw_words(1, np.uint32, source)[0])
        words = np.array([word], dtype=np.uint64)
        positions = np.searchsorted(self._thresholds, words, side="right")
        if len(self._undecided(words, positions)):
            return self._decide(word, source)
        return self._first + int(positions[0])

    @cached_property
    def _kernel_tables(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64]]:
        """What the kernel needs beside the thresholds: their upper halves, a guide table and the ambiguous words.

        The guide gives the number of thresholds below the smallest word with the same leading bits.
        """
        upper = np.append(self._thresholds >> np.uint64(32), np.full(_PADDING, (1 << 32) - 1, dtype=np.uint64))
        bits = min(max(4, len(self._thresholds).bit_length()), _LARGEST_GUIDE_BITS)
        least = np.arange(1 << bits, dtype=np.uint64) << np.uint64(_WORD - bits)
        guide = np.append(np.searchsorted(self._thresholds, least, side="left"), len(self._thresholds))
        ambiguous = np.array(sorted(self._ambiguous - {0, (1 << _WORD) - 1}), dtype=np.uint64)
        return upper.astype(np.uint32), guide.astype(np.uint32), ambiguous

    @cached_property
    def _ambiguous_halves(self) -> NDArray[np.uint32]:
        return np.unique(self._kernel_tables[2] >> np.uint64(32)).astype(np.uint32)

    def _undecided(self, words: NDArray[np.uint64], positions: NDArray[np.intp]) -> NDArray[np.intp]:
        """The indices of words that equal a threshold or are ambiguous, and so are not decisive."""
        tied = np.zeros(len(words), dtype=np.bool_)
        if len(self._thresholds):
            tied |= (self._thresholds[np.maximum(positions, 1) - 1] == words) & (positions > 0)
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
            position = next((i for i, value in enumerate(bounds.lower) if high <= value), None)
            if position is not None and (position == 0 or bounds.upper[position - 1] <= low):
                return bounds.first + position
