"""Uniformly random permutation in place, by the compiled kernels or by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.native.cores import available_cores
from shuffledp.randomness import SYSTEM, RandomSource, SystemRandomness
from shuffledp.randomness.source import fill_of
from shuffledp.shuffling.by_keys import permute_by_keys


def permute(items: NDArray[Any], source: RandomSource = SYSTEM, *, threads: int | None = None) -> None:
    """Apply a uniformly random permutation to ``items`` along its first axis, in place.

    Items of any fixed size are moved as they are, and are never copied as a whole: the compiled kernels take 256 KiB a
    thread; numpy, which also serves arrays that are not contiguous, stays under about 128 MiB. At most ``threads``
    threads are used, by default as many as there are cores, and fewer for few items. Any source but the
    system's is used from one thread: a seed gives one result, and others need not know of threads.
    """
    if not isinstance(items, np.ndarray) or items.ndim == 0 or not items.flags.writeable:
        raise ParameterError("Only a writable array of at least one dimension can be permuted in place.")
    if items.dtype.hasobject:
        raise ParameterError("Only items of a fixed size can be permuted, not Python objects.", dtype=items.dtype)
    workers = threads_for(source, threads)
    if items.nbytes == 0:
        return
    if ACTIVE and items.flags.c_contiguous and type(items) in (np.ndarray, np.memmap):
        from shuffledp.shuffling.in_place import permute_in_place

        permute_in_place(items.reshape(-1).view(np.uint8), items.nbytes // len(items), source, workers)
    else:
        permute_by_keys(items, source, workers)


def threads_for(source: RandomSource, asked: int | None = None) -> int:
    """How many threads may draw from the source: as many as were asked for, or as there are cores."""
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise ParameterError(f"A permutation needs at least one thread, not {asked!r}.", threads=asked)
    fill_of(source)  # refuses what is no source, before anything is moved
    if not isinstance(source, SystemRandomness):
        return 1
    return available_cores() if asked is None else asked
