"""The ledger: releases about each population, and whether its budget allows another one.

Every entry has the exact parameters of the protocol, so that its privacy curve can be recomputed. The privacy losses of
all releases are convolved. A refused release stays refused. An entry belongs to one batch: another batch of the same
task is refused, even if all other data was lost.

Convolution takes time, so no lock is held meanwhile: earlier releases are read, the decision is computed, and the entry
is inserted only if no release was added in between; otherwise the decision is computed again. A series is reserved as a
whole when it is accepted (``reservations``); its rounds are then released without further cost.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.estimating import NotReleasedError
from shuffledp.collection.analyzer.reservations import (
    MIGRATION,
    Reservation,
    Reserved,
    cancel_reservation,
    insert_reservation,
    reservation_of,
    reservations_of,
    reserved_in,
)
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
from shuffledp.collection.task.series import Series
from shuffledp.collection.task.task import MAX_TASK_BYTES, Task
from shuffledp.collection.task.wire_version_2 import SeriesRound
from shuffledp.collection.wire.padding import capped_guarantee
from shuffledp.errors import DataError, ShuffledpError
from shuffledp.privacy.composition import compose, compose_all, followed_by
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
    MIGRATION,
)
_ALL = "SELECT task, granted, earlier, budget_epsilon, budget_delta, spent_epsilon, manifest FROM releases"
_WITH_SERIES = 3
"""The version of the database from which on it has series."""
_RELEASED_BEFORE_SERIES = "SELECT law FROM releases WHERE population = ? AND granted ORDER BY place"
_MAX_DECISIONS = 64
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


class SeriesRefusedError(ShuffledpError):
    """The budget of a population does not allow a series; nothing was reserved."""


class Ledger:
    """The ledger, in one SQLite file that only one process writes."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, _Spent] = {}
        self._decisions: dict[tuple[str, int, Reserved, PopulationBudget], tuple[bool, float]] = {}
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

    def reserve_series(self, series: Series, budget: PopulationBudget, *, is_past: bool = False) -> Reservation:
        """Reserve all rounds of a series, durably; SeriesRefusedError if the budget does not allow it.

        A repeated call returns the same reservation. With ``is_past`` it is restored, even if it exceeds the budget.
        """
        task, rounds, per_device = series.first, len(series.keys), series.rounds_per_device
        law = canonical(_curve_document(task))
        wanted = Reservation(series.id, task.population, law, rounds, per_device, budget)
        while True:
            with self._transaction() as connection:
                existing = reservation_of(connection, series.id)
                reserved = reserved_in(reservations_of(connection, task.population))
            if existing is not None:
                return existing
            earlier = self._spent_on(task.population)
            granted, spent = self._reserved_decision(task.population, earlier, (*reserved, (law, per_device)), budget)
            if not granted and not is_past:
                raise SeriesRefusedError(_series_reason(wanted, spent))
            with self._transaction() as connection:
                if reservation_of(connection, series.id) is None:
                    if _released_after(connection, task.population, earlier.last_row) or reserved != reserved_in(
                        reservations_of(connection, task.population)
                    ):
                        continue
                    insert_reservation(connection, wanted)

    def cancel_series(self, series: bytes, from_round: int, kept: Collection[int] = ()) -> None:
        """Free the rounds of a series from a round on, durably, except those in ``kept``, whose batches had arrived."""
        with self._transaction() as connection:
            released = connection.execute("SELECT round FROM releases WHERE series = ? AND granted", (series,))
            rounds = {*kept, *(index for (index,) in released)}
            cancel_reservation(connection, series, from_round, rounds)

    def reservation(self, series: bytes) -> Reservation | None:
        """The reservation of a series, if it has one."""
        with self._transaction() as connection:
            return reservation_of(connection, series)

    def enter_past_release(self, task: Task, budget: PopulationBudget, manifest: bytes) -> Entry:
        """Enter a release that was made and is missing here: it counts even if it exceeds the budget."""
        return self._enter(task, budget, manifest, is_past=True)

    def _enter(self, task: Task, budget: PopulationBudget, manifest: bytes, *, is_past: bool = False) -> Entry:
        """The entry of a task, inserted unless it exists."""
        if task.wire is not None and task.wire.series is not None:
            return self._enter_round(task, task.wire.series, budget, manifest, is_past=is_past)
        while True:
            earlier = self._spent_on(task.population)
            curve = task.guarantee.curve if earlier.curve is None else followed_by(earlier.curve, task.guarantee.curve)
            reserved, rounds = self._reserved_for(task.population)
            total = _with_series(curve, reserved)
            entry = replace(_decide(total, earlier.releases + rounds + 1, budget), manifest=manifest)
            if is_past:
                entry = replace(entry, granted=True)
            with self._transaction() as connection:
                existing = _find(connection, task.id)
                if existing is not None:
                    return existing
                if _released_after(connection, task.population, earlier.last_row) or reserved != reserved_in(
                    reservations_of(connection, task.population)
                ):
                    continue
                row = _insert(connection, task, entry)
            if entry.granted:  # and committed
                self._spent[task.population] = _Spent(row, earlier.releases + 1, curve)
            return entry

    def _enter_round(
        self, task: Task, place: SeriesRound, budget: PopulationBudget, manifest: bytes, *, is_past: bool
    ) -> Entry:
        """The entry of a round of a series, inserted unless it exists; the reservation has paid for it."""
        entry = self.reservation(place.series)
        if entry is None:
            raise ShuffledpError(
                f"The series {place.series.hex()} is not reserved in the ledger; put its file back into the task "
                "directory."
            )
        if not is_past and not entry.takes_place(place.index):
            raise NotReleasedError(f"The series was cancelled from round {entry.cancelled_from} on.")
        earlier = self._spent_on(task.population)
        reserved, rounds = self._reserved_for(task.population)
        granted, spent = self._reserved_decision(task.population, earlier, reserved, budget)
        decision = Entry(True, budget, earlier.releases + rounds + 1, min(spent, budget.epsilon) if granted else spent)
        decision = replace(decision, manifest=manifest)
        with self._transaction() as connection:
            existing = _find(connection, task.id)
            if existing is None:
                _insert(connection, task, decision, place)
        return existing or decision

    def _reserved_decision(
        self, population: str, earlier: _Spent, reserved: Reserved, budget: PopulationBudget
    ) -> tuple[bool, float]:
        """Whether the budget allows what was released and what is reserved, and the epsilon of all that.

        Decisions are cached, since a series that is refused is offered again at every tick.
        """
        key = (population, earlier.last_row, reserved, budget)
        if key not in self._decisions:
            if len(self._decisions) >= _MAX_DECISIONS:
                self._decisions.clear()
            if earlier.curve is None and not reserved:
                return True, 0.0
            curve = _with_series(earlier.curve, reserved)
            granted = is_within(curve, budget.epsilon, budget.delta)
            self._decisions[key] = (granted, least_epsilon(curve, budget.delta))
        return self._decisions[key]

    def _reserved_for(self, population: str) -> tuple[Reserved, int]:
        """What is reserved for series about a population, and how many of their rounds were released."""
        with self._transaction() as connection:
            rounds = connection.execute(
                "SELECT count(*) FROM releases WHERE population = ? AND granted AND series IS NOT NULL", (population,)
            ).fetchone()[0]
            return reserved_in(reservations_of(connection, population)), int(rounds)

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
    contents, reserved, rounds = _contents_in(path, population)
    return len(contents) + rounds, _spent_epsilon(contents, reserved, delta)


