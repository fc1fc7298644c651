"""Random grouping of records: each gets an independent uniform label, and records with the same label become adjacent.

The first step of a permutation by Rao (1961) and Sandelius (1962); to permute each group uniformly is the second.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import RandomSource, draw_bytes
from shuffledp.shuffling.permutation import threads_for

Records = NDArray[Any]

_BYTE_LABELS = 256  # a label is taken from one random byte


def group_randomly(records: Records, groups: int, source: RandomSource) -> tuple[Records, NDArray[np.int64]]:
    """Give each record a uniform label below ``groups``; returns the records grouped by label, and the bounds.

    Group k lies between the bounds k and k + 1. ``records`` is a flat array; with the compiled kernels it is grouped in
    place. ``groups`` is a power of two; above 256, groups are divided again. The same records and
    the same bytes of the source give the same result, unless the source is the system's.
    """
    if groups < 1 or groups & (groups - 1):
        raise ParameterError(f"The number of groups must be a power of two; got {groups}.", groups=groups)
    if groups <= _BYTE_LABELS:
        return _group_by_bytes(records, groups, source)
    grouped, outer = _group_by_bytes(records, _BYTE_LABELS, source)
    bounds = [np.zeros(1, dtype=np.int64)]
    for start, end in pairwise(outer.tolist()):
        part, inner = group_randomly(grouped[start:end], groups // _BYTE_LABELS, source)
        if not np.may_share_memory(part, grouped):  # grouped in place otherwise
            grouped[start:end] = part
        bounds.append(start + inner[1:])
    return grouped, np.concatenate(bounds)


def _group_by_bytes(records: Records, groups: int, source: RandomSource) -> tuple[Records, NDArray[np.int64]]:
    if ACTIVE:
        from shuffledp.shuffling.in_place import gather

        content, threads = records.view(np.uint8), threads_for(source)
        return records, gather(content, records.dtype.itemsize, groups, source, threads)
    labels = draw_bytes(len(records), source) & np.uint8(groups - 1)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(labels, minlength=groups))))
    return records[np.argsort(labels, kind="stable")], bounds
