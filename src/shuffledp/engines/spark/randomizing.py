"""Randomizing a column inside an organisation's cluster: packed messages in a committed directory."""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp import __version__
from shuffledp.domain import Bit, DiscreteDomain, Domain, Interval, Strings
from shuffledp.engines.spark.record_files import (
    COLUMNS,
    RANDOMIZED,
    RecordFiles,
    check_new_directory,
    contents_of,
    ddl,
    find_records,
    path_list,
    refusals,
    row_batch,
    write_committed,
)
from shuffledp.engines.spark.session import check_worker_version
from shuffledp.engines.spark.table import Chosen, SparkColumn, SparkTable
from shuffledp.engines.spark.workers import CODE, PORTION_ROWS, decoded, joined_batches
from shuffledp.engines.table import check_column
from shuffledp.engines.users import UserIds
from shuffledp.errors import DataError, EngineError, ParameterError
from shuffledp.extras import extra
from shuffledp.protocols.flow import user_ranges
from shuffledp.shuffling import permute

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from shuffledp.engines.encoding import Encoder
    from shuffledp.engines.spark.session import Frame
    from shuffledp.protocols.protocol import Protocol

_USERS_AT_ONCE = 1 << 18
_UNUSABLE = "The column has values outside the domain, or missing ones."
_PROBLEMS = "encoded bigint, missing bigint, outside bigint, examples array<string>, markers array<string>"

Batches = Iterator["pa.RecordBatch"]


def randomize(
    frame: Frame,
    column: str,
    protocol: Protocol,
    *,
    out: str | os.PathLike[str],
    domain: Domain | None = None,
    equals: str | None = None,
    other: str | None = None,
    clip: bool = False,
    drop_missing: bool = False,
    missing: Sequence[str] = (),
    user: str | None = None,
    pick: str = "row",
    order_by: str | None = None,
    drop_missing_users: bool = False,
) -> RecordFiles:
    """Randomize ``column`` of a Spark DataFrame, one row per user, and write the messages to the directory ``out``.

    The noise is drawn by this call, on the workers, and only the messages of successful tasks are committed. A second
    call draws new noise: two reports of the same users, which is two releases. ``protocol`` is calibrated for the users
    of all organisations together. ``domain`` has the bins or dates behind the categories of the protocol; ``equals``,
    ``other``, ``clip``, ``drop_missing`` and ``missing`` are those of the one-line functions. If users have several
    rows, ``user`` names the column of their ids, and ``pick``, ``order_by`` and ``drop_missing_users`` say which row
    counts. A user must have all rows in one organisation: whoever reports in two of them counts as two users.
    """
    spark = frame.sparkSession
    target = path_list(out)[0]
    if protocol.released_only:
        raise ParameterError(
            f"{protocol.question}/{protocol.name} needs a party that sees the data without noise, so its messages must "
            "not leave the organisation. Choose a protocol of the shuffled or local model."
        )
    check_column(column, frame.columns, "The DataFrame")
    reader = SparkColumn(SparkTable(frame), column, drop_missing=drop_missing, missing=tuple(missing))
    if user is not None:
        reader = replace(reader, users=UserIds(user, pick, order_by, drop_missing_users))
    elif pick != "row" or order_by is not None or drop_missing_users:
        raise ParameterError(
            "`pick=HOW`, `order_by=COLUMN` and `drop_missing_users=True` say which row of a user counts: give the "
            "users' ids too, `user=COLUMN`."
        )
    encoder, size = _encoder(reader, protocol, domain, equals, other, clip)
    with refusals():
        check_new_directory(spark, target)
    chosen = None if user is None else Chosen(reader, reader.encoding(lambda: (encoder, size)))
    expected = None if chosen is None else chosen.count()
    values = reader.values_frame if chosen is None else chosen.with_parts().select(CODE)
    run, contents = secrets.token_hex(16), contents_of(protocol)
    # Spark counts the rows before the workers get them, so that it notices what a worker loses or delivers twice
    rows, messages = Observation(), Observation()
    packed = values.observe(rows, sf.count(sf.lit(1)).alias("rows")).mapInArrow(
        _randomizer(protocol, encoder if chosen is None else None, run, contents), ddl(COLUMNS)
    )
    packed = packed.observe(messages, sf.sum("users").alias("users"), sf.sum("records").alias("records"))
    with refusals():
        try:
            write_committed(packed, target)
        except Exception as error:
            if _UNUSABLE in str(error):
                _explain_values(values, encoder)
            raise
        observed = rows.get["rows"], messages.get["users"] or 0, messages.get["records"]
        if observed[1] == 0:
            raise DataError("The column holds no rows, so there are no users.")
        found = find_records(spark, [target], own=True)
    complete = observed[1] <= observed[0] if drop_missing else observed[1] == observed[0]
    if expected is not None:
        complete = observed[0] == observed[1] == expected
    if not complete or (found.users, found.records, found.runs) != (*observed[1:], 1):
        raise EngineError(
            f"{target} must not be used: it has reports of {found.users:,} users from {found.runs:,} runs, and this "
            f"run randomized {observed[1]:,} of {observed[0]:,} rows. Use a new directory."
        )
    return RecordFiles(target, contents, found.record_size, found.records, found.users, found.silos)


