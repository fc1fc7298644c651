"""Counting: sealed messages are opened and tallied on all cores, in pieces of bounded size.

The tallies of the pieces add up to the same total in any order. Rejected messages are counted by reason and do not
affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.collection.server.duplicates import find_duplicates
from shuffledp.collection.server.processes import available_cores, mapped, processes_with
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.errors import DataError, ShuffledpError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.protocol import Protocol

OUTSIDE_DOMAIN = "outside-domain"
REPEATED = "repeated"
_MIN_PIECE_MESSAGES, _MAX_PIECE_MESSAGES = 1 << 12, 1 << 16
_MIN_MESSAGES_FOR_PROCESSES = 20_000  # fewer are opened in less time than processes take to start


@dataclass(frozen=True)
class Piece:
    """Consecutive sealed messages in a file."""

    file: Path
    offset: int
    messages: int
    repeated: bytes = b""
    """Empty, or one byte for each message: 1 marks a duplicate, which is not opened."""


@dataclass(frozen=True)
class Counted:
    """The result of opening sealed messages; results of several pieces can be added."""

    tally: Tally
    """Its number of users is 0, since messages do not name users."""
    messages: int
    """Messages that are in the tally."""
    dummies: int
    rejected: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.tally + other.tally,
            self.messages + other.messages,
            self.dummies + other.dummies,
            self.rejected + other.rejected,
        )

    @property
    def total_rejected(self) -> int:
        """The number of rejected messages."""
        return sum(self.rejected.values())


@dataclass(frozen=True)
class _PackedCounts:
    """A ``Counted`` that is small if the tally is mostly zeros, to send between processes."""

    counted: Counted
    """Without its tally."""
    size: int
    """Number of counters of the tally."""
    positions: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counted: Counted) -> _PackedCounts:
        tally = counted.tally.counts
        (positions,) = np.nonzero(tally)
        return cls(replace(counted, tally=Tally.zero(0)), len(tally), positions, tally[positions])

    def unpacked(self) -> Counted:
        tally = Tally.zero(self.size)
        tally.counts[self.positions] = self.counts
        return replace(self.counted, tally=tally)


def pieces_of(task: Task, files: Iterable[tuple[Path, int]]) -> Iterator[Piece]:
    """Split files, given by paths and sizes, into pieces; larger ones for larger tallies, as each piece returns one."""
    step = min(max(_MIN_PIECE_MESSAGES, len(no_messages(task.protocol).counts)), _MAX_PIECE_MESSAGES)
    for file, size in files:
        messages = size // task.sealed_size
        for start in range(0, messages, step):
            yield Piece(file, start * task.sealed_size, min(step, messages - start))


def count_messages(
    task: Task,
    key: SealingKey,
    pieces: Sequence[Piece],
    *,
    processes: int = 0,
    pool: ProcessPoolExecutor | None = None,
    progress: Callable[[Counted], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Counted:
    """Open and count all messages, in ``processes`` processes (0: one per core), or in this one if they are few.

    ``pool`` is an existing result of ``opening_processes`` for the task and the key.
    """
    total = Counted(no_messages(task.protocol), 0, 0)
    copies = find_duplicates(pieces, task.sealed_size)
    pieces = [replace(piece, repeated=copies.get(number, b"")) for number, piece in enumerate(pieces)]
    cores = processes or available_cores()
    few = sum(piece.messages for piece in pieces) < _MIN_MESSAGES_FOR_PROCESSES
    if pool is not None:
        counting = _in_pool(pool, pieces, cores)
    else:
        counting = _in_this_process(task, key, pieces) if few else _in_new_processes(task, key, pieces, cores)
    for counted in counting:
        if stopping():
            raise ShutdownError
        progress(counted)
        total = total + counted
    return total


def _in_this_process(task: Task, key: SealingKey, pieces: Iterable[Piece]) -> Iterator[Counted]:
    reader = Reader(task.protocol, Opener(key, task.id, task.message_size, task.version), task.sealed_size)
    for piece in pieces:
        yield reader.count(piece)


def _in_new_processes(task: Task, key: SealingKey, pieces: Iterable[Piece], count: int) -> Iterator[Counted]:
    with opening_processes(task, key, count) as pool:
        yield from _in_pool(pool, pieces, count)


def _in_pool(pool: ProcessPoolExecutor, pieces: Iterable[Piece], count: int) -> Iterator[Counted]:
    for packed in mapped(pool, _count_in_process, pieces, count):
        yield packed.unpacked()


@contextmanager
def opening_processes(task: Task, key: SealingKey, count: int) -> Iterator[ProcessPoolExecutor]:
    """New processes that have the key; they end with this process, however it ends."""
    parameters = (to_document(task.protocol), task.id, task.message_size, task.sealed_size, task.version)
    with processes_with(_begin, key.secret, *parameters, count=count) as pool:
        yield pool


def _begin(
    secret: bytes, document: dict[str, Any], task_id: bytes, message_size: int, sealed_size: int, version: int
) -> None:
    """Initialize a new process for the pieces of one task."""
    opener = Opener(SealingKey(secret), task_id, message_size, version)
    _process_reader.append(Reader(from_document(document), opener, sealed_size))


_process_reader: list[Reader] = []


def _count_in_process(piece: Piece) -> _PackedCounts:
    return _PackedCounts.of(_process_reader[0].count(piece))


@dataclass(frozen=True)
class Reader:
    """Opens and counts the messages of one task."""

    protocol: Protocol
    opener: Opener
    sealed_size: int

    def count(self, piece: Piece) -> Counted:
        """Open the messages of a piece, each on its own, and count them."""
        size = self.sealed_size
        with piece.file.open("rb") as file:
            file.seek(piece.offset)
            content = file.read(piece.messages * size)
        if len(content) != piece.messages * size:
            raise DataError(f"{piece.file} was truncated.", path=str(piece.file))
        sealed: Iterable[bytes] = (content[start : start + size] for start in range(0, len(content), size))
        if piece.repeated:
            sealed = (message for message, copy in zip(sealed, piece.repeated, strict=True) if not copy)
        counted = self.count_sealed(sealed)
        if piece.repeated:
            counted.rejected[REPEATED] = sum(piece.repeated)
        return counted

    def count_sealed(self, sealed: Iterable[bytes]) -> Counted:
        """Open distinct messages, each on its own, and count them."""
        opened = self.opener.open(sealed)
        packed = np.frombuffer(b"".join(opened.messages), dtype=np.uint8)
        packed = packed.reshape(len(opened.messages), self.opener.message_size)
        tally, messages = _tally(self.protocol, packed)
        rejected = Counter(opened.rejected)
        if messages < len(packed):
            rejected[OUTSIDE_DOMAIN] = len(packed) - messages
        return Counted(tally, messages, opened.dummies, rejected)


def _tally(protocol: Protocol, packed: NDArray[np.uint8]) -> tuple[Tally, int]:
    """The tally of packed messages, and how many of them the protocol accepts."""
    values, messages = _unpack(protocol.message_format, packed)
    try:
        return protocol.tally(Messages(values, 0)), messages
    except ShuffledpError:  # a message of the right format that the protocol does not accept
        if len(packed) <= 1:
            return no_messages(protocol), 0
    half = len(packed) // 2
    (left, first), (right, second) = _tally(protocol, packed[:half]), _tally(protocol, packed[half:])
    return left + right, first + second


def _unpack(form: Any, packed: NDArray[np.uint8]) -> tuple[NDArray[Any], int]:
    """The valid messages; after an error each half is tried separately, down to the invalid message."""
    try:
        return form.unpack(packed), len(packed)
    except ShuffledpError:
        if len(packed) <= 1:
            return form.empty(0), 0
    half = len(packed) // 2
    (left, first), (right, second) = _unpack(form, packed[:half]), _unpack(form, packed[half:])
    return np.concatenate((left, right)), first + second


@lru_cache(maxsize=8)
def no_messages(protocol: Protocol) -> Tally:
    """The tally of no messages."""
    return protocol.tally(Messages(protocol.message_format.empty(0), 0))
