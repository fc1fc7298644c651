"""The ledger: releases about each population, and whether its budget allows another one.

Every entry has the exact parameters of the protocol, so that its privacy curve can be recomputed. The privacy losses of
all releases are convolved. A refused release stays refused. An entry belongs to one batch: another batch of the same
task is refused, even if all other data was lost.

Convolution takes time, so no lock is held meanwhile: earlier releases are read, the decision is computed, and the entry
is inserted only if no release was added in between; otherwise the decision is computed again.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.estimating import NotReleasedError
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.databases import (
    Migrations,
    make_database_private,
    open_database,
    pending_migrations,
    read_database,
    transaction,
)
from shuffledp.collection.task.canonical import canonical, parse_canonical, portable
from shuffledp.collection.task.task import MAX_TASK_BYTES, Task
from shuffledp.collection.wire.padding import capped_guarantee
from shuffledp.errors import DataError, ShuffledpError
from shuffledp.privacy.composition import compose_all, followed_by
from shuffledp.privacy.guarantee import PrivacyCurve, is_within, least_epsilon
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.documents import from_document, to_document

_MIGRATIONS: Migrations = (
    (
        """CREATE TABLE releases (
    place INTEGER PRIMARY KEY,
    task BLOB NOT NULL UNIQUE,
    population TEXT NOT NULL,
    law BLOB NOT NULL,
    granted INTEGER NOT NULL,
    earlier INTEGER NOT NULL,
    budget_epsilon REAL NOT NULL,
    budget_delta REAL NOT NULL,
    spent_epsilon REAL
) STRICT""",
        "CREATE INDEX releases_of_population ON releases (population) WHERE granted",
    ),
    ("ALTER TABLE releases ADD COLUMN manifest BLOB",),
)
_ALL = "SELECT task, granted, earlier, budget_epsilon, budget_delta, spent_epsilon, manifest FROM releases"
_ALL_OF_VERSION_1 = _ALL.replace("manifest", "NULL")


@dataclass(frozen=True)
class Entry:
    """The decision of the ledger about a release."""

    granted: bool
    budget: PopulationBudget
    """The budget at the time of the decision."""
    releases: int
    """Number of releases about the population, including this one."""
    spent_epsilon: float
    """Epsilon of all these releases at the delta of the budget; infinite if no epsilon holds."""
    manifest: bytes | None = None
    """The SHA-256 of the batch's signed manifest; empty if it was lost, None in an entry of the first version."""

    @property
    def reason(self) -> str:
        """Why the release is refused, in one line."""
        if math.isinf(self.spent_epsilon):
            return (
                f"With this release, {self.releases:,} in all, no epsilon would hold at delta = {self.budget.delta:g}, "
                "the delta of the population's budget."
            )
        return (
            f"With this release, {self.releases:,} in all, epsilon = {self.spent_epsilon:.4g} would be spent at "
            f"delta = {self.budget.delta:g}; the budget of the population is {self.budget.epsilon:g}."
        )


@dataclass(frozen=True)
class _Spent:
    """The releases about a population up to a row of the ledger."""

    last_row: int
    releases: int
    curve: PrivacyCurve | None
    """The composed privacy curve; None without any release."""


_NO_RELEASES = _Spent(0, 0, None)


class Ledger:
    """The ledger, in one SQLite file that only one process writes."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, _Spent] = {}
        make_database_private(path)
        self._connection = open_database(path, _MIGRATIONS)

    def reserve(self, task: Task, budget: PopulationBudget, manifest: bytes) -> Entry:
        """Grant or refuse the release of a batch permanently; a repeated call returns the same entry.

        ``manifest`` is the SHA-256 of the batch's signed manifest. NotReleasedError if the task has an entry for
        another batch.
        """
        with self._transaction() as connection:
            existing = _find(connection, task.id)
            if existing is not None and existing.manifest is None:
                connection.execute("UPDATE releases SET manifest = ? WHERE task = ?", (manifest, task.id))
                existing = replace(existing, manifest=manifest)
        existing = existing or self._enter(task, budget, manifest)
        if existing.manifest != manifest:
            raise NotReleasedError("The ledger has an entry for another batch of this task; a task is released once.")
        return existing

    def enter_past_release(self, task: Task, budget: PopulationBudget, manifest: bytes) -> Entry:
        """Enter a release that was made and is missing here: it counts even if it exceeds the budget."""
        return self._enter(task, budget, manifest, is_past=True)

    def _enter(self, task: Task, budget: PopulationBudget, manifest: bytes, *, is_past: bool = False) -> Entry:
        """The entry of a task, inserted unless it exists."""
        while True:
            earlier = self._spent_on(task.population)
            curve = task.guarantee.curve if earlier.curve is None else followed_by(earlier.curve, task.guarantee.curve)
            entry = replace(_decide(curve, earlier.releases + 1, budget), manifest=manifest)
            if is_past:
                entry = replace(entry, granted=True)
            with self._transaction() as connection:
                existing = _find(connection, task.id)
                if existing is not None:
                    return existing
                if _released_after(connection, task.population, earlier.last_row):
                    continue
                row = _insert(connection, task, entry)
            if entry.granted:  # and committed
                self._spent[task.population] = _Spent(row, entry.releases, curve)
            return entry

    def _spent_on(self, population: str) -> _Spent:
        """The releases about a population until now; only new ones are convolved."""
        with self._transaction() as connection:
            spent = self._spent.get(population, _NO_RELEASES)
            added = _released_after(connection, population, spent.last_row)
        if not added:
            return spent
        curves = [_curve(content) for _, content in added]
        curve = compose_all(curves if spent.curve is None else [spent.curve, *curves])
        spent = self._spent[population] = _Spent(added[-1][0], spent.releases + len(added), curve)
        return spent

    def entry(self, task_id: bytes) -> Entry | None:
        """The entry of a task, if it has one."""
        with self._transaction() as connection:
            return _find(connection, task_id)

    def manifest(self, task_id: bytes) -> bytes | None:
        """The manifest in the entry of a task, if it has one."""
        entry = self.entry(task_id)
        return None if entry is None else entry.manifest

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._connection):
            yield self._connection


def spent_in(path: Path, population: str, delta: float) -> tuple[int, float]:
    """The number of releases about a population, and their epsilon at this delta; nothing is changed."""
    contents = _contents_in(path, population)
    return len(contents), _spent_epsilon(contents, delta)


def decision_in(path: Path, task: Task, budget: PopulationBudget) -> Entry:
    """What the ledger would decide about a release of this task now; nothing is changed."""
    return _decision(_contents_in(path, task.population), task, budget)


def _contents_in(path: Path, population: str) -> tuple[bytes, ...]:
    """The curve documents of all releases about a population."""
    with _reading(path) as connection:
        return tuple(content for _, content in _released_after(connection, population, 0)) if connection else ()


@lru_cache(maxsize=256)
def _spent_epsilon(contents: tuple[bytes, ...], delta: float) -> float:
    """The epsilon of these releases at this delta; cached, since an operator's page asks for it every few seconds."""
    return least_epsilon(compose_all([_curve(content) for content in contents]), delta) if contents else 0.0


