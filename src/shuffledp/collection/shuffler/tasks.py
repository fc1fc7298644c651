"""The tasks that a shuffler serves: signed by a trusted author, and naming its key."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.server.responses import PreparedResponse, problem
from shuffledp.collection.server.series import AcceptedSeries
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import RoundPublicKey, VerifyingKey
from shuffledp.errors import ParameterError

_LEAD_SECONDS = 3600.0
"""How long before its opening a round of a series is opened in the store; until then reports get 403."""
_BATCH_SECONDS = 7 * 86_400.0
"""How long after the end of a round a later shuffler still expects the batch of the one before."""
HEADERS = (
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
    def round_key(self) -> RoundPublicKey | None:
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
    return _served(task, shuffler, PreparedResponse(200, content, HEADERS), f"The task {path}")


def _served(task: Task, shuffler: VerifyingKey, answer: PreparedResponse, name: str) -> ServedTask:
    report_format = ReportFormat.of(task)
    opens, closes = task.opens.timestamp(), task.closes.timestamp()
    return ServedTask(task, report_format, report_format.max_size, opens, closes, answer, _hop(task, shuffler, name))


def _hop(task: Task, shuffler: VerifyingKey, name: str) -> int:
    """The index of a shuffler in a task; ParameterError if it is not named there."""
    hops = [hop for hop in range(task.hops) if task.verifying_key(hop) == shuffler]
    if not hops:
        named = ", ".join(task.verifying_key(hop).id for hop in range(task.hops))
        raise ParameterError(f"{name} is for the shuffler's key {named}, not for {shuffler.id}.")
    return hops[0]


class ShufflerTasks(TaskDirectory[ServedTask]):
    """The tasks of a shuffler. Of a series it serves the rounds that are open or open soon, by its clock."""

    def __init__(
        self, directory: Path, authors: Sequence[VerifyingKey], shuffler: VerifyingKey, *, kept: Path | None = None
    ) -> None:
        super().__init__(directory, authors, kept=kept)
        self._shuffler = shuffler
        self.clock: Callable[[], float] = time.time
        self._stored: frozenset[bytes] = frozenset()
        self._cancelled_keys: list[tuple[bytes, RoundPublicKey]] = []
        self._series_keys: dict[RoundPublicKey, bytes] = {}
        """The ids of the series that the round keys of this shuffler belong to."""

    def get(self, name: str, version: int | None = None) -> ServedTask | None:
        """The task with this hexadecimal id and, if given, this version, whose reports this shuffler takes, or None."""
        served = self.find(name)
        if served is None or served.hop > 0 or version not in (None, served.task.version):
            return None
        return served

    def expected(self, task_id: bytes) -> ExpectedBatch | None:
        """The batch of the shuffler before this one; None if there is no such shuffler or task.

        Before the end of the round most traps may not be sent yet, and could not detect that reports are dropped.
        """
        served = self.find(task_id.hex())
        if served is None or served.hop == 0:
            return None
        return ExpectedBatch(served.task, served.hop - 1, is_early=self.clock() < served.closes)

    def resume(
        self,
        stored: Collection[bytes],
        clock: Callable[[], float],
        admit: Callable[[ServedTask], None] = lambda _: None,
    ) -> None:
        """Also serve the rounds of series that are in the store, also if their time is over; at the start.

        ``admit`` raises a ShuffledpError for tasks that wait for something else.
        """
        self._stored, self.clock = frozenset(stored), clock
        self._add_due_rounds()
        self._admit_waiting(admit)

    def is_cancelled(self, task: Task) -> bool:
        """Whether a task is a round of a series that was cancelled."""
        place = None if task.wire is None else task.wire.series
        accepted = None if place is None else self.series.get(place.series.hex())
        return accepted is not None and place is not None and accepted.is_cancelled(place.index)

    @property
    def cancelled_keys(self) -> tuple[tuple[bytes, RoundPublicKey], ...]:
        """The ids and round keys of rounds that were cancelled, until ``forget_cancelled_key``."""
        return tuple(self._cancelled_keys)

    def forget_cancelled_key(self, task_id: bytes, key: RoundPublicKey) -> None:
        """Note that the key of a cancelled round is destroyed, or will be with another round."""
        self._cancelled_keys.remove((task_id, key))

    def _read(self, path: Path) -> tuple[str, ServedTask]:
        served = load_task(path, self.authors.keys, self._shuffler)
        return served.name, served

    def _derive(self, accepted: AcceptedSeries, index: int) -> ServedTask:
        detail = f"It is round {index} of a series: GET /v2/series/{accepted.name}."
        answer = problem(404, "derived-task", "This task has no document of its own.", detail=detail)
        return _served(accepted.task(index), self._shuffler, answer, f"The series {accepted.name}")

    def _check_series(self, accepted: AcceptedSeries) -> None:
        hop = _hop(accepted.series.first, self._shuffler, f"The series {accepted.name}")
        keys = [keys.shufflers[hop] for keys in accepted.series.keys]
        loaded = {file.task.round_key for file in (*self._admitted.values(), *self._waiting.values())}
        for key in keys:
            if key in self._series_keys or key in loaded:
                raise ParameterError(
                    f"The series {accepted.name} has the round key {key.id} of another task or series, with which it "
                    "is destroyed; every round needs its own."
                )
        self._series_keys |= dict.fromkeys(keys, accepted.series.id)

    def is_key_of_other_series(self, served: ServedTask) -> bool:
        """Whether the round key of a task belongs to a series that the task is no round of."""
        place = None if served.task.wire is None else served.task.wire.series
        owner = None if served.round_key is None else self._series_keys.get(served.round_key)
        return owner is not None and (place is None or place.series != owner)

    def round_key(self, task: Task) -> RoundPublicKey | None:
        """The round key of this shuffler in a task; None for version 1, which has none."""
        return None if task.wire is None else task.wire.shufflers[_hop(task, self._shuffler, "The task")].sealing

    def _due_rounds(self, accepted: AcceptedSeries) -> Iterable[int]:
        if self._stored:
            yield from (index for index in range(accepted.rounds) if accepted.task(index).id in self._stored)
        now, series = self.clock(), accepted.series
        lead = min(_LEAD_SECONDS, series.period)
        latest = int((now + lead - series.first.opens.timestamp()) // series.period)
        is_first = _hop(series.first, self._shuffler, "The series") == 0
        over = now - (0.0 if is_first else _BATCH_SECONDS)
        for index in range(min(latest, accepted.rounds - 1), -1, -1):  # missed rounds stay missed
            if over >= accepted.task(index).closes.timestamp():
                return
            yield index

    def _cancelled(self, accepted: AcceptedSeries) -> None:
        for index in range(accepted.rounds):
            if accepted.is_cancelled(index):
                task = accepted.task(index)
                key = self.round_key(task)
                if key is not None:
                    self._cancelled_keys.append((task.id, key))

    def _fields(self, task: ServedTask) -> Mapping[str, str | int]:
        return {"closes": task.task.closes.isoformat(), "report_bytes": task.size}
