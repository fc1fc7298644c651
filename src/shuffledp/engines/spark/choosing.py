"""One row of each user, chosen and counted by Python workers: rows travel in blocks, which is cheaper than one by one.

All rows of a user meet in one task. Of the n rows of a user, sorted by their codes, the one at rank floor(u n) counts,
where u is uniform between 0 and 1: a hash of the user and of a salt that is drawn per question. So each row is chosen
with probability 1/n to within 2^-52, and the choice is a function of the user's rows and the salt alone: a task that
is computed again chooses the same. The distinct codes take the place of the rows for ``pick="value"``.

A user is identified by the 64 bits of ``xxhash64``. That is one to one for integers. Strings of two users fall together
with probability 2^-64, and would count as one user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.engines.spark.session import Frame, explained_failures
from shuffledp.engines.spark.users import MARK
from shuffledp.engines.spark.workers import CODE, PART, Work
from shuffledp.errors import EngineError
from shuffledp.extras import extra

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as sf

KEY = "key"
_ROWS_PER_PART = 1 << 21
"""Some 100 MB in the memory of a worker; each further task of Python costs as much time as 50,000 rows."""
_MAX_PARTS = 1 << 13
_ROWS_AT_ONCE = 1 << 18
_MANY_ROWS = 1 << 10
"""Rows of one user in a block from which on equal ones are counted before they are sent."""
_BLOCKS = "part int, keys binary, codes binary, counts binary, without_user bigint, without_code bigint, marks string"
_CHOSEN = "part int, codes binary, users binary, without_user bigint, without_code bigint, marks string"
_SEPARATOR = "\n"

Keys = NDArray[np.uint64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ChosenCounts:
    """The number of users per code, and what was found about the rows."""

    counts: Counts
    rows_without_user: int
    rows_without_code: int
    marks: tuple[str, ...]
    """Ids that look like missing ones."""


def key_of(user: Any, salt: str) -> Any:
    """64 bits that identify a user; null if the id is missing."""
    return sf.when(user.isNotNull(), sf.xxhash64(sf.lit(derived_bytes(salt, "user")), user))


def count_chosen(frame: Frame, rows: int, size: int, salt: str, *, distinct: bool) -> ChosenCounts:
    """One job: choose a row of each user, and count the chosen ones by their codes, which are below ``size``.

    ``frame`` has the columns key and code, and mark if ids are strings. ``rows`` is their number, or an estimate.
    """
    parts = min(_MAX_PARTS, 1 << max(0, -(-rows // _ROWS_PER_PART) - 1).bit_length())
    blocks = frame.mapInArrow(DivideRows(parts, size), _BLOCKS).repartition(parts, PART)
    work = ChooseRows(size, int.from_bytes(derived_bytes(salt, "rank")[:8], "big"), distinct)

    def choose_rows(table: Any) -> Any:  # Spark takes functions of one argument, not objects
        return work(table)

    with explained_failures():
        found = blocks.groupBy(PART).applyInArrow(choose_rows, _CHOSEN).toArrow().to_pylist()
    if len({row[PART] for row in found}) != len(found):
        raise EngineError("Spark returned a partition twice. Nothing was released.")
    counts = np.zeros(size, dtype=np.int64)
    for row in found:
        np.add.at(counts, np.frombuffer(row["codes"], np.int64), np.frombuffer(row["users"], np.int64))
    marks = sorted({mark for row in found for mark in row["marks"].split(_SEPARATOR) if mark})
    without_user, without_code = (sum(row[name] for row in found) for name in ("without_user", "without_code"))
    return ChosenCounts(counts, without_user, without_code, tuple(marks))


@dataclass(frozen=True)
class DivideRows(Work):
    """Divides the rows of a partition by their users, in blocks."""

    parts: int
    size: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Blocks of keys and codes; the first of a batch also has the numbers of rows that are left out."""
        for batch in self.portions(batches, _ROWS_AT_ONCE):
            key, code = batch.column(KEY), batch.column(CODE)
            complete = pc.and_(key.is_valid(), code.is_valid())
            without_user = key.null_count
            without_code = code.null_count
            if without_user or without_code:
                key, code = key.filter(complete), code.filter(complete)
            keys = key.to_numpy(zero_copy_only=False).view(np.uint64)
            codes = code.to_numpy(zero_copy_only=False).astype(_code_type(self.size))
            blocks = list(divide(keys, codes, self.parts)) or [(0, keys, codes, _ONES)]
            numbers, *arrays = zip(*blocks, strict=True)
            nothing = [0] * (len(blocks) - 1)
            marks = batch.column(MARK).drop_null().unique().to_pylist() if MARK in batch.schema.names else []
            columns = [
                pa.array(numbers, pa.int32()),
                *(pa.array([array.tobytes() for array in column], pa.binary()) for column in arrays),
                pa.array([without_user, *nothing], pa.int64()),
                pa.array([without_code, *nothing], pa.int64()),
                pa.array([_SEPARATOR.join(marks), *("" for _ in nothing)], pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[field.split()[0] for field in _BLOCKS.split(", ")])


@dataclass(frozen=True)
class ChooseRows(Work):
    """Chooses a row of each user of a part."""

    size: int
    salt: int
    distinct: bool

    def __call__(self, table: Any) -> Any:
        """One row: the number of users per code."""
        kinds = {"keys": np.dtype(np.uint64), "codes": _code_type(self.size), "counts": np.dtype(np.int64)}
        keys, codes, counts = (_joined(table.column(name), kind) for name, kind in kinds.items())
        chosen = choose(keys, codes, self._counts(table, counts), self.size, self.salt, distinct=self.distinct)
        values, users = np.unique(chosen.astype(np.int64), return_counts=True)
        row = {
            PART: table.column(PART)[0].as_py(),
            "codes": values.tobytes(),
            "users": users.astype(np.int64).tobytes(),
            "without_user": pc.sum(table.column("without_user")).as_py(),
            "without_code": pc.sum(table.column("without_code")).as_py(),
            "marks": _SEPARATOR.join(table.column("marks").to_pylist()),
        }
        types = [pa.int32(), pa.binary(), pa.binary(), pa.int64(), pa.int64(), pa.string()]
        arrays = [pa.array([value], type=kind) for value, kind in zip(row.values(), types, strict=True)]
        return pa.table(arrays, names=list(row))

    def _counts(self, table: Any, counts: Counts) -> Counts | None:
        """How many rows each entry stands for; blocks without counts have one per entry."""
        if not len(counts):
            return None
        itemsize = _code_type(self.size).itemsize
        pieces = zip(table.column("codes"), table.column("counts"), strict=True)
        return np.concatenate(
            [
                np.frombuffer(own.as_buffer(), np.int64)
                if len(own.as_buffer())
                else np.ones(len(code.as_buffer()) // itemsize, dtype=np.int64)
                for code, own in pieces
            ]
        )


_ONES: Counts = np.zeros(0, dtype=np.int64)
"""No counts: every entry is one row."""


def divide(keys: Keys, codes: NDArray[Any], parts: int) -> Iterator[tuple[int, Keys, NDArray[Any], Counts]]:
    """The part, keys, codes and counts of each part that has rows; equal rows are counted if a user has many."""
    counts = _ONES
    if _most_rows(keys) >= _MANY_ROWS:
        order = np.lexsort((codes, keys))
        keys, codes = keys[order], codes[order]
        starts = _starts(keys, codes)
        counts = np.diff(np.append(starts, len(keys)))
        keys, codes = keys[starts], codes[starts]
    bits = parts.bit_length() - 1
    numbers = (keys >> np.uint64(64 - bits) if bits else np.zeros_like(keys)).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    keys, codes, counts = keys[order], codes[order], counts[order] if len(counts) else counts
    bounds = np.searchsorted(numbers[order], np.arange(parts + 1))
    for part, (start, end) in enumerate(pairwise(bounds.tolist())):
        if start < end:
            yield part, keys[start:end], codes[start:end], counts[start:end]


def choose(
    keys: Keys, codes: NDArray[Any], counts: Counts | None, size: int, salt: int, *, distinct: bool
) -> NDArray[Any]:
    """The code of the chosen row of each user; ``counts`` says how many rows an entry stands for."""
    bits = np.uint64(max(1, size - 1).bit_length())
    if counts is None:
        packed = (keys << bits) | codes.astype(np.uint64)  # sorting one number is much faster than sorting pairs
        packed.sort()
        users = packed >> bits
        starts = _starts(users)
        if len(starts) == _distinct_number(keys):  # otherwise keys that differ in their first bits only meet
            if distinct:
                packed = packed[_starts(packed)]
                users = packed >> bits
                starts = _starts(users)
            ends = np.append(starts[1:], len(packed))
            chosen: NDArray[Any] = packed[_ranks(users[starts], ends - starts, salt) + starts]
            return chosen & ((np.uint64(1) << bits) - np.uint64(1))
    order = np.lexsort((codes, keys))
    keys, codes = keys[order], codes[order]
    counts = np.ones(len(keys), dtype=np.int64) if counts is None else counts[order]
    if distinct:
        starts = _starts(keys, codes)
        keys, codes, counts = keys[starts], codes[starts], np.ones(len(starts), dtype=np.int64)
    starts = _starts(keys)
    totals = np.add.reduceat(counts, starts) if len(starts) else counts[:0]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    targets = before[starts] + _ranks((keys[starts] << bits) >> bits, totals, salt)
    return codes[np.searchsorted(before, targets, side="right") - 1]


def _ranks(users: Keys, rows: Counts, salt: int) -> Counts:
    """A rank below the number of rows of each user, by a hash (splitmix64) of the user and the salt."""
    mixed = users + np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    uniform = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.minimum((uniform * rows).astype(np.int64), rows - 1)


def _starts(*arrays: NDArray[Any]) -> NDArray[np.int64]:
    """Where sorted rows differ from the row before."""
    differs = np.zeros(len(arrays[0]), dtype=np.bool_)
    differs[:1] = True
    for array in arrays:
        differs[1:] |= array[1:] != array[:-1]
    return np.flatnonzero(differs)


def _most_rows(keys: Keys) -> int:
    ordered = np.sort(keys)
    return int(np.diff(np.append(_starts(ordered), len(ordered))).max(initial=0))


def _distinct_number(keys: Keys) -> int:
    return len(_starts(np.sort(keys)))


def _code_type(size: int) -> np.dtype[Any]:
    return np.min_scalar_type(max(1, size - 1))


def _joined(column: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(b"".join(piece.as_buffer() for piece in column), dtype=kind)


def derived_bytes(salt: str, purpose: str) -> bytes:
    """Bytes for one purpose; not numbers, which Spark would write into generated code and compile for every salt."""
    return hashlib.sha256(f"{salt}{purpose}".encode()).digest()[:16]
