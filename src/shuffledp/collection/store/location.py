"""Which store a setting names: a folder, or the address of a PostgreSQL database."""

from __future__ import annotations

from shuffledp.collection.store.interface import Store
from shuffledp.errors import MissingPackageError

__all__ = ["is_shared", "open_store"]

_POSTGRES = ("postgresql://", "postgres://")


def is_shared(location: str) -> bool:
    """Whether several processes can use the store together."""
    return location.startswith(_POSTGRES)


def open_store(location: str) -> Store:
    """The store at ``postgresql://...``, or in a folder, which is made if it is not there."""
    if not is_shared(location):
        from shuffledp.collection.store.sqlite import SqliteStore

        return SqliteStore(location)
    try:
        from shuffledp.collection.store.postgres import PostgresStore
    except ImportError:
        raise MissingPackageError("A PostgreSQL store needs psycopg: pip install 'shuffledp[postgres]'.") from None
    return PostgresStore(location)
