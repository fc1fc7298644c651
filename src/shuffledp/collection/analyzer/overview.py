"""Overview for the operator of an analyzer: tasks, states of batches, and spent budgets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.agreement import LEDGER, check_agreement
from shuffledp.collection.analyzer.batches import Batch, BatchState, batches_in
from shuffledp.collection.analyzer.ledger import spent_in
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
from shuffledp.collection.analyzer.server import Analyzer, check_analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings, Budget
from shuffledp.collection.task.task import Task


def overview(settings: AnalyzerSettings) -> dict[str, Any]:
    """The tasks with the states of their batches, and the spent budget of each population, from the work directory."""
    tasks = check_analyzer(settings)
    check_agreement(settings.work)
    batches = batches_in(settings.work)
    populations = {name: _spent(settings.work, name, budget) for name, budget in tasks.budgets.items()}
    return {
        "refused": [str(refused) for refused in tasks.refused],
        "tasks": [
            {"task": task.id.hex(), "name": task.name, "population": task.population} | _state(batches.get(task.id))
            for task in tasks
        ],
        "populations": populations,
    }


def state_of(analyzer: Analyzer, scheduler: ReleaseScheduler) -> dict[str, Any]:
    """The rounds of a running analyzer, including those whose task is missing, and the budgets."""
    tasks = {task.id: task for task in analyzer.tasks}
    batches = {batch.task_id: batch for batch in analyzer.batches.all()}
    return {
        "keys": analyzer.tasks.key_ids,
        "refused_tasks": [str(refused) for refused in analyzer.tasks.refused],
        "rounds": [
            _round(task_id, tasks.get(task_id), batches.get(task_id), analyzer, scheduler)
            for task_id in [*tasks, *(other for other in batches if other not in tasks)]
        ],
        "populations": [
            {"name": name} | _spent(analyzer.settings.work, name, budget)
            for name, budget in analyzer.tasks.budgets.items()
        ],
    }


def _round(
    task_id: bytes, task: Task | None, batch: Batch | None, analyzer: Analyzer, scheduler: ReleaseScheduler
) -> dict[str, Any]:
    failures, error = scheduler.failures(task_id)
    released = batch is not None and batch.state is BatchState.RELEASED
    return {
        "task": task_id.hex(),
        "name": task.name if task else None,
        "population": task.population if task else None,
        **_state(batch),
        "chunks": batch.chunks if batch else 0,
        "missing": analyzer.batches.count_missing(task_id),
        "failures": failures,
        "error": error,
        "release": f"/v1/releases/{task_id.hex()}" if released else None,
    }


def _spent(work: Path, population: str, budget: Budget) -> dict[str, Any]:
    releases, spent = spent_in(work / LEDGER, population, budget.delta)
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent_epsilon": spent if math.isfinite(spent) else None,
        "releases": releases,
    }


def _state(batch: Batch | None) -> dict[str, str]:
    return {"state": batch.state.value, "reason": batch.reason} if batch else {"state": "waiting", "reason": ""}
