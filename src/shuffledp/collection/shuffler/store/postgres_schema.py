"""The schema of a PostgreSQL store: migrations, and checks of the server before it is used."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, connect

from shuffledp.collection.server.databases import Migrations, pending_migrations
from shuffledp.collection.shuffler.store.interface import StoreError
from shuffledp.collection.shuffler.store.postgres_errors import postgres_failures

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
WAIT_SECONDS = 10.0
_MIGRATION_LOCK = 0x5DF1  # an advisory lock; those of rounds are larger numbers

Row = tuple[Any, ...]


def migrate(connection: Connection[Row]) -> None:
    """Bring the schema up to date in one transaction; other processes that start meanwhile wait."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        if connection.execute("SELECT to_regclass('shuffledp.layout')").fetchone() == (None,):
            if connection.execute("SELECT to_regnamespace('shuffledp')").fetchone() == (None,):
                connection.execute("CREATE SCHEMA shuffledp")
            connection.execute("CREATE TABLE shuffledp.layout (version integer NOT NULL)")
            connection.execute("INSERT INTO shuffledp.layout VALUES (0)")
        row = connection.execute("SELECT version FROM shuffledp.layout").fetchone()
        for version, statements in pending_migrations(row[0] if row else 0, POSTGRES, "The database", error=StoreError):
            for statement in statements:
                connection.execute(statement.encode())
            connection.execute("UPDATE shuffledp.layout SET version = %s", (version,))


def check_durable(connection: Connection[Row]) -> None:
    """Refuse a server that may lose committed transactions."""
    row = connection.execute("SHOW fsync").fetchone()
    if row is None or row[0] != "on":
        raise StoreError("This PostgreSQL server runs with fsync = off and may lose accepted reports; turn it on.")


def check_database(address: str) -> None:
    """Raise StoreError if opening a store in a database would fail, as far as can be read; nothing is changed."""
    with postgres_failures(), connect(address, connect_timeout=int(WAIT_SECONDS)) as connection:
        connection.read_only = True
        check_durable(connection)
        if _value(connection, "SELECT to_regnamespace('shuffledp')") is None:
            if not _value(connection, "SELECT has_database_privilege(current_database(), 'CREATE')"):
                raise StoreError("The user of the PostgreSQL database may not create the schema shuffledp.")
            return
        for privilege in ("USAGE", "CREATE"):
            if not _value(connection, f"SELECT has_schema_privilege('shuffledp', '{privilege}')"):
                raise StoreError("The user of the PostgreSQL database may not create tables in the schema shuffledp.")
        if _value(connection, "SELECT to_regclass('shuffledp.layout')") is not None:
            version = _value(connection, "SELECT version FROM shuffledp.layout")
            pending_migrations(version or 0, POSTGRES, "The database", error=StoreError)


def _value(connection: Connection[Row], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]
