"""Durable state of batches: the signed manifest, then its chunks in any order, and how far each batch is.

A batch has a directory of its own with the manifest and a file for each chunk; a file that is there is whole. A small
SQLite file says how far each batch is. Everything can be sent again without harm.
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
from typing import Any

from shuffledp.collection.server.databases import (
    Migrations,
    make_database_private,
    open_database,
    pending_migrations,
    read_database,
    transaction,
)
from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.files import sync_directory, write_durably
from shuffledp.collection.wire.formats import MOST_MANIFEST_BYTES, BadSignatureError, Manifest, digest
from shuffledp.errors import DataError

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
_FOLDER, _MANIFEST, _CHUNK = "batches", "manifest", ".chunk"
_ALL = "SELECT task, state, manifest, chunks, reason FROM batches"
_FEW_CHUNKS = 1 << 12
_USUAL_CHUNK_BYTES = 1 << 16
_BYTES_PER_CHUNK, _OTHER_BYTES = 67, 1024  # of a manifest


class BatchState(Enum):
    """How far a batch is; it only ever goes forward, but for a chunk that was lost."""

    RECEIVING = "receiving"
    COMPLETE = "complete"
    RELEASED = "released"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to it any more."""
        return self in (BatchState.RELEASED, BatchState.REFUSED)


class BatchOutcome(Enum):
    """What became of something that was sent."""

    NEW = "new"
    SAME = "same"
    CONFLICT = "conflict"
    """Another manifest than the one that is here, or a chunk that is not what the manifest says."""
    GONE = "gone"
    """Another manifest than that of the batch which was released or refused."""
    UNKNOWN = "unknown"
    """There is no manifest of this batch, or it has no such chunk."""


@dataclass(frozen=True)
class Batch:
    """A batch that is known."""

    task_id: bytes
    state: BatchState
    manifest: bytes
    """The SHA-256 of the signed manifest."""
    chunks: int
    reason: str
    """Why it is refused, for the operator."""


def most_manifest_bytes(task: Task) -> int:
    """How long a manifest can be: chunks are not tiny, unless they are few."""
    most = task.maximum_users * task.messages_per_report * task.sealed_size // _USUAL_CHUNK_BYTES + 1
    return min(MOST_MANIFEST_BYTES, _OTHER_BYTES + _BYTES_PER_CHUNK * max(most, _FEW_CHUNKS))


def read_manifest(content: bytes, task: Task) -> Manifest | None:
    """The manifest, if the task's shuffler signed it; None if somebody else did. ParameterError if it does not fit."""
    try:
        manifest = Manifest.verified(content, task.shuffler)
    except BadSignatureError:
        return None
    manifest.check_task(task)
    return manifest


