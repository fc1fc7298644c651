"""Benchmark of the Spark engine against plain Spark: counts, partial tallies, one row per user, growth, memory.

Run it with the environment of ``make test-spark``: ``.venv-spark/bin/python -m benchmarks spark``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.finding import Finding, at_most, completed, report, seconds
from benchmarks.measuring import SideBySide, side_by_side, tree_processor_seconds

_ROWS, _CATEGORIES, _PEOPLE_PER_ROW = 20_000_000, 1_000, 0.316
_MAX_COUNTS, _MAX_PARTIAL, _MAX_USER, _MAX_GROWTH = 1.3, 4.0, 0.6, 4.4
_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
}


def measure(quick: bool) -> Iterator[Finding]:
    """Ratios to plain Spark, interleaved in one session of two cores; then all routes with small executors."""
    rows = _ROWS // 10 if quick else _ROWS
    repetitions = 3 if quick else 5
    with TemporaryDirectory() as directory:
        large, small = (str(Path(directory) / name) for name in ("large", "small"))
        with _session("local[2]") as spark:
            _write(spark, large, rows)
            _write(spark, small, rows // 4)
            yield from _measure_rounds(spark, large, small, rows, repetitions)
            yield from _measure_users(spark, large, rows, max(2, repetitions - 2))  # first, so that Java is warm
            yield from _measure_users(spark, small, rows // 4, repetitions)
        with _session("local-cluster[2,1,1024]") as spark:
            yield _run_in_little_memory(spark, large, rows)


def _measure_rounds(spark: Any, large: str, small: str, rows: int, repetitions: int) -> Iterator[Finding]:
    import shuffledp as sdp

    categories = sdp.Categories.numbered(_CATEGORIES)
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(
        users=rows // 4, categories=categories, epsilon=1.0, delta=1e-9
    )

    def run(path: str, route: str) -> None:
        sdp.spark.run(spark.read.parquet(path), "category", protocol, route=route)

    total = sdp.find("sum", "privacy-blanket").calibrate(users=rows // 4, lower=0, upper=100, epsilon=1.0, delta=1e-9)

    def run_sum(path: str) -> None:
        sdp.spark.run(spark.read.parquet(path), "number", total)

    def plain(path: str) -> None:
        spark.read.parquet(path).groupBy("category").count().collect()

    times = side_by_side(
        {
            "plain": partial(plain, large),
            "counts": partial(run, large, "counts"),
            "partial": partial(run, large, "partial"),
            "partial of numbers": partial(run_sum, large),
            "counts of a quarter": partial(run, small, "counts"),
            "partial of a quarter": partial(run, small, "partial"),
        },
        repetitions=repetitions,
        clock=tree_processor_seconds,
    )
    detail = _detail(times)
    what = f"of {rows:,} rows over plain groupBy().count()"
    yield at_most(f"counts {what}", times.ratio("counts", "plain"), _MAX_COUNTS, "x", detail)
    for route in ("partial", "partial of numbers"):
        yield at_most(f"{route} {what}", times.ratio(route, "plain"), _MAX_PARTIAL, "x", detail)
    for route in ("counts", "partial"):
        growth = times.ratio(route, f"{route} of a quarter")
        yield at_most(f"{route} of 4 times the rows", growth, _MAX_GROWTH, "x", detail)


def _measure_users(spark: Any, path: str, rows: int, repetitions: int) -> Iterator[Finding]:
    import shuffledp as sdp

    categories = sdp.Categories.numbered(_CATEGORIES)

    def chosen() -> None:
        sdp.spark.count(spark.read.parquet(path), "category", categories, user="person")

    def window() -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        order = Window.partitionBy("person").orderBy(sf.rand())
        first = spark.read.parquet(path).withColumn("number", sf.row_number().over(order)).filter("number = 1")
        first.groupBy("category").count().collect()

    times = side_by_side({"window": window, "user": chosen}, repetitions=repetitions, clock=tree_processor_seconds)
    what = f"one row per user of {rows:,} rows over a window function"
    ratio = f"in processor time {times.processor_ratio('user', 'window'):.2f}x; {_detail(times)}"
    if rows < _ROWS // 4:  # the tasks of Python workers take some seconds however few rows there are
        yield report(what, f"{times.ratio('user', 'window'):.2f}x", ratio)
    else:
        yield at_most(what, times.ratio("user", "window"), _MAX_USER, "x", ratio)


def _run_in_little_memory(spark: Any, path: str, rows: int) -> Finding:
    """Every route over all rows, with two executors of 1 GB and a driver of 2 GB."""
    import shuffledp as sdp

    categories = sdp.Categories.numbered(_CATEGORIES)
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(
        users=rows // 5, categories=categories, epsilon=1.0, delta=1e-9
    )
    options: tuple[dict[str, Any], ...] = ({"route": "counts"}, {"route": "partial"}, {"user": "person"})
    finished, details = 0, []
    for each in options:
        start = time.perf_counter()
        try:
            sdp.spark.run(spark.read.parquet(path), "category", protocol, **each)
        except sdp.EngineError as error:
            details.append(f"{each} failed: {error}")
        else:
            finished += 1
            details.append(f"{' '.join(each.values())} {seconds(time.perf_counter() - start)}")
    what = f"routes over {rows:,} rows with a driver of 2 GB and two executors of 1 GB"
    return completed(what, finished, len(options), ", ".join(details))


def _detail(times: SideBySide) -> str:
    each = (
        f"{name} {seconds(times.seconds(name))} ({seconds(times.processor_seconds(name))} of processors)"
        for name in times.wall
    )
    return ", ".join(each)


def _write(spark: Any, path: str, rows: int) -> None:
    people = int(rows * _PEOPLE_PER_ROW)
    frame = spark.range(rows).selectExpr(
        f"cast(pmod(xxhash64(id, 1), {people}) as bigint) as person",
        f"cast(pmod(xxhash64(id, 2), {_CATEGORIES}) as string) as category",
        "pmod(xxhash64(id, 3), 1000000) / 1e4 as number",
    )
    frame.repartition(8).write.parquet(path)


@contextmanager
def _session(master: str) -> Iterator[Any]:
    import os
    import sys

    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("benchmark")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
