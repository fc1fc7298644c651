"""Counting of mixed messages on a cluster, for the analyzer."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from shuffledp import __version__
from shuffledp.engines.spark.mixing import whole_records
from shuffledp.engines.spark.record_files import (
    DESCRIPTION,
    MIXED,
    check_rows,
    contents_of,
    ddl,
    path_list,
    read_rows,
    refusals,
    row_batch,
)
from shuffledp.engines.spark.session import check_session, check_worker_version, start_session
from shuffledp.errors import DataError, DomainError
from shuffledp.extras import extra
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import check_enough_users

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from shuffledp.protocols.protocol import Protocol

_MESSAGES_AT_ONCE = 1 << 20
_COUNTED = {**DESCRIPTION, "counted": "bigint", "counts": "binary"}
_DRIVER_BYTES = 1 << 28  # of all tallies that the driver receives

Batches = Iterator["pa.RecordBatch"]


def tally(path: str | os.PathLike[str], protocol: Protocol) -> Tally:
    """Count the messages of a directory that ``mix`` completed; ``protocol.estimate`` of the tally is the release.

    A directory whose messages are not mixed, or not of this protocol, is refused. The tally has no further noise, so
    counting the same directory again gives the same numbers.
    """
    spark, name = start_session(), path_list(path)[0]
    check_session(spark)
    expected = contents_of(protocol)
    nothing = protocol.tally(Messages(protocol.message_format.empty(0), 0))
    tallies = max(1, _DRIVER_BYTES // max(1, nothing.counts.nbytes))
    with refusals():
        frame = read_rows(spark, [name])
        # one job reads descriptions and records, so both are of the same files
        read = frame.select(*DESCRIPTION, "content").coalesce(tallies)
        rows = read.mapInArrow(_counter(protocol, expected), ddl(_COUNTED)).toArrow()
        partial = rows.filter(pc.is_valid(rows["counts"]))
        described = rows.filter(pc.is_null(rows["counts"])).select(list(DESCRIPTION))
        found = check_rows(spark, frame, described, [name])
        if found.stage != MIXED:
            raise DataError(f"The messages of {name} are not mixed: their order shows who sent them. Mix them first.")
        if found.runs > 1:
            raise DataError(f"{name} has {found.runs:,} mixtures; a release is about one.")
        if found.contents != expected or found.record_size != protocol.message_format.size:
            raise DataError(
                f"{name} has messages of {found.contents}, not of {expected}. Use the protocol of the round."
            )
        check_enough_users(found.users, protocol.users)
    parts = (Tally(np.frombuffer(counts.as_buffer(), dtype=np.int64), 0) for counts in partial["counts"])
    total = reduce(operator.add, parts, nothing)
    counted = sum(partial["counted"].to_pylist())
    if counted != found.records:
        raise DataError(f"{name} changed while it was counted: {counted:,} of {found.records:,} messages were read.")
    return Tally(total.counts, found.users)


def _counter(protocol: Protocol, expected: str) -> Callable[[Batches], Batches]:
    """The task: descriptions of all rows of a partition, then the tally of those that are of this protocol."""
    version, size = __version__, protocol.message_format.size

    def task(batches: Batches) -> Batches:
        check_worker_version(version)
        total = protocol.tally(Messages(protocol.message_format.empty(0), 0))
        records = 0
        for batch in batches:
            yield row_batch(batch.select(list(DESCRIPTION)).to_pylist(), _COUNTED)
            kinds = zip(*(batch[name].to_pylist() for name in ("contents", "record_size", "stage")), strict=True)
            for kind, count, content in zip(kinds, batch["records"], batch["content"], strict=True):
                if kind != (expected, size, MIXED):
                    continue  # the driver refuses them
                packed = whole_records(content, count, size).view(np.uint8).reshape(-1, size)
                for start in range(0, len(packed), _MESSAGES_AT_ONCE):
                    part = packed[start : start + _MESSAGES_AT_ONCE]
                    try:
                        values = protocol.message_format.unpack(part)
                    except DomainError:
                        raise DataError("A message is not of this protocol: the files are damaged or forged.") from None
                    total = total + protocol.tally(Messages(values, 0))
                records += len(packed)
        yield row_batch([{"counted": records, "counts": total.counts.tobytes()}], _COUNTED)

    return task
