"""Backups of an analyzer's directory, made while the server runs, and restoring them.

A backup contains the ledger, the states of finished batches, the releases, and the copies of accepted documents, such
as series; no keys and no messages. Both databases are write-locked while they are copied, so the copies are consistent.

A restored ledger lacks the releases made after the backup. The operator has to state for every task without an entry
whether it was released: if so it is entered as spent, and no batch of it is ever released again.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from shuffledp.collection.analyzer.agreement import LEDGER, RELEASES, check_agreement
from shuffledp.collection.analyzer.directory import Marker, check_initialized, is_used, read_marker
from shuffledp.collection.analyzer.ledger import Ledger, entries_in
from shuffledp.collection.analyzer.publishing import RELEASE_FORMS, Releases
from shuffledp.collection.analyzer.server import tasks_of
from shuffledp.collection.analyzer.settings import AnalyzerSettings
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.server.batches import BATCH_STATES, BatchState, batches_in, drop_unfinished
from shuffledp.collection.server.databases import open_as_it_is
from shuffledp.collection.server.directories import check_directory, lock_directory, make_private
from shuffledp.collection.server.task_directory import KEPT
from shuffledp.collection.task.task import Task
from shuffledp.durable_files import create_directory, open_regular, sync_directory, sync_file
from shuffledp.errors import DataError, OutputError

_DOCUMENT = re.compile("[0-9a-f]{32}\\.json")
_RELEASE = re.compile(rf"[0-9a-f]{{64}}\.({'|'.join(RELEASE_FORMS)})")


@dataclass(frozen=True)
class Backup:
    """The contents of a backup."""

    made: str
    """Time of the backup, in UTC."""
    entries: int
    """Entries of the ledger, granted or refused."""
    releases: int
    """Number of releases whose files it contains."""


def back_up(work: Path, out: Path) -> Backup:
    """Back up an analyzer's directory into a new directory, which appears complete or not at all."""
    check_directory(work)
    check_initialized(work)
    if os.path.lexists(out):
        raise OutputError(f"{out} exists; a backup is a new directory.", path=str(out))
    if out.absolute().resolve().is_relative_to(work.resolve()):
        raise OutputError(f"{out} is inside the directory that is backed up; choose another path.", path=str(out))
    with _errors_of(out):
        part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            backup = _copy(work, part)
            part.rename(out)
            sync_directory(out.parent)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return backup


def _copy(work: Path, part: Path) -> Backup:
    made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    databases = [work / LEDGER] + [work / BATCH_STATES] * (work / BATCH_STATES).exists()
    with ExitStack() as locks:
        for database in databases:
            locks.enter_context(_write_locked(database))
        for database in databases:
            _copy_database(database, part / database.name)
    entries = entries_in(part / LEDGER)
    drop_unfinished(part, {task: entry.reason for task, entry in entries.items() if not entry.granted})
    released = [task for task, batch in batches_in(part).items() if batch.state is BatchState.RELEASED]
    files = _copy_releases(work, part, released)
    _copy_documents(work / KEPT, part / KEPT)
    marker = read_marker(work)
    Marker(marker.initialized if marker else made, backup=made).write(part)
    check_agreement(part)
    return Backup(made, len(entries), files)