@lru_cache(maxsize=256)
def _decision(contents: tuple[bytes, ...], task: Task, budget: PopulationBudget) -> Entry:
    curves = [*(_curve(content) for content in contents), task.guarantee.curve]
    return _decide(compose_all(curves), len(curves), budget)


def entries_in(path: Path) -> dict[bytes, Entry]:
    """All entries by task id; nothing is changed."""
    with _reading(path) as connection:
        if connection is None:
            return {}
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            return {}
        pending_migrations(version, _MIGRATIONS, str(path))
        rows = connection.execute(_ALL_OF_VERSION_1 if version == 1 else _ALL)
        return {task: _entry(*rest) for task, *rest in rows}


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    if not path.exists():
        yield None
        return
    connection = read_database(path)
    try:
        yield connection
    except sqlite3.DatabaseError as error:
        raise DataError(f"The ledger {path} cannot be read ({error}): restore it from the backup.") from None
    finally:
        connection.close()


def _find(connection: sqlite3.Connection, task_id: bytes) -> Entry | None:
    row = connection.execute(_ALL + " WHERE task = ?", (task_id,)).fetchone()
    return None if row is None else _entry(*row[1:])


def _entry(
    granted: int, earlier: int, epsilon: float, delta: float, spent: float | None, manifest: bytes | None
) -> Entry:
    return Entry(
        bool(granted), PopulationBudget(epsilon, delta), earlier + 1, math.inf if spent is None else spent, manifest
    )


def _insert(connection: sqlite3.Connection, task: Task, entry: Entry) -> int:
    cursor = connection.execute(
        "INSERT INTO releases (task, population, law, granted, earlier, budget_epsilon, budget_delta, spent_epsilon, "
        "manifest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            task.id,
            task.population,
            canonical(_curve_document(task)),
            entry.granted,
            entry.releases - 1,
            entry.budget.epsilon,
            entry.budget.delta,
            entry.spent_epsilon if math.isfinite(entry.spent_epsilon) else None,
            entry.manifest,
        ),
    )
    return int(cursor.lastrowid or 0)


def _released_after(connection: sqlite3.Connection, population: str, row: int) -> list[tuple[int, bytes]]:
    """Row numbers and curve documents of the releases granted to a population after a row; rows are only appended."""
    return connection.execute(
        "SELECT place, law FROM releases WHERE population = ? AND granted AND place > ? ORDER BY place",
        (population, row),
    ).fetchall()


def _decide(curve: PrivacyCurve, releases: int, budget: PopulationBudget) -> Entry:
    """The decision about releases with this composed privacy curve."""
    granted = is_within(curve, budget.epsilon, budget.delta)
    spent = least_epsilon(curve, budget.delta)
    if granted:
        spent = min(spent, budget.epsilon)  # least_epsilon returns an upper bound, to nine digits
    return Entry(granted, budget, releases, spent)


def _curve_document(task: Task) -> dict[str, Any]:
    """The parameters from which the privacy curve of a task's release is computed."""
    return {
        "protocol": portable(to_document(task.protocol)),
        "messages_per_report": task.max_messages_per_report,
        "maximum_users": task.maximum_users,
        "epsilon": repr(task.epsilon),
        "delta": repr(task.delta),
    }


@lru_cache(maxsize=256)
def _curve(content: bytes) -> PrivacyCurve:
    """The privacy curve of a release; no finite epsilon if the entry of an earlier version cannot be verified."""
    document = parse_canonical(content, max_bytes=MAX_TASK_BYTES)
    try:
        guarantee = capped_guarantee(
            from_document(document["protocol"]),
            cap=document["messages_per_report"],
            users=document["maximum_users"],
            epsilon=float(document["epsilon"]),
            delta=float(document["delta"]),
        )
    except ShuffledpError:
        return PureCurve(math.inf)
    return guarantee.curve
