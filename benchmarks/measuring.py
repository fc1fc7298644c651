"""Interleaved timing of alternatives, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import atexit
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SideBySide:
    """Wall-clock and processor seconds of each alternative, one entry per repetition."""

    wall: dict[str, list[float]]
    processor: dict[str, list[float]]

    def seconds(self, name: str) -> float:
        """The median wall-clock time."""
        return median(self.wall[name])

    def processor_seconds(self, name: str) -> float:
        """The median processor time, over all threads and child processes; other load affects it little."""
        return median(self.processor[name])

    def ratio(self, numerator: str, denominator: str) -> float:
        """The median over the repetitions of one time over another, both from the same repetition."""
        return _median_ratio(self.wall, numerator, denominator)

    def processor_ratio(self, numerator: str, denominator: str) -> float:
        """The same in processor time."""
        return _median_ratio(self.processor, numerator, denominator)


def side_by_side(
    alternatives: Mapping[str, Callable[[], object]],
    *,
    repetitions: int,
    warm_up: bool = True,
    clock: Callable[[], float] | None = None,
) -> SideBySide:
    """Time the alternatives in turn, in alternating order; a first round is not counted.

    ``clock`` gives processor seconds; by default those of this process and of its children that have ended.
    """
    clock = clock or _processor_seconds
    wall: dict[str, list[float]] = {name: [] for name in alternatives}
    processor: dict[str, list[float]] = {name: [] for name in alternatives}
    names = list(alternatives)
    for repetition in range(-1 if warm_up else 0, repetitions):
        for name in names if repetition % 2 == 0 else reversed(names):
            start, start_processor = time.perf_counter(), clock()
            alternatives[name]()
            elapsed, elapsed_processor = time.perf_counter() - start, clock() - start_processor
            if repetition >= 0:
                wall[name].append(elapsed)
                processor[name].append(elapsed_processor)
    return SideBySide(wall, processor)


@dataclass(frozen=True)
class FreshRun:
    """The result of a function in a separate process, and the peak memory of that process."""

    returned: Any
    peak_bytes: int


def in_fresh_process(function: Callable[..., object], *arguments: str | int | float) -> FreshRun:
    """Call a function of this package in a new Python process."""
    output = python("-m", "benchmarks.fresh", function.__module__, function.__name__, json.dumps(arguments))
    answer = json.loads(output.splitlines()[-1])
    return FreshRun(answer["returned"], answer["peak_bytes"])


def python(*arguments: str) -> str:
    """What a new Python process prints.

    It keeps bytecode, in a directory of its own, so that a checkout starts like an installed package
    also where the environment says not to write any.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = _bytecode_directory()
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@cache
def _bytecode_directory() -> str:
    directory = TemporaryDirectory()
    atexit.register(directory.cleanup)
    return directory.name


def _processor_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def tree_processor_seconds() -> float:
    """Processor seconds of this process and its descendants, also of those that are still running; on Linux."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(stat.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    total = 0
    for process, own in ticks.items():
        ancestor = process
        while ancestor not in (0, os.getpid()):
            ancestor = parents.get(ancestor, 0)
        total += own if ancestor else 0
    return total / os.sysconf("SC_CLK_TCK")


def _median_ratio(times: Mapping[str, list[float]], numerator: str, denominator: str) -> float:
    return median(a / b for a, b in zip(times[numerator], times[denominator], strict=True))
