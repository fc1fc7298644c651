"""Benchmark of a private mean of a Parquet column of ten million rows, against pyarrow's mean of the same column."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import in_fresh_process, side_by_side

_ROWS = 10_000_000
_MAX_RATIO = 5


def measure(quick: bool) -> Iterator[Finding]:
    """Time over reading the column and computing its mean; the plan for so many users is made by the first call."""
    with TemporaryDirectory() as directory:
        path = str(Path(directory) / "rows.parquet")
        in_fresh_process(write_file, path)
        start = time.perf_counter()
        private_mean(path)
        first = time.perf_counter() - start
        times = side_by_side(
            {"shuffledp": partial(private_mean, path), "pyarrow": partial(plain_mean, path)},
            repetitions=5 if quick else 11,
        )
    what = f"private mean of a Parquet column of {_ROWS:,} rows over pyarrow's mean, reading included"
    detail = ", ".join(f"{name} {seconds(times.seconds(name))}" for name in times.wall)
    yield at_most(what, times.ratio("shuffledp", "pyarrow"), _MAX_RATIO, "x", detail)
    yield report("the first call, with imports and the plan for these users", seconds(first))


def private_mean(path: str) -> float:
    """From the file to the estimate."""
    import shuffledp as sdp

    column = sdp.read_files(path)["minutes"]
    return sdp.mean(column, lower=0, upper=120, epsilon=1.0, delta=1e-9).value


def plain_mean(path: str) -> float:
    """The mean itself."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return float(pc.mean(pq.read_table(path, columns=["minutes"])["minutes"]).as_py())


def write_file(path: str) -> None:
    """Numbers with two decimals, one row per user."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    minutes = np.round(np.random.default_rng().gamma(2, 20, _ROWS).clip(0, 120), 2)
    pq.write_table(pa.table({"minutes": minutes}), path)
