"""The tasks that a shuffler serves: signed by a trusted author, and naming its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.directories import RefusedFile, WatchedDirectory, log_refused, reason_of
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.problems import PreparedResponse
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.errors import DataError, ParameterError

__all__ = ["ServedTask", "ShufflerTasks", "load_task"]

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True)
class ServedTask:
    """A task with what is needed of it at every report."""

    task: Task
    format: ReportFormat
    size: int
    opens: float
    closes: float
    """Seconds since 1970."""
    answer: PreparedResponse
    """The signed task, for devices."""

    @property
    def id(self) -> bytes:
        """Of the task."""
        return self.format.task_id

    @property
    def name(self) -> str:
        """The id as it stands in addresses."""
        return self.id.hex()


def load_task(path: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> ServedTask:
    """The task of a file, if an author signed it and it is for this shuffler; else a ShuffledpError."""
    task, content = load_authentic(path, authors)
    if task.shuffler != shuffler:
        raise ParameterError(f"The task {path} is for the shuffler's key {task.shuffler.id}, not for {shuffler.id}.")
    wanted = ReportFormat.of(task)
    answer = PreparedResponse(200, content, _HEADERS)
    return ServedTask(task, wanted, wanted.size, task.opens.timestamp(), task.closes.timestamp(), answer)


@dataclass
class _Waiting:
    """A task that was read and is not yet served."""

    file: Path
    served: ServedTask
    complaint: str = ""
    """Why not, as it was last said."""


class ShufflerTasks:
    """The tasks of a folder, by their ids in hexadecimal. What was once read stays served."""

    def __init__(self, folder: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> None:
        self._folder, self._authors, self._shuffler = WatchedDirectory(folder), tuple(authors), shuffler
        self._tasks: dict[str, ServedTask] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._files: dict[str, Path] = {}
        self.refused: list[RefusedFile] = []
        """The files that were left out at the start."""

    def get(self, name: str) -> ServedTask | None:
        """The task of an id."""
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[ServedTask]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def load(self, admit: Callable[[ServedTask], None] = lambda _: None) -> None:
        """Read all files, for the start; those that are not in order are left out. Nothing is logged of them."""
        self._folder.check()
        try:
            self.refused = self._folder.look(self._read)
        except OSError as error:
            raise DataError(f"Cannot read the folder of tasks: {error.strerror or error}.") from None
        self.refused += self._admit_waiting(admit)

    def refresh(self, admit: Callable[[ServedTask], None]) -> None:
        """Read files that are new or changed; those that are not in order are logged and left out.

        A new task is served to devices only after ``admit``, which may refuse it for now: it is asked again next time.
        """
        self._folder.follow(self._read)
        log_refused(self._admit_waiting(admit))

    def postpone(self, served: ServedTask, reason: str) -> None:
        """Serve a task no longer, for the start: it is asked for again with every ``refresh``."""
        del self._tasks[served.name]
        self._waiting[served.name] = _Waiting(self._files[served.name], served, reason)
        log_refused([RefusedFile(self._files[served.name], reason)])

    def _read(self, path: Path) -> None:
        served = load_task(path, self._authors, self._shuffler)
        if served.name not in self._tasks and served.name not in self._waiting:
            self._waiting[served.name] = _Waiting(path, served)

    def _admit_waiting(self, admit: Callable[[ServedTask], None]) -> list[RefusedFile]:
        """Those that were refused for another reason than the last time."""
        refused = []
        for name, waiting in list(self._waiting.items()):
            try:
                admit(waiting.served)
            except Exception as error:  # noqa: BLE001  # one task must not harm the others
                reason = reason_of(error)
                if reason != waiting.complaint:
                    refused.append(RefusedFile(waiting.file, reason))
                waiting.complaint = reason
                continue
            del self._waiting[name]
            self._tasks[name], self._files[name] = waiting.served, waiting.file
            closes = waiting.served.task.closes.isoformat()
            event("task", task=name, closes=closes, report_bytes=waiting.served.size)
        return refused
