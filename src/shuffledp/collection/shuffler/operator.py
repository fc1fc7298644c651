"""Operator interface of a shuffler: rounds with their states, and alerts; closing, cancelling, abandoning rounds.

Every method may be called from any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shuffledp.collection.server.directories import free_bytes
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.operator import (
    KEPT_SECONDS,
    Actions,
    Alert,
    author_alerts,
    expiry_alerts,
    missing_key_alerts,
    unused_key_alerts,
)
from shuffledp.collection.server.series import AcceptedSeries
from shuffledp.collection.shuffler.ingest import IngestScheduler
from shuffledp.collection.shuffler.rounds import RoundScheduler
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store.interface import FINISHED, RoundRecord, RoundState, Store, StoreError
from shuffledp.collection.shuffler.store.rules import check_give_up
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.errors import ShuffledpError

_ROUNDED_TO = 10
_LEAST_ELAPSED_SECONDS = 60.0
_FEW_FREE_BYTES = 1 << 30
_NOT_RELEASED = frozenset(state.value for state in (RoundState.DESTROYED, RoundState.CANCELLED, RoundState.ABANDONED))
_CLAIM_SECONDS, _CLAIM_PAUSE_SECONDS = 5.0, 0.05


@dataclass(frozen=True, kw_only=True)
class RoundStatus:
    """The status of a round, for its operator."""

    task: str
    """The task's id in hexadecimal."""
    served: ServedTask | None
    """None if its file is missing or refused."""
    state: str
    reports: int
    failures: int = 0
    """Failed attempts at the current step."""
    error: str | None = None
    """Why the round does not advance."""
    refused: bool = False
    """Whether the analyzer refuses its batch."""
    below_minimum: bool = False
    """Whether it is past its closing time with too few reports, and will be destroyed."""

    def to_json(self, *, exact: bool, now: float) -> dict[str, Any]:
        """The documented JSON form at the time ``now``.

        Changes of the exact number of reports reveal whose report was just accepted: below the minimum it is rounded
        down to a multiple of ten, unless exact numbers are requested. Other numbers are derived from the rounded one.
        """
        reached = None if self.served is None else self.reports >= self.served.task.minimum_users
        reports = self.reports if exact or reached else _rounded(self.reports)
        return {
            "task": self.task,
            **(dict.fromkeys(_TASK_FIELDS) if self.served is None else task_fields(self.served)),
            "state": self.state,
            "reports": reports,
            "reached_minimum": reached,
            "below_minimum": self.below_minimum,
            "projected_reports": self._projected(reports, now),
            "predicted_error": self._predicted(reports),
            "failures": self.failures,
            "error": self.error,
            "batch": self._batch,
        }

    def _projected(self, reports: int, now: float) -> int | None:
        """The number of reports at the closing time, if as many arrive per hour as on average until now."""
        served = self.served
        if served is None or served.hop > 0 or self.state != RoundState.COLLECTING.value:
            return None
        elapsed = min(now, served.closes) - served.opens
        if elapsed < _LEAST_ELAPSED_SECONDS:
            return None
        projected = _rounded(round(reports * (served.closes - served.opens) / elapsed))
        return min(max(projected, reports), served.task.maximum_users)

    def _predicted(self, reports: int) -> dict[str, Any] | None:
        """The predicted error of a release about these reports, or about the minimum if there are fewer."""
        if self.served is None or self.state in _NOT_RELEASED:
            return None
        users = max(reports, self.served.task.minimum_users)
        try:
            return {"users": users} | self.served.task.predicted_error(users).to_json()
        except ShuffledpError:  # a number of users for which no bound is known
            return None

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
    round_shuffler: RoundShuffler | None
    """None in a process that only receives reports; then there are no actions."""
    scheduler: RoundScheduler | IngestScheduler
    metrics: Metrics
    clock: Callable[[], float] = time.time

    def overview(self, exact: bool) -> dict[str, Any]:
        """The shuffler's key, store, rounds and answers; alerts first."""
        directory, now = self.settings.store_folder, self.clock()
        rounds = [status.to_json(exact=exact, now=now) for status in self.rounds()]
        exact = exact or all(entry["reached_minimum"] or entry["state"] != "collecting" for entry in rounds)
        document = {
            "key": self.key_id,
            "store": {"kind": self.settings.store, "free_bytes": None if directory is None else free_bytes(directory)},
            "refused_tasks": [str(refused) for refused in self.tasks.all_refused],
            "rounds": rounds,
            "series": [self._series(accepted, now) for accepted in self.tasks.series],
            "answers": self._counts("reports", exact),
            "refusals": self._counts("refusals", exact),
            "rate": {
                "limit": self.settings.reports_per_second or None,
                "waiting": self._counts("waiting_reports", exact).get("", 0),
            },
            "clock_offset_seconds": self.metrics.values("clock_offset_seconds").get("", 0.0),
        }
        keys = [] if self.round_shuffler is None else [self.round_shuffler.key]
        moment = datetime.fromtimestamp(now, UTC)
        expiring = [*expiry_alerts(keys, moment), *author_alerts(self.tasks.authors.newest_keys, moment)]
        return {"alerts": [alert.to_json() for alert in [*expiring, *shuffler_alerts(document)]]} | document

    def _series(self, accepted: AcceptedSeries, now: float) -> dict[str, Any]:
        """A series, how many of its coming rounds have no key here, and how many keys nobody needs any more."""
        keys = {"missing_keys": self._missing_keys(accepted, now), "unused_keys": self._unused_keys(accepted, now)}
        return accepted.to_json(now) | keys

    def _unused_keys(self, accepted: AcceptedSeries, now: float) -> int:
        """The keys of rounds that were missed: they are over and were never opened in the store."""
        if self.round_shuffler is None:
            return 0
        tasks = [accepted.task(index) for index in range(accepted.rounds) if not accepted.is_cancelled(index)]
        over = [task for task in tasks if task.closes.timestamp() + KEPT_SECONDS < now]
        rounds = self.store.rounds() if over else ()
        keys = [self.tasks.round_key(task) for task in over if task.id not in rounds]
        return sum(key is not None and self.round_shuffler.round_keys.has(key) for key in keys)

    def _missing_keys(self, accepted: AcceptedSeries, now: float) -> int:
        if self.round_shuffler is None:
            return 0
        tasks = [accepted.task(index) for index in range(accepted.rounds) if not accepted.is_cancelled(index)]
        coming = [self.tasks.round_key(task) for task in tasks if task.opens.timestamp() > now]
        return sum(key is not None and not self.round_shuffler.round_keys.has(key) for key in coming)

    def _counts(self, name: str, exact: bool) -> dict[str, int]:
        """The metric of this name by its label, without zeros; rounded like the number of reports."""
        values = {label: int(value) for label, value in sorted(self.metrics.values(name).items()) if value}
        return {label: value if exact else _rounded(value) for label, value in values.items()}

    @property
    def actions(self) -> Actions:
        """The actions on rounds, for the operator's interface."""
        if self.round_shuffler is None:
            return {}

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
        rounds = [self._status(task_id, record) for task_id, record in self.store.snapshot().rounds.items()]
        return sorted(rounds, key=lambda status: (status.served.closes if status.served else 0.0, status.task))

    def _status(self, task_id: bytes, record: RoundRecord) -> RoundStatus:
        served, scheduled = self.tasks.find(task_id.hex()), self.scheduler.get(task_id)
        error = record.error or (scheduled.retries.last_error or None if scheduled is not None else None)
        if record.state in FINISHED:
            error = None
        elif served is None:
            error = error or "The task of this round is missing or refused, so the round does not advance."
        return RoundStatus(
            task=task_id.hex(),
            served=served,
            state=record.state.value,
            reports=record.reports,
            failures=scheduled.retries.failures if scheduled else 0,
            error=error,
            refused=scheduled.refused if scheduled else False,
            below_minimum=scheduled is not None and scheduled.below_since is not None,
        )

    def close(self, task: str) -> int:
        """Close a round before its closing time, and return its number of reports.

        A round below its minimum is refused, since closing it would destroy its reports.
        """
        task_id, record = self._find(task)
        served = self.tasks.find(task_id.hex())
        if served is None:
            raise StoreError(f"The task of round {task} is missing or refused; put its file back to close the round.")
        if record.state is not RoundState.COLLECTING:
            raise StoreError(f"Round {task} is {record.state.value}; only a collecting round can be closed.")
        if record.error is not None:
            raise StoreError(record.error)
        if served.hop > 0:
            raise StoreError(f"Round {task} ends here when the batch of the shuffler before arrives; close it there.")
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
            record = self.store.snapshot().rounds.get(task_id)
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
                    if self.round_shuffler is not None:
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


