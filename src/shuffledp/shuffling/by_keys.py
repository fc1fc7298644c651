"""Uniformly random permutation in place with numpy, with bounded scratch memory.

Rao (1961) and Sandelius (1962): give every item an independent uniform label, group the items by
label, and permute each group uniformly; the result is exactly uniform. This is applied at three levels:
random bits split arrays larger than the scratch memory, random bytes split pieces larger than the cache,
and within a cache-sized group the labels are 32-bit keys; ties between keys are resolved by further keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.randomness import RandomSource, draw_bytes, draw_words

_SCRATCH_BYTES = 1 << 26
_LARGEST_GROUP = 1 << 16
_BLOCK = 1 << 18
_LABELS = 256

Items = NDArray[Any]
Map = Callable[[Callable[[int], None], Iterable[int]], Iterator[None]]
"""``map``, or the ``map`` of a thread pool."""


def permute_by_keys(items: Items, source: RandomSource, threads: int) -> None:
    """Apply a uniformly random permutation along the first axis; scratch memory stays under about 128 MiB."""
    if len(items) <= _LARGEST_GROUP and items.nbytes <= _SCRATCH_BYTES:
        _permute_group(items, items, source)
        return
    if threads == 1:
        _permute_pieces(items, source, map)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and never needed on a device

    with ThreadPoolExecutor(threads) as pool:
        _permute_pieces(items, source, pool.map)


def _permute_pieces(items: Items, source: RandomSource, apply: Map) -> None:
    for piece in _split_to_scratch(items, source):
        if len(piece) <= _LARGEST_GROUP:
            _permute_group(piece, piece, source)
        else:
            _permute_piece(piece, source, apply)


def _block_length(items: Items) -> int:
    """The number of items moved at a time: small compared with the scratch memory and the cache."""
    item_bytes = items.nbytes // max(1, len(items))
    return max(1, min(_BLOCK, _SCRATCH_BYTES // (16 * max(1, item_bytes))))


def _split_to_scratch(items: Items, source: RandomSource) -> Iterator[Items]:
    """Split by random bits until each piece fits the scratch memory and its groups fit the cache."""
    item_bytes = max(1, items.nbytes // max(1, len(items)))
    largest = min(_SCRATCH_BYTES // item_bytes, _LABELS * _LARGEST_GROUP)
    if len(items) <= max(largest, 4 * _block_length(items)):
        yield items
        return
    middle = _partition_by_coins(items, source)
    yield from _split_to_scratch(items[:middle], source)
    yield from _split_to_scratch(items[middle:], source)


def _partition_by_coins(items: Items, source: RandomSource) -> int:
    """Move each item to the front or the back by an independent random bit, in place; returns the boundary.

    Two blocks are copied out at the start. Reading the next block from the side with less free space
    then guarantees space for a full block on both sides.
    """
    length = _block_length(items)
    pending = [items[:length].copy(), items[len(items) - length :].copy()]
    read_front, read_back = length, len(items) - length
    write_front, write_back = 0, len(items)
    while read_back - read_front > length:
        if read_front - write_front <= write_back - read_back:
            block = items[read_front : read_front + length].copy()
            read_front += length
        else:
            block = items[read_back - length : read_back].copy()
            read_back -= length
        write_front, write_back = _write_by_coins(items, block, write_front, write_back, source)
    pending.append(items[read_front:read_back].copy())
    for block in pending:
        write_front, write_back = _write_by_coins(items, block, write_front, write_back, source)
    return write_front


def _write_by_coins(
    items: Items, block: Items, write_front: int, write_back: int, source: RandomSource
) -> tuple[int, int]:
    coins = np.unpackbits(draw_bytes(-(-len(block) // 8), source), count=len(block)).view(np.bool_)
    front, back = block[coins], block[~coins]
    items[write_front : write_front + len(front)] = front
    items[write_back - len(back) : write_back] = back
    return write_front + len(front), write_back - len(back)


def _permute_piece(items: Items, source: RandomSource, apply: Map) -> None:
    """Scatter to 256 groups by random bytes, then write each group back permuted."""
    labels = draw_bytes(len(items), source)
    length = _block_length(items)
    blocks = [slice(start, start + length) for start in range(0, len(items), length)]
    # block by block, because bincount copies its argument as 8-byte integers
    sizes = [np.bincount(labels[block], minlength=_LABELS) for block in blocks]
    starts = np.concatenate(([0], np.cumsum(np.sum(sizes, axis=0))))
    scratch = np.empty_like(items)
    group_ends = starts[:-1].copy()
    for block, block_sizes in zip(blocks, sizes, strict=True):
        _scatter_block(items[block], labels[block], block_sizes, scratch, group_ends)

    def permute_back(group: int) -> None:
        extent = slice(starts[group], starts[group + 1])
        _permute_group(scratch[extent], items[extent], source)

    for _ in apply(permute_back, range(_LABELS)):
        pass


def _scatter_block(
    block: Items, labels: NDArray[np.uint8], sizes: NDArray[np.intp], out: Items, group_ends: NDArray[np.intp]
) -> None:
    """Append the block's items to the groups of their labels, and advance the end of each group."""
    gathered = block[np.argsort(labels, kind="stable")]
    begin = 0
    for group, size in enumerate(sizes.tolist()):
        end = group_ends[group]
        out[end : end + size] = gathered[begin : begin + size]
        begin += size
    group_ends += sizes


def _permute_group(group: Items, out: Items, source: RandomSource) -> None:
    """Write a uniformly random permutation of ``group`` to ``out`` (which may be the same array)."""
    out[:] = group[_random_order(len(group), source)]


def _random_order(size: int, source: RandomSource) -> NDArray[np.intp]:
    """The order of independent uniform keys; equal keys are ordered by new keys.

    The 32-bit keys are sorted by two 16-bit digits, the lower first, for which numpy uses radix sort.
    """
    keys = draw_words(2 * size, np.uint16, source)
    low, high = keys[:size], keys[size:]
    order = np.argsort(low, kind="stable")
    order = order[np.argsort(high[order], kind="stable")]
    low, high = low[order], high[order]
    same_as_next = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
    if same_as_next.any():
        _order_ties(order, same_as_next, source)
    return order


def _order_ties(order: NDArray[np.intp], same_as_next: NDArray[np.bool_], source: RandomSource) -> None:
    """Permute every run of equal keys uniformly by new 64-bit keys, which are drawn again if they tie, too."""
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[:-1] |= same_as_next
    tied[1:] |= same_as_next
    positions = np.flatnonzero(tied)
    run = np.concatenate(([0], np.cumsum(~same_as_next)))[positions]
    while True:
        keys = draw_words(len(positions), np.uint64, source)
        by_run = np.lexsort((keys, run))
        sorted_keys, sorted_run = keys[by_run], run[by_run]
        if not ((sorted_keys[1:] == sorted_keys[:-1]) & (sorted_run[1:] == sorted_run[:-1])).any():
            break
    order[positions] = order[positions][by_run]
