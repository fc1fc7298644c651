"""The ledger: what was released about each population, and whether its budget allows one more.

Every release is kept with the protocol's exact parameters, so that its privacy law can be computed anew. The
privacy losses of all releases are convolved. A release that was refused stays refused.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.settings import Budget
from shuffledp.collection.canonical import canonical, parse_canonical, portable
from shuffledp.collection.padding import capped_guarantee
from shuffledp.collection.task import MOST_TASK_BYTES, Task
from shuffledp.errors import DataError
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import PrivacyLaw, least_epsilon
from shuffledp.protocols.documents import from_document, to_document

__all__ = ["Entry", "Ledger", "spent_in"]

_VERSION = 1
_SCHEMA = """
CREATE TABLE releases (
    place INTEGER PRIMARY KEY,
    task BLOB NOT NULL UNIQUE,
    population TEXT NOT NULL,
    law BLOB NOT NULL,
    granted INTEGER NOT NULL,
    earlier INTEGER NOT NULL,
    budget_epsilon REAL NOT NULL,
    budget_delta REAL NOT NULL,
    spent_epsilon REAL
) STRICT;
CREATE INDEX releases_of_population ON releases (population) WHERE granted;
"""


@dataclass(frozen=True)
class Entry:
    """What the ledger says to a release."""

    granted: bool
    budget: Budget
    """The budget at the time."""
    releases: int
    """How many there are over the population with this one, or would be."""
    spent_epsilon: float
    """What is spent with this one, or would be, at the delta of the budget; infinite if no epsilon is enough."""

    @property
    def reason(self) -> str:
        """Why it is refused, in one line."""
        return (
            f"With this release, {self.releases:,} in all, epsilon = {self.spent_epsilon:.4g} would be spent at "
            f"delta = {self.budget.delta:g}; the budget of the population is {self.budget.epsilon:g}."
        )


class Ledger:
    """The ledger in one SQLite file. One process writes it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise DataError(f"The ledger {path} has version {version}; this program reads {_VERSION}.")
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    def reserve(self, task: Task, budget: Budget) -> Entry:
        """Grant the release of a task, or refuse it, once and for all; asked again, the answer is the same."""
        with self._transaction() as connection:
            known = self._find(connection, task.id)
            if known is not None:
                return known
            earlier = _laws(connection, task.population)
            entry = _judge([*earlier, task.guarantee.law], budget)
            connection.execute(
                "INSERT INTO releases (task, population, law, granted, earlier, budget_epsilon, budget_delta, "
                "spent_epsilon) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    task.id,
                    task.population,
                    canonical(_law_document(task)),
                    entry.granted,
                    len(earlier),
                    budget.epsilon,
                    budget.delta,
                    entry.spent_epsilon if math.isfinite(entry.spent_epsilon) else None,
                ),
            )
            return entry

    def entry(self, task_id: bytes) -> Entry | None:
        """What was said to the release of a task."""
        with self._transaction() as connection:
            return self._find(connection, task_id)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _find(self, connection: sqlite3.Connection, task_id: bytes) -> Entry | None:
        row = connection.execute(
            "SELECT granted, earlier, budget_epsilon, budget_delta, spent_epsilon FROM releases WHERE task = ?",
            (task_id,),
        ).fetchone()
        if row is None:
            return None
        granted, earlier, epsilon, delta, spent = row
        return Entry(bool(granted), Budget(epsilon, delta), earlier + 1, math.inf if spent is None else spent)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def spent_in(path: Path, population: str, delta: float) -> tuple[int, float]:
    """How many releases a population has seen, and the epsilon of all of them at this delta; reads only."""
    if not path.exists():
        return 0, 0.0
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
    try:
        laws = _laws(connection, population)
    finally:
        connection.close()
    return len(laws), least_epsilon(compose_all(laws), delta) if laws else 0.0


def _laws(connection: sqlite3.Connection, population: str) -> list[PrivacyLaw]:
    rows = connection.execute(
        "SELECT law FROM releases WHERE population = ? AND granted ORDER BY place", (population,)
    ).fetchall()
    return [_law(content) for (content,) in rows]


def _judge(laws: list[PrivacyLaw], budget: Budget) -> Entry:
    law = compose_all(laws)
    granted = law.delta_at(budget.epsilon) <= budget.delta
    spent = least_epsilon(law, budget.delta)
    if granted:
        spent = min(spent, budget.epsilon)  # it is found to nine digits, from above
    return Entry(granted, budget, len(laws), spent)


def _law_document(task: Task) -> dict[str, Any]:
    """What the privacy law of a task's release follows from."""
    return {
        "protocol": portable(to_document(task.protocol)),
        "messages_per_report": task.messages_per_report,
        "maximum_users": task.maximum_users,
        "epsilon": repr(task.epsilon),
        "delta": repr(task.delta),
    }


@lru_cache(maxsize=256)
def _law(content: bytes) -> PrivacyLaw:
    document = parse_canonical(content, most_bytes=MOST_TASK_BYTES)
    return capped_guarantee(
        from_document(document["protocol"]),
        cap=document["messages_per_report"],
        users=document["maximum_users"],
        epsilon=float(document["epsilon"]),
        delta=float(document["delta"]),
    ).law
