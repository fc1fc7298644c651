"""The exactly uniform secure permutation against numpy's insecure shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.finding import Finding, megabytes, report
from benchmarks.fresh import peak_bytes
from benchmarks.measuring import in_fresh_process, side_by_side

__all__ = ["measure", "scratch_bytes"]

_LARGEST = 100_000_000
_SIZES = {1_000_000: 15, 10_000_000: 5, _LARGEST: 3}


def measure(quick: bool) -> Iterator[Finding]:
    """Speed as a multiple of ``Generator.shuffle`` on uint32, and the memory beyond the array."""
    from shuffledp import permute

    generator = np.random.default_rng()
    for size, repetitions in _SIZES.items():
        if quick and size == _LARGEST:
            continue
        items = np.arange(size, dtype=np.uint32)
        times = side_by_side(
            {"permute": partial(permute, items), "numpy": partial(generator.shuffle, items)},
            repetitions=3 if quick else repetitions,
            warm_up=size < _LARGEST,
        )
        each = {name: times.seconds(name) / size * 1e9 for name in ("permute", "numpy")}
        yield report(
            f"permute {size:,} uint32 against Generator.shuffle",
            f"{times.ratio('numpy', 'permute'):.2f}x",
            f"{each['permute']:.1f} ns against {each['numpy']:.1f} ns an item; "
            f"processor time {times.processor_ratio('numpy', 'permute'):.2f}x",
        )
        del items
    size = _LARGEST // 10 if quick else _LARGEST
    scratch = int(in_fresh_process(scratch_bytes, size).returned)
    yield report(f"scratch memory at {size:,}", megabytes(scratch), f"the items take {megabytes(4 * size)}")


def scratch_bytes(size: int) -> int:
    """How much more memory a permutation takes than the items themselves."""
    from shuffledp import permute

    items = np.arange(size, dtype=np.uint32)
    before = peak_bytes()
    permute(items)
    return peak_bytes() - before
