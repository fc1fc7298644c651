"""Benchmark of the exactly uniform secure permutation against numpy's insecure shuffle, and against copying."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.finding import Finding, at_least, at_most, megabytes, report
from benchmarks.fresh import peak_bytes
from benchmarks.measuring import SideBySide, in_fresh_process, side_by_side

_LARGEST = 100_000_000
_SIZES = {1_000_000: 15, 10_000_000: 5, _LARGEST: 5}
_RECORDS, _RECORD_BYTES = 1_000_000, 100
_SCRATCH_MEGABYTES = 64 * 1.048576


def measure(quick: bool) -> Iterator[Finding]:
    """Speed as a multiple of ``Generator.shuffle`` and of ``np.copyto``, and the memory beyond the array.

    Without the compiled kernels the ratios are reported, but not checked.
    """
    from shuffledp.native import ACTIVE

    for size, repetitions in _SIZES.items():
        if not (quick and size == _LARGEST):
            yield from _numbers(size, 3 if quick else repetitions, judged=ACTIVE and size == _LARGEST)
    yield from _records(5 if quick else 15, judged=ACTIVE)
    size = _LARGEST // 10 if quick else _LARGEST
    scratch = int(in_fresh_process(scratch_bytes, size).returned)
    what, detail = f"scratch memory at {size:,}", f"the items take {megabytes(4 * size)}"
    if ACTIVE:
        yield at_most(what, scratch / 1e6, _SCRATCH_MEGABYTES, "MB", detail)
    else:
        yield report(what, megabytes(scratch), detail)


def _numbers(size: int, repetitions: int, *, judged: bool) -> Iterator[Finding]:
    from shuffledp import permute

    items = np.arange(size, dtype=np.uint32)
    generator = np.random.default_rng()
    times = side_by_side(
        {
            "copy": partial(np.copyto, items.copy(), items),
            "one": partial(permute, items, threads=1),
            "two": partial(permute, items, threads=2),
            "numpy": partial(generator.shuffle, items),
        },
        repetitions=repetitions,
        warm_up=size < _LARGEST,
    )
    each = {name: times.seconds(name) / size * 1e9 for name in times.wall}
    detail = ", ".join(f"{name} {nanoseconds:.2f} ns" for name, nanoseconds in each.items())
    ratio = times.ratio("numpy", "one")
    what = f"permute {size:,} uint32 against Generator.shuffle, one thread"
    yield at_least(what, ratio, 14, detail) if judged else report(what, f"{ratio:.2f}x", detail)
    for name, threads, bound in (("one", "one thread", 14), ("two", "two threads", 9)):
        what = f"permute {size:,} uint32 over np.copyto, {threads}"
        yield _over_copying(what, times, name, bound if judged else None)


def _records(repetitions: int, *, judged: bool) -> Iterator[Finding]:
    from shuffledp import permute

    records: NDArray[Any] = np.zeros(_RECORDS, dtype=f"V{_RECORD_BYTES}")
    records.view(np.uint8)[:] = 1
    content = records.view(np.uint8)
    times = side_by_side(
        {
            "copy": partial(np.copyto, content.copy(), content),
            "one": partial(permute, records, threads=1),
            "two": partial(permute, records, threads=2),
        },
        repetitions=repetitions,
    )
    for name in ("one", "two"):
        what = (
            f"permute {_RECORDS:,} records of {_RECORD_BYTES} bytes over copying, {name} thread{'s' * (name == 'two')}"
        )
        yield _over_copying(what, times, name, 6 if judged else None)


def _over_copying(what: str, times: SideBySide, name: str, bound: float | None) -> Finding:
    ratio = times.ratio(name, "copy")
    detail = f"processor time {times.processor_ratio(name, 'copy'):.2f}x"
    return report(what, f"{ratio:.2f}x", detail) if bound is None else at_most(what, ratio, bound, "x", detail)


def scratch_bytes(size: int) -> int:
    """The memory of a permutation beyond that of the items."""
    from shuffledp import permute

    permute(np.arange(1000, dtype=np.uint32))  # loads all modules
    items = np.arange(size, dtype=np.uint32)
    before = peak_bytes()
    permute(items)
    return peak_bytes() - before
