"""How far an analyzer is with everything, for its operator; also while it runs."""

from __future__ import annotations

import math
from typing import Any

from shuffledp.collection.analyzer.agreement import LEDGER, check_agreement
from shuffledp.collection.analyzer.ledger import spent_in
from shuffledp.collection.analyzer.receiving import Batch, batches_in
from shuffledp.collection.analyzer.server import check_analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings, read_budgets

__all__ = ["overview"]


def overview(settings: AnalyzerSettings) -> dict[str, Any]:
    """The tasks with the state of their batches, and what each population has spent of its budget."""
    tasks = check_analyzer(settings)
    check_agreement(settings.work)
    batches = batches_in(settings.work)
    populations = {}
    for name, budget in read_budgets(settings.budgets).items():
        releases, spent = spent_in(settings.work / LEDGER, name, budget.delta)
        populations[name] = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "spent_epsilon": spent if math.isfinite(spent) else None,
            "releases": releases,
        }
    return {
        "refused": [str(each) for each in tasks.refused],
        "tasks": [
            {"task": task.id.hex(), "name": task.name, "population": task.population} | _state(batches.get(task.id))
            for task in tasks
        ],
        "populations": populations,
    }


def _state(batch: Batch | None) -> dict[str, str]:
    return {"state": batch.state.value, "reason": batch.reason} if batch else {"state": "waiting", "reason": ""}