class Batches:
    """All batches, in a directory that one process uses."""

    def __init__(self, folder: Path, entered: Callable[[bytes], bytes | None] = lambda _: None) -> None:
        """``entered`` tells the manifest to which the ledger binds a task; another is refused."""
        self._folder = folder / _FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.RLock()
        self._manifests: dict[bytes, Manifest] = {}
        self._missing: dict[bytes, set[int]] = {}
        self._entered = entered
        self._connection = _open(folder / BATCH_STATES)
        self._clean()

    def put_manifest(self, manifest: Manifest, content: bytes) -> BatchOutcome:
        """Begin a batch, durably; ``content`` is the manifest with its signature, which was verified."""
        task_id = manifest.task_id
        bound = self._entered(task_id) if self.get(task_id) is None else None
        if bound is not None and bound != digest(content):
            return BatchOutcome.CONFLICT
        with self._lock:
            known = self.get(task_id)
            if known is not None:
                if known.manifest == digest(content):
                    self._mend_manifest(known, content)
                    return BatchOutcome.SAME
                return BatchOutcome.GONE if known.state.is_final else BatchOutcome.CONFLICT
            folder = self._folder / task_id.hex()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            write_durably(folder / _MANIFEST, content)
            sync_directory(self._folder)
            self._change(
                "INSERT INTO batches (task, state, manifest, chunks) VALUES (?, ?, ?, ?)",
                (task_id, BatchState.RECEIVING.value, digest(content), len(manifest.chunks)),
            )
            return BatchOutcome.NEW

    def _mend_manifest(self, known: Batch, content: bytes) -> None:
        """Keep the manifest of an unfinished batch again if it was lost on the disk."""
        if known.state.is_final:
            return
        self._manifests.pop(known.task_id, None)
        with suppress(FileNotFoundError):
            self.manifest(known.task_id)
            return
        folder = self._folder / known.task_id.hex()
        folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(folder / _MANIFEST, content)
        sync_directory(self._folder)
        self._missing.pop(known.task_id, None)

    def put_chunk(self, task_id: bytes, index: int, content: bytes) -> BatchOutcome:
        """Keep a chunk, durably, if it is what the manifest says."""
        known = self.get(task_id)
        if known is None or not 0 <= index < known.chunks:
            return BatchOutcome.UNKNOWN
        try:
            return BatchOutcome.SAME if known.state.is_final else self._keep(task_id, index, content)
        except FileNotFoundError:  # the batch was released while this chunk was sent a second time
            if (known := self.get(task_id)) is not None and known.state.is_final:
                return BatchOutcome.SAME
            raise

    def _keep(self, task_id: bytes, index: int, content: bytes) -> BatchOutcome:
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
        """How far a batch is."""
        with self._lock:
            row = self._connection.execute(_ALL + " WHERE task = ?", (task_id,)).fetchone()
        return None if row is None else _batch(row)

    def all(self) -> list[Batch]:
        """Every batch that is known."""
        with self._lock:
            rows = self._connection.execute(_ALL).fetchall()
        return [_batch(row) for row in rows]

    def manifest(self, task_id: bytes) -> Manifest:
        """The manifest of a batch that is not yet finished; FileNotFoundError if it is lost or damaged."""
        with self._lock:
            if task_id not in self._manifests:
                path = self._folder / task_id.hex() / _MANIFEST
                content, known = path.read_bytes(), self.get(task_id)
                if known is None or known.manifest != digest(content):
                    raise FileNotFoundError(errno.ENOENT, "The manifest of the batch is damaged", str(path))
                self._manifests[task_id] = Manifest.unverified(content)
            return self._manifests[task_id]

    def holds(self, task_id: bytes, index: int) -> bool:
        """Whether a chunk of a batch that is not yet finished is here."""
        return index not in self._missing_of(task_id)

    def missing(self, task_id: bytes, most: int) -> list[int]:
        """The first chunks that are not here yet; none of a batch that is complete."""
        with self._lock:
            known = self.get(task_id)
            if known is None or known.state is not BatchState.RECEIVING:
                return []
            return sorted(self._missing_or_all(known))[:most]

    def count_missing(self, task_id: bytes) -> int:
        """How many chunks are not here yet; 0 of a batch that is complete or unknown."""
        with self._lock:
            known = self.get(task_id)
            if known is None or known.state is not BatchState.RECEIVING:
                return 0
            return len(self._missing_or_all(known))

    def _missing_or_all(self, known: Batch) -> Collection[int]:
        """As ``_missing_of``; all chunks if the manifest is lost, which the shuffler sends again before them."""
        try:
            return self._missing_of(known.task_id)
        except FileNotFoundError:
            return range(known.chunks)

    def _missing_of(self, task_id: bytes) -> set[int]:
        with self._lock:
            if task_id not in self._missing:
                chunks = range(len(self.manifest(task_id).chunks))
                self._missing[task_id] = {i for i in chunks if not self._chunk_file(task_id, i).exists()}
            return self._missing[task_id]

    def chunk_files(self, task_id: bytes) -> list[tuple[Path, int]]:
        """The files of a complete batch and their sizes; a chunk that was lost on the disk is asked for again."""
        manifest = self.manifest(task_id)
        files = [(self._chunk_file(task_id, i), manifest.chunk_size(i)) for i in range(len(manifest.chunks))]
        lost = {i for i, (file, _) in enumerate(files) if not _holds(file, manifest.chunks[i])}
        if lost:
            with self._lock:
                self._missing[task_id] = lost
                self._advance(task_id, BatchState.COMPLETE, BatchState.RECEIVING)
            raise DataError(f"{len(lost):,} chunks of the batch were damaged on the disk; they are asked for again.")
        return files

    def finish(self, task_id: bytes, state: BatchState, reason: str = "") -> None:
        """The batch is released or refused, durably; its messages are deleted."""
        self._change(
            "UPDATE batches SET state = ?, reason = ? WHERE task = ? AND state = ?",
            (state.value, reason, task_id, BatchState.COMPLETE.value),
        )
        self.forget(task_id)

    def give_up(self, task_id: bytes, reason: str) -> None:
        """Refuse a batch that is not finished, durably; its messages are deleted."""
        self._change(
            "UPDATE batches SET state = ?, reason = ? WHERE task = ? AND state IN (?, ?)",
            (BatchState.REFUSED.value, reason, task_id, BatchState.RECEIVING.value, BatchState.COMPLETE.value),
        )
        self.forget(task_id)

    def forget(self, task_id: bytes) -> None:
        """Delete the messages of a batch."""
        with self._lock:
            self._manifests.pop(task_id, None)
            self._missing.pop(task_id, None)
        gone = self._folder / f".{task_id.hex()}"
        with suppress(FileNotFoundError):
            (self._folder / task_id.hex()).rename(gone)  # so that nothing more is put there
        shutil.rmtree(gone, ignore_errors=True)
        sync_directory(self._folder)

    def is_writable(self) -> bool:
        """Whether something can be made durable."""
        probe = self._folder / ".probe"
        try:
            write_durably(probe, bytes(1 << 12))
            probe.unlink(missing_ok=True)
            self._change("UPDATE batches SET state = state WHERE task = ?", (b"",))
        except (OSError, sqlite3.Error):
            return False
        return True

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._connection.close()

    def _clean(self) -> None:
        """Remove what a process that was killed left behind: directories without a batch, files that are not whole."""
        known = {batch.task_id.hex(): batch.state for batch in self.all()}
        for folder in self._folder.iterdir():
            if folder.is_file():
                folder.unlink()
            elif folder.name not in known or known[folder.name].is_final:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                for file in folder.glob(".*"):
                    file.unlink(missing_ok=True)
        for batch in self.all():
            if batch.state is BatchState.RECEIVING and not self.count_missing(batch.task_id):
                self._advance(batch.task_id, BatchState.RECEIVING, BatchState.COMPLETE)

    def _chunk_file(self, task_id: bytes, index: int) -> Path:
        return self._folder / task_id.hex() / f"{index}{_CHUNK}"

    def _advance(self, task_id: bytes, before: BatchState, after: BatchState) -> None:
        self._change("UPDATE batches SET state = ? WHERE task = ? AND state = ?", (after.value, task_id, before.value))

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        with self._lock, transaction(self._connection):
            self._connection.execute(statement, values)


