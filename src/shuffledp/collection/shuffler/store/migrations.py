"""A store carries the version of its layout: older ones are brought up to date, newer ones refused."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.shuffler.store.interface import StoreError

__all__ = ["POSTGRES", "SQLITE_INDEX", "SQLITE_ROUND", "Steps", "missing_steps"]

Steps = Sequence[Sequence[str]]
"""One entry for every version, from 1: the statements that make it from the version before. Version 0 is empty."""

SQLITE_INDEX: Steps = (
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

SQLITE_ROUND: Steps = (
    (
        "CREATE TABLE reports (report_id BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
        "CREATE TABLE tokens (hash BLOB PRIMARY KEY, spent INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
    ),
)

POSTGRES: Steps = (
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


def missing_steps(found: int, steps: Steps, where: str) -> list[tuple[int, Sequence[str]]]:
    """The versions still to be made, each with its statements; a store of a newer program is refused."""
    if found > len(steps):
        raise StoreError(
            f"{where} has version {found} of the store's layout; this program knows versions up to {len(steps)}. "
            "Run the program that wrote it, or a newer one.",
            found=found,
            known=len(steps),
        )
    return [(version, steps[version - 1]) for version in range(found + 1, len(steps) + 1)]
