"""Folders of a server: those that belong to one process at a time and one user, and those whose files are watched."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from shuffledp.errors import DataError

__all__ = ["FolderLock", "WatchedFolder", "check_folder", "make_private", "private_database"]

_OTHERS = 0o077


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not there or cannot be written."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}; create it.", path=str(folder))
    if not os.access(folder, os.W_OK):
        raise DataError(f"The folder {folder} cannot be written.", path=str(folder))


def make_private(path: Path) -> None:
    """Take a file or folder away from all users but its owner; refuse one where that cannot be done."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        try:
            path.chmod(mode & ~_OTHERS)
        except OSError:
            raise DataError(
                f"{path} can be used by others, and is not this user's to change: chmod go= {path}."
            ) from None


def private_database(path: Path) -> None:
    """Before SQLite opens a file: let it be there, with what stands beside it, for its owner alone."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):  # new ones get the rights of the first
        if (file := path.with_name(name)).exists():
            make_private(file)


class FolderLock:
    """Keeps other processes out of a folder until it is released, or the process ends in whatever way."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise DataError(f"Another process works in {folder}; give each a folder of its own.") from None

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)


class WatchedFolder:
    """A folder of JSON files, of which new and changed ones are looked for now and then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, tuple[int, int]] = {}

    def check(self) -> None:
        """Refuse a folder that is not there."""
        if not self._folder.is_dir():
            raise DataError(f"There is no folder of tasks {self._folder}; create it.", path=str(self._folder))

    def changed(self) -> list[Path]:
        """Files that are new, or other than when they were last told."""
        changed = []
        for path in sorted(self._folder.glob("*.json")):
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._seen.get(path) != stamp:
                self._seen[path] = stamp
                changed.append(path)
        return changed

    def forget(self, path: Path) -> None:
        """Tell this file again next time."""
        del self._seen[path]
