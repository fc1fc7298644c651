"""Reading files that somebody else puts into a folder or left there: nothing waits for them, nothing is changed."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["database_version", "open_regular", "read_database"]

_SQLITE = b"SQLite format 3\0"
_VERSION_AT, _VERSION_END = 60, 64  # in the first page of a database
_LOG_HEADER, _FRAME_HEADER = 32, 24  # of a write-ahead log and of each page in it
_LOG_MAGIC = (0x377F0682, 0x377F0683)


def open_regular(path: Path) -> BinaryIO:
    """A file to read; OSError for what is none: the reader of a pipe would wait for a writer."""
    _refuse_others(path.stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_others(os.fstat(descriptor))  # it may have been replaced
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _refuse_others(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")


def read_database(path: Path) -> sqlite3.Connection:
    """An SQLite file to read, also while another process writes it; if none does, no file appears beside it."""
    unused = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if unused else ''}"
    return sqlite3.connect(address, uri=True, timeout=60)


def database_version(path: Path) -> int:
    """The version (``user_version``) of an SQLite file, also of one that another process has locked; 0 if it is empty.

    It is read from the file and its write-ahead log as they are. OSError for what is no such file.
    """
    with open_regular(path) as file:
        beginning = file.read(_VERSION_END)
    if beginning and not beginning.startswith(_SQLITE):
        raise OSError(errno.EINVAL, "it is no SQLite database")
    version = int.from_bytes(beginning[_VERSION_AT:_VERSION_END], "big")
    try:
        with open_regular(path.with_name(f"{path.name}-wal")) as log:
            return _version_in_log(log, version)
    except FileNotFoundError:
        return version


def _version_in_log(log: BinaryIO, version: int) -> int:
    """The version that the last committed first page of the log has, if it has one; else the one that is given."""
    header = log.read(_LOG_HEADER)
    if len(header) < _LOG_HEADER or int.from_bytes(header[:4], "big") not in _LOG_MAGIC:
        return version
    page_size, salts = int.from_bytes(header[8:12], "big"), header[16:24]
    if page_size < _VERSION_END:
        return version
    written = version
    place = _LOG_HEADER
    while len(frame := log.read(_FRAME_HEADER + _VERSION_END)) == _FRAME_HEADER + _VERSION_END:
        if frame[8:16] != salts:  # left from before the log began anew
            break
        if int.from_bytes(frame[:4], "big") == 1:
            written = int.from_bytes(frame[_FRAME_HEADER + _VERSION_AT :], "big")
        if any(frame[4:8]):
            version = written
        place += _FRAME_HEADER + page_size
        log.seek(place)
    return version
