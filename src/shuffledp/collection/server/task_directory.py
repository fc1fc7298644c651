"""The task directory of a server: discovery of signed task files, their checks, and the tasks that are served."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from shuffledp.collection.server.directories import check_directory, is_directory
from shuffledp.collection.server.logs import event
from shuffledp.collection.task.key_documents import MAX_KEY_DOCUMENT_BYTES, authentic_rotation
from shuffledp.collection.task.signed_documents import kind_of_document
from shuffledp.collection.task.trusted_authors import TrustedAuthors
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.durable_files import open_regular
from shuffledp.errors import DataError, ShuffledpError

Loaded = TypeVar("Loaded")


@dataclass
class _TaskFile(Generic[Loaded]):
    """A task, and the file that it was read from."""

    path: Path
    task: Loaded
    last_error: str = ""
    """Why it is not served, as it was logged last."""


class TaskDirectory(ABC, Generic[Loaded]):
    """The tasks of a directory, by their ids in hexadecimal. A served task stays, even if its file is deleted."""

    def __init__(self, directory: Path, authors: Sequence[VerifyingKey] = ()) -> None:
        self._watched = WatchedDirectory(directory)
        self.authors = TrustedAuthors(authors)
        self._admitted: dict[str, _TaskFile[Loaded]] = {}
        self._waiting: dict[str, _TaskFile[Loaded]] = {}
        self._refresh_lock = threading.Lock()
        self.refused: list[RefusedFile] = []
        """The files that were refused at the start."""

    @abstractmethod
    def _read(self, path: Path) -> tuple[str, Loaded]:
        """The id and the task of a file; a ShuffledpError with the reason if this server does not serve it."""

    @abstractmethod
    def _fields(self, task: Loaded) -> Mapping[str, str | int]:
        """The fields of the log event of a new task."""

    def find(self, name: str) -> Loaded | None:
        """The task with this id, if it is served."""
        file = self._admitted.get(name)
        return None if file is None else file.task

    def __iter__(self) -> Iterator[Loaded]:
        return iter([file.task for file in list(self._admitted.values())])

    def __len__(self) -> int:
        return len(self._admitted)

    def load(self, admit: Callable[[Loaded], None] = lambda _: None) -> None:
        """Read all files at the start; refused ones are listed in ``refused`` and not logged."""
        self._watched.check()
        try:
            self.refused = self._watched.scan(self._add)
            if self._watched.offer_again:
                self.refused = self._watched.scan(self._add)
        except OSError as error:
            raise DataError(f"Cannot read the directory of tasks: {error.strerror or error}.") from None
        self.refused += self._admit_waiting(admit)

    def refresh(self, admit: Callable[[Loaded], None] = lambda _: None) -> None:
        """Read new and changed files; refused ones are logged.

        A new task is served only after ``admit``; if that raises, the task is offered again at the next refresh.
        """
        with self._refresh_lock:
            self._watched.rescan(self._add)
            log_refused(self._admit_waiting(admit))

    def postpone(self, name: str, reason: str) -> None:
        """Stop serving a task, while the server starts; it is offered again at every ``refresh``."""
        file = self._waiting[name] = self._admitted.pop(name)
        file.last_error = reason
        log_refused([RefusedFile(file.path, reason)])

    def _add(self, path: Path) -> None:
        content = read_small(path, MAX_KEY_DOCUMENT_BYTES)
        if content is not None and kind_of_document(content) == "rotate":
            if self.authors.follow(authentic_rotation(content, *self.authors.keys)):
                event("author-rotated", file=path.name)
                self._watched.offer_again = True  # files that were refused may be of the new key
            return
        name, task = self._read(path)
        if name not in self._admitted and name not in self._waiting:
            self._waiting[name] = _TaskFile(path, task)

    def _admit_waiting(self, admit: Callable[[Loaded], None]) -> list[RefusedFile]:
        """Offer the waiting tasks to ``admit``; those that it refuses for a new reason are returned."""
        refused = []
        for name, file in list(self._waiting.items()):
            try:
                admit(file.task)
            except Exception as error:  # noqa: BLE001  # one task must not affect the others
                reason = reason_of(error)
                if reason != file.last_error:
                    refused.append(RefusedFile(file.path, reason))
                file.last_error = reason
                continue
            self._admitted[name] = self._waiting.pop(name)
            event("task", level=logging.INFO, task=name, **self._fields(file.task))
        return refused


@dataclass(frozen=True)
class RefusedFile:
    """A refused file, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return self.reason if str(self.path) in self.reason else f"{self.path}: {self.reason}"


class WatchedDirectory:
    """Detects new and changed JSON files in a directory; an invalid file does not affect the others."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._unreadable: dict[Path, str] = {}
        self.offer_again = False
        """Set to offer refused files again, since the reason for which they were refused may be gone."""
        self._refused: set[Path] = set()
        self._last_error = ""
        """The error of the directory itself that was logged last, so that it is logged once."""

    def check(self) -> None:
        """Refuse a directory that does not exist or cannot be read."""
        if not is_directory(self._directory):
            raise DataError(f"There is no directory of tasks {self._directory}; create it.", path=str(self._directory))
        check_directory(self._directory, writable=False)

    def scan(self, take: Callable[[Path], None]) -> list[RefusedFile]:
        """Call ``take`` with every new or changed file; return those that it refuses, each once.

        For a file that cannot be read ``take`` must raise a DataError: the file is tried again next time, and returned
        again only for another reason. OSError if the directory itself cannot be read.
        """
        if self.offer_again:
            self.offer_again = False
            for path in self._refused:
                self._seen.pop(path, None)
        paths = sorted(path for path in self._directory.iterdir() if path.name.endswith(".json"))
        self._refused &= set(paths)
        for deleted in (self._seen.keys() | self._unreadable.keys()) - set(paths):
            self._seen.pop(deleted, None)
            self._unreadable.pop(deleted, None)
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
        except Exception as error:  # noqa: BLE001  # an invalid file must not affect the others
            refused: RefusedFile | None = RefusedFile(path, reason_of(error))
            self._refused.add(path)
        else:
            refused = None
            self._refused.discard(path)
        self._unreadable.pop(path, None)
        if stamp is not None:
            self._seen[path] = stamp
        return refused

    def rescan(self, take: Callable[[Path], None]) -> None:
        """Like ``scan``, in a running server: log refused files, and log an unreadable directory once."""
        try:
            refused = self.scan(take)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if reason != self._last_error:
                event("tasks-unreadable", level=logging.ERROR, reason=reason)
            self._last_error = reason
            return
        self._last_error = ""
        log_refused(refused)


def read_small(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most ``limit`` bytes; None for any other."""
    try:
        with open_regular(path) as file:
            content = file.read(limit + 2)
    except OSError:
        return None
    return content if len(content) <= limit + 1 else None


def _stamp(path: Path) -> tuple[int, ...] | None:
    """A value that changes whenever the file, its content or its mode changes; None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def log_refused(refused: Sequence[RefusedFile]) -> None:
    """Log each refused task file and the reason."""
    for file in refused:
        event("task-refused", level=logging.ERROR, file=file.path.name, reason=file.reason)


def reason_of(error: Exception) -> str:
    """The message of an error of this package; of other errors the type alone, since their messages may quote data."""
    return str(error) if isinstance(error, ShuffledpError) else type(error).__name__
