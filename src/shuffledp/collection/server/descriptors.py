"""The limit on open files (RLIMIT_NOFILE) against the number of connections that a server is to have."""

from __future__ import annotations

import logging
import resource

from shuffledp.collection.server.connections import SPARE_CONNECTIONS
from shuffledp.collection.server.logs import event
from shuffledp.errors import DataError

_OTHER_FILES = 256
"""Descriptors for everything but connections of the server: stores, batches, logs, its own connections to others."""
_FEWEST = 16


def possible_connections(wanted: int) -> int:
    """As many of the wanted connections as the hard limit on open files allows; DataError if that is next to none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return wanted
    possible = hard - SPARE_CONNECTIONS - _OTHER_FILES
    if possible < min(wanted, _FEWEST):
        needed = wanted + SPARE_CONNECTIONS + _OTHER_FILES
        raise DataError(
            f"This process may have {hard:,} open files, and {wanted:,} connections need {needed:,}: raise the hard "
            "limit (ulimit -Hn, LimitNOFILE= of systemd)."
        )
    return min(wanted, possible)


def reserve_connections(wanted: int) -> int:
    """Raise this process's limit on open files for so many connections; how many there can be, if that is fewer.

    Without descriptors a server can neither take a connection nor open a file of its store.
    """
    possible = possible_connections(wanted)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = possible + SPARE_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    if possible < wanted:
        event("connections-limited", level=logging.WARNING, wanted=wanted, possible=possible, open_files=hard)
    return possible
