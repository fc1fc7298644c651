"""Mixing of fixed-size records on a cluster: all of them in a uniformly random order, in a committed directory.

Rao (1961) and Sandelius (1962): every record gets an independent uniform label, all records of a label meet in one
task, which permutes them uniformly, and the labels are concatenated in order; the result is exactly uniform.

Labels are drawn from a secret key of the call and the id of each batch. If Spark loses an executor and repeats some
tasks, they send every record to the same label as before; with fresh labels, some records would arrive twice and others
never. The permutation of a label is always fresh, since each task's result is committed once.

This is the work of the shuffler. It is called mixing here, because a shuffle of Spark is any exchange of rows between
tasks.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp import __version__
from shuffledp.engines.spark.record_files import (
    COLUMNS,
    MIXED,
    Found,
    RecordFiles,
    check_new_directory,
    check_same_kernels,
    ddl,
    find_records,
    path_list,
    refusals,
    row_batch,
    write_committed,
)
from shuffledp.engines.spark.session import check_worker_version, start_session
from shuffledp.errors import DataError, EngineError, ParameterError
from shuffledp.extras import extra
from shuffledp.native import ACTIVE
from shuffledp.protocols.protocol import check_enough_users
from shuffledp.randomness import RepeatableRandomness
from shuffledp.shuffling import permute
from shuffledp.shuffling.grouping import group_randomly

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from shuffledp.engines.spark.record_files import Path
    from shuffledp.engines.spark.session import Frame, Session

_LABEL_BYTES = 1 << 25  # expected bytes of one label, which a task has in memory
_SMALL_LABEL_BYTES = 1 << 23  # little data is divided, too, for the sake of several cores
_SMALL_LABELS = 4
_MAX_LABELS = 1 << 13
_HELD_BYTES = 1 << 25  # bytes that a task holds back, so that it sends few large pieces
_ROW_BYTES = 1 << 23
_MAX_RECORD_BYTES = 1 << 16
_LABELLED = "label int, content binary"

Batches = Iterator["pa.RecordBatch"]


def mix(
    paths: Path | Sequence[Path],
    *,
    out: str | os.PathLike[str],
    record_size: int | None = None,
    contents: str | None = None,
    users: int | None = None,
    labels: int | None = None,
) -> RecordFiles:
    """Write the records of all ``paths`` to the new directory ``out``, in a uniformly random order.

    ``paths`` are directories that ``randomize`` or ``mix`` completed, or globs of them, of one protocol; nothing in a
    record is interpreted. With ``record_size`` they are plain files of concatenated records instead, such as the sealed
    messages of a collection: ``contents`` then names their task, and ``users`` says how many users sent them.
    ``labels`` is the number of parts that are permuted separately, a power of two; by default a part has about 32 MB.

    Mix the messages of a round once. Whoever sees two mixtures that have some directories in common can compare them,
    and learns more about the users of the others than the guarantee says.
    """
    spark, target = start_session(), path_list(out)[0]
    if record_size is None and not (contents is None and users is None):
        raise ParameterError("contents and users describe plain files: give their record_size too.")
    with refusals():
        check_new_directory(spark, target)
        names = path_list(paths)
        if record_size is None:
            found = find_records(spark, names)
            check_enough_users(found.users, found.minimum_users)
        else:
            found = find_plain_records(spark, names, record_size, contents or "plain records", users or 0)
        run, counted = secrets.token_hex(16), Observation()
        mixed = _mixed(found, _label_count(found, labels), run)
        write_committed(mixed.observe(counted, sf.sum("records").alias("records")), target)
        written = counted.get["records"] or 0
    # whoever reads the directory compares its rows with round_records, and so notices files of failed attempts
    if written != found.records:
        raise EngineError(
            f"{target} must not be used: it has {written:,} records, and there were {found.records:,}. The files "
            "changed while they were mixed; mix them again into a new directory."
        )
    return RecordFiles(target, found.contents, found.record_size, found.records, found.users, found.silos)


def find_plain_records(spark: Session, paths: Sequence[str], record_size: int, contents: str, users: int) -> Found:
    """Plain files of concatenated records, each file being one batch."""
    if not 1 <= record_size <= _MAX_RECORD_BYTES:
        raise ParameterError(f"record_size must be from 1 to {_MAX_RECORD_BYTES:,} bytes; got {record_size}.")
    files = spark.read.format("binaryFile").load(list(paths))
    summary = files.select("path", "length").agg(
        sf.sum("length").alias("bytes"),
        sf.count("path").alias("files"),
        sf.count_distinct("path").alias("distinct"),
        sf.min_by("path", sf.col("length") % record_size == 0).alias("path"),
        sf.max(sf.col("length") % record_size).alias("rest"),
    )
    (row,) = summary.collect()
    if not row["bytes"]:
        raise DataError(f"There are no records in {', '.join(paths[:3])}.")
    if row["rest"]:
        raise DataError(f"{row['path']} was truncated: its size is not a multiple of {record_size} bytes.")
    if row["files"] != row["distinct"]:
        raise DataError("A file was given twice; every report must be counted once.")
    frame = files.select(
        sf.col("path").alias("batch"), sf.floor(sf.col("length") / record_size).alias("records"), "content"
    )
    return Found(frame, "plain", contents, record_size, row["bytes"] // record_size, users, 0, (users,), 1)


def _label_count(found: Found, labels: int | None) -> int:
    if labels is not None:
        if not 1 <= labels <= _MAX_LABELS or labels & (labels - 1):
            raise ParameterError(
                f"labels must be a power of two from 1 to {_MAX_LABELS:,}; got {labels}.", labels=labels
            )
        return labels
    size = found.records * found.record_size
    needed = max(-(-size // _LABEL_BYTES), min(_SMALL_LABELS, -(-size // _SMALL_LABEL_BYTES)))
    return min(_MAX_LABELS, 1 << max(0, needed - 1).bit_length())


def _mixed(found: Found, labels: int, run: str) -> Frame:
    """The plan of the mixture, which only ``mix`` may evaluate, and once."""
    batches = found.frame.select("batch", "records", "content")
    labelled = batches.mapInArrow(_labeller(found.record_size, labels, RepeatableRandomness.new_key()), _LABELLED)
    return labelled.repartition(labels, "label").groupBy("label").applyInArrow(_permuter(found, run), ddl(COLUMNS))


@cache
def label_codes(labels: int) -> NDArray[Any]:
    """A code for each label, such that Spark's hash sends every code to a task of its own.

    The hash is Murmur3, and the task is its remainder by the number of labels, a power of two. With another hash,
    tasks would get several labels or none, and the result would be the same.
    """
    # 32-bit arithmetic in integers of 64 bits: what overflows is cut off by the mask
    mask, count = np.uint64(0xFFFFFFFF), np.arange(32 * labels + 32, dtype=np.uint64)

    def turned(bits: NDArray[np.uint64], left: int) -> NDArray[np.uint64]:
        return bits << np.uint64(left) & mask | bits >> np.uint64(32 - left)

    bits = turned(count * np.uint64(0xCC9E2D51) & mask, 15) * np.uint64(0x1B873593) & mask ^ np.uint64(42)
    bits = turned(bits, 13) * np.uint64(5) + np.uint64(0xE6546B64) & mask ^ np.uint64(4)
    bits = (bits ^ bits >> np.uint64(16)) * np.uint64(0x85EBCA6B) & mask
    bits = (bits ^ bits >> np.uint64(13)) * np.uint64(0xC2B2AE35) & mask
    tasks, first = np.unique((bits ^ bits >> np.uint64(16)) & np.uint64(labels - 1), return_index=True)
    if len(tasks) != labels:
        raise AssertionError(f"Only {len(tasks):,} of {labels:,} labels have codes.")
    return np.asarray(first, dtype=np.int32)


def _labeller(record_size: int, labels: int, key: bytes) -> Callable[[Batches], Batches]:
    """The task that divides batches by label."""
    version, compiled, codes = __version__, ACTIVE, label_codes(labels)

    def task(batches: Batches) -> Batches:
        check_worker_version(version)
        check_same_kernels(compiled)
        pieces: list[list[bytes]] = [[] for _ in range(labels)]
        held = 0
        for name, count, content in (row for batch in batches for row in zip(*batch.columns, strict=True)):
            records = whole_records(content, count, record_size)
            source = RepeatableRandomness(key, name.as_py().encode())
            grouped, bounds = group_randomly(records, labels, source)
            for pieces_of_label, (start, end) in zip(pieces, pairwise(bounds.tolist()), strict=True):
                if start < end:
                    pieces_of_label.append(grouped[start:end].tobytes())
            held += records.nbytes
            if held >= _HELD_BYTES:
                yield _labelled_batch(pieces, codes)
                pieces, held = [[] for _ in range(labels)], 0
        if held:
            yield _labelled_batch(pieces, codes)

    return task


def whole_records(content: Any, count: Any, record_size: int) -> np.ndarray[Any, Any]:
    """A writable copy of the records of a batch, given as Arrow scalars; DataError if it does not have all of them."""
    buffer, records = content.as_buffer() or b"", count.as_py() or 0
    if len(buffer) != records * record_size:
        raise DataError(
            f"A batch of {records:,} records of {record_size} bytes has {len(buffer):,} bytes: truncated or damaged."
        )
    return np.frombuffer(buffer, dtype=f"V{record_size}").copy()


def _labelled_batch(pieces: list[list[bytes]], codes: NDArray[Any]) -> pa.RecordBatch:
    used = [label for label, parts in enumerate(pieces) if parts]
    contents = pa.array([b"".join(pieces[label]) for label in used], type=pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(codes[used]), contents], names=["label", "content"])


def _permuter(found: Found, run: str) -> Callable[[pa.Table], pa.Table]:
    """The task that permutes all records of a label."""
    size, step = found.record_size, max(1, _ROW_BYTES // found.record_size)
    common = {
        "contents": found.contents,
        "record_size": size,
        "stage": MIXED,
        "run": run,
        "users": found.users,
        "minimum_users": found.minimum_users,
        "round_records": found.records,
    }

    def task(table: pa.Table) -> pa.Table:
        label = table.column("label")[0].as_py()
        records = np.frombuffer(
            b"".join(piece.as_buffer() for piece in table.column("content")), dtype=f"V{size}"
        ).copy()
        permute(records, threads=1)
        rows = []
        for number, start in enumerate(range(0, len(records), step)):
            part = records[start : start + step]
            own = {"batch": f"{run}-{label}-{number}", "position": label << 32 | number}
            rows.append(row_batch([{**common, **own, "records": len(part), "content": part.tobytes()}]))
        return pa.Table.from_batches(rows)

    return task
