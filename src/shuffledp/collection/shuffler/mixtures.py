"""What goes into a batch: at the first shuffler the messages of reports, at a later one the batch of the one before.

Both open what arrived while they read it, leave out what does not open, and add the dummies of an augmented protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from shuffledp.collection.server.batches import Batches, BatchState
from shuffledp.collection.server.duplicates import find_duplicates
from shuffledp.collection.server.processes import available_cores, mapped, processes_with
from shuffledp.collection.shuffler.dummies import kept_reports, sealed_dummies
from shuffledp.collection.shuffler.traps import TrapWatch
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import HopCounts
from shuffledp.collection.wire.keys import RoundKey
from shuffledp.collection.wire.layers import LayerOpener
from shuffledp.errors import DataError

_BLOCK_BYTES = 1 << 20
_PIECE_MESSAGES = 1 << 13
_MIN_MESSAGES_FOR_PROCESSES = 20_000  # fewer are opened in less time than processes take to start


@dataclass
class Mixture(ABC):
    """The messages of one batch before they are permuted, and their numbers, which are known once all are read."""

    task: Task
    proceed: Callable[[], None]
    """Called between blocks; an exception of it ends the work."""
    unopenable: int = field(default=0, init=False)
    """Reports or messages that did not open, and were left out."""
    size: int = field(default=0, init=False)
    """Bytes of all blocks."""
    hop: int = field(default=0, init=False)

    def blocks(self) -> Iterator[bytes]:
        """The messages in blocks; dummies are drawn last, and only if there are enough reports."""
        self._reset()
        for block in chain(self._messages(), self._dummies()):
            self.proceed()
            self.size += len(block)
            yield block

    def _dummies(self) -> Iterator[bytes]:
        if self.is_enough:
            yield from sealed_dummies(self.task, self.hop)

    def _reset(self) -> None:
        self.unopenable = self.size = 0

    @property
    @abstractmethod
    def reports(self) -> int:
        """The number of reports that the manifest states."""

    @property
    @abstractmethod
    def is_enough(self) -> bool:
        """Whether the round may be released."""

    @property
    @abstractmethod
    def counts(self) -> HopCounts | None:
        """The further fields of a manifest of version 2."""

    @abstractmethod
    def _messages(self) -> Iterator[bytes]:
        """The messages of users, opened, in blocks."""


@dataclass
class ReportMixture(Mixture):
    """The messages of stored reports."""

    bodies: Callable[[], Iterable[bytes]]
    open_report: Callable[[bytes], bytes | memoryview | None]
    """The sealed messages of a stored report; None if its outer seal does not open."""
    is_carrier: Callable[[bytes], bool] = lambda _: False
    """Whether a stored report has the length of a carrier's."""
    opened: int = field(default=0, init=False)
    """Reports that opened, also those that an augmented shuffler leaves out of its sample."""
    carriers: int = field(default=0, init=False)
    """How many of these are those of carriers."""

    @property
    def reports(self) -> int:
        """Those that opened."""
        return self.opened

    @property
    def is_enough(self) -> bool:
        """Whether as many reports, and of these as many of carriers, opened as the task requires."""
        carriers = self.task.carriers
        return self.opened >= self.task.minimum_users and (carriers is None or self.carriers >= carriers.minimum)

    @property
    def counts(self) -> HopCounts | None:
        """How many reports are those of carriers, and how many did not open."""
        return None if self.task.wire is None else HopCounts(carriers=self.carriers, unopenable=self.unopenable)

    def _reset(self) -> None:
        super()._reset()
        self.opened = self.carriers = 0

    def _messages(self) -> Iterator[bytes]:
        block, kept = bytearray(), kept_reports(self.task)
        for body in self.bodies():
            records = self.open_report(body)
            if records is None:
                self.unopenable += 1
                continue
            self.opened += 1
            self.carriers += self.is_carrier(body)
            if next(kept):
                block += records
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
        yield bytes(block)


@dataclass(frozen=True)
class Piece:
    """Consecutive messages in a file of a received batch."""

    file: Path
    offset: int
    messages: int
    repeated: bytes = b""
    """Empty, or one byte for each message: 1 marks a copy, which is not opened."""


