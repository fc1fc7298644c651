"""Reservations of the ledger: the whole of a series, at its acceptance, before any of its rounds is released.

A device takes part in at most R of the N rounds of a series, which it draws itself, so the privacy losses of R rounds
are composed, not those of N. After a cancellation only the rounds before it count, and those whose batch had arrived.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from shuffledp.collection.analyzer.settings import PopulationBudget

MIGRATION = (
    """CREATE TABLE series (
    place INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    population TEXT NOT NULL,
    law BLOB NOT NULL,
    rounds INTEGER NOT NULL,
    rounds_per_device INTEGER NOT NULL,
    budget_epsilon REAL NOT NULL,
    budget_delta REAL NOT NULL,
    cancelled_from INTEGER,
    kept_rounds TEXT NOT NULL DEFAULT '[]'
) STRICT""",
    "ALTER TABLE releases ADD COLUMN series BLOB",
    "ALTER TABLE releases ADD COLUMN round INTEGER",
)
_COLUMNS = "id, population, law, rounds, rounds_per_device, budget_epsilon, budget_delta, cancelled_from, kept_rounds"

Reserved = tuple[tuple[bytes, int], ...]
"""The curve documents of series, and for how many rounds each counts."""


@dataclass(frozen=True)
class Reservation:
    """What the ledger reserves for a series."""

    series: bytes
    population: str
    law: bytes
    """The curve document of each round."""
    rounds: int
    rounds_per_device: int
    budget: PopulationBudget
    """The budget at the time of the decision."""
    cancelled_from: int | None = None
    kept_rounds: frozenset[int] = frozenset()
    """Cancelled rounds whose batch had arrived, so that they are released all the same."""

    @property
    def counted_rounds(self) -> int:
        """How many rounds are composed."""
        if self.cancelled_from is None:
            return self.rounds_per_device
        kept = sum(index >= self.cancelled_from for index in self.kept_rounds)
        return min(self.rounds_per_device, self.cancelled_from + kept)

    def takes_place(self, index: int) -> bool:
        """Whether a round is not cancelled, or was so too late."""
        return self.cancelled_from is None or index < self.cancelled_from or index in self.kept_rounds


def reservation_of(connection: sqlite3.Connection, series: bytes) -> Reservation | None:
    """The reservation of a series, if there is one."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM series WHERE id = ?", (series,)).fetchone()  # noqa: S608
    return None if row is None else _reservation(row)


def reservations_of(connection: sqlite3.Connection, population: str | None = None) -> list[Reservation]:
    """The reservations about a population, or all, in the order of acceptance."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM series ORDER BY place")  # noqa: S608
    found = [_reservation(row) for row in rows]
    return [entry for entry in found if population in (None, entry.population)]


def _reservation(row: tuple[bytes, str, bytes, int, int, float, float, int | None, str]) -> Reservation:
    series, population, law, rounds, per_device, epsilon, delta, cancelled, kept = row
    budget = PopulationBudget(epsilon, delta)
    return Reservation(series, population, law, rounds, per_device, budget, cancelled, frozenset(json.loads(kept)))


def insert_reservation(connection: sqlite3.Connection, entry: Reservation) -> None:
    """Add a reservation."""
    connection.execute(
        "INSERT INTO series (id, population, law, rounds, rounds_per_device, budget_epsilon, budget_delta) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            entry.series,
            entry.population,
            entry.law,
            entry.rounds,
            entry.rounds_per_device,
            entry.budget.epsilon,
            entry.budget.delta,
        ),
    )


def cancel_reservation(connection: sqlite3.Connection, series: bytes, from_round: int, kept: Collection[int]) -> None:
    """Free the rounds from a round on, except those in ``kept``; of several cancellations the earliest counts."""
    entry = reservation_of(connection, series)
    if entry is None or (entry.cancelled_from is not None and entry.cancelled_from <= from_round):
        return
    rounds = sorted({*entry.kept_rounds, *(index for index in kept if index >= from_round)})
    connection.execute(
        "UPDATE series SET cancelled_from = ?, kept_rounds = ? WHERE id = ?", (from_round, json.dumps(rounds), series)
    )


def reserved_in(entries: Collection[Reservation]) -> Reserved:
    """What is composed of the reservations."""
    return tuple((entry.law, entry.counted_rounds) for entry in entries if entry.counted_rounds)
