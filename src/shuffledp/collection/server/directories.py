"""Directories of a server: checks, access rights, locks, and watching for new files."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.logs import event
from shuffledp.collection.transport.files import FileLock
from shuffledp.errors import DataError, ShuffledpError

__all__ = [
    "RefusedFile",
    "WatchedDirectory",
    "check_directory",
    "lock_directory",
    "log_refused",
    "make_private",
    "reason_of",
]

_OTHERS = 0o077


def check_directory(folder: Path, *, written: bool = True) -> None:
    """Refuse a folder that is not there or cannot be used: read, and written if that is wanted."""
    if not _is_folder(folder):
        raise DataError(f"There is no folder {folder}; create it.", path=str(folder))
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError(f"The folder {folder} cannot be read.", path=str(folder))
    if written and not os.access(folder, os.W_OK):
        raise DataError(f"The folder {folder} cannot be written.", path=str(folder))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # this user may not even look there
        return False


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


def lock_directory(directory: Path) -> FileLock:
    """Keep other processes out of a directory until the lock is released, or the process ends in whatever way."""
    try:
        return FileLock(directory / ".lock", wait=False)
    except BlockingIOError:
        raise DataError(f"Another process works in {directory}; give each a directory of its own.") from None


@dataclass(frozen=True)
class RefusedFile:
    """A file of a folder that is not in order, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return self.reason if str(self.path) in self.reason else f"{self.path}: {self.reason}"


class WatchedDirectory:
    """A folder of JSON files, of which new and changed ones are looked for now and then.

    Whatever is the matter with one file, the others are found.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._unreadable: dict[Path, str] = {}
        self._complaint = ""
        """What was last logged of the folder itself, so that it is said once."""

    def check(self) -> None:
        """Refuse a folder that is not there or cannot be read."""
        if not _is_folder(self._folder):
            raise DataError(f"There is no folder of tasks {self._folder}; create it.", path=str(self._folder))
        check_directory(self._folder, written=False)

    def look(self, take: Callable[[Path], None]) -> list[RefusedFile]:
        """Give every file that is new or changed to ``take``; those that it refuses are returned, each once.

        It is to raise a DataError for a file that cannot be read: that one is tried again next time, and returned again
        if the reason is another. OSError if the folder itself cannot be read.
        """
        paths = sorted(path for path in self._folder.iterdir() if path.name.endswith(".json"))
        for gone in (self._seen.keys() | self._unreadable.keys()) - set(paths):
            self._seen.pop(gone, None)
            self._unreadable.pop(gone, None)
        return [refused for path in paths if (refused := self._offer(path, take)) is not None]

    def _offer(self, path: Path, take: Callable[[Path], None]) -> RefusedFile | None:
        stamp = _stamp(path)
        if stamp is not None and self._seen.get(path) == stamp:
            return None
        try:
            take(path)
        except DataError as error:
            self._seen.pop(path, None)
            if not os.path.lexists(path) or self._unreadable.get(path) == str(error):
                return None
            self._unreadable[path] = str(error)
            return RefusedFile(path, str(error))
        except Exception as error:  # noqa: BLE001  # whatever is in one file must not harm the others
            refused: RefusedFile | None = RefusedFile(path, reason_of(error))
        else:
            refused = None
        self._unreadable.pop(path, None)
        if stamp is not None:
            self._seen[path] = stamp
        return refused

    def follow(self, take: Callable[[Path], None]) -> None:
        """As ``look``, for a server that runs: what is refused is logged, and so is, once, a folder that is gone."""
        try:
            refused = self.look(take)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if reason != self._complaint:
                event("tasks-unreadable", level=logging.ERROR, reason=reason)
            self._complaint = reason
            return
        self._complaint = ""
        log_refused(refused)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What is another once the file, its content or its rights are; None if there is nothing to be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def log_refused(refused: Sequence[RefusedFile]) -> None:
    """Say which tasks are left out, and why."""
    for each in refused:
        event("task-refused", level=logging.ERROR, file=each.path.name, reason=each.reason)


def reason_of(error: Exception) -> str:
    """What to say of an error: of those that are not of this package only the kind, since the text may quote data."""
    return str(error) if isinstance(error, ShuffledpError) else type(error).__name__