@dataclass
class BatchMixture(Mixture):
    """The messages of the batch of the shuffler before, without their layer.

    Copies are left out before anything is opened: an earlier shuffler could copy a message to recognize it later.
    """

    batches: Batches
    key: RoundKey
    index: int
    """The index of this shuffler in the task."""
    new_watch: Callable[[], TrapWatch] = TrapWatch
    """What recognizes this shuffler's own traps."""
    traps: int = field(default=0, init=False)
    """Own traps that were in the batch; they are left out."""
    repeated: int = field(default=0, init=False)
    opened: int = field(default=0, init=False)
    """Messages that opened, without those of own traps."""

    def __post_init__(self) -> None:
        self.hop = self.index

    @property
    def is_complete(self) -> bool:
        """Whether all of the batch has arrived."""
        batch = self.batches.get(self.task.id)
        return batch is not None and batch.state is BatchState.COMPLETE

    @property
    def reports(self) -> int:
        """What the first shuffler says, without own traps; others only bound it.

        Of an augmented protocol, every message that is left out is the only one of its report.
        """
        reports = self.batches.manifest(self.task.id).reports - self.traps
        is_augmented = self.task.protocol.trust == "augmented"
        return reports - self.unopenable - self.repeated if is_augmented else reports

    @property
    def is_enough(self) -> bool:
        """Whether the messages that opened can come from as many users as the task requires."""
        if self.task.protocol.trust == "augmented":  # dummies of earlier shufflers cannot be told from messages
            return self.reports >= self.task.minimum_users
        return self.opened // self.task.messages_per_report >= self.task.minimum_users

    @property
    def counts(self) -> HopCounts | None:
        """What was left out, and the manifest of the shuffler before."""
        batch = self.batches.get(self.task.id)
        if batch is None:
            raise DataError("The batch of the shuffler before is missing.")
        return HopCounts(self.index, 0, self.unopenable, self.repeated, self.traps, batch.manifest)

    def _reset(self) -> None:
        super()._reset()
        self.repeated = self.opened = self.traps = 0

    def _messages(self) -> Iterator[bytes]:
        size = self.task.record_size(self.index - 1)
        pieces = list(_pieces(self.batches.chunk_files(self.task.id), size))
        copies = find_duplicates(pieces, size)
        self.repeated = sum(sum(marks) for marks in copies.values())
        marked = [Piece(p.file, p.offset, p.messages, copies.get(number, b"")) for number, p in enumerate(pieces)]
        watch, inner_size = self.new_watch(), self.task.record_size(self.index)
        for opened, unopenable in self._opened(marked, size):
            messages = watch.without_traps(opened, inner_size)
            self.unopenable += unopenable
            self.opened += len(messages) // inner_size
            yield messages
        self.traps = watch.check()

    def _opened(self, pieces: Sequence[Piece], size: int) -> Iterator[tuple[bytes, int]]:
        arguments = (self.key, self.index, self.task.id, size)
        if sum(piece.messages for piece in pieces) < _MIN_MESSAGES_FOR_PROCESSES:
            opener = LayerOpener(*arguments)
            yield from (_open_piece(opener, piece, size) for piece in pieces)
            return
        count = available_cores()
        with processes_with(_begin, *arguments, count=count) as pool:
            yield from mapped(pool, _open_in_process, pieces, count)


def _pieces(files: Iterable[tuple[Path, int]], size: int) -> Iterator[Piece]:
    for file, length in files:
        for start in range(0, length // size, _PIECE_MESSAGES):
            yield Piece(file, start * size, min(_PIECE_MESSAGES, length // size - start))


def _open_piece(opener: LayerOpener, piece: Piece, size: int) -> tuple[bytes, int]:
    """The opened messages of a piece, and how many did not open."""
    with piece.file.open("rb") as file:
        file.seek(piece.offset)
        content = file.read(piece.messages * size)
    if len(content) != piece.messages * size:
        raise DataError(f"{piece.file} was truncated.", path=str(piece.file))
    messages = (content[start : start + size] for start in range(0, len(content), size))
    if piece.repeated:
        messages = (message for message, copy in zip(messages, piece.repeated, strict=True) if not copy)
    opened = [opener.open(message) for message in messages]
    return b"".join(message for message in opened if message is not None), opened.count(None)


_process_opener: list[tuple[LayerOpener, int]] = []


def _begin(key: RoundKey, hop: int, task_id: bytes, size: int) -> None:
    _process_opener.append((LayerOpener(key, hop, task_id, size), size))


def _open_in_process(piece: Piece) -> tuple[bytes, int]:
    opener, size = _process_opener[0]
    return _open_piece(opener, piece, size)
