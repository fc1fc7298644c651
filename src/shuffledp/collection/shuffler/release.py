"""From the reports of a closed round to one batch: all messages permuted together, in a file with a signed manifest.

The file's name tells its manifest, so that only the batch which the store knows is ever delivered. What a process
that was killed left behind is removed by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.logs import event
from shuffledp.collection.shuffler.book import KnownTask
from shuffledp.collection.shuffler.store.interface import RoundState, Store, StoreError
from shuffledp.collection.transport.files import sync_directory
from shuffledp.collection.wire.formats import Manifest, digest
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.shuffling.external import permute_file

_CHUNK_BYTES = 1 << 22
_MOST_CHUNKS = 1 << 16
_BLOCK_BYTES = 1 << 20


class StoppingError(Exception):
    """The server was asked to stop; what was begun is done anew next time."""


@dataclass(frozen=True)
class Batch:
    """A batch that waits to be delivered."""

    manifest: Manifest
    signed: bytes
    """The manifest with its signature, as the store keeps it."""
    file: Path

    def chunk(self, index: int) -> bytes:
        """The bytes of a chunk, which are those that the manifest says; else an OSError."""
        with self.file.open("rb") as file:
            file.seek(index * self.manifest.chunk_records * self.manifest.record_size)
            content = file.read(self.manifest.chunk_size(index))
        if digest(content) != self.manifest.chunks[index]:
            raise OSError(f"{self.file} is damaged: chunk {index:,} is not what the manifest says")
        return content


@dataclass(frozen=True)
class Releaser:
    """Makes batches in the work folder."""

    store: Store
    key: SigningKey
    work: Path
    memory: int
    stopping: Callable[[], bool] = lambda: False

    def shuffle(self, known: KnownTask) -> RoundState | None:
        """Take a closed round to SHUFFLED, or to DESTROYED if it is too small to be released, and return the state.

        None, and nothing happens, if another process is at it.
        """
        with self.store.claim(known.id) as mine:
            if not mine or self.store.state(known.id) is not RoundState.CLOSED:
                return None
            self.clean(known.name)
            if self.store.count(known.id) < known.task.minimum_users:
                return self._destroy(known)
            try:
                batch = self._permute(known)
            except BaseException:
                self.clean(known.name)  # not after advance: if that fails, the batch may be the truth already
                raise
            if batch is None:
                return self._destroy(known)
            self.store.advance(known.id, RoundState.SHUFFLED, batch.signed)
            event("shuffled", task=known.name, reports=batch.manifest.reports, messages=batch.manifest.messages)
            return RoundState.SHUFFLED

    def batch(self, known: KnownTask) -> Batch | None:
        """The batch of a round that was shuffled, if its file is here."""
        signed = self.store.note(known.id)
        file = self._batch_file(known, signed)
        return Batch(Manifest.verified(signed, self.key.public), signed, file) if file.exists() else None

    def clean(self, task_name: str, *, keep: Path | None = None) -> None:
        """Remove every file of the round but one."""
        for pattern in (f"{task_name}.*", f".{task_name}.*"):
            for file in self.work.glob(pattern):
                if file != keep:
                    file.unlink(missing_ok=True)
        sync_directory(self.work)

    def _destroy(self, known: KnownTask) -> RoundState:
        reports = self.store.count(known.id)
        self.clean(known.name)
        self.store.destroy(known.id)
        minimum = known.task.minimum_users
        event("destroyed", level=logging.ERROR, task=known.name, reports=reports, minimum=minimum)
        return RoundState.DESTROYED

    def _permute(self, known: KnownTask) -> Batch | None:
        """The batch of all messages in uniformly random order; None if there are too few reports."""
        mixed = self.work / f"{known.name}.mixed"
        reports = 0

        def blocks() -> Iterator[bytes]:
            nonlocal reports
            block = bytearray()
            for body in self.store.reports(known.id):
                reports += 1
                block += known.format.records(body)
                if len(block) >= _BLOCK_BYTES:
                    self._go_on()
                    yield bytes(block)
                    block.clear()
            yield bytes(block)

        size, each = known.format.sealed_size, known.format.messages
        messages = permute_file(blocks(), size, mixed, scratch=self.work, memory=self.memory)
        if messages != reports * each:
            raise StoreError(f"{reports:,} reports of {each:,} messages cannot be {messages:,} messages.")
        if reports < known.task.minimum_users:
            return None
        manifest = self._describe(known, mixed, reports, messages)
        signed = manifest.signed(self.key)
        file = self._batch_file(known, signed)
        mixed.rename(file)
        self.clean(known.name, keep=file)
        return Batch(manifest, signed, file)

    def _describe(self, known: KnownTask, file: Path, reports: int, messages: int) -> Manifest:
        """The manifest of a file of permuted messages."""
        size = known.format.sealed_size
        records = max(1, _CHUNK_BYTES // size, -(-messages // _MOST_CHUNKS))
        hashes = []
        with file.open("rb") as content:
            while chunk := content.read(records * size):
                self._go_on()
                hashes.append(digest(chunk))
        manifest = Manifest(known.id, reports, messages, size, records, tuple(hashes))
        manifest.check_task(known.task)
        return manifest

    def _batch_file(self, known: KnownTask, signed: bytes) -> Path:
        return self.work / f"{known.name}.{digest(signed).hex()[:32]}.batch"

    def _go_on(self) -> None:
        if self.stopping():
            raise StoppingError
