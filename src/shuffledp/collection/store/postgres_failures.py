"""What goes wrong with PostgreSQL, as errors of the store: the reason in words, and nothing of the address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Error, OperationalError
from psycopg_pool import PoolTimeout

from shuffledp.collection.store.interface import StoreError

__all__ = ["postgres_failures"]

_REASONS = (
    (r"authentication failed|no password supplied|role \S+ does not exist", "it refused the user or the password"),
    (r"not permitted to log in", "it refused the user or the password"),
    (r"database \S+ does not exist|permission denied for database", "it has no such database, or not for this user"),
    (r"pg_hba\.conf", "it does not let this user in from here, or not without TLS"),
    (r"too many (clients|connections)|connection slots", "it has too many connections"),
    (r"translate host name|Name or service not known", "its host is not known"),
    (r"Connection refused|No such file|timed? ?out|timeout|unreachable|No route", "nothing answers at its address"),
    (r"certificate|SSL", "TLS to it fails"),
)
"""What PostgreSQL says of a connection that it does not take. The texts in other languages are not known here."""


@contextmanager
def postgres_failures() -> Iterator[None]:
    """Turn errors of the database and of the way to it into StoreErrors."""
    try:
        yield
    except PoolTimeout:
        raise StoreError("The PostgreSQL server cannot be reached, or is too busy.") from None
    except OperationalError as error:
        raise StoreError(f"The PostgreSQL server cannot be used: {_first_line(error)}.") from None
    except Error as error:
        raise StoreError(f"PostgreSQL refused: {_first_line(error)}.") from None


def _first_line(error: Error) -> str:
    """What the server said, without the data that it may quote in further lines.

    What the library says by itself is not repeated: it quotes parts of the address, and so of the password.
    """
    told = error.diag.message_primary
    if told:
        return told.splitlines()[0].rstrip(".")
    text = str(error)
    known = (reason for pattern, reason in _REASONS if re.search(pattern, text))
    return next(known, "it cannot be reached, or its address or its password is wrong")
