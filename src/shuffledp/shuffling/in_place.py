"""Uniformly random permutation in place by the compiled kernels, with a small buffer per thread.

Rao (1961) and Sandelius (1962): give every item an independent uniform label, group the items by label, and permute
each group uniformly; the result is exactly uniform if the positions of a group depend on group sizes only. Small
groups are permuted by the Fisher-Yates algorithm, larger ones recursively.

Items are grouped in place, after Penschuck (2023). Each label has a segment of the array, all of the same size. The
current item gets a label and is exchanged with the item at the head of that label's segment, which becomes the current
item. When the first segment is full, few items are unlabelled. Their labels are drawn; then all group sizes are known,
segments are shifted accordingly, and the remaining items are moved to their groups. Each thread works on its own part
of every segment.

Which item gets the next label depends on earlier labels and, at the end, on how often each label remains to be drawn,
but never on the order of the remaining labels: every item's label is uniform and independent of the others.
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
_WIDE_ITEM_BYTES = 1 << 12  # moving such an item costs more than a cache miss
_LEAST_BYTES_A_THREAD = 1 << 24
_WORD_BYTES = 4

Content = NDArray[np.uint8]


def permute_in_place(content: Content, size: int, source: RandomSource, threads: int) -> None:
    """Permute the items of ``size`` bytes each in ``content``."""
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
    """Group the items in place by independent uniform labels; group k lies between the returned bounds k and k + 1."""
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
        position, end = 1, len(content) // size
        while position < end:
            if self._used == len(self._words):
                self._refill()
            position, self._used = fisher_yates(content, size, position, self._words, self._used)

    def scatter(self, content: Content, size: int, heads: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Scatter to the segments until the first one is full."""
        labels = self._words.view(np.uint8)
        while True:
            self._refill()
            if scatter(content, size, heads, ends, labels) < len(labels):
                break
        self._used = len(self._words)  # the remaining words may be partly consumed: discard them

    def erase(self) -> None:
        """Overwrite the random words, which reveal the permutation."""
        self._words.fill(0)

    def _refill(self) -> None:
        self._fill(self._words.view(np.uint8))
        self._used = 0


def _is_small(content: Content, size: int) -> bool:
    return len(content) <= _LARGEST_GROUP_BYTES or size >= _WIDE_ITEM_BYTES


def _streams(content: Content, size: int, source: RandomSource, threads: int) -> list[_Stream]:
    """One stream per thread that is worth starting, each expecting its share of labels and words."""
    count = max(1, min(threads, len(content) // _LEAST_BYTES_A_THREAD))
    labels = 0 if _is_small(content, size) else 1
    return [_Stream(source, (labels + _WORD_BYTES) * (len(content) // size // count)) for _ in range(count)]


def _permute_groups(content: Content, size: int, streams: list[_Stream]) -> None:
    groups = deque(pairwise(_gather(content, size, _LABELS, streams).tolist()))

    def work(stream: _Stream) -> None:
        while groups:
            try:
                start, end = groups.popleft()
            except IndexError:  # another thread took the last group
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
    """Call ``work`` with each stream in a separate thread."""
    if len(streams) == 1:
        work(streams[0])
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and never needed on a device

    with ThreadPoolExecutor(len(streams)) as pool:
        for _ in pool.map(work, streams):
            pass