def shuffler_alerts(overview: Mapping[str, Any]) -> list[Alert]:
    """What the operator should know first, the most urgent first."""
    act = [Alert.act(f"A task file was refused. {reason}") for reason in overview["refused_tasks"]]
    watch = []
    free = overview["store"]["free_bytes"]
    if free is not None and free < _FEW_FREE_BYTES:
        act.append(Alert.act(f"The disk of the store has only {free / 1e6:,.0f} MB free."))
    if overview["clock_offset_seconds"]:
        watch.append(
            Alert.watch(f"The system clock is {overview['clock_offset_seconds']:+,.0f} s off the time that rounds use.")
        )
    act += missing_key_alerts(overview["series"])
    watch += unused_key_alerts(overview["series"])
    for entry in overview["rounds"]:
        if entry["below_minimum"]:
            act.append(
                Alert.act(
                    f"The time of the round is over with fewer than {entry['minimum_users']:,} reports: it will be "
                    "destroyed after the grace period.",
                    entry["task"],
                )
            )
        elif entry["error"]:
            act.append(Alert.act(entry["error"], entry["task"]))
        elif entry["projected_reports"] is not None and entry["projected_reports"] < (entry["minimum_users"] or 0):
            watch.append(
                Alert.watch(
                    f"At this pace the round closes with about {entry['projected_reports']:,} reports, and the "
                    f"guarantee requires {entry['minimum_users']:,}.",
                    entry["task"],
                )
            )
    return [*act, *watch]


def task_fields(served: ServedTask) -> dict[str, Any]:
    """The fields of an overview that describe a task, whatever the state of its round."""
    task = served.task
    return {
        "task": served.name,
        "name": task.name,
        "opens": task.opens.isoformat(timespec="seconds"),
        "closes": task.closes.isoformat(timespec="seconds"),
        "minimum_users": task.minimum_users,
        "maximum_users": task.maximum_users,
        "record_size": task.sealed_size,
        "messages_per_report": task.messages_per_report,
        "carriers": None if task.carriers is None else task.carriers.to_document(),
        "hop": served.hop,
    }


_TASK_FIELDS = (
    "name",
    "opens",
    "closes",
    "minimum_users",
    "maximum_users",
    "record_size",
    "messages_per_report",
    "carriers",
    "hop",
)
"""The keys of ``task_fields`` that are null if the task is missing."""


def _rounded(count: int) -> int:
    return count - count % _ROUNDED_TO
