"""The task directory of a server: discovery of signed files, their checks, and the tasks that are served.

A file is a task, a series of rounds, the cancellation of a series, or the rotation of an author's key. Copies of
accepted series, cancellations and rotations are kept in the work directory: none is forgotten if its file is deleted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from shuffledp.collection.server.directories import check_directory, is_directory
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.round_keys import KeylessError
from shuffledp.collection.server.series import AcceptedSeries, SeriesBook
from shuffledp.collection.task.key_documents import authentic_rotation
from shuffledp.collection.task.series import MAX_SERIES_BYTES
from shuffledp.collection.task.signed_documents import kind_of_document
from shuffledp.collection.task.trusted_authors import TrustedAuthors
from shuffledp.collection.wire.keys import ExpiredKeyError, VerifyingKey
from shuffledp.durable_files import create_directory, open_regular, write_durably
from shuffledp.errors import DataError, ParameterError, ShuffledpError

Loaded = TypeVar("Loaded")
NEWLINE = b"\n"
KEPT = "documents"
"""The directory of copies, in the work directory of a server."""
_DAMAGED = (
    "The copy of a document that was accepted is damaged, and does not count any more, such as the cancellation of a "
    "series: give the document to this server again, or delete the copy."
)
_DOCUMENTS = {"rotate": "_add_rotation", "series": "_add_series", "cancel": "_add_cancellation"}
"""Kinds of documents that are not tasks, and the methods that accept them; these return whether anything changed."""


_REFUSALS = (DataError, ExpiredKeyError, KeylessError, ParameterError)
"""Errors for which a task is refused until somebody changes something; others may pass by themselves."""


@dataclass
class _TaskFile(Generic[Loaded]):
    """A task, and the file that it was read from."""

    path: Path
    task: Loaded
    last_error: str = ""
    """Why it is not served, as it was logged last."""


class TaskDirectory(ABC, Generic[Loaded]):
    """The tasks of a directory, by their ids in hexadecimal. A served task stays, even if its file is deleted."""

    def __init__(self, directory: Path, authors: Sequence[VerifyingKey] = (), *, kept: Path | None = None) -> None:
        """``kept`` is a directory with copies of accepted documents; it need not exist."""
        self._watched = WatchedDirectory(directory)
        self._kept, self._keeps = kept, False
        self._watched_copies = None if kept is None else WatchedDirectory(kept)
        self.authors = TrustedAuthors(authors)
        self.series = SeriesBook(self.authors)
        self._admitted: dict[str, _TaskFile[Loaded]] = {}
        self._waiting: dict[str, _TaskFile[Loaded]] = {}
        self._refresh_lock = threading.Lock()
        self._admit: Callable[[Loaded], None] = lambda _: None
        """What the last refresh was called with."""
        self.refused: list[RefusedFile] = []
        """The files that were refused at the start."""
        self.refused_rounds: dict[str, RefusedFile] = {}
        """The rounds of series that cannot be served, by the ids of their tasks."""
        self._changed = False
        """Whether a document was accepted, so that files that were refused should be offered again."""
        self._documents: list[bytes] = []
        """All accepted documents that are not tasks."""

    @abstractmethod
    def _read(self, path: Path) -> tuple[str, Loaded]:
        """The id and the task of a file; a ShuffledpError with the reason if this server does not serve it."""

    @abstractmethod
    def _fields(self, task: Loaded) -> Mapping[str, str | int]:
        """The fields of the log event of a new task."""

    def _derive(self, accepted: AcceptedSeries, index: int) -> Loaded:
        """The task of a round of a series; a ShuffledpError if this server cannot serve it."""
        raise ParameterError(f"This server does not serve series, such as round {index} of {accepted.name}.")

    def _takes_place(self, accepted: AcceptedSeries, index: int) -> bool:
        """Whether a round is not cancelled, or was so too late."""
        return not accepted.is_cancelled(index)

    def _check_series(self, accepted: AcceptedSeries) -> None:
        """Raise a ShuffledpError with the reason if this server does not serve a new series."""

    def _cancelled(self, accepted: AcceptedSeries) -> None:
        """Called when a series was cancelled, or from an earlier round on than before."""

    def _due_rounds(self, accepted: AcceptedSeries) -> Iterable[int]:
        """The rounds of a series that should be served now, if they are not."""
        return range(accepted.rounds)

    def find(self, name: str) -> Loaded | None:
        """The task with this id, if it is served."""
        file = self._admitted.get(name)
        return None if file is None else file.task

    @property
    def names(self) -> list[str]:
        """The ids of the tasks that are served, in hexadecimal."""
        return list(self._admitted)

    def __iter__(self) -> Iterator[Loaded]:
        return iter([file.task for file in list(self._admitted.values())])

    def __len__(self) -> int:
        return len(self._admitted)

    def load(self, admit: Callable[[Loaded], None] = lambda _: None) -> None:
        """Read all files at the start; refused ones are listed in ``refused`` and not logged."""
        self._watched.check()
        try:
            self.refused = self._scan()
            while self._changed:
                self.refused = self._scan()
        except OSError as error:
            raise DataError(f"Cannot read the directory of tasks: {error.strerror or error}.") from None
        self._add_due_rounds()
        self.refused += self._admit_waiting(admit)

    def _scan(self) -> list[RefusedFile]:
        """Read the copies, then the files; files that were refused are offered again if that may help."""
        self._watched.offer_again, changed = self._changed, self._changed
        self._changed = False
        damaged: list[RefusedFile] = []
        if self._watched_copies is not None and self._kept is not None and self._kept.is_dir():
            self._watched_copies.offer_again = changed
            # an intact copy that is refused now was accepted before, and is kept
            refused = self._watched_copies.scan(self._add)
            damaged = [RefusedFile(file.path, _DAMAGED) for file in refused if not _is_intact(file.path)]
        return [*damaged, *self._watched.scan(self._add)]

    def refresh(self, admit: Callable[[Loaded], None] = lambda _: None) -> None:
        """Read new and changed files; refused ones are logged.

        A new task is served only after ``admit``; if that raises, the task is offered again at the next refresh.
        """
        with self._refresh_lock:
            self._admit = admit
            self._watched.offer_again, self._changed = self._changed, False
            self._watched.rescan(self._add)
            self._add_due_rounds()
            log_refused(self._admit_waiting(admit))

    def keep_copies(self) -> None:
        """Copy accepted series, cancellations and rotations from now on; only a running server does."""
        self._keeps = True
        for content in self._documents:
            self._keep(content)

    @property
    def all_refused(self) -> list[RefusedFile]:
        """The files that were refused at the start, and the rounds of series that cannot be served now."""
        waiting = [RefusedFile(file.path, file.last_error) for file in list(self._waiting.values()) if file.last_error]
        rounds = [refused for refused in waiting if refused.path.name.startswith("series ")]
        return [*self.refused, *self.refused_rounds.values(), *rounds]

    def put(self, content: bytes) -> dict[str, Any]:
        """Accept a signed document from the operator, durably; a ShuffledpError with the reason if it is refused."""
        if self._kept is None:
            raise ParameterError("This server has no directory for documents.")
        content = content.removesuffix(b"\n")
        with self._refresh_lock:
            create_directory(self._kept)
            path = self._kept / _copy_name(content)
            is_new = not path.exists()
            write_durably(path, content + b"\n")
            try:
                self._add(path)
                self._check_admitted(path)
            except Exception:
                if is_new:
                    path.unlink(missing_ok=True)
                raise
        return {"kind": kind_of_document(content) or "unknown", "file": path.name}

    def _check_admitted(self, path: Path) -> None:
        """Raise the reason if the task of a file is refused as it is, such as for its round key.

        What may pass, such as a database that does not answer, is tried again at the next refresh.
        """
        for name, file in list(self._waiting.items()):
            if file.path != path:
                continue
            try:
                self._admit(file.task)
            except _REFUSALS:
                del self._waiting[name]
                raise
            except Exception as error:  # noqa: BLE001  # as at a refresh
                file.last_error = reason_of(error)

    def postpone(self, name: str, reason: str) -> None:
        """Stop serving a task, while the server starts; it is offered again at every ``refresh``."""
        file = self._waiting[name] = self._admitted.pop(name)
        file.last_error = reason
        log_refused([RefusedFile(file.path, reason)])

    def _add(self, path: Path) -> None:
        content = read_small(path, MAX_SERIES_BYTES)
        kind = None if content is None else kind_of_document(content)
        if content is not None and kind in _DOCUMENTS:
            if getattr(self, _DOCUMENTS[kind])(content, path):
                self._changed = True  # the reason for which other files were refused may be gone
                self._documents.append(content)
                if self._keeps:
                    self._keep(content)
            return
        name, task = self._read(path)
        if name not in self._admitted and name not in self._waiting:
            self._waiting[name] = _TaskFile(path, task)

    def _add_rotation(self, content: bytes, path: Path) -> bool:
        is_new = self.authors.follow(authentic_rotation(content, *self.authors.keys))
        if is_new:
            event("author-rotated", file=path.name)
        return is_new

    def _add_series(self, content: bytes, path: Path) -> bool:
        accepted = self.series.read(content)
        if self.series.get(accepted.name) is not None:
            return False
        self._check_series(accepted)
        self.series.add(accepted)
        event("series", series=accepted.name, rounds=accepted.rounds, file=path.name)
        return True

    def _add_cancellation(self, content: bytes, path: Path) -> bool:
        cancelled = self.series.cancel(content)
        if cancelled is None:
            return False
        accepted, cancellation = cancelled
        event(
            "series-cancelled",
            level=logging.WARNING,
            series=accepted.name,
            from_round=cancellation.from_round,
            file=path.name,
        )
        self._cancelled(accepted)
        return True

    def _keep(self, content: bytes) -> None:
        """Copy a document durably; a failure is logged, and the document is accepted all the same."""
        if self._kept is None:
            return
        path = self._kept / _copy_name(content)
        try:
            create_directory(self._kept)
            if not _is_intact(path):
                write_durably(path, content.removesuffix(NEWLINE) + NEWLINE)
        except OSError as error:
            event("document-not-kept", level=logging.ERROR, reason=error.strerror or type(error).__name__)

    def _add_due_rounds(self) -> None:
        """Offer the rounds of series that are due; cancelled ones are left out."""
        for accepted in self.series:
            for index in self._due_rounds(accepted):
                if not self._takes_place(accepted, index):
                    continue
                name = accepted.task(index).id.hex()
                if name in self._admitted or name in self._waiting:
                    continue
                source = Path(f"series {accepted.name[:16]}, round {index}")
                try:
                    self._waiting[name] = _TaskFile(source, self._derive(accepted, index))
                except ShuffledpError as error:
                    self._note_refused_round(name, RefusedFile(source, str(error)))

    def _note_refused_round(self, name: str, refused: RefusedFile) -> None:
        """Log why a round cannot be served, once for each reason; the operator sees it as an alert."""
        if self.refused_rounds.get(name) != refused:
            self.refused_rounds[name] = refused
            log_refused([refused])

    def _drop_cancelled(self, accepted: AcceptedSeries) -> None:
        """Stop serving the rounds of a series that do not take place."""
        for index in range(accepted.rounds):
            if not self._takes_place(accepted, index):
                name = accepted.task(index).id.hex()
                self._admitted.pop(name, None)
                self._waiting.pop(name, None)
                self.refused_rounds.pop(name, None)

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
            self.refused_rounds.pop(name, None)
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
            self._unreadable.clear()
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


def _copy_name(content: bytes) -> str:
    """The name of the copy of a document."""
    return f"{hashlib.sha256(content.removesuffix(NEWLINE)).hexdigest()[:32]}.json"


def _is_intact(path: Path) -> bool:
    """Whether a copy has the content that was accepted, by its name."""
    content = read_small(path, MAX_SERIES_BYTES)
    return content is not None and _copy_name(content) == path.name


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
