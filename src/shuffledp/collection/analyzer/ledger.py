"""The ledger: what was released about each population, and whether its budget allows one more.

Every release is kept with the protocol's exact parameters, so that its privacy curve can be computed anew. The
privacy losses of all releases are convolved. A release that was refused stays refused. An entry belongs to one
batch: another batch of the same task is refused, whatever else was lost.

Convolving takes time, so nobody waits for it: what was released is read, judged without any lock, and entered only if
nothing was added in between; else it is judged again.
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
from shuffledp.collection.analyzer.settings import Budget
from shuffledp.collection.server.databases import (
    Migrations,
    make_database_private,
    open_database,
    pending_migrations,
    read_database,
    transaction,
)
from shuffledp.collection.task.canonical import canonical, parse_canonical, portable
from shuffledp.collection.task.task import MOST_TASK_BYTES, Task
from shuffledp.collection.wire.padding import capped_guarantee
from shuffledp.errors import DataError, ShuffledpError
from shuffledp.privacy.composition import compose_all, followed_by
from shuffledp.privacy.guarantee import PrivacyCurve, least_epsilon
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
    """What the ledger says to a release."""

    granted: bool
    budget: Budget
    """The budget at the time."""
    releases: int
    """How many there are over the population with this one, or would be."""
    spent_epsilon: float
    """What is spent with this one, or would be, at the delta of the budget; infinite if no epsilon is enough."""
    manifest: bytes | None = None
    """The SHA-256 of the batch's signed manifest; empty if it was lost, none in an entry of the first version."""

    @property
    def reason(self) -> str:
        """Why it is refused, in one line."""
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
    """What was released about a population up to a place in the ledger."""

    place: int
    releases: int
    curve: PrivacyCurve | None
    """Of all of it, convolved; none if nothing was released."""


_NOTHING = _Spent(0, 0, None)


class Ledger:
    """The ledger in one SQLite file. One process writes it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, _Spent] = {}
        make_database_private(path)
        self._connection = open_database(path, _MIGRATIONS)

    def reserve(self, task: Task, budget: Budget, manifest: bytes) -> Entry:
        """Grant the release of a batch of a task, or refuse it, once and for all; asked again, the answer is the same.

        ``manifest`` is the SHA-256 of the batch's signed manifest. NotReleasedError if there is an entry of another
        batch of the task.
        """
        with self._transaction() as connection:
            known = _find(connection, task.id)
            if known is not None and known.manifest is None:
                connection.execute("UPDATE releases SET manifest = ? WHERE task = ?", (manifest, task.id))
                known = replace(known, manifest=manifest)
        known = known or self._enter(task, budget, manifest)
        if known.manifest != manifest:
            raise NotReleasedError("The ledger has an entry of another batch of this task; there is one release.")
        return known

    def take_up(self, task: Task, budget: Budget, manifest: bytes) -> Entry:
        """Enter a release that has happened and is not here: it counts, whatever the budget says."""
        return self._enter(task, budget, manifest, has_happened=True)

    def _enter(self, task: Task, budget: Budget, manifest: bytes, *, has_happened: bool = False) -> Entry:
        """The entry of a task, made unless there is one."""
        while True:
            earlier = self._spent_on(task.population)
            curve = task.guarantee.curve if earlier.curve is None else followed_by(earlier.curve, task.guarantee.curve)
            entry = replace(_judge(curve, earlier.releases + 1, budget), manifest=manifest)
            if has_happened:
                entry = replace(entry, granted=True)
            with self._transaction() as connection:
                known = _find(connection, task.id)
                if known is not None:
                    return known
                if _released_after(connection, task.population, earlier.place):
                    continue
                place = _insert(connection, task, entry)
            if entry.granted:  # and durable
                self._spent[task.population] = _Spent(place, entry.releases, curve)
            return entry

    def _spent_on(self, population: str) -> _Spent:
        """What was released about a population until now; what is convolved already is not convolved again."""
        with self._transaction() as connection:
            spent = self._spent.get(population, _NOTHING)
            added = _released_after(connection, population, spent.place)
        if not added:
            return spent
        curves = [_curve(content) for _, content in added]
        curve = compose_all(curves if spent.curve is None else [spent.curve, *curves])
        spent = self._spent[population] = _Spent(added[-1][0], spent.releases + len(added), curve)
        return spent

    def entry(self, task_id: bytes) -> Entry | None:
        """What was said to the release of a task."""
        with self._transaction() as connection:
            return _find(connection, task_id)

    def manifest(self, task_id: bytes) -> bytes | None:
        """The manifest that the release of a task is bound to, if it is."""
        entry = self.entry(task_id)
        return None if entry is None else entry.manifest

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._connection):
            yield self._connection


def spent_in(path: Path, population: str, delta: float) -> tuple[int, float]:
    """How many releases a population has seen, and the epsilon of all of them at this delta; reads only."""
    with _reading(path) as connection:
        curves = [_curve(content) for _, content in _released_after(connection, population, 0)] if connection else []
    return len(curves), least_epsilon(compose_all(curves), delta) if curves else 0.0


def entries_in(path: Path) -> dict[bytes, Entry]:
    """All entries by their tasks; reads only."""
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
    return Entry(bool(granted), Budget(epsilon, delta), earlier + 1, math.inf if spent is None else spent, manifest)


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


def _released_after(connection: sqlite3.Connection, population: str, place: int) -> list[tuple[int, bytes]]:
    """Places and distributions of what was granted to a population after a place; entries are only ever added."""
    return connection.execute(
        "SELECT place, law FROM releases WHERE population = ? AND granted AND place > ? ORDER BY place",
        (population, place),
    ).fetchall()


def _judge(curve: PrivacyCurve, releases: int, budget: Budget) -> Entry:
    """Whether so many releases, which have this distribution together, are within the budget."""
    granted = curve.delta_at(budget.epsilon) <= budget.delta
    spent = least_epsilon(curve, budget.delta)
    if granted:
        spent = min(spent, budget.epsilon)  # it is found to nine digits, from above
    return Entry(granted, budget, releases, spent)


def _curve_document(task: Task) -> dict[str, Any]:
    """What the privacy curve of a task's release follows from."""
    return {
        "protocol": portable(to_document(task.protocol)),
        "messages_per_report": task.messages_per_report,
        "maximum_users": task.maximum_users,
        "epsilon": repr(task.epsilon),
        "delta": repr(task.delta),
    }


@lru_cache(maxsize=256)
def _curve(content: bytes) -> PrivacyCurve:
    """The privacy curve of a release; one of an earlier version that cannot be verified has no finite epsilon."""
    document = parse_canonical(content, most_bytes=MOST_TASK_BYTES)
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
