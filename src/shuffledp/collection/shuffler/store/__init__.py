"""Durable storage of the shuffler: SQLite in a directory for one process, PostgreSQL for several."""

from __future__ import annotations

from pathlib import Path

from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, RoundState, Store, StoreError
from shuffledp.errors import MissingPackageError

__all__ = ["Incoming", "ReportOutcome", "RoundState", "Store", "StoreError", "check_store", "is_shared", "open_store"]

_POSTGRES = ("postgresql://", "postgres://")


def is_shared(location: str) -> bool:
    """Whether several processes can use the store together."""
    return location.startswith(_POSTGRES)


def open_store(location: str, *, cache_bytes: int | None = None) -> Store:
    """The store at ``postgresql://...``, or in a directory, which is created if it does not exist.

    ``cache_bytes`` is the memory of SQLite for pages of all rounds; PostgreSQL has its own.
    """
    if not is_shared(location):
        from shuffledp.collection.shuffler.store.sqlite import CACHE_BYTES, SqliteStore

        return SqliteStore(location, cache_bytes=CACHE_BYTES if cache_bytes is None else cache_bytes)
    try:
        from shuffledp.collection.shuffler.store.postgres import PostgresStore
    except ImportError:
        raise _missing() from None
    return PostgresStore(location)


def check_store(location: str) -> None:
    """Raise a StoreError if opening the store would fail, as far as that can be checked without changing anything."""
    if not is_shared(location):
        from shuffledp.collection.shuffler.store.sqlite import check_store_directory

        check_store_directory(Path(location))
        return
    try:
        from shuffledp.collection.shuffler.store.postgres_schema import check_database
    except ImportError:
        raise _missing() from None
    check_database(location)


def _missing() -> MissingPackageError:
    return MissingPackageError("A PostgreSQL store needs psycopg: pip install 'shuffledp[postgres]'.")
