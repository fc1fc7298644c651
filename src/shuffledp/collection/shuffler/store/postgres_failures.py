"""What goes wrong with PostgreSQL, as errors of the store: the reason in words, and nothing of the address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Error, OperationalError
from psycopg_pool import PoolTimeout

from shuffledp.collection.shuffler.store.interface import StoreError, UnreachableStoreError

_LASTING = (
    (r"authentication failed|no password supplied|role \S+ does not exist", "it refused the user or the password"),
    (r"not permitted to log in", "it refused the user or the password"),
    (r"database \S+ does not exist|permission denied for database", "it has no such database, or not for this user"),
    (r"pg_hba\.conf", "it does not let this user in from here, or not without TLS"),
)
_PASSING = (
    (r"too many (clients|connections)|connection slots", "it has too many connections"),
    (r"translate host name|Name or service not known|name resolution", "its host is not known"),
    (r"starting up|shutting down|recovery mode|not yet accepting", "it is starting or stopping"),
    (r"Connection refused|No such file|timed? ?out|timeout|unreachable|No route", "nothing answers at its address"),
    (r"closed the connection|Connection reset|terminating connection", "it ended the connection"),
)
_REASONS = (*_LASTING, *_PASSING, (r"certificate|SSL", "TLS to it fails"))
"""What PostgreSQL says of a connection that it does not take. The texts in other languages are not known here."""
_PASSING_CODES = ("53300", "57P01", "57P02", "57P03")
"""Too many connections; the server is stopping, crashed or starting."""


@contextmanager
def postgres_failures() -> Iterator[None]:
    """Turn errors of the database and of the way to it into StoreErrors."""
    try:
        yield
    except PoolTimeout:
        raise UnreachableStoreError("The PostgreSQL server cannot be reached, or is too busy.") from None
    except OperationalError as error:
        kind = UnreachableStoreError if _may_pass(error) else StoreError
        raise kind(f"The PostgreSQL server cannot be used: {reason_of(error)}.") from None
    except Error as error:
        raise StoreError(f"PostgreSQL refused: {reason_of(error)}.") from None


def _may_pass(error: Error) -> bool:
    """Whether a later attempt may succeed without any change."""
    if error.sqlstate is not None:
        return error.sqlstate in _PASSING_CODES
    return _said(error) in [reason for _, reason in _PASSING]


def _said(error: Error) -> str | None:
    """The reason that the text of an error gives, if it is known."""
    return next((reason for pattern, reason in _REASONS if re.search(pattern, str(error))), None)


def reason_of(error: Error) -> str:
    """What the server said, without the data that it may quote in further lines.

    What the library says by itself is not repeated: it quotes parts of the address, and so of the password.
    """
    told = error.diag.message_primary
    if told:
        return told.splitlines()[0].rstrip(".")
    return _said(error) or "it cannot be reached, or its address or its password is wrong"
