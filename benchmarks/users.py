"""Benchmark of a private histogram with several rows per user, against pyarrow's group_by of the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import in_fresh_process, side_by_side

_ROWS, _USERS = 10_000_000, 3_000_000
_MODES = tuple(f"mode {number:02d}" for number in range(20))
_MAX_RATIO, _MAX_MEGABYTES = 4, 1500


def measure(quick: bool) -> Iterator[Finding]:
    """Time over reading the two columns and counting the rows of each user and value, and peak memory."""
    rows = _ROWS // 10 if quick else _ROWS
    with TemporaryDirectory() as directory:
        for kind in ("integer", "string"):
            path = str(Path(directory) / f"{kind}.parquet")
            in_fresh_process(write_file, path, kind, rows)
            yield from _measure_file(path, kind, rows, repetitions=3 if quick else 5)


def _measure_file(path: str, kind: str, rows: int, *, repetitions: int) -> Iterator[Finding]:
    what = f"histogram of {rows:,} rows with {kind} ids of {rows * _USERS // _ROWS:,} users"
    for pick in ("row", "value"):
        times = side_by_side(
            {"shuffledp": partial(histogram, path, pick), "pyarrow": partial(group_by, path)}, repetitions=repetitions
        )
        detail = ", ".join(f"{name} {seconds(times.seconds(name))}" for name in times.wall)
        ratio = times.ratio("shuffledp", "pyarrow")
        if pick == "row" and rows == _ROWS:
            yield at_most(f"{what} over pyarrow's group_by", ratio, _MAX_RATIO, "x", detail)
        else:
            yield report(f"{what} over pyarrow's group_by, pick {pick}", f"{ratio:.2f}x", detail)
    peak = in_fresh_process(histogram, path, "row").peak_bytes / 1e6
    plain = in_fresh_process(group_by, path).peak_bytes / 1e6
    yield at_most(f"peak memory of that, {kind} ids", peak, _MAX_MEGABYTES, "MB", f"pyarrow {plain:.0f} MB")


def histogram(path: str, pick: str) -> float:
    """From the file to the estimate."""
    import shuffledp as sdp

    column = sdp.read_files(path)["mode"]
    estimate = sdp.histogram(column, categories=_MODES, user="person", pick=pick, epsilon=1.0, delta=1e-9)
    return float(estimate.counts[0])


def group_by(path: str) -> int:
    """The number of rows of each user and value."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["person", "mode"])
    return len(table.group_by(["person", "mode"]).aggregate([([], "count_all")]))


def write_file(path: str, kind: str, rows: int) -> None:
    """Rows of random users with a mode each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(1)
    users = rows * _USERS // _ROWS
    ids = np.concatenate([np.arange(users), generator.integers(users, size=rows - users)])
    ids = generator.permutation(ids) * 7_919 + 10**9
    modes = pa.array(_MODES).take(pa.array(generator.integers(len(_MODES), size=rows)))
    column = pa.array(ids)
    if kind == "string":
        column = pa.array([f"user-{identifier}" for identifier in ids.tolist()])
    pq.write_table(pa.table({"person": column, "mode": modes}), path)
