"""How far an analyzer is with everything, for its operator; also while it runs."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.ledger import spent_in
from shuffledp.collection.analyzer.server import check_analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings, read_budgets

__all__ = ["overview"]


def overview(settings: AnalyzerSettings) -> dict[str, Any]:
    """The tasks with the state of their batches, and what each population has spent of its budget."""
    tasks = check_analyzer(settings)
    states = _states(settings.work / "analyzer.db")
    populations = {}
    for name, budget in read_budgets(settings.budgets).items():
        releases, spent = spent_in(settings.work / "ledger.db", name, budget.delta)
        populations[name] = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "spent_epsilon": spent if math.isfinite(spent) else None,
            "releases": releases,
        }
    return {
        "tasks": [
            {"task": task.id.hex(), "name": task.name, "population": task.population}
            | dict(zip(("state", "reason"), states.get(task.id, ("waiting", "")), strict=True))
            for task in tasks
        ],
        "populations": populations,
    }


def _states(path: Path) -> dict[bytes, tuple[str, str]]:
    if not path.exists():
        return {}
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
    try:
        return {
            task: (state, reason)
            for task, state, reason in connection.execute("SELECT task, state, reason FROM batches")
        }
    finally:
        connection.close()
