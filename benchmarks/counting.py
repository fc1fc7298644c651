"""Benchmark of counting messages against reading them once, and against numpy's bincount."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.finding import Finding, at_least, at_most, report, seconds
from benchmarks.measuring import in_fresh_process, side_by_side

_MESSAGES = 100_000_000
_FEW, _MANY = 1_000, 1_000_000


def measure(quick: bool) -> Iterator[Finding]:
    """Time over ``max``, which reads every message, and speed as a multiple of ``np.bincount`` in one call.

    Again and again in one process, and once in a new one: there numpy's copy of all messages as eight bytes each also
    costs the memory that it takes. Without the compiled kernels the ratios are reported, but not checked.
    """
    from shuffledp.messages import count_values
    from shuffledp.native import ACTIVE

    size, repetitions = (_MESSAGES // 10, 3) if quick else (_MESSAGES, 5)
    judged = ACTIVE and not quick
    for categories in (_FEW, _MANY):
        messages = _messages(size, categories)
        times = side_by_side(
            {
                "reading": messages.max,
                "counting": partial(count_values, messages, categories),
                "np.bincount": partial(np.bincount, messages, minlength=categories),
            },
            repetitions=repetitions,
        )
        what = f"count {size:,} messages of {categories:,} categories"
        detail = ", ".join(f"{name} {times.seconds(name) / size * 1e9:.2f} ns" for name in times.wall)
        over = times.ratio("counting", "reading")
        if judged and categories == _FEW:
            yield at_most(f"{what} over reading them", over, 3, "x", detail)
        else:
            yield report(f"{what} over reading them", f"{over:.2f}x", detail)
        against = times.ratio("np.bincount", "counting")
        yield report(f"{what} against np.bincount, again and again", f"{against:.1f}x")
        del messages, times
    yield _once(size, repetitions, judged)


def _once(size: int, repetitions: int, judged: bool) -> Finding:
    measured: dict[str, list[float]] = {"shuffledp": [], "numpy": []}
    for _ in range(repetitions):
        for name, durations in measured.items():
            durations.append(float(in_fresh_process(first_call_seconds, name, size, _MANY).returned))
    ours, theirs = median(measured["shuffledp"]), median(measured["numpy"])
    what = f"count {size:,} messages of {_MANY:,} categories against np.bincount, once in a new process"
    detail = f"{seconds(ours)} against {seconds(theirs)}"
    return at_least(what, theirs / ours, 10, detail) if judged else report(what, f"{theirs / ours:.1f}x", detail)


def first_call_seconds(name: str, size: int, categories: int) -> float:
    """The time of the first large count of a process; small ones before it load all modules."""
    from shuffledp.messages import count_values

    messages = _messages(size, categories)
    for counted in (messages[:1000], messages):
        start = time.perf_counter()
        if name == "numpy":
            np.bincount(counted, minlength=categories)
        else:
            count_values(counted, categories)
    return time.perf_counter() - start


def _messages(size: int, categories: int) -> NDArray[np.uint32]:
    return np.random.default_rng().integers(categories, size=size, dtype=np.uint32)
