"""Benchmark of silos on Spark: packed messages, mixed in parts, against one row per message; and a large round.

Epsilon is chosen for about two messages per user, as in rounds whose noise costs as much as their values.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.finding import Finding, at_most, completed, seconds
from benchmarks.measuring import SideBySide, side_by_side, tree_processor_seconds

_DOMAIN = 1000
_BOUND = 0.5
_EPSILON, _EPSILON_USERS = 0.0725, 5_000_000  # noise of one message per user; for other numbers of users by scaling


def measure(quick: bool) -> Iterator[Finding]:
    """The ratio of both ways, interleaved in one session, and a large round within small executors."""
    rows, repetitions = (1_000_000, 2) if quick else (5_000_000, 3)
    with tempfile.TemporaryDirectory() as name:
        spark = _session("local[2]", Path(name), "2g")
        try:
            flow = _Flow(spark, Path(name), rows)
            timed = side_by_side(
                {"mixed": flow.mixed, "rows": flow.row_per_message},
                repetitions=repetitions,
                clock=tree_processor_seconds,
            )
        finally:
            spark.stop()
    yield _ratio(timed, rows)
    users = 2_000_000 if quick else 20_000_000
    with tempfile.TemporaryDirectory() as name:
        spark = _session("local-cluster[2,1,1024]", Path(name), "2g")
        try:
            flow = _Flow(spark, Path(name), users)
            with _PeakMemory() as peak:
                start = time.perf_counter()
                counted = flow.mixed()
                elapsed = time.perf_counter() - start
        finally:
            spark.stop()
    yield completed(
        f"randomize, mix and count {users:,} users, driver heap 2 GB, two executors of 1 GB",
        int(counted >= users),
        1,
        f"{seconds(elapsed)}; {counted:,} messages; largest resident Python worker {peak.bytes / 1e6:,.0f} MB",
    )


def _ratio(timed: SideBySide, rows: int) -> Finding:
    detail = (
        f"{seconds(timed.seconds('mixed'))} against {seconds(timed.seconds('rows'))}, in processor time "
        f"{timed.processor_ratio('mixed', 'rows'):.2f}x, {rows:,} users, two messages each"
    )
    return at_most(
        "time to randomize, mix and count against one row per message",
        timed.ratio("mixed", "rows"),
        _BOUND,
        "x",
        detail,
    )


def _session(master: str, directory: Path, driver_memory: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": driver_memory,
        "spark.executor.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.shuffle.partitions": "4",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class _Flow:
    """Both ways from the same column to a tally, through committed files."""

    def __init__(self, spark: Any, directory: Path, rows: int) -> None:
        import shuffledp as sdp

        self.spark, self.directory, self.runs = spark, directory, 0
        self.protocol = sdp.find("histogram", "uniform-blanket").calibrate(
            users=rows, epsilon=_EPSILON * (_EPSILON_USERS / rows) ** 0.5, delta=1e-6, domain_size=_DOMAIN
        )
        data = str(directory / "data")
        spark.range(0, rows, 1, 8).selectExpr(f"cast(id * 7919 % {_DOMAIN} as int) as value").write.parquet(data)
        self.frame = spark.read.parquet(data)

    def mixed(self) -> int:
        """Packed messages: ``randomize``, ``mix``, ``tally``; the number of messages."""
        import shuffledp as sdp

        directory = self._new_directory()
        written = sdp.spark.randomize(self.frame, "value", self.protocol, out=directory / "silo")
        mixed = sdp.spark.mix(written, out=directory / "mixed")
        counts = sdp.spark.tally(mixed, self.protocol).counts
        shutil.rmtree(directory)
        return int(counts.sum())

    def row_per_message(self) -> int:
        """The same steps with one row per message: random labels, rows sorted by random numbers within a partition."""
        import pyarrow as pa
        from pyspark.sql import functions as sf

        directory, protocol = self._new_directory(), self.protocol

        def randomize(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                messages = protocol.randomize_all(batch.column(0).to_numpy()).values
                yield pa.RecordBatch.from_arrays([pa.array(messages.astype("int16"))], names=["message"])

        self.frame.mapInArrow(randomize, "message smallint").write.parquet(str(directory / "silo"))
        rows = self.spark.read.parquet(str(directory / "silo"))
        shuffled = rows.repartition(4, sf.floor(sf.rand() * 4)).sortWithinPartitions(sf.rand())
        shuffled.write.parquet(str(directory / "mixed"))
        counts = self.spark.read.parquet(str(directory / "mixed")).groupBy("message").count().collect()
        shutil.rmtree(directory)
        return sum(row["count"] for row in counts)

    def _new_directory(self) -> Path:
        self.runs += 1
        return self.directory / str(self.runs)


class _PeakMemory:
    """The largest resident memory of a Python worker of Spark, sampled ten times a second."""

    bytes = 0

    def __enter__(self) -> _PeakMemory:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes():
                        resident = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
                        self.bytes = max(self.bytes, 1024 * int(resident.split()[1]))
                except (OSError, StopIteration):
                    continue
