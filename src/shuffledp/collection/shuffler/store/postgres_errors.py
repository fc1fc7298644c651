"""Errors of PostgreSQL and of its connection pool, as StoreErrors and log events without addresses."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from psycopg import Error, OperationalError
from psycopg_pool import PoolTimeout

from shuffledp.collection.server.logs import event
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


_LOGGER = logging.getLogger("psycopg.pool")
_SECONDS = 60.0
_ARGUMENTS = re.compile(r"( in pool| in)? %r|: %s.*| after %s sec| %s")


class PoolLog(logging.Handler):
    """Each kind of record once a minute; the next one tells how many were left out since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._guard = Lock()
        self._kinds: dict[str, tuple[float, int]] = {}
        """When a kind was last logged, and how many were left out since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record, or count it."""
        text = _ARGUMENTS.sub("", str(record.msg))  # the arguments have parts of the address
        now = self._clock()
        with self._guard:
            logged_at, left_out = self._kinds.get(text, (-_SECONDS, 0))
            if now < logged_at + _SECONDS:
                self._kinds[text] = (logged_at, left_out + 1)
                return
            self._kinds[text] = (now, 0)
        arguments = record.args if isinstance(record.args, tuple) else ()
        error = next((each for each in arguments if isinstance(each, Error)), None)
        reason = None if error is None else reason_of(error)
        event("database-connection", level=record.levelno, text=text, reason=reason, left_out=left_out)


def log_pool() -> None:
    """Send what the pool logs through a PoolLog, for all stores of this process."""
    if not any(isinstance(each, PoolLog) for each in _LOGGER.handlers):
        _LOGGER.addHandler(PoolLog())
        _LOGGER.propagate = False
