"""Benchmark of a private histogram of a Parquet file of ten million rows, against a plain count of the same file."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.finding import Finding, at_most, megabytes, report, seconds
from benchmarks.measuring import in_fresh_process, python, side_by_side

_ROWS = 10_000_000
_CATEGORIES = tuple(f"category {number:02d}" for number in range(20))

_PLAIN_PARQUET = """
import sys, pyarrow.compute as pc, pyarrow.parquet as pq
print(len(pc.value_counts(pq.read_table(sys.argv[1], columns=["choice"])["choice"])))
"""
_PLAIN_CSV = """
import sys, pyarrow.compute as pc, pyarrow.csv as csv
print(len(pc.value_counts(csv.read_csv(sys.argv[1])["choice"])))
"""


def measure(quick: bool) -> Iterator[Finding]:
    """Seconds and peak memory of the command, and its time over ``pyarrow.compute.value_counts``."""
    with TemporaryDirectory() as directory:
        parquet, csv = Path(directory) / "rows.parquet", Path(directory) / "rows.csv"
        in_fresh_process(write_files, str(parquet), str(csv))
        repetitions = 3 if quick else 7
        yield from _measure_file(parquet, _PLAIN_PARQUET, repetitions, bounded=True)
        yield from _measure_file(csv, _PLAIN_CSV, repetitions, bounded=False)


def _measure_file(path: Path, plain: str, repetitions: int, *, bounded: bool) -> Iterator[Finding]:
    times = side_by_side(
        {
            "shuffledp": lambda: python("-m", "shuffledp", *_arguments(path)),
            "pyarrow": lambda: python("-c", plain, str(path)),
        },
        repetitions=repetitions,
    )
    kind = {".parquet": "Parquet", ".csv": "CSV"}[path.suffix]
    what = f"{kind} of {_ROWS:,} rows ({path.stat().st_size / 1e6:.0f} MB), from file to estimate"
    duration, peak = times.seconds("shuffledp"), in_fresh_process(run_command, str(path)).peak_bytes
    detail = f"pyarrow value_counts {seconds(times.seconds('pyarrow'))}, both with the start of Python"
    if bounded:
        yield at_most(what, duration, 5, "s", detail)
        yield at_most("peak memory of that process", peak / 1e6, 1000, "MB")
    else:
        yield report(what, seconds(duration), f"{detail}; peak memory {megabytes(peak)}")
    yield report(f"{kind}: over pyarrow's value_counts", f"{times.ratio('shuffledp', 'pyarrow'):.2f}x")


def run_command(path: str) -> None:
    """The command in this process, so that its memory can be asked for."""
    from shuffledp.cli.main import main

    sys.argv = ["shuffledp", *_arguments(Path(path))]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as finished:
            if finished.code:
                raise


def write_files(parquet: str, csv: str) -> None:
    """The same rows, an identifier and a category, in both formats."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    generator = np.random.default_rng(1)
    shares = generator.dirichlet(np.ones(len(_CATEGORIES)))
    schema = pa.schema([("person", pa.int64()), ("choice", pa.string())])
    step = 1_000_000
    with pa.parquet.ParquetWriter(parquet, schema) as to_parquet, pa.csv.CSVWriter(csv, schema) as to_csv:
        for start in range(0, _ROWS, step):
            choices = pa.array(_CATEGORIES).take(pa.array(generator.choice(len(_CATEGORIES), step, p=shares)))
            table = pa.table([pa.array(np.arange(start, start + step)), choices], schema=schema)
            to_parquet.write_table(table)
            to_csv.write_table(table)


def _arguments(path: Path) -> list[str]:
    target = ["--column", "choice", "--epsilon", "1", "--delta", "1e-9", "--domain", ",".join(_CATEGORIES)]
    return ["run", "histogram", str(path), *target, "--protocol", "balcer-cheu"]
