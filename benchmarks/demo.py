"""Benchmark of a whole round of version 2, as ``shuffledp demo`` runs it, against the same round of version 1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import side_by_side

_DEVICES = 4000
_CATEGORIES = 12
_BOUND = 1.15


def measure(quick: bool) -> Iterator[Finding]:
    """The time from new keys to the release, both servers included, beside a round of version 1 against itself."""
    versions = {"version 1": 1, "version 1 again": 1, "version 2": 2}
    times = side_by_side(
        {name: partial(_round, version) for name, version in versions.items()}, repetitions=3 if quick else 7
    )
    yield at_most(
        f"a round of {_DEVICES:,} devices of version 2 against version 1",
        times.ratio("version 2", "version 1"),
        _BOUND,
        "x",
        f"{seconds(times.seconds('version 2'))} against {seconds(times.seconds('version 1'))}; in processor time "
        f"{times.processor_ratio('version 2', 'version 1'):.2f}x",
    )
    yield report(
        "version 1 against itself",
        f"{times.ratio('version 1 again', 'version 1'):.2f}x",
        f"in processor time {times.processor_ratio('version 1 again', 'version 1'):.2f}x",
    )


def _round(version: int) -> None:
    from shuffledp.collection.device import Connection, Devices
    from shuffledp.collection.rehearsal import Rehearsal
    from shuffledp.domain import Categories
    from shuffledp.protocols.registry import find

    with TemporaryDirectory() as directory:
        rehearsal = Rehearsal.prepare(
            Path(directory),
            kind=find("histogram", "uniform-blanket"),
            settings={"users": _DEVICES, "categories": Categories.numbered(_CATEGORIES)},
            epsilon=1.0,
            delta=1e-6,
            version=version,
        )
        values = [str(device % _CATEGORIES) for device in range(_DEVICES)]
        with rehearsal.servers():
            Devices(rehearsal.task.task, values, connect=lambda: Connection(rehearsal.shuffler_url)).report()
            rehearsal.release()
