"""Durable storage of batches: their states, signed manifests and chunks, which arrive in any order.

Each batch has a directory with the manifest and a file for each chunk; files appear only complete. An SQLite file has
the state of each batch. Storing a manifest or a chunk is idempotent.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

from shuffledp.collection.server.databases import (
    Migrations,
    make_database_private,
    open_as_it_is,
    open_database,
    pending_migrations,
    read_database,
    transaction,
)
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import MAX_MANIFEST_BYTES, BadSignatureError, Manifest, digest
from shuffledp.collection.wire.times import time_to
from shuffledp.durable_files import sync_directory, write_durably
from shuffledp.errors import DataError, ParameterError

_MIGRATIONS: Migrations = (
    (
        """CREATE TABLE batches (
    task BLOB PRIMARY KEY,
    state TEXT NOT NULL,
    manifest BLOB NOT NULL,
    chunks INTEGER NOT NULL,
    reason TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID""",
    ),
)
BATCH_STATES = "analyzer.db"
_DIRECTORY, _MANIFEST, _CHUNK = "batches", "manifest", ".chunk"
_ALL = "SELECT task, state, manifest, chunks, reason FROM batches"
_FEW_CHUNKS = 1 << 12
_USUAL_CHUNK_BYTES = 1 << 16
_BYTES_PER_CHUNK, _OTHER_BYTES = 67, 1024  # of a manifest


class BatchState(Enum):
    """State of a batch. It only advances, except that COMPLETE returns to RECEIVING when a chunk is lost."""

    RECEIVING = "receiving"
    COMPLETE = "complete"
    RELEASED = "released"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        """Whether the state never changes again."""
        return self in (BatchState.RELEASED, BatchState.REFUSED)


class BatchOutcome(Enum):
    """The outcome of storing a manifest or a chunk."""

    NEW = "new"
    SAME = "same"
    CONFLICT = "conflict"
    """Not the manifest that is stored, or a chunk whose hash is not in the manifest."""
    GONE = "gone"
    """Not the manifest of the batch that was released or refused."""
    UNKNOWN = "unknown"
    """The batch has no manifest here, or no such chunk."""


@dataclass(frozen=True)
class Batch:
    """The recorded state of a batch."""

    task_id: bytes
    state: BatchState
    manifest: bytes
    """The SHA-256 of the signed manifest."""
    chunks: int
    reason: str
    """Why it was refused, for the operator."""


class EarlyBatchError(ParameterError):
    """A batch arrived before the end of its round, which was not full."""


@dataclass(frozen=True)
class ExpectedBatch:
    """The batch of a task that a server takes: that of the shuffler before it."""

    task: Task
    hop: int
    """The index of that shuffler."""
    is_early: bool = False
    """Whether the round is not over yet, so that only the batch of a full one is taken."""

    @classmethod
    def of_last(cls, task: Task) -> Self:
        """The batch of the last shuffler, which the analyzer takes."""
        return cls(task, task.hops - 1)

    @property
    def max_manifest_bytes(self) -> int:
        """Maximum length of a manifest in bytes, for chunks of at least 64 KiB or a small number of chunks."""
        task = self.task
        dummies = (self.hop + 1) * task.protocol.most_dummies
        messages = task.maximum_users * task.max_messages_per_report + dummies
        chunks = messages * task.record_size(self.hop) // _USUAL_CHUNK_BYTES + 1
        return min(MAX_MANIFEST_BYTES, _OTHER_BYTES + _BYTES_PER_CHUNK * max(chunks, _FEW_CHUNKS))

    def read(self, content: bytes) -> Manifest | None:
        """The manifest if that shuffler signed it, else None. ParameterError if it does not fit the task.

        EarlyBatchError if it does not fit it yet.
        """
        try:
            manifest = Manifest.verified(content, self.task.verifying_key(self.hop), self.task.version)
        except BadSignatureError:
            return None
        manifest.check_task(self.task, self.hop)
        if self.is_early and not manifest.is_of_full_round(self.task):
            raise EarlyBatchError(
                f"The round closes at {time_to(self.task.closes)}; before, only the batch of a full round "
                f"of {self.task.maximum_users:,} reports is taken."
            )
        return manifest


class Batches:
    """All batches that a server receives, in a directory that one process uses."""

    def __init__(
        self,
        directory: Path,
        entered: Callable[[bytes], bytes | None] = lambda _: None,
        *,
        states: str = BATCH_STATES,
    ) -> None:
        """``entered`` gives the manifest that the ledger has for a task; any other manifest is refused.

        ``states`` is the name of the database.
        """
        self._directory = directory / _DIRECTORY
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.RLock()
        self._manifests: dict[bytes, Manifest] = {}
        self._missing: dict[bytes, set[int]] = {}
        self._entered = entered
        self._connection = _open(directory / states)
        self._clean()

    def put_manifest(self, manifest: Manifest, content: bytes) -> BatchOutcome:
        """Record a new batch durably; ``content`` is the manifest with its signature, which the caller has verified."""
        task_id = manifest.task_id
        ledger_manifest = self._entered(task_id) if self.get(task_id) is None else None
        if ledger_manifest is not None and ledger_manifest != digest(content):
            return BatchOutcome.CONFLICT
        with self._lock:
            batch = self.get(task_id)
            if batch is not None:
                if batch.manifest == digest(content):
                    self._repair_manifest(batch, content)
                    return BatchOutcome.SAME
                return BatchOutcome.GONE if batch.state.is_final else BatchOutcome.CONFLICT
            directory = self._directory / task_id.hex()
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700)
            write_durably(directory / _MANIFEST, content)
            sync_directory(self._directory)
            self._change(
                "INSERT INTO batches (task, state, manifest, chunks) VALUES (?, ?, ?, ?)",
                (task_id, BatchState.RECEIVING.value, digest(content), len(manifest.chunks)),
            )
            return BatchOutcome.NEW

    def _repair_manifest(self, batch: Batch, content: bytes) -> None:
        """Store the manifest of an unfinished batch again if its file was lost."""
        if batch.state.is_final:
            return
        self._manifests.pop(batch.task_id, None)
        with suppress(FileNotFoundError):
            self.manifest(batch.task_id)
            return
        directory = self._directory / batch.task_id.hex()
        directory.mkdir(mode=0o700, exist_ok=True)
        write_durably(directory / _MANIFEST, content)
        sync_directory(self._directory)
        self._missing.pop(batch.task_id, None)

    def put_chunk(self, task_id: bytes, index: int, content: bytes) -> BatchOutcome:
        """Store a chunk durably if its hash is that of the manifest."""
        batch = self.get(task_id)
        if batch is None or not 0 <= index < batch.chunks:
            return BatchOutcome.UNKNOWN
        try:
            return BatchOutcome.SAME if batch.state.is_final else self._store_chunk(task_id, index, content)
        except FileNotFoundError:  # the batch was finished while this chunk was sent again
            if (batch := self.get(task_id)) is not None and batch.state.is_final:
                return BatchOutcome.SAME
            raise

    def _store_chunk(self, task_id: bytes, index: int, content: bytes) -> BatchOutcome:
        if digest(content) != self.manifest(task_id).chunks[index]:
            return BatchOutcome.CONFLICT
        with self._lock:
            if index not in self._missing_of(task_id):
                return BatchOutcome.SAME
        write_durably(self._chunk_file(task_id, index), content)
        with self._lock:
            missing = self._missing_of(task_id)
            new = index in missing
            missing.discard(index)
            if not missing:
                self._advance(task_id, BatchState.RECEIVING, BatchState.COMPLETE)
        return BatchOutcome.NEW if new else BatchOutcome.SAME

    def get(self, task_id: bytes) -> Batch | None:
        """The state of a batch, if there is one."""
        with self._lock:
            row = self._connection.execute(_ALL + " WHERE task = ?", (task_id,)).fetchone()
        return None if row is None else _batch(row)

    def all(self) -> list[Batch]:
        """Every batch, in any state."""
        with self._lock:
            rows = self._connection.execute(_ALL).fetchall()
        return [_batch(row) for row in rows]

    def manifest(self, task_id: bytes) -> Manifest:
        """The manifest of an unfinished batch; FileNotFoundError if it is lost or damaged."""
        with self._lock:
            if task_id not in self._manifests:
                path = self._directory / task_id.hex() / _MANIFEST
                content, batch = path.read_bytes(), self.get(task_id)
                if batch is None or batch.manifest != digest(content):
                    raise FileNotFoundError(errno.ENOENT, "The manifest of the batch is damaged", str(path))
                self._manifests[task_id] = Manifest.unverified(content)
            return self._manifests[task_id]

    def has_chunk(self, task_id: bytes, index: int) -> bool:
        """Whether a chunk of an unfinished batch is stored."""
        return index not in self._missing_of(task_id)

    def missing(self, task_id: bytes, limit: int) -> list[int]:
        """The first ``limit`` chunks that are missing; empty unless the batch is RECEIVING."""
        with self._lock:
            batch = self.get(task_id)
            if batch is None or batch.state is not BatchState.RECEIVING:
                return []
            return sorted(self._missing_or_all(batch))[:limit]

    def count_missing(self, task_id: bytes) -> int:
        """The number of missing chunks; 0 unless the batch is RECEIVING."""
        with self._lock:
            batch = self.get(task_id)
            if batch is None or batch.state is not BatchState.RECEIVING:
                return 0
            return len(self._missing_or_all(batch))

    def _missing_or_all(self, batch: Batch) -> Collection[int]:
        """As ``_missing_of``; all chunks if the manifest is lost: the shuffler sends it again first."""
        try:
            return self._missing_of(batch.task_id)
        except FileNotFoundError:
            return range(batch.chunks)

    def _missing_of(self, task_id: bytes) -> set[int]:
        with self._lock:
            if task_id not in self._missing:
                chunks = range(len(self.manifest(task_id).chunks))
                self._missing[task_id] = {i for i in chunks if not self._chunk_file(task_id, i).exists()}
            return self._missing[task_id]

    def chunk_files(self, task_id: bytes) -> list[tuple[Path, int]]:
        """The files of a complete batch and their sizes; if a chunk is damaged, the batch returns to RECEIVING."""
        manifest = self.manifest(task_id)
        files = [(self._chunk_file(task_id, i), manifest.chunk_size(i)) for i in range(len(manifest.chunks))]
        lost = {i for i, (file, _) in enumerate(files) if not _has_digest(file, manifest.chunks[i])}
        if lost:
            with self._lock:
                self._missing[task_id] = lost
                self._advance(task_id, BatchState.COMPLETE, BatchState.RECEIVING)
            raise DataError(f"{len(lost):,} chunks of the batch were damaged on the disk; they are requested again.")
        return files

    def finish(self, task_id: bytes, state: BatchState, reason: str = "") -> None:
        """Record durably that a complete batch is released or refused, and delete its messages."""
        self._change(
            "UPDATE batches SET state = ?, reason = ? WHERE task = ? AND state = ?",
            (state.value, reason, task_id, BatchState.COMPLETE.value),
        )
        self.delete_messages(task_id)

    def give_up(self, task_id: bytes, reason: str) -> None:
        """Record durably that an unfinished batch is refused, and delete its messages."""
        self._change(
            "UPDATE batches SET state = ?, reason = ? WHERE task = ? AND state IN (?, ?)",
            (BatchState.REFUSED.value, reason, task_id, BatchState.RECEIVING.value, BatchState.COMPLETE.value),
        )
        self.delete_messages(task_id)

    def delete_messages(self, task_id: bytes) -> None:
        """Delete the messages of a batch."""
        with self._lock:
            self._manifests.pop(task_id, None)
            self._missing.pop(task_id, None)
        trash = self._directory / f".{task_id.hex()}"
        with suppress(FileNotFoundError):
            (self._directory / task_id.hex()).rename(trash)  # so that no further chunk is stored there
        shutil.rmtree(trash, ignore_errors=True)
        sync_directory(self._directory)

    def is_writable(self) -> bool:
        """Whether files and states can be written durably."""
        probe = self._directory / ".probe"
        try:
            write_durably(probe, bytes(1 << 12))
            probe.unlink(missing_ok=True)
            self._change("UPDATE batches SET state = state WHERE task = ?", (b"",))
        except (OSError, sqlite3.Error):
            return False
        return True

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def _clean(self) -> None:
        """Remove leftovers of a killed process: directories without a batch, and incomplete files."""
        states = {batch.task_id.hex(): batch.state for batch in self.all()}
        for path in self._directory.iterdir():
            if path.is_file():
                path.unlink()
            elif path.name not in states or states[path.name].is_final:
                shutil.rmtree(path, ignore_errors=True)
            else:
                for file in path.glob(".*"):
                    file.unlink(missing_ok=True)
        for batch in self.all():
            if batch.state is BatchState.RECEIVING and not self.count_missing(batch.task_id):
                self._advance(batch.task_id, BatchState.RECEIVING, BatchState.COMPLETE)

    def _chunk_file(self, task_id: bytes, index: int) -> Path:
        return self._directory / task_id.hex() / f"{index}{_CHUNK}"

    def _advance(self, task_id: bytes, before: BatchState, after: BatchState) -> None:
        self._change("UPDATE batches SET state = ? WHERE task = ? AND state = ?", (after.value, task_id, before.value))

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        with self._lock, transaction(self._connection):
            self._connection.execute(statement, values)


def batches_in(directory: Path) -> dict[bytes, Batch]:
    """The states of all batches by task id, read without changing anything."""
    path = directory / BATCH_STATES
    if not path.exists():
        return {}
    connection = read_database(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        pending_migrations(version, _MIGRATIONS, str(path))
        rows = connection.execute(_ALL).fetchall() if version else []
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path} cannot be read ({error}): restore it from the backup.", path=str(path)) from None
    finally:
        connection.close()
    try:
        return {row[0]: _batch(row) for row in rows}
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): restore it from the backup.", path=str(path)) from None


def tasks_with_chunks(directory: Path) -> set[bytes]:
    """The ids of tasks with chunks on the disk."""
    paths = [path for path in (directory / _DIRECTORY).glob("[0-9a-f]*") if len(path.name) == 64]
    return {bytes.fromhex(path.name) for path in paths if next(path.glob(f"[0-9]*{_CHUNK}"), None) is not None}


def signed_manifest_in(directory: Path, task_id: bytes) -> bytes:
    """The signed manifest of an unfinished batch."""
    return (directory / _DIRECTORY / task_id.hex() / _MANIFEST).read_bytes()


def restore_batches(directory: Path, batches: Iterable[Batch]) -> None:
    """Record durably the states of batches that were lost."""
    connection = _open(directory / BATCH_STATES)
    try:
        with transaction(connection):
            connection.executemany(
                "INSERT INTO batches (task, state, manifest, chunks, reason) VALUES (?, ?, ?, ?, ?)",
                [(batch.task_id, batch.state.value, batch.manifest, batch.chunks, batch.reason) for batch in batches],
            )
    finally:
        connection.close()


def drop_unfinished(directory: Path, refused: Mapping[bytes, str]) -> None:
    """In a copy without messages: remove unfinished batches; those that the ledger refused become REFUSED.

    ``refused`` has the reasons by task. A removed batch can be delivered again if the shuffler still has it.
    """
    if not (directory / BATCH_STATES).exists():
        return
    unfinished = "state NOT IN (?, ?)"
    final = tuple(state.value for state in BatchState if state.is_final)
    with closing(open_as_it_is(directory / BATCH_STATES)) as connection, transaction(connection):
        connection.executemany(
            f"UPDATE batches SET state = ?, reason = ? WHERE task = ? AND {unfinished}",  # noqa: S608
            [(BatchState.REFUSED.value, reason, task, *final) for task, reason in refused.items()],
        )
        connection.execute(f"DELETE FROM batches WHERE {unfinished}", final)  # noqa: S608


def _batch(row: tuple[Any, ...]) -> Batch:
    task_id, state, *rest = row
    return Batch(task_id, BatchState(state), *rest)


def _open(path: Path) -> sqlite3.Connection:
    make_database_private(path)
    return open_database(path, _MIGRATIONS)


def _has_digest(file: Path, expected: bytes) -> bool:
    try:
        return digest(file.read_bytes()) == expected
    except OSError:
        return False
