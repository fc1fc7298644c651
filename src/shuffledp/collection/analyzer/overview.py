"""Overview for the operator of an analyzer: alerts, rounds with the states of their batches, and budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.agreement import LEDGER, check_agreement
from shuffledp.collection.analyzer.ledger import decision_in, spent_in
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
from shuffledp.collection.analyzer.server import Analyzer, OpenedCounts, check_analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings, PopulationBudget
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.server.batches import Batch, BatchState, batches_in
from shuffledp.collection.server.directories import free_bytes
from shuffledp.collection.server.operator import (
    KEPT_SECONDS,
    Alert,
    author_alerts,
    expiry_alerts,
    missing_key_alerts,
    unused_key_alerts,
)
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import Manifest
from shuffledp.errors import ShuffledpError

_FEW_FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class _Progress:
    """What only a running analyzer knows about its rounds; the defaults are for one that does not run."""

    missing: Callable[[bytes], int] = lambda _: 0
    """The number of chunks of a batch that have not arrived."""
    failures: Callable[[bytes], tuple[int, str | None]] = lambda _: (0, None)
    """The number of failed attempts at a release, and the last error."""
    manifest: Callable[[bytes], Manifest | None] = lambda _: None
    """The manifest of a batch that is neither released nor refused."""
    opened: Mapping[bytes, OpenedCounts] | None = None


def directory_overview(settings: AnalyzerSettings) -> dict[str, Any]:
    """The overview of an analyzer that need not run, from its settings and its work directory."""
    tasks = check_analyzer(settings)
    check_agreement(settings.work)
    return _overview(tasks, batches_in(settings.work), settings.work, _Progress())


def running_overview(analyzer: Analyzer, scheduler: ReleaseScheduler) -> dict[str, Any]:
    """The overview of a running analyzer."""

    def manifest(task_id: bytes) -> Manifest | None:
        try:
            return analyzer.batches.manifest(task_id)
        except FileNotFoundError:
            return None

    progress = _Progress(analyzer.batches.count_missing, scheduler.failures, manifest, dict(analyzer.opened))
    batches = {batch.task_id: batch for batch in analyzer.batches.all()}
    return _overview(analyzer.tasks, batches, analyzer.settings.work, progress)


def _overview(
    analyzer_tasks: AnalyzerTasks, batches: Mapping[bytes, Batch], work: Path, progress: _Progress
) -> dict[str, Any]:
    """All rounds, also those whose task is missing, and the budgets; alerts first."""
    now = datetime.now(UTC).timestamp()
    tasks = {task.id: task for task in analyzer_tasks if not _is_coming_round(task, now) or task.id in batches}
    task_ids = [*tasks, *(other for other in batches if other not in tasks)]
    document = {
        "keys": analyzer_tasks.key_ids,
        "store": {"free_bytes": free_bytes(work)},
        "refused_tasks": [str(refused) for refused in analyzer_tasks.all_refused],
        "rounds": [_round(task_id, tasks.get(task_id), batches.get(task_id), progress) for task_id in task_ids],
        "series": [
            accepted.to_json(now)
            | {
                "missing_keys": analyzer_tasks.missing_keys(accepted, now),
                "unused_keys": analyzer_tasks.unused_keys(accepted, now - KEPT_SECONDS, batches.__contains__),
            }
            for accepted in analyzer_tasks.series
        ],
        "populations": [
            {"name": name} | _spent(work, name, budget) | _after_next(work, budget, _next(name, tasks, batches))
            for name, budget in analyzer_tasks.budgets.items()
        ],
    }
    moment = datetime.now(UTC)
    authors = analyzer_tasks.authors.newest_keys
    expiring = [*expiry_alerts(analyzer_tasks.keys, moment), *author_alerts(authors, moment)]
    return {"alerts": [alert.to_json() for alert in [*expiring, *analyzer_alerts(document)]]} | document


def _is_coming_round(task: Task, now: float) -> bool:
    """Whether a task is a round of a series that is not open yet; there may be hundreds of them."""
    return task.wire is not None and task.wire.series is not None and task.opens.timestamp() > now


def _round(task_id: bytes, task: Task | None, batch: Batch | None, progress: _Progress) -> dict[str, Any]:
    failures, error = progress.failures(task_id)
    state = batch.state if batch else None
    manifest = progress.manifest(task_id) if batch is not None and not batch.state.is_final else None
    opened = (progress.opened or {}).get(task_id)
    reports = manifest.reports if manifest else None
    return {
        "task": task_id.hex(),
        "name": task.name if task else None,
        "population": task.population if task else None,
        "state": state.value if state else "waiting",
        "reason": batch.reason if batch else "",
        "closes": task.closes.isoformat() if task else None,
        "chunks": batch.chunks if batch else 0,
        "missing": progress.missing(task_id),
        "reports": reports,
        "carriers": manifest.carriers if manifest and task and task.carriers else None,
        "predicted_error": _predicted(task, reports, manifest.carriers if manifest else 0),
        "messages": manifest.messages if manifest else None,
        "opened": opened.messages if opened else None,
        "rejected": dict(sorted(opened.rejected.items())) if opened else {},
        "failures": failures,
        "error": error,
        "release": f"/v1/releases/{task_id.hex()}" if state is BatchState.RELEASED else None,
    }


def _predicted(task: Task | None, reports: int | None, carriers: int) -> dict[str, Any] | None:
    """The predicted error of a release about the reports of a batch; nothing is known about its content."""
    if task is None or reports is None:
        return None
    try:
        return {"users": reports} | task.predicted_error(reports, carriers=carriers).to_json()
    except ShuffledpError:  # a number of users for which no bound is known
        return None


def _spent(work: Path, population: str, budget: PopulationBudget) -> dict[str, Any]:
    releases, spent = spent_in(work / LEDGER, population, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent_epsilon": _finite(spent),
        "releases": releases,
    }


def _next(population: str, tasks: Mapping[bytes, Task], batches: Mapping[bytes, Batch]) -> Task | None:
    """The next task about a population that is neither released nor refused: the one that closes first."""
    unfinished = [
        task
        for task in tasks.values()
        if task.population == population and (task.id not in batches or not batches[task.id].state.is_final)
    ]
    return min(unfinished, key=lambda task: (task.closes, task.id), default=None)


def _after_next(work: Path, budget: PopulationBudget, task: Task | None) -> dict[str, Any]:
    """What would be spent after the next release, and whether the budget allows it."""
    if task is None:
        return {"next": None, "after_next": None, "fits": None}
    decision = decision_in(work / LEDGER, task, budget)
    return {"next": task.id.hex(), "after_next": _finite(decision.spent_epsilon), "fits": decision.granted}


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def analyzer_alerts(overview: Mapping[str, Any]) -> list[Alert]:
    """What the operator should know first, the most urgent first."""
    act = [Alert.act(f"A task file was refused. {reason}") for reason in overview["refused_tasks"]]
    watch = []
    free = overview["store"]["free_bytes"]
    if free < _FEW_FREE_BYTES:
        act.append(Alert.act(f"The disk of the work directory has only {free / 1e6:,.0f} MB free."))
    act += missing_key_alerts(overview["series"])
    watch += unused_key_alerts(overview["series"])
    for entry in overview["rounds"]:
        if entry["error"]:
            act.append(Alert.act(entry["error"], entry["task"]))
        elif entry["name"] is None and entry["state"] in ("receiving", "complete"):
            act.append(Alert.act("The task of this batch is missing or refused, so it is not released.", entry["task"]))
        if entry["state"] == "refused":
            watch.append(Alert.watch(f"The batch was refused. {entry['reason']}", entry["task"]))
        if entry["rejected"]:
            count = sum(entry["rejected"].values())
            watch.append(
                Alert.watch(f"{count:,} messages were rejected: {', '.join(entry['rejected'])}.", entry["task"])
            )
    for entry in overview["populations"]:
        if entry["fits"] is False:
            after = entry["after_next"]
            total = "no epsilon would hold" if after is None else f"epsilon = {after:.4g} would be spent"
            act.append(
                Alert.act(
                    f"The budget of {entry['name']} is epsilon = {entry['epsilon']:g}; with the next release {total}, "
                    "so that release will be refused.",
                    entry["next"],
                )
            )
    return [*act, *watch]
