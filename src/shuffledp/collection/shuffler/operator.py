"""Operator interface of a shuffler: rounds with their states; closing, cancelling, abandoning them.

Every method may be called from any thread.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.operator import Actions
from shuffledp.collection.shuffler.rounds import RoundScheduler
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store.interface import FINISHED, RoundRecord, RoundState, Store, StoreError
from shuffledp.collection.shuffler.store.rules import check_give_up
from shuffledp.collection.shuffler.tasks import ShufflerTasks

_ROUNDED_TO = 10
_CLAIM_SECONDS, _CLAIM_PAUSE_SECONDS = 5.0, 0.05


@dataclass(frozen=True, kw_only=True)
class RoundStatus:
    """The status of a round, for its operator."""

    task: str
    """The task's id in hexadecimal."""
    name: str | None
    """The task's name; None, like the other fields of the task, if its file is missing or refused."""
    state: str
    reports: int
    opens: float | None = None
    closes: float | None = None
    """Seconds since 1970."""
    minimum: int | None = None
    maximum: int | None = None
    record_size: int | None = None
    messages_per_report: int | None = None
    failures: int = 0
    """Failed attempts at the current step."""
    error: str | None = None
    """Why the round does not advance."""
    refused: bool = False
    """Whether the analyzer refuses its batch."""

    def to_json(self, *, exact: bool) -> dict[str, Any]:
        """The documented JSON form.

        Changes of the exact number of reports reveal whose report was just accepted: below the minimum it is rounded
        down to a multiple of ten, unless exact numbers are requested.
        """
        reached = None if self.minimum is None else self.reports >= self.minimum
        return {
            "task": self.task,
            "name": self.name,
            "state": self.state,
            "opens": _time(self.opens),
            "closes": _time(self.closes),
            "minimum_users": self.minimum,
            "maximum_users": self.maximum,
            "reports": self.reports if exact or reached else self.reports - self.reports % _ROUNDED_TO,
            "reached_minimum": reached,
            "record_size": self.record_size,
            "messages_per_report": self.messages_per_report,
            "failures": self.failures,
            "error": self.error,
            "batch": self._batch,
        }

    @property
    def _batch(self) -> str | None:
        """The state of a batch that is not delivered yet."""
        if self.state != RoundState.SHUFFLED.value:
            return None
        return f"refused: {self.error}" if self.refused else "waiting"


