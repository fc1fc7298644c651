"""The tasks that a shuffler serves: signed by a trusted author, and naming its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.responses import PreparedResponse
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SealingPublicKey, VerifyingKey
from shuffledp.errors import ParameterError

_HEADERS = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True)
class ServedTask:
    """A task with precomputed values that every report needs."""

    task: Task
    format: ReportFormat
    size: int
    opens: float
    closes: float
    """Seconds since 1970."""
    answer: PreparedResponse
    """The signed task, for devices."""

    @property
    def round_key(self) -> SealingPublicKey | None:
        """The key of the outer seals; None for version 1, which has none."""
        return self.format.round_key

    @property
    def id(self) -> bytes:
        """The id of the task."""
        return self.format.task_id

    @property
    def name(self) -> str:
        """The id in hexadecimal, as in URLs."""
        return self.id.hex()


def load_task(path: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> ServedTask:
    """The task of a file; ShuffledpError unless a trusted author signed it for this shuffler."""
    task, content = load_authentic(path, authors)
    if task.shuffler != shuffler:
        raise ParameterError(f"The task {path} is for the shuffler's key {task.shuffler.id}, not for {shuffler.id}.")
    report_format = ReportFormat.of(task)
    answer = PreparedResponse(200, content, _HEADERS)
    return ServedTask(task, report_format, report_format.size, task.opens.timestamp(), task.closes.timestamp(), answer)


class ShufflerTasks(TaskDirectory[ServedTask]):
    """The tasks of a shuffler."""

    def __init__(self, directory: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> None:
        super().__init__(directory, authors)
        self._shuffler = shuffler

    def get(self, name: str, version: int | None = None) -> ServedTask | None:
        """The served task with this hexadecimal id and, if given, this version; None if there is none."""
        served = self.find(name)
        return served if served is None or version in (None, served.task.version) else None

    def _read(self, path: Path) -> tuple[str, ServedTask]:
        served = load_task(path, self.authors.keys, self._shuffler)
        return served.name, served

    def _fields(self, task: ServedTask) -> Mapping[str, str | int]:
        return {"closes": task.task.closes.isoformat(), "report_bytes": task.size}
