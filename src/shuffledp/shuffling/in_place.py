"""Uniformly random permutation in place by the compiled kernels, with a small buffer a thread.

Rao (1961) and Sandelius (1962): give every item an independent uniform label, gather the items by label, and permute
each group uniformly; the result is exactly uniform, as long as the places of a group depend on sizes alone. Small
groups are permuted by Fisher and Yates's method, larger ones in the same way again.

Items are gathered in place, after Penschuck (2023). Each label has a segment of the array, all of the same size. An
item in the hand gets a label and goes to the head of its segment; the item that was there is next in the hand. When
the first segment is full, few items are without a label. Their labels are drawn; now all sizes are known, segments are
shifted accordingly, and the last items go where they belong. Threads have parts of each segment of their own.

Which item gets the next label depends on labels before and, in the end, on how often each is still to come, but never
on the order in which they come: every item's label is uniform and independent of the others'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.native._permutation import fisher_yates, scatter, settle
from shuffledp.randomness import RandomSource, draw_bytes
from shuffledp.randomness.source import BUFFER_BYTES, stream_of

_LABELS = 256
_LARGEST_GROUP_BYTES = 1 << 23  # fits the cache
_WIDE_ITEM_BYTES = 1 << 12  # moving such an item costs more than finding it
_LEAST_BYTES_A_THREAD = 1 << 24
_WORD_BYTES = 4

Content = NDArray[np.uint8]


def permute_in_place(content: Content, size: int, source: RandomSource, threads: int) -> None:
    """Permute the items of ``size`` bytes each that the content consists of."""
    streams = _streams(content, size, source, 1 if _is_small(content, size) else threads)
    try:
        if len(streams) == 1:
            streams[0].permute(content, size)
        else:
            _permute_groups(content, size, streams)
    finally:
        for stream in streams:
            stream.erase()


def gather(content: Content, size: int, labels: int, source: RandomSource, threads: int) -> NDArray[np.int64]:
    """Give every item an independent uniform label and gather them in place; group k is between bounds k and k + 1."""
    streams = _streams(content, size, source, threads)
    try:
        return _gather(content, size, labels, streams)
    finally:
        for stream in streams:
            stream.erase()


class _Stream:
    """Random bytes for one thread, a buffer at a time."""

    def __init__(self, source: RandomSource, expected_bytes: int) -> None:
        self.source = source
        self._fill = stream_of(source, expected_bytes)
        self._words = np.zeros(max(1, min(expected_bytes, BUFFER_BYTES) // _WORD_BYTES), dtype=np.uint32)
        self._used = len(self._words)

    def permute(self, content: Content, size: int) -> None:
        """Permute the items."""
        if not _is_small(content, size):
            for start, end in pairwise(_gather(content, size, _LABELS, [self]).tolist()):
                self.permute(content[start * size : end * size], size)
            return
        place, end = 1, len(content) // size
        while place < end:
            if self._used == len(self._words):
                self._refill()
            place, self._used = fisher_yates(content, size, place, self._words, self._used)

    def scatter(self, content: Content, size: int, heads: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Scatter to the segments until the first one is full."""
        labels = self._words.view(np.uint8)
        while True:
            self._refill()
            if scatter(content, size, heads, ends, labels) < len(labels):
                break
        self._used = len(self._words)  # what is left are no words that nobody has looked at

    def erase(self) -> None:
        """Overwrite what decided where items went."""
        self._words.fill(0)

    def _refill(self) -> None:
        self._fill(self._words.view(np.uint8))
        self._used = 0


def _is_small(content: Content, size: int) -> bool:
    return len(content) <= _LARGEST_GROUP_BYTES or size >= _WIDE_ITEM_BYTES


def _streams(content: Content, size: int, source: RandomSource, threads: int) -> list[_Stream]:
    """As many as is worth the while, each for its share of labels and words."""
    count = max(1, min(threads, len(content) // _LEAST_BYTES_A_THREAD))
    labels = 0 if _is_small(content, size) else 1
    return [_Stream(source, (labels + _WORD_BYTES) * (len(content) // size // count)) for _ in range(count)]


def _permute_groups(content: Content, size: int, streams: list[_Stream]) -> None:
    groups = deque(pairwise(_gather(content, size, _LABELS, streams).tolist()))

    def work(stream: _Stream) -> None:
        while groups:
            try:
                start, end = groups.popleft()
            except IndexError:  # another thread was faster
                return
            stream.permute(content[start * size : end * size], size)

    _in_threads(work, streams)


def _gather(content: Content, size: int, labels: int, streams: list[_Stream]) -> NDArray[np.int64]:
    parts, count = len(streams), len(content) // size
    cuts = np.arange(labels * parts + 1, dtype=np.int64) * count // (labels * parts)
    begins, ends = cuts[:-1], cuts[1:]
    heads = begins.copy()

    def work(stream: _Stream) -> None:
        own = slice(streams.index(stream), None, parts)
        own_heads = begins[own].copy()
        stream.scatter(content, size, own_heads, ends[own].copy())
        heads[own] = own_heads

    _in_threads(work, streams)
    bounds = np.empty(labels + 1, dtype=np.int64)
    last_labels = draw_bytes(count - int((heads - begins).sum()), streams[0].source)
    settle(content, size, begins, heads, last_labels, bounds)
    last_labels.fill(0)
    return bounds


def _in_threads(work: Callable[[_Stream], None], streams: list[_Stream]) -> None:
    """Each stream in a thread of its own."""
    if len(streams) == 1:
        work(streams[0])
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and a device never gets here

    with ThreadPoolExecutor(len(streams)) as pool:
        for _ in pool.map(work, streams):
            pass
