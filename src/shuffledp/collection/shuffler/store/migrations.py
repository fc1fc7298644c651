"""Migrations of the stores: the statements for each version of their layouts."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.server.databases import Migrations, pending_migrations
from shuffledp.collection.shuffler.store.interface import StoreError

SQLITE_INDEX: Migrations = (
    (
        """CREATE TABLE rounds (
            task_id BLOB PRIMARY KEY,
            state TEXT NOT NULL,
            maximum INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            reports INTEGER,                  -- their final number, once the round is closed
            kept INTEGER NOT NULL DEFAULT 1,  -- whether the reports are still here
            note BLOB NOT NULL DEFAULT x''
        ) WITHOUT ROWID""",
        "CREATE TABLE checks (number INTEGER NOT NULL)",
        "INSERT INTO checks VALUES (0)",
    ),
    (
        # a lower bound of the reports that the file of a collecting round must hold; states cancelled and abandoned
        "ALTER TABLE rounds ADD COLUMN stored INTEGER NOT NULL DEFAULT 0",
    ),
)

SQLITE_ROUND: Migrations = (
    (
        "CREATE TABLE reports (report_id BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
        "CREATE TABLE tokens (hash BLOB PRIMARY KEY, spent INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
    ),
)

POSTGRES: Migrations = (
    (
        """CREATE TABLE shuffledp.rounds (
            task_id bytea PRIMARY KEY,
            number integer NOT NULL UNIQUE GENERATED ALWAYS AS IDENTITY,  -- in the names of its tables
            state text NOT NULL DEFAULT 'collecting',
            maximum bigint NOT NULL,
            tokens boolean NOT NULL,
            reports bigint NOT NULL DEFAULT 0,
            kept boolean NOT NULL DEFAULT true,
            note bytea NOT NULL DEFAULT ''
        ) WITH (fillfactor = 50)""",
        "CREATE TABLE shuffledp.checks (number bigint NOT NULL)",
        "INSERT INTO shuffledp.checks VALUES (0)",
    ),
    (
        # the sequence behind an identity column changes its type with it; states cancelled and abandoned
        "ALTER TABLE shuffledp.rounds ALTER COLUMN number TYPE bigint",
    ),
)


def missing_steps(version: int, steps: Migrations, where: str) -> list[tuple[int, Sequence[str]]]:
    """The versions that a store lacks, each with its statements; a store of a newer program is a StoreError."""
    return pending_migrations(version, steps, where, error=StoreError)