@contextmanager
def _write_locked(database: Path) -> Iterator[None]:
    """Hold the write lock of a database until the block ends; writers wait."""
    with closing(open_as_it_is(database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def _copy_database(source: Path, target: Path) -> None:
    """Copy all committed data, including the write-ahead log, into one file."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(open_as_it_is(source)) as reader, closing(open_as_it_is(target)) as writer:
        reader.backup(writer)
        writer.execute("PRAGMA journal_mode = DELETE")
        (result,) = writer.execute("PRAGMA integrity_check").fetchone()
    if result != "ok":
        raise DataError(f"{source} is damaged ({result}): restore the last good backup.", path=str(source))
    sync_file(target)


def _copy_releases(work: Path, part: Path, tasks: list[bytes]) -> int:
    """Copy the files of releases, which never change once their batch is released; returns the number of releases."""
    (part / RELEASES).mkdir(mode=0o700)
    copied = 0
    for task in tasks:
        files = [Releases.file_in(Path(RELEASES), task, form) for form in RELEASE_FORMS]
        present = [file for file in files if (work / file).exists()]
        for file in present:
            _copy_file(work / file, part / file)
        copied += bool(present)
    sync_directory(part / RELEASES)
    return copied


def _copy_documents(source: Path, target: Path) -> None:
    """Copy accepted series, cancellations, rotations and tasks; those of the operator may exist nowhere else."""
    files = [file for file in sorted(source.glob("*.json")) if _DOCUMENT.fullmatch(file.name)]
    if files:
        create_directory(target)
        for file in files:
            _copy_file(file, target / file.name)
        sync_directory(target)


def tasks_for(backup: Path, settings: AnalyzerSettings) -> AnalyzerTasks:
    """The tasks of the directory of the settings and of a backup.

    Rounds of cancelled series are among them, since the batch of one may have arrived before the cancellation.
    """
    tasks = tasks_of(settings, kept=backup / KEPT)
    tasks.include_cancelled()
    tasks.load()
    return tasks


def undecided_tasks(backup: Path, tasks: AnalyzerTasks) -> list[Task]:
    """The tasks that may have been released after a backup, in the order of closing.

    These are all tasks without an entry, even those that have not opened yet by the clock: on a new machine it may be
    wrong. A refused task file could hide such a task, so there must be none.
    """
    _marker_of(backup)
    if tasks.refused:
        raise DataError(
            f"{len(tasks.refused):,} task files are refused, and may belong to tasks that were released after the "
            f"backup; repair or remove them: {tasks.refused[0]}"
        )
    entries = entries_in(backup / LEDGER)
    return sorted((task for task in tasks if task.id not in entries), key=lambda task: (task.closes, task.id))


def restore(backup: Path, work: Path, tasks: AnalyzerTasks, released: Mapping[bytes, bool]) -> list[Task]:
    """Restore a backup into an empty directory; return the tasks that were entered as released after the backup.

    ``released`` maps the id of every undecided task to whether it was released after the backup.
    """
    marker = _marker_of(backup)
    check_agreement(backup)
    undecided = undecided_tasks(backup, tasks)
    if missing := [task for task in undecided if task.id not in released]:
        raise DataError(
            f"{len(missing):,} tasks may have been released after the backup of {marker.backup}, beginning with "
            f"{missing[0].name!r} ({missing[0].id.hex()[:16]}): state for each whether it was."
        )
    entered = [task for task in undecided if released[task.id]]
    with _errors_of(work):
        work.mkdir(mode=0o700, exist_ok=True)
        check_directory(work)
        make_private(work)
        lock = lock_directory(work)
        try:
            _restore(backup, work, marker, lambda ledger: _enter_releases(ledger, entered, tasks))
        finally:
            lock.release()
    return entered


def _marker_of(backup: Path) -> Marker:
    marker = read_marker(backup)
    if marker is None or marker.backup is None:
        raise DataError(f"{backup} is not a backup of an analyzer.", path=str(backup))
    return marker


def _restore(backup: Path, work: Path, marker: Marker, enter: Callable[[Ledger], None]) -> None:
    """The marker of the backup is written first and replaced last: after a crash in between, no analyzer starts."""
    has_database = any(os.path.lexists(work / name) for name in (LEDGER, BATCH_STATES))
    if has_database or read_marker(work) is not None or is_used(work):
        raise DataError(f"{work} is not empty; a backup is restored into an empty directory.", path=str(work))
    marker.write(work)
    for name in (LEDGER, BATCH_STATES):
        if (backup / name).exists():
            _copy_file(backup / name, work / name, mode=0o600)
    (work / RELEASES).mkdir(exist_ok=True)
    for file in sorted((backup / RELEASES).glob("[0-9a-f]*")):
        if _RELEASE.fullmatch(file.name):
            _copy_file(file, work / RELEASES / file.name, mode=0o666)
    sync_directory(work / RELEASES)
    _copy_documents(backup / KEPT, work / KEPT)
    ledger = Ledger(work / LEDGER)
    try:
        enter(ledger)
    finally:
        ledger.close()
    check_agreement(work)
    Marker(marker.initialized).write(work)


def _enter_releases(ledger: Ledger, entered: list[Task], tasks: AnalyzerTasks) -> None:
    for task in entered:
        series = tasks.series_of(task)
        if series is not None:
            ledger.reserve_series(series, tasks.budget(task), is_past=True)
        ledger.enter_past_release(task, tasks.budget(task), b"")  # no batch has this manifest, so none is released


def _copy_file(source: Path, target: Path, *, mode: int = 0o600) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as copy, _open_source(source) as content:
        shutil.copyfileobj(content, copy)
    sync_file(target)


def _open_source(source: Path) -> BinaryIO:
    try:
        return open_regular(source)
    except OSError as error:
        raise DataError(f"Cannot read {source}: {error.strerror or error}.", path=str(source)) from None


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise errors of the disk as OutputError, and errors of the databases as DataError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror or error}.", path=str(path)) from None
    except sqlite3.Error as error:
        raise DataError(f"The databases cannot be copied ({error}); try again.", path=str(path)) from None
