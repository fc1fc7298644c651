"""Databases of the servers: migrations, opening SQLite files durably or for reading, transactions."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from shuffledp.collection.server.directories import make_private
from shuffledp.durable_files import open_regular, sync_directory
from shuffledp.errors import DataError, ShuffledpError

Migrations = Sequence[Sequence[str]]
"""The statements that migrate a schema to each version from the previous one; version 0 is empty."""

WAIT_SECONDS = 60.0
_SQLITE = b"SQLite format 3\0"
_VERSION_START, _VERSION_END = 60, 64  # bytes of the first page of a database
_LOG_HEADER, _FRAME_HEADER = 32, 24  # of a write-ahead log and of each page in it
_LOG_MAGIC = (0x377F0682, 0x377F0683)


class DamagedFileError(Exception):
    """A file that must contain a database does not, or was deleted or replaced."""


def pending_migrations(
    version: int, migrations: Migrations, where: str, *, error: type[ShuffledpError] = DataError
) -> list[tuple[int, Sequence[str]]]:
    """The versions that a database lacks, each with its statements; a newer database is refused with ``error``."""
    if version > len(migrations):
        raise error(
            f"{where} has version {version} of its schema; this program reads versions up to {len(migrations)}. "
            "Run the program that wrote it, or a newer one.",
            version=version,
            newest=len(migrations),
        )
    return [(number, migrations[number - 1]) for number in range(version + 1, len(migrations) + 1)]


def open_database(
    file: Path,
    migrations: Migrations,
    *,
    create: bool = True,
    exclusive: bool = False,
    log_pages: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    newer: type[ShuffledpError] = DataError,
) -> sqlite3.Connection:
    """Open an SQLite file for durable transactions, and migrate it; a new file belongs to its owner alone.

    Without ``create`` a file that is missing, empty or without tables is a DamagedFileError, and is not changed. With
    ``exclusive`` no other process can use it until the connection is closed or the process ends. ``newer`` is raised
    for the schema of a newer program.
    """
    if create:
        with suppress(FileExistsError):  # opening and closing an existing file would release SQLite's locks on it
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    else:
        _require_content(file)
    address = f"{file.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
    try:
        if exclusive:  # the lock is held until the connection is closed or the process ends
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if log_pages is not None:
            connection.execute(f"PRAGMA wal_autocheckpoint = {log_pages}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        with transaction(connection):
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if not create and version == 0:
                raise DamagedFileError("has no tables")
            for number, statements in pending_migrations(version, migrations, str(file), error=newer):
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
        sync_directory(file.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_content(file: Path) -> None:
    try:
        if file.stat().st_size == 0:
            raise DamagedFileError("is empty")
    except FileNotFoundError:
        raise DamagedFileError("does not exist") from None


def make_database_private(file: Path) -> None:
    """Restrict an SQLite file and its companions to their owner; new companions inherit the mode of the file."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        with suppress(FileNotFoundError):
            make_private(file.with_name(name))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction; rolled back if the block raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors end it
            connection.execute("ROLLBACK")
        raise


def read_database(path: Path) -> sqlite3.Connection:
    """Open an SQLite file for reading, even while another process writes it; no companion files are created."""
    unused = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if unused else ''}"
    return sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS)


def open_as_it_is(path: Path) -> sqlite3.Connection:
    """Open an SQLite file to lock, copy or reduce it: without migrations, and in the journal mode that it has."""
    return sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)


def database_version(path: Path) -> int:
    """The version (``user_version``) of an SQLite file, even if another process has locked it; 0 if it is empty.

    It is read from the bytes of the file and its write-ahead log. OSError if it is not an SQLite file.
    """
    with open_regular(path) as file:
        header = file.read(_VERSION_END)
    if header and not header.startswith(_SQLITE):
        raise OSError(errno.EINVAL, "it is not an SQLite database")
    version = int.from_bytes(header[_VERSION_START:_VERSION_END], "big")
    try:
        with open_regular(path.with_name(f"{path.name}-wal")) as log:
            return _version_in_log(log, version)
    except FileNotFoundError:
        return version


def _version_in_log(log: BinaryIO, version: int) -> int:
    """The version in the last committed first page of the log; ``version`` if the log has none."""
    header = log.read(_LOG_HEADER)
    if len(header) < _LOG_HEADER or int.from_bytes(header[:4], "big") not in _LOG_MAGIC:
        return version
    page_size, salts = int.from_bytes(header[8:12], "big"), header[16:24]
    if page_size < _VERSION_END:
        return version
    written = version
    position = _LOG_HEADER
    while len(frame := log.read(_FRAME_HEADER + _VERSION_END)) == _FRAME_HEADER + _VERSION_END:
        if frame[8:16] != salts:  # a frame from before the log was restarted
            break
        if int.from_bytes(frame[:4], "big") == 1:
            written = int.from_bytes(frame[_FRAME_HEADER + _VERSION_START :], "big")
        if any(frame[4:8]):
            version = written
        position += _FRAME_HEADER + page_size
        log.seek(position)
    return version
