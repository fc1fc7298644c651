"""The tasks that a shuffler serves: signed by an author it knows, and naming its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.folders import RefusedFile, WatchedFolder, log_refused, reason_of
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.problems import Answer
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.errors import DataError, ParameterError

__all__ = ["KnownTask", "TaskBook", "load_task"]

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True)
class KnownTask:
    """A task with what is needed of it at every report."""

    task: Task
    format: ReportFormat
    size: int
    opens: float
    closes: float
    """Seconds since 1970."""
    answer: Answer
    """The signed task, for devices."""

    @property
    def id(self) -> bytes:
        """Of the task."""
        return self.format.task_id

    @property
    def name(self) -> str:
        """The id as it stands in addresses."""
        return self.id.hex()


def load_task(path: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> KnownTask:
    """The task of a file, if an author signed it and it is for this shuffler; else a ShuffledpError."""
    task, content = load_authentic(path, authors)
    if task.shuffler != shuffler:
        raise ParameterError(f"The task {path} is for the shuffler's key {task.shuffler.id}, not for {shuffler.id}.")
    wanted = ReportFormat.of(task)
    answer = Answer(200, content, _HEADERS)
    return KnownTask(task, wanted, wanted.size, task.opens.timestamp(), task.closes.timestamp(), answer)


@dataclass
class _Waiting:
    """A task that was read and is not yet served."""

    file: Path
    known: KnownTask
    complaint: str = ""
    """Why not, as it was last said."""


class TaskBook:
    """The tasks of a folder, by their ids in hexadecimal. What was once read stays known."""

    def __init__(self, folder: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> None:
        self._folder, self._authors, self._shuffler = WatchedFolder(folder), tuple(authors), shuffler
        self._tasks: dict[str, KnownTask] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._files: dict[str, Path] = {}
        self.refused: list[RefusedFile] = []
        """The files that were left out at the start."""

    def get(self, name: str) -> KnownTask | None:
        """The task of an id."""
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[KnownTask]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def load(self, admit: Callable[[KnownTask], None] = lambda _: None) -> None:
        """Read all files, for the start; those that are not in order are left out. Nothing is logged of them."""
        self._folder.check()
        try:
            self.refused = self._folder.look(self._read)
        except OSError as error:
            raise DataError(f"Cannot read the folder of tasks: {error.strerror or error}.") from None
        self.refused += self._admit_waiting(admit)

    def refresh(self, admit: Callable[[KnownTask], None]) -> None:
        """Read files that are new or changed; those that are not in order are logged and left out.

        A new task is known to devices only after ``admit``, which may refuse it for now: it is asked again next time.
        """
        self._folder.follow(self._read)
        log_refused(self._admit_waiting(admit))

    def postpone(self, known: KnownTask, reason: str) -> None:
        """Serve a task no longer, for the start: it is asked for again with every ``refresh``."""
        del self._tasks[known.name]
        self._waiting[known.name] = _Waiting(self._files[known.name], known, reason)
        log_refused([RefusedFile(self._files[known.name], reason)])

    def _read(self, path: Path) -> None:
        known = load_task(path, self._authors, self._shuffler)
        if known.name not in self._tasks and known.name not in self._waiting:
            self._waiting[known.name] = _Waiting(path, known)

    def _admit_waiting(self, admit: Callable[[KnownTask], None]) -> list[RefusedFile]:
        """Those that were refused for another reason than the last time."""
        refused = []
        for name, waiting in list(self._waiting.items()):
            try:
                admit(waiting.known)
            except Exception as error:  # noqa: BLE001  # one task must not harm the others
                reason = reason_of(error)
                if reason != waiting.complaint:
                    refused.append(RefusedFile(waiting.file, reason))
                waiting.complaint = reason
                continue
            del self._waiting[name]
            self._tasks[name], self._files[name] = waiting.known, waiting.file
            closes = waiting.known.task.closes.isoformat()
            event("task", task=name, closes=closes, report_bytes=waiting.known.size)
        return refused
