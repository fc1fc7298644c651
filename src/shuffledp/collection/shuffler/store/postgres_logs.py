"""What the pool of connections logs, as events: its fixed text and the reason, without addresses, and not too often."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from threading import Lock

from psycopg import Error

from shuffledp.collection.server.logs import event
from shuffledp.collection.shuffler.store.postgres_failures import reason_of

__all__ = ["PoolLog", "log_pool"]

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
