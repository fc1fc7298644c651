"""Work on the distinct records of many files, on a cluster: equal records meet in one task, which sees each once.

Tasks that Spark repeats give the same results, since the coefficients of the fingerprints are drawn once per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shuffledp import __version__
from shuffledp.engines.spark.mixing import find_plain_records, whole_records
from shuffledp.engines.spark.record_files import MIXED, Found, find_records, path_list, refusals
from shuffledp.engines.spark.session import check_session, check_worker_version, start_session
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.shuffling.fingerprints import draw_coefficients, sort_distinct

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from shuffledp.engines.spark.record_files import Path

_RECORDS_PER_PART = 1 << 16
_MAX_PARTS = 1 << 13
_HELD_BYTES = 1 << 25
_MERGING_TASKS = 8
_DIVIDED = "part int, content binary"
_RESULT = "result binary, records bigint"

Batches = Iterator["pa.RecordBatch"]
Work = Callable[[NDArray[np.uint8]], bytes]
"""From distinct records, one per row, to a result; it runs on workers and is sent there by pickle."""
Merge = Callable[[Sequence[bytes]], bytes]
"""From results to one result; the order must not matter."""


@dataclass(frozen=True)
class DistinctResult:
    """The merged result, and how many records were equal to others and left out."""

    result: bytes
    records: int
    copies: int


def work_on_distinct(
    paths: Path | Sequence[Path],
    work: Work,
    merge: Merge,
    *,
    record_size: int,
    contents: str | None = None,
    parts: int | None = None,
    master: str | None = None,
) -> DistinctResult:
    """Apply ``work`` to the distinct records of all files, in parts, and ``merge`` to its results.

    The paths are plain files of concatenated records; or, with ``contents``, a directory that ``mix`` completed, whose
    records have that description. Neither ``work`` nor its results are logged by Spark. ``parts`` is a power of two.
    An active session is used; else a new one is connected to ``master``.
    """
    spark = SparkSession.getActiveSession() or start_session(master)
    check_session(spark)
    with refusals():
        if contents is None:
            found = find_plain_records(spark, path_list(paths), record_size, "", 0)
        else:
            found = find_records(spark, path_list(paths))
            _check_mixed(found, record_size, contents)
        count = parts or _part_count(found.records)
        coefficients = draw_coefficients(record_size)
        batches = found.frame.select("records", "content")
        divided = batches.mapInArrow(_divider(record_size, count, coefficients), _DIVIDED).repartition(count, "part")
        results = divided.groupBy("part").applyInArrow(_worker(work, record_size, coefficients), _RESULT)
        rows = results.repartition(min(count, _MERGING_TASKS)).mapInArrow(_merger(merge), _RESULT).collect()
    distinct = sum(row["records"] for row in rows)
    return DistinctResult(merge([row["result"] for row in rows]), found.records, found.records - distinct)


def _check_mixed(found: Found, record_size: int, contents: str) -> None:
    if found.stage != MIXED or found.runs > 1:
        raise DataError("These records are not one mixture: mix all of them first.")
    if (found.contents, found.record_size) != (contents, record_size):
        raise DataError(f"These are records of {found.contents!r}, not of {contents!r}.")


def _part_count(records: int) -> int:
    return min(_MAX_PARTS, 1 << max(0, -(-records // _RECORDS_PER_PART) - 1).bit_length())


def _divider(record_size: int, parts: int, coefficients: NDArray[np.uint64]) -> Callable[[Batches], Batches]:
    """The task that divides records by fingerprint, after it has removed copies among those that it sees."""
    version = __version__

    def task(batches: Batches) -> Batches:
        check_worker_version(version)
        waiting: list[NDArray[np.uint8]] = []
        for count, content in (row for batch in batches for row in zip(*batch.columns, strict=True)):
            records = whole_records(content, count, record_size)
            waiting.append(records.view(np.uint8).reshape(-1, record_size))
            if sum(piece.nbytes for piece in waiting) >= _HELD_BYTES:
                yield _divided(np.concatenate(waiting), parts, coefficients)
                waiting = []
        if waiting:
            yield _divided(np.concatenate(waiting), parts, coefficients)

    return task


def _divided(records: NDArray[np.uint8], parts: int, coefficients: NDArray[np.uint64]) -> pa.RecordBatch:
    distinct, prints = sort_distinct(records, coefficients)
    bits = parts.bit_length() - 1
    owners = prints >> np.uint64(64 - bits) if bits else np.zeros_like(prints)  # the high bits; sorted as they are
    bounds = np.searchsorted(owners, np.arange(parts + 1, dtype=np.uint64))
    used = [(part, start, end) for part, (start, end) in enumerate(pairwise(bounds.tolist())) if start < end]
    contents = pa.array([distinct[start:end].tobytes() for _, start, end in used], type=pa.binary())
    numbers = pa.array([part for part, _, _ in used], type=pa.int32())
    return pa.RecordBatch.from_arrays([numbers, contents], names=["part", "content"])


def _worker(work: Work, record_size: int, coefficients: NDArray[np.uint64]) -> Callable[[pa.Table], pa.Table]:
    """The task that works on the distinct records of a part."""

    def task(table: pa.Table) -> pa.Table:
        content = b"".join(piece.as_buffer() for piece in table.column("content"))
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record_size)
        distinct, _ = sort_distinct(records, coefficients)
        return pa.Table.from_batches([_result(work(distinct), len(distinct))])

    return task


def _merger(merge: Merge) -> Callable[[Batches], Batches]:
    """The task that merges results, so that the driver receives few."""

    def task(batches: Batches) -> Batches:
        results: list[bytes] = []
        records = 0
        for batch in batches:
            results.extend(batch.column(0).to_pylist())
            records += sum(batch.column(1).to_pylist())
            results = [merge(results)]
        if results:
            yield _result(results[0], records)

    return task


def _result(result: bytes, records: int) -> pa.RecordBatch:
    columns = [pa.array([result], type=pa.binary()), pa.array([records], type=pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["result", "records"])