def batches_in(folder: Path) -> dict[bytes, Batch]:
    """All batches by their tasks; reads only."""
    path = folder / BATCH_STATES
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


def tasks_with_chunks(folder: Path) -> set[bytes]:
    """The tasks of which chunks are on the disk."""
    folders = [each for each in (folder / _FOLDER).glob("[0-9a-f]*") if len(each.name) == 64]
    return {bytes.fromhex(each.name) for each in folders if next(each.glob(f"[0-9]*{_CHUNK}"), None) is not None}


def signed_manifest_in(folder: Path, task_id: bytes) -> bytes:
    """The signed manifest of a batch that is not yet finished."""
    return (folder / _FOLDER / task_id.hex() / _MANIFEST).read_bytes()


def put_back(folder: Path, batches: Iterable[Batch]) -> None:
    """Make known again, durably, batches that were forgotten."""
    connection = _open(folder / BATCH_STATES)
    try:
        with transaction(connection):
            connection.executemany(
                "INSERT INTO batches (task, state, manifest, chunks, reason) VALUES (?, ?, ?, ?, ?)",
                [(each.task_id, each.state.value, each.manifest, each.chunks, each.reason) for each in batches],
            )
    finally:
        connection.close()


def settle(folder: Path, refused: Mapping[bytes, str]) -> None:
    """In a copy without messages: forget unfinished batches, but for those that the ledger refused, for these reasons.

    Those that are forgotten can be delivered again, if the shuffler still has them.
    """
    if not (folder / BATCH_STATES).exists():
        return
    unfinished = "state NOT IN (?, ?)"
    final = tuple(state.value for state in BatchState if state.is_final)
    with closing(sqlite3.connect(folder / BATCH_STATES, isolation_level=None)) as connection, transaction(connection):
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


def _holds(file: Path, expected: bytes) -> bool:
    try:
        return digest(file.read_bytes()) == expected
    except OSError:
        return False
