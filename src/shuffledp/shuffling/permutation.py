"""Uniformly random permutation in place, by the compiled kernels or by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE, available_cores
from shuffledp.randomness import SYSTEM, RandomSource, SystemRandomness
from shuffledp.randomness.source import fill_of
from shuffledp.shuffling.by_keys import permute_by_keys


def permute(items: NDArray[Any], source: RandomSource = SYSTEM, *, threads: int | None = None) -> None:
    """Apply a uniformly random permutation to ``items`` along its first axis, in place.

    Items may have any fixed size. Extra memory is bounded: 256 KiB per thread with the compiled kernels, about 128 MiB
    with numpy, which is also used for arrays that are not contiguous. At most ``threads`` threads are used, by default
    one per core, and fewer for small arrays. Sources other than the system's are used from one thread, so that a seed
    gives one result and a source need not be thread-safe.
    """
    if not isinstance(items, np.ndarray) or items.ndim == 0 or not items.flags.writeable:
        raise ParameterError("items must be a writable array of at least one dimension.")
    if items.dtype.hasobject:
        raise ParameterError(
            "items must have a fixed size; arrays of Python objects cannot be permuted.", dtype=items.dtype
        )
    workers = threads_for(source, threads)
    if items.nbytes == 0:
        return
    if ACTIVE and items.flags.c_contiguous and type(items) in (np.ndarray, np.memmap):
        from shuffledp.shuffling.in_place import permute_in_place

        permute_in_place(items.reshape(-1).view(np.uint8), items.nbytes // len(items), source, workers)
    else:
        permute_by_keys(items, source, workers)


def threads_for(source: RandomSource, requested: int | None = None) -> int:
    """The number of threads that draw from the source: as requested, by default one per core."""
    if requested is not None and (not isinstance(requested, int) or requested < 1):
        raise ParameterError(f"threads must be an integer of at least 1; got {requested!r}.", threads=requested)
    fill_of(source)  # rejects an invalid source before anything is moved
    if not isinstance(source, SystemRandomness):
        return 1
    return available_cores() if requested is None else requested