@dataclass(frozen=True)
class ShufflerOperator:
    """The operator's view of the rounds, and actions on them."""

    settings: ShufflerSettings
    key_id: str
    tasks: ShufflerTasks
    store: Store
    round_shuffler: RoundShuffler
    scheduler: RoundScheduler

    def overview(self, exact: bool) -> dict[str, Any]:
        """The shuffler's key, store and rounds."""
        directory = self.settings.store_folder
        return {
            "key": self.key_id,
            "store": {"kind": self.settings.store, "free_bytes": None if directory is None else _free_bytes(directory)},
            "refused_tasks": [str(refused) for refused in self.tasks.refused],
            "rounds": [status.to_json(exact=exact) for status in self.rounds()],
        }

    @property
    def actions(self) -> Actions:
        """The actions on rounds, for the operator's interface."""

        def close(task: str) -> Mapping[str, Any]:
            return {"task": task, "state": RoundState.CLOSED.value, "reports": self.close(task)}

        def cancel(task: str) -> Mapping[str, Any]:
            self.cancel(task)
            return {"task": task, "state": RoundState.CANCELLED.value}

        def abandon(task: str) -> Mapping[str, Any]:
            self.abandon(task)
            return {"task": task, "state": RoundState.ABANDONED.value}

        return {"close": close, "cancel": cancel, "abandon": abandon}

    def rounds(self) -> list[RoundStatus]:
        """Every round of the store, in the order of closing."""
        rounds = [self._status(task_id, record) for task_id, record in self.store.survey().rounds.items()]
        return sorted(rounds, key=lambda status: (status.closes or 0.0, status.task))

    def _status(self, task_id: bytes, record: RoundRecord) -> RoundStatus:
        served, scheduled = self.tasks.get(task_id.hex()), self.scheduler.get(task_id)
        error = record.error or (scheduled.retries.last_error or None if scheduled is not None else None)
        if record.state in FINISHED:
            error = None
        elif served is None:
            error = error or "The task of this round is missing or refused, so the round does not advance."
        return RoundStatus(
            task=task_id.hex(),
            name=served.task.name if served else None,
            state=record.state.value,
            reports=record.reports,
            opens=served.opens if served else None,
            closes=served.closes if served else None,
            minimum=served.task.minimum_users if served else None,
            maximum=served.task.maximum_users if served else None,
            record_size=served.task.sealed_size if served else None,
            messages_per_report=served.task.messages_per_report if served else None,
            failures=scheduled.retries.failures if scheduled else 0,
            error=error,
            refused=scheduled.refused if scheduled else False,
        )

    def close(self, task: str) -> int:
        """Close a round before its closing time, and return its number of reports.

        A round below its minimum is refused, since closing it would destroy its reports.
        """
        task_id, record = self._find(task)
        served = self.tasks.get(task_id.hex())
        if served is None:
            raise StoreError(f"The task of round {task} is missing or refused; put its file back to close the round.")
        if record.state is not RoundState.COLLECTING:
            raise StoreError(f"Round {task} is {record.state.value}; only a collecting round can be closed.")
        if record.error is not None:
            raise StoreError(record.error)
        missing = served.task.minimum_users - record.reports
        if missing > 0:
            raise StoreError(
                f"Round {task} has {record.reports:,} reports; the guarantee requires {served.task.minimum_users:,}. "
                f"Wait for {missing:,} more, or cancel the round."
            )
        reports = self.store.close_round(task_id)
        event("closed", task=task, reports=reports, operator=True)
        return reports

    def cancel(self, task: str) -> None:
        """End a round that is not yet shuffled, and destroy its reports."""
        task_id, record = self._find(task)
        self._give_up(task_id, record, RoundState.CANCELLED)

    def abandon(self, task: str) -> None:
        """Give up a round that is damaged or keeps failing, or a batch that cannot be delivered; delete its data."""
        task_id, record = self._find(task)
        scheduled = self.scheduler.get(task_id)
        is_healthy = record.error is None and (scheduled is not None and not scheduled.retries.failures)
        if record.state in (RoundState.COLLECTING, RoundState.CLOSED) and is_healthy:
            raise StoreError(f"Round {task} is {record.state.value} and does not fail; cancel it instead.")
        self._give_up(task_id, record, RoundState.ABANDONED)

    def _find(self, task: str) -> tuple[bytes, RoundRecord]:
        with suppress(ValueError):
            task_id = bytes.fromhex(task)
            record = self.store.survey().rounds.get(task_id)
            if record is not None:
                return task_id, record
        raise StoreError(f"There is no round {task!r} in this store; a round is named by its task's id in hexadecimal.")

    def _give_up(self, task_id: bytes, record: RoundRecord, to: RoundState) -> None:
        is_new = check_give_up(record.state, to)
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            with self.store.claim(task_id) as claimed:
                if claimed:
                    self.store.give_up(task_id, to)
                    self.round_shuffler.clean(task_id.hex())
                    if not is_new:
                        return
                    if to is RoundState.CANCELLED:
                        event("cancelled", level=logging.WARNING, task=task_id.hex(), reports=record.reports)
                    else:
                        event("abandoned", level=logging.WARNING, task=task_id.hex(), reports=record.reports)
                    return
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Round {task_id.hex()} is being shuffled or delivered at the moment; try again later."
                )
            time.sleep(_CLAIM_PAUSE_SECONDS)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free
