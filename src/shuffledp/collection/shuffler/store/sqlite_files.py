"""SQLite files of a store: opening, failures, damage, deletion, and disk space reserved for closing rounds."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shuffledp.collection.server.databases import DamagedFileError, Migrations, open_database
from shuffledp.collection.shuffler.store.interface import StoreError
from shuffledp.durable_files import sync_directory

_WAIT_SECONDS = 5.0
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CONFINED = (*_DAMAGE, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
"""Errors that concern one file only."""


def connect(
    file: Path, migrations: Migrations, *, create: bool, exclusive: bool = False, log_pages: int | None = None
) -> sqlite3.Connection:
    """Open a database of the store and migrate it; DamagedFileError if it does not exist, unless ``create``."""
    return open_database(
        file,
        migrations,
        create=create,
        exclusive=exclusive,
        log_pages=log_pages,
        wait_seconds=_WAIT_SECONDS,
        newer=StoreError,
    )


@contextmanager
def sqlite_failures(failure: str) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as StoreErrors that begin with ``failure``."""
    try:
        yield
    except (sqlite3.Error, OSError, DamagedFileError) as error:
        if is_locked(error):
            raise StoreError(
                f"{failure}: another process uses it. SQLite serves one process; use PostgreSQL for several."
            ) from None
        raise StoreError(f"{failure}: {str(error).rstrip('.')}.") from None


def is_locked(error: Exception) -> bool:
    """Whether another process holds the lock of the file."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def is_disk_full(error: Exception) -> bool:
    """Whether an operation failed because the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return _code(error) == sqlite3.SQLITE_FULL


def is_damage(error: Exception) -> bool:
    """Whether the file is corrupt."""
    return isinstance(error, DamagedFileError) or _code(error) in _DAMAGE


def is_confined(error: Exception) -> bool:
    """Whether an error concerns one file only, so that others of the store may work."""
    return isinstance(error, DamagedFileError) or _code(error) in _CONFINED


def _code(error: Exception) -> int:
    """The primary result code of SQLite, or -1."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


class FileIdentity:
    """Detects that a database was deleted, replaced or truncated while a connection writes to it.

    SQLite truncates neither file while the connection is open: the database is never vacuumed, and its log is reused.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._log = file, file.with_name(f"{file.name}-wal")
        self._file_identity, self._size = _identity(file)
        self._log_identity, self._log_size = _identity(self._log)

    def check(self) -> None:
        """Raise DamagedFileError if the database or its log was deleted, replaced or truncated."""
        file_identity, size = _identity(self._file)
        if file_identity != self._file_identity:
            raise DamagedFileError("was deleted or replaced while it was in use")
        log_identity, log_size = _identity(self._log)
        if self._log_identity is None:
            self._log_identity = (
                log_identity  # SQLite creates it at the first write, and keeps it while the connection is open
            )
        elif log_identity != self._log_identity:
            raise DamagedFileError("lost its write-ahead log while it was in use")
        if size < self._size or log_size < self._log_size:
            raise DamagedFileError("was truncated while it was in use")
        self._size, self._log_size = size, log_size


def _identity(file: Path) -> tuple[tuple[int, int] | None, int]:
    """Device and inode of a file, None if it does not exist, and its size."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None, 0
    return (status.st_dev, status.st_ino), status.st_size


class DiskReserve:
    """A file of allocated blocks that is deleted when the disk is full, so that rounds can still be closed."""

    def __init__(self, file: Path, size: int) -> None:
        self._file, self._size = file, size
        self.is_reserved = False
        """Whether the space is reserved. If not, reports must be refused: the remaining space is for closing rounds."""
        self.restore()

    def restore(self) -> bool:
        """Reserve the space again if possible; whether it is reserved."""
        if self.is_reserved:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError as error:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            if not is_disk_full(error):
                raise
        else:
            self.is_reserved = True
        return self.is_reserved

    def free(self) -> bool:
        """Free the space; False if it was not reserved."""
        was_reserved, self.is_reserved = self.is_reserved, False
        if was_reserved:
            self._file.unlink(missing_ok=True)
        return was_reserved


def remove(file: Path) -> None:
    """Delete a database with its companion files, durably."""
    for companion in _COMPANIONS:
        file.with_name(file.name + companion).unlink(missing_ok=True)
    sync_directory(file.parent)
