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

_PERMANENT = (
    (r"authentication failed|no password supplied|role \S+ does not exist", "it refused the user or the password"),
    (r"not permitted to log in", "it refused the user or the password"),
    (
        r"database \S+ does not exist|permission denied for database",
        "the database does not exist or is not permitted",
    ),
    (r"pg_hba\.conf", "its pg_hba.conf rejects this user from this host, or requires TLS"),
)
_TEMPORARY = (
    (r"too many (clients|connections)|connection slots", "it has too many connections"),
    (r"translate host name|Name or service not known|name resolution", "its host name cannot be resolved"),
    (r"starting up|shutting down|recovery mode|not yet accepting", "it is starting or stopping"),
    (r"Connection refused|No such file|timed? ?out|timeout|unreachable|No route", "nothing answers at its address"),
    (r"closed the connection|Connection reset|terminating connection", "it ended the connection"),
)
_REASONS = (*_PERMANENT, *_TEMPORARY, (r"certificate|SSL", "the TLS handshake failed"))
"""Patterns of PostgreSQL's messages for refused connections, in English; messages in other languages do not match."""
_TEMPORARY_CODES = ("25P03", "40P01", "53300", "55P03", "57P01", "57P02", "57P03")
"""A transaction was idle for too long; a deadlock; too many connections; a lock is held for too long; the server is
stopping, crashed or starting."""


@contextmanager
def postgres_failures() -> Iterator[None]:
    """Raise errors of the database and of the connection as StoreErrors."""
    try:
        yield
    except PoolTimeout:
        raise UnreachableStoreError("The PostgreSQL server cannot be reached, or is too busy.") from None
    except OperationalError as error:
        kind = UnreachableStoreError if _is_temporary(error) else StoreError
        raise kind(f"The PostgreSQL server cannot be used: {postgres_reason(error)}.") from None
    except Error as error:
        kind = UnreachableStoreError if error.sqlstate in _TEMPORARY_CODES else StoreError
        raise kind(f"PostgreSQL reported an error: {postgres_reason(error)}.") from None


def _is_temporary(error: Error) -> bool:
    """Whether a later attempt may succeed without any change."""
    if error.sqlstate is not None:
        return error.sqlstate in _TEMPORARY_CODES
    return _recognized_reason(error) in [reason for _, reason in _TEMPORARY]


def _recognized_reason(error: Error) -> str | None:
    """The reason for an error message, if a pattern matches."""
    return next((reason for pattern, reason in _REASONS if re.search(pattern, str(error))), None)


def postgres_reason(error: Error) -> str:
    """The first line of the server's message; further lines may quote data.

    Messages of the client library are not repeated: they quote parts of the URL, and so of the password.
    """
    message = error.diag.message_primary
    if message:
        return message.splitlines()[0].rstrip(".")
    return _recognized_reason(error) or "it cannot be reached, or its address or its password is wrong"


_LOGGER = logging.getLogger("psycopg.pool")
_LOG_INTERVAL_SECONDS = 60.0
_ARGUMENTS = re.compile(r"( in pool| in)? %r|: %s.*| after %s sec| %s")


class PoolLog(logging.Handler):
    """Logs each kind of record at most once a minute, with the number of records omitted since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._guard = Lock()
        self._kinds: dict[str, tuple[float, int]] = {}
        """When a kind was last logged, and how many were omitted since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record, or count it."""
        template = _ARGUMENTS.sub("", str(record.msg))  # the arguments contain parts of the URL
        now = self._clock()
        with self._guard:
            logged_at, left_out = self._kinds.get(template, (-_LOG_INTERVAL_SECONDS, 0))
            if now < logged_at + _LOG_INTERVAL_SECONDS:
                self._kinds[template] = (logged_at, left_out + 1)
                return
            self._kinds[template] = (now, 0)
        arguments = record.args if isinstance(record.args, tuple) else ()
        error = next((argument for argument in arguments if isinstance(argument, Error)), None)
        reason = None if error is None else postgres_reason(error)
        event("database-connection", level=record.levelno, text=template, reason=reason, left_out=left_out)


def log_pool() -> None:
    """Route the log records of connection pools through a PoolLog, once per process."""
    if not any(isinstance(handler, PoolLog) for handler in _LOGGER.handlers):
        _LOGGER.addHandler(PoolLog())
        _LOGGER.propagate = False