def decision_in(path: Path, task: Task, budget: PopulationBudget) -> Entry:
    """What the ledger would decide about a release of this task now; nothing is changed."""
    contents, reserved, rounds = _contents_in(path, task.population)
    if task.wire is not None and task.wire.series is not None:
        spent = _spent_epsilon(contents, reserved, budget.delta)
        fits = spent <= budget.epsilon * (1 + 1e-9)  # least_epsilon returns an upper bound, to nine digits
        return Entry(fits, budget, len(contents) + rounds + 1, spent)
    return replace(_decision(contents, reserved, task, budget), releases=len(contents) + rounds + 1)


def reservations_in(path: Path) -> list[Reservation]:
    """All reservations of series; nothing is changed."""
    with _reading(path) as connection:
        return reservations_of(connection) if connection and _version(connection) >= _WITH_SERIES else []


def _contents_in(path: Path, population: str) -> tuple[tuple[bytes, ...], Reserved, int]:
    """The curve documents of all single releases about a population, what is reserved for series, and their rounds."""
    with _reading(path) as connection:
        if connection is None:
            return (), (), 0
        if _version(connection) < _WITH_SERIES:
            rows = connection.execute(_RELEASED_BEFORE_SERIES, (population,))
            return tuple(content for (content,) in rows), (), 0
        rounds = connection.execute(
            "SELECT count(*) FROM releases WHERE population = ? AND granted AND series IS NOT NULL", (population,)
        ).fetchone()[0]
        contents = tuple(content for _, content in _released_after(connection, population, 0))
        return contents, reserved_in(reservations_of(connection, population)), int(rounds)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@lru_cache(maxsize=256)
