"""Directories of a server: checks, access rights, locks, free space."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from shuffledp.durable_files import FileLock
from shuffledp.errors import DataError

_OTHERS = 0o077


def check_directory(directory: Path, *, writable: bool = True) -> None:
    """Refuse a directory that does not exist or cannot be read, or written if ``writable``."""
    if not is_directory(directory):
        raise DataError(f"There is no directory {directory}; create it.", path=str(directory))
    if not os.access(directory, os.R_OK | os.X_OK):
        raise DataError(f"The directory {directory} cannot be read.", path=str(directory))
    if writable and not os.access(directory, os.W_OK):
        raise DataError(f"The directory {directory} cannot be written.", path=str(directory))


def is_directory(path: Path) -> bool:
    """Whether a path is a directory, as far as this user can tell."""
    try:
        return path.is_dir()
    except OSError:  # a parent cannot be searched
        return False


def make_private(path: Path) -> None:
    """Restrict a file or directory to its owner; DataError if that is not possible."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        try:
            path.chmod(mode & ~_OTHERS)
        except OSError:
            raise DataError(
                f"{path} is accessible to other users, and its mode cannot be changed: chmod go= {path}."
            ) from None


def lock_directory(directory: Path) -> FileLock:
    """Lock a directory against other processes until the lock is released or the process ends."""
    try:
        return FileLock(directory / ".lock", wait=False)
    except BlockingIOError:
        raise DataError(f"Another process uses {directory}; give each a directory of its own.") from None


def free_bytes(directory: Path) -> int:
    """Free disk space, rounded down to two digits, so that it rarely changes between two requests."""
    free = shutil.disk_usage(directory).free
    step: int = 10 ** max(0, len(str(free)) - 2)
    return free - free % step
