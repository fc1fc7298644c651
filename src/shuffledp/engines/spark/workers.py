"""What the Python workers of Spark run: encoding, exact counts, and noise whose tally goes to the driver.

Every function gets the batches of one partition. Its result is as secret as the data: the tally of a partition has the
noise of the users of that partition only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp import __version__
from shuffledp.domain import Domain, Strings
from shuffledp.engines.encoding import Encoder
from shuffledp.engines.spark.session import check_worker_version
from shuffledp.extras import extra
from shuffledp.messages import Tally, count_values
from shuffledp.protocols.flow import user_ranges
from shuffledp.protocols.protocol import Protocol

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark import TaskContext

CODE, PART = "code", "part"
PARTIAL_SCHEMA = "partition int, part int, users bigint, state string, counts binary"
PORTION_ROWS = 1 << 16
"""Rows that are encoded at a time; batches of Spark are smaller."""
_NO_STATE = json.dumps({"encoded": 0, "missing": 0, "outside": 0, "examples": [], "markers": []})


@dataclass(frozen=True)
class Work:
    """A function for the workers, which refuse to run it with another version of this package."""

    version: str = field(default=__version__, kw_only=True)

    def portions(self, batches: Iterable[Any], size: int = PORTION_ROWS) -> Iterator[Any]:
        """The batches of a partition, joined to portions of at least ``size`` rows."""
        check_worker_version(self.version)
        yield from joined_batches(batches, size)


@dataclass(frozen=True)
class EncodeRows(Work):
    """Replaces the first column by its index or position, and leaves out rows that have none."""

    encoder: Encoder
    code_type: str
    """``bigint``, ``double`` or ``string``."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Deterministic, so that a partition may be computed again."""
        for batch in self.portions(batches):
            encoded = self.encoder.encode(batch.column(0))
            others = batch.columns[1:]
            if encoded.rows is not None:
                rows = pa.array(encoded.rows)
                others = [column.filter(rows) for column in others]
            names = [CODE, *batch.schema.names[1:]]
            yield pa.RecordBatch.from_arrays([self._codes(encoded.values), *others], names=names)

    def _codes(self, values: NDArray[Any]) -> Any:
        if self.code_type == "string":
            return pa.array([str(index) for index in values.tolist()], type=pa.string())
        return pa.array(values, type=pa.int64() if self.code_type == "bigint" else pa.float64())


@dataclass(frozen=True)
class CountRows(Work):
    """Counts the indices of a partition, exactly; with the size 0 it only counts rows."""

    encoder: Encoder
    size: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One row: the counts, and the state of the encoder."""
        counts = np.zeros(self.size, dtype=np.int64)
        for batch in self.portions(batches):
            encoded = self.encoder.encode(batch.column(0))
            if self.size:
                counts += count_values(encoded.values, self.size)
        state = self.encoder.state
        yield _partials([(0, state["encoded"], json.dumps(state), counts)])


@dataclass(frozen=True)
class RandomizeRows(Work):
    """Randomizes the values of a partition, and tallies their messages.

    A row is a value, which the encoder encodes; without an encoder, it is a code with the number of its part. Noise is
    never a function of the data or of a seed: a partition that is computed again draws new noise, and Spark passes on
    exactly one result of each partition.
    """

    protocols: Mapping[int, Protocol]
    """One per part: the number of the group, or 0 if there are no groups."""
    encoder: Encoder | None = None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One row per part that has users, or a single row without users."""
        tallies: dict[int, Tally] = {}
        for batch in self.portions(batches):
            if self.encoder is not None:
                self._add(tallies, 0, self.encoder.encode(batch.column(0)).values)
                continue
            parts = batch.column(PART).to_numpy(zero_copy_only=False)
            for part in np.unique(parts[parts >= 0]).tolist():
                if part in self.protocols:
                    codes = batch.column(CODE).filter(pa.array(parts == part))
                    self._add(tallies, part, decoded(codes, self.protocols[part].domain))
        state = _NO_STATE if self.encoder is None else json.dumps(self.encoder.state)
        rows = [(part, tally.users, state, tally.counts) for part, tally in tallies.items()]
        yield _partials(rows or [(-1, 0, state, np.zeros(0, dtype=np.int64))])

    def _add(self, tallies: dict[int, Tally], part: int, values: NDArray[Any]) -> None:
        protocol = self.protocols[part]
        for start, end in user_ranges(protocol, len(values)):
            if start < end:
                tally = protocol.tally(protocol.randomize_all(values[start:end]))
                tallies[part] = tallies[part] + tally if part in tallies else tally


@dataclass(frozen=True)
class RandomizeCounts(Work):
    """Randomizes the values of users who were counted per index, and tallies their messages.

    Users are numbered by their indices, and divided into tasks of consecutive numbers, as equally as possible. Noise is
    drawn as by ``RandomizeRows``.
    """

    protocol: Protocol
    indices: NDArray[np.int64]
    """Those that users have."""
    cumulative: NDArray[np.int64]
    """The number of users with each of these indices or one before."""
    tasks: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """One row, for the numbers of tasks that this partition is given."""
        tally: Tally | None = None
        users = int(self.cumulative[-1])
        for batch in self.portions(batches):
            for task in batch.column(0).to_pylist():
                first, last = (users * number // self.tasks for number in (task, task + 1))
                for start, end in user_ranges(self.protocol, last - first):
                    if start < end:
                        values = self.values(first + start, first + end)
                        drawn = self.protocol.tally(self.protocol.randomize_all(values))
                        tally = drawn if tally is None else tally + drawn
        if tally is None:
            yield _partials([(-1, 0, _NO_STATE, np.zeros(0, dtype=np.int64))])
        else:
            yield _partials([(0, tally.users, _NO_STATE, tally.counts)])

    def values(self, start: int, end: int) -> NDArray[np.int64]:
        """The indices of the users with numbers from ``start`` to before ``end``."""
        ends = np.clip(self.cumulative, start, end)
        return np.repeat(self.indices, ends - np.concatenate(([start], ends[:-1])))


def decoded(codes: Any, domain: Domain) -> NDArray[Any]:
    """Codes as ``EncodeRows`` writes them, as the indices or positions of a domain."""
    if isinstance(domain, Strings):
        return domain.index_array([int(code) for code in codes.to_pylist()])
    values: NDArray[Any] = codes.to_numpy(zero_copy_only=False)
    return values


def joined_batches(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Batches joined to portions of at least ``size`` rows."""
    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= size:
            yield _joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _partials(rows: list[tuple[int, int, str, NDArray[np.int64]]]) -> Any:
    """Rows of ``PARTIAL_SCHEMA`` for the driver."""
    context = TaskContext.get()
    partition = -1 if context is None else context.partitionId()
    parts, users, states, counts = zip(*rows, strict=True)
    packed = [pack_counts(array) for array in counts]
    columns = [
        pa.array([partition] * len(rows), type=pa.int32()),
        pa.array(parts, type=pa.int32()),
        pa.array(users, type=pa.int64()),
        pa.array(states, type=pa.string()),
        pa.array(packed, type=pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "part", "users", "state", "counts"])


def pack_counts(counts: NDArray[np.int64]) -> bytes:
    """Counts as bytes: the size of an item, then the items."""
    kind = np.min_scalar_type(int(counts.max(initial=0)))
    return bytes([kind.itemsize]) + counts.astype(kind.newbyteorder("<")).tobytes()


def unpack_counts(packed: bytes) -> NDArray[np.int64]:
    """The inverse of ``pack_counts``."""
    return np.frombuffer(packed, dtype=f"<u{packed[0]}", offset=1).astype(np.int64)