def _encoder(
    reader: SparkColumn, protocol: Protocol, domain: Domain | None, equals: str | None, other: str | None, clip: bool
) -> tuple[Encoder, int]:
    """The encoder of the column into the indices or positions of the protocol, and the number of indices or 0."""
    chosen = protocol.domain if domain is None else domain
    if isinstance(chosen, Bit) or isinstance(protocol.domain, Bit):
        return reader.bit_encoder(equals), 2
    if isinstance(chosen, Interval):
        return reader.number_encoder(chosen, clip=clip), 0
    if isinstance(chosen, Strings) and chosen == protocol.domain:
        return reader.string_encoder(chosen), 0
    if not isinstance(chosen, DiscreteDomain) or not isinstance(protocol.domain, DiscreteDomain):
        raise ParameterError(
            f"The domain is {type(chosen).__name__}, and that of the protocol {type(protocol.domain).__name__}; plan "
            "for this domain."
        )
    encoder, size = reader.histogram_encoder(chosen, other=other, clip=clip)
    if size != len(protocol.domain):
        raise ParameterError(
            f"The domain has {size:,} values and the protocol {len(protocol.domain):,}; plan for this domain."
        )
    return encoder, size


def _randomizer(protocol: Protocol, encoder: Encoder | None, run: str, contents: str) -> Callable[[Batches], Batches]:
    """The task: encode, randomize, pack and permute the rows of a partition, many users at a time.

    Without an encoder, rows are codes.
    """
    version = __version__

    def task(batches: Batches) -> Batches:
        check_worker_version(version)
        own = copy.deepcopy(encoder)
        for values in _portions(batches, own, protocol.domain):
            for start, end in user_ranges(protocol, len(values)):
                yield _randomized(protocol, values[start:end], run, contents)

    return task


def _portions(batches: Batches, encoder: Encoder | None, domain: Domain) -> Iterator[NDArray[Any]]:
    """The encoded values of a partition in large portions; DataError, without the value, if one has no code."""
    waiting: list[NDArray[Any]] = []
    users = 0
    for batch in joined_batches(batches, PORTION_ROWS):
        waiting.append(decoded(batch.column(0), domain) if encoder is None else encoder.encode(batch.column(0)).values)
        if encoder is not None and (encoder.outside or (encoder.missing and not encoder.drops_missing)):
            raise DataError(_UNUSABLE)
        users += len(waiting[-1])
        if users >= _USERS_AT_ONCE:
            yield np.concatenate(waiting)
            waiting, users = [], 0
    if users:
        yield np.concatenate(waiting)


def _randomized(protocol: Protocol, values: NDArray[Any], run: str, contents: str) -> pa.RecordBatch:
    packed = protocol.message_format.pack(protocol.randomize_all(values).values)
    permute(packed, threads=1)  # the shuffler need not see which messages come from one user
    row: dict[str, Any] = {
        "contents": contents,
        "record_size": packed.shape[1],
        "stage": RANDOMIZED,
        "run": run,
        "batch": secrets.token_hex(16),
        "position": 0,
        "users": len(values),
        "minimum_users": protocol.users,
        "records": len(packed),
        "round_records": 0,
        "content": packed.tobytes(),
    }
    return row_batch([row])


def _explain_values(values: Frame, encoder: Encoder) -> None:
    """Read the column again, without noise, and raise the DataError that the local engine raises."""

    def task(batches: Batches) -> Batches:
        own = copy.deepcopy(encoder)
        for batch in batches:
            own.encode(batch.column(0))
        counts = [pa.array([count], pa.int64()) for count in (own.encoded, own.missing, own.outside)]
        lists = [pa.array([strings], pa.list_(pa.string())) for strings in (own.examples, own.markers)]
        names = ["encoded", "missing", "outside", "examples", "markers"]
        yield pa.RecordBatch.from_arrays([*counts, *lists], names=names)

    for row in values.mapInArrow(task, _PROBLEMS).collect():
        encoder.encoded += row["encoded"]
        encoder.missing += row["missing"]
        encoder.outside += row["outside"]
        for value in row["examples"]:
            encoder.add_outside(value, 0)
        for value in row["markers"]:
            encoder.add_marker(value)
    encoder.check()
