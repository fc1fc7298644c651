"""What a shuffler's process changes about Python, for two threads that are both busy: requests and the store."""

from __future__ import annotations

import gc
import sys

__all__ = ["tune_process"]

_SWITCH_SECONDS = 0.0005
_OBJECTS = 20_000


def tune_process() -> None:
    """For a process that does nothing else.

    The thread that writes needs its turn only for moments, and devices wait for it. Requests that wait for the disk are
    many objects that live, through which the collector would go in vain, again and again.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
