"""The tasks that a shuffler serves: signed by a trusted author, and naming its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.batches import ExpectedBatch
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
    """Bytes of the longest report."""
    opens: float
    closes: float
    """Seconds since 1970."""
    answer: PreparedResponse
    """The signed task, for devices."""
    hop: int = 0
    """The index of this shuffler in the task; the first takes reports, later ones the batch of the one before."""

    @property
    def round_key(self) -> SealingPublicKey | None:
        """The key of this shuffler's seals; None for version 1, which has none."""
        return None if self.task.wire is None else self.task.wire.shufflers[self.hop].sealing

    @property
    def is_last(self) -> bool:
        """Whether the analyzer takes its batch; else the next shuffler does."""
        return self.hop == self.task.hops - 1

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
    hops = [hop for hop in range(task.hops) if task.verifying_key(hop) == shuffler]
    if not hops:
        named = ", ".join(task.verifying_key(hop).id for hop in range(task.hops))
        raise ParameterError(f"The task {path} is for the shuffler's key {named}, not for {shuffler.id}.")
    report_format = ReportFormat.of(task)
    answer = PreparedResponse(200, content, _HEADERS)
    return ServedTask(
        task, report_format, report_format.max_size, task.opens.timestamp(), task.closes.timestamp(), answer, hops[0]
    )


class ShufflerTasks(TaskDirectory[ServedTask]):
    """The tasks of a shuffler."""

    def __init__(self, directory: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey) -> None:
        super().__init__(directory, authors)
        self._shuffler = shuffler

    def get(self, name: str, version: int | None = None) -> ServedTask | None:
        """The task with this hexadecimal id and, if given, this version, whose reports this shuffler takes, or None."""
        served = self.find(name)
        if served is None or served.hop > 0 or version not in (None, served.task.version):
            return None
        return served

    def expected(self, task_id: bytes) -> ExpectedBatch | None:
        """The batch of the shuffler before this one; None if there is no such shuffler or task."""
        served = self.find(task_id.hex())
        return ExpectedBatch(served.task, served.hop - 1) if served is not None and served.hop > 0 else None

    def _read(self, path: Path) -> tuple[str, ServedTask]:
        served = load_task(path, self.authors.keys, self._shuffler)
        return served.name, served

    def _fields(self, task: ServedTask) -> Mapping[str, str | int]:
        return {"closes": task.task.closes.isoformat(), "report_bytes": task.size}