def _spent_epsilon(contents: tuple[bytes, ...], reserved: Reserved, delta: float) -> float:
    """The epsilon of these releases at this delta; cached, since an operator's page asks for it every few seconds."""
    if not contents and not reserved:
        return 0.0
    curve = compose_all([_curve(content) for content in contents]) if contents else None
    return least_epsilon(_with_series(curve, reserved), delta)


@lru_cache(maxsize=256)
def _decision(contents: tuple[bytes, ...], reserved: Reserved, task: Task, budget: PopulationBudget) -> Entry:
    curves = [*(_curve(content) for content in contents), task.guarantee.curve]
    return _decide(_with_series(compose_all(curves), reserved), len(curves), budget)


def _with_series(curve: PrivacyCurve | None, reserved: Reserved) -> PrivacyCurve:
    """The composed curve of single releases and of what is reserved for series."""
    series = [_repeated(law, rounds) for law, rounds in reserved]
    if curve is not None:
        return compose_all([curve, *series]) if series else curve
    return compose_all(series) if len(series) > 1 else series[0]


@lru_cache(maxsize=64)
def _repeated(law: bytes, rounds: int) -> PrivacyCurve:
    """The composed privacy curve of rounds of a series."""
    return compose(_curve(law), rounds)


def _series_reason(wanted: Reservation, spent: float) -> str:
    budget = wanted.budget
    total = f"epsilon = {spent:.4g}" if math.isfinite(spent) else "no finite epsilon"
    return (
        f"The series has {wanted.rounds_per_device:,} of {wanted.rounds:,} rounds per device: with it {total} would be "
        f"spent at delta = {budget.delta:g}; the budget of {wanted.population} is {budget.epsilon:g}."
    )


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


def _insert(connection: sqlite3.Connection, task: Task, entry: Entry, place: SeriesRound | None = None) -> int:
    cursor = connection.execute(
        "INSERT INTO releases (task, population, law, granted, earlier, budget_epsilon, budget_delta, spent_epsilon, "
        "manifest, series, round) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            None if place is None else place.series,
            None if place is None else place.index,
        ),
    )
    return int(cursor.lastrowid or 0)


def _released_after(connection: sqlite3.Connection, population: str, row: int) -> list[tuple[int, bytes]]:
    """Row numbers and curve documents of the releases granted to a population after a row; rows are only appended.

    Rounds of series are left out: their reservations count.
    """
    return connection.execute(
        "SELECT place, law FROM releases WHERE population = ? AND granted AND series IS NULL AND place > ? "
        "ORDER BY place",
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
