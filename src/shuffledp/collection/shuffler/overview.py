"""What the operator of a shuffler sees and can do: rounds with their states, and ending them by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shuffledp.collection.server.operator import Actions
from shuffledp.collection.shuffler.rounds import RoundScheduler, RoundStatus
from shuffledp.collection.shuffler.server import Shuffler
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.shuffler.tasks import ShufflerTasks

_ROUNDED_TO = 10


def overview_of(shuffler: Shuffler, exact: bool) -> dict[str, Any]:
    """The shuffler's key, store and rounds.

    How many reports a round has tells whose was just accepted: below the minimum the number is rounded down to a
    multiple of ten, unless exact numbers are asked for.
    """
    return {
        "key": shuffler.key_id,
        "store": {"kind": shuffler.settings.store, "free_bytes": _free_bytes(shuffler.settings.store_folder)},
        "refused_tasks": [str(each) for each in shuffler.tasks.refused],
        "rounds": [_round(each, shuffler.tasks, exact) for each in shuffler.scheduler.overview()],
    }


def actions_of(scheduler: RoundScheduler) -> Actions:
    """What an operator can do to a round."""

    def close(task: str) -> Mapping[str, Any]:
        return {"task": task, "state": RoundState.CLOSED.value, "reports": scheduler.close_now(task)}

    def cancel(task: str) -> Mapping[str, Any]:
        scheduler.cancel(task)
        return {"task": task, "state": RoundState.CANCELLED.value}

    def abandon(task: str) -> Mapping[str, Any]:
        scheduler.abandon(task)
        return {"task": task, "state": RoundState.ABANDONED.value}

    return {"close": close, "cancel": cancel, "abandon": abandon}


def _round(status: RoundStatus, tasks: ShufflerTasks, exact: bool) -> dict[str, Any]:
    served = tasks.get(status.task)
    reached = None if status.minimum is None else status.reports >= status.minimum
    return {
        "task": status.task,
        "name": status.name,
        "state": status.state,
        "opens": _time(status.opens),
        "closes": _time(status.closes),
        "minimum_users": status.minimum,
        "maximum_users": status.maximum,
        "reports": status.reports if exact or reached else status.reports - status.reports % _ROUNDED_TO,
        "reached_minimum": reached,
        "record_size": served.task.sealed_size if served else None,
        "messages_per_report": served.task.messages_per_report if served else None,
        "failures": status.failures,
        "error": status.error,
        "batch": _batch(status),
    }


def _batch(status: RoundStatus) -> str | None:
    """What becomes of the batch of a round that was shuffled and is not delivered."""
    if status.state != RoundState.SHUFFLED.value:
        return None
    return f"refused: {status.error}" if status.refused else "waiting"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _free_bytes(folder: Path | None) -> int | None:
    return None if folder is None else shutil.disk_usage(folder).free
