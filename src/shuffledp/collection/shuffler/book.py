"""The tasks that a shuffler serves: signed by an author it knows, and naming its key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.authentic import load_authentic
from shuffledp.collection.keys import VerifyingKey
from shuffledp.collection.service.folders import WatchedFolder
from shuffledp.collection.service.logs import event
from shuffledp.collection.service.problems import Answer
from shuffledp.collection.store.interface import StoreError
from shuffledp.collection.task import Task
from shuffledp.collection.wire import ReportFormat
from shuffledp.errors import ParameterError, ShuffledpError

__all__ = ["KnownTask", "TaskBook", "load_task"]


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
    answer = Answer(200, content, ((b"content-type", b"application/json"),))
    return KnownTask(task, wanted, wanted.size, task.opens.timestamp(), task.closes.timestamp(), answer)


class TaskBook:
    """The tasks of a folder, by their ids in hexadecimal. What was once read stays known."""

    def __init__(self, folder: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> None:
        self._folder, self._authors, self._shuffler = WatchedFolder(folder), tuple(authors), shuffler
        self._tasks: dict[str, KnownTask] = {}

    def get(self, name: str) -> KnownTask | None:
        """The task of an id."""
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[KnownTask]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def load(self) -> None:
        """Read all files; the first that is not in order is an error."""
        self._folder.check()
        for path in self._folder.changed():
            self._add(path, lambda _: None)

    def refresh(self, admit: Callable[[KnownTask], None]) -> None:
        """Read files that are new or changed; those that are not in order are logged and left out.

        A new task is known to devices only after ``admit``, which may refuse it.
        """
        try:
            for path in self._folder.changed():
                try:
                    self._add(path, admit)
                except Exception as error:  # noqa: BLE001  # whatever is in one file must not harm the others
                    reason = str(error) if isinstance(error, ShuffledpError) else type(error).__name__
                    event("task-refused", level=logging.ERROR, file=path.name, reason=reason)
                    if isinstance(error, StoreError):
                        self._folder.forget(path)  # try again
        except OSError as error:
            event("tasks-unreadable", level=logging.ERROR, reason=error.strerror or type(error).__name__)

    def _add(self, path: Path, admit: Callable[[KnownTask], None]) -> None:
        known = load_task(path, self._authors, self._shuffler)
        if known.name not in self._tasks:
            admit(known)
            self._tasks[known.name] = known
            event("task", task=known.name, closes=known.task.closes.isoformat(), report_bytes=known.size)
