"""Scheduling of background work in a server: retries with growing pauses, periodic steps, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from shuffledp.collection.transport.connection import backoff_seconds


class ShutdownError(Exception):
    """The server was asked to stop; the interrupted step is repeated after the next start."""


@dataclass
class Retries:
    """The failed attempts at one piece of work: how many, why, and how long to wait."""

    failures: int = 0
    last_error: str = ""
    """The reason that was last logged, so that it is logged once."""

    def fail(self, reason: str) -> bool:
        """Count a failed attempt; whether its reason is to be logged, because it is not that of the last one."""
        self.failures += 1
        return self.note(reason)

    def note(self, reason: str) -> bool:
        """Remember a reason that is no failed attempt; whether it is to be logged."""
        is_new, self.last_error = reason != self.last_error, reason
        return is_new

    def succeed(self) -> None:
        """Forget the failures."""
        self.failures, self.last_error = 0, ""

    def pause_seconds(self, *, first: float, longest: float) -> float:
        """How long to wait before the next attempt."""
        return backoff_seconds(self.failures, first=first, longest=longest)


async def wait_for(wake: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), seconds)


async def repeat(
    step: Callable[[], Awaitable[None]], *, seconds: float, wake: asyncio.Event, failed: Callable[[Exception], None]
) -> None:
    """Do a step every so many seconds, and at once when woken, until it raises ShutdownError; other errors are told."""
    while True:
        wake.clear()
        try:
            await step()
        except ShutdownError:
            return
        except Exception as error:  # noqa: BLE001  # the worker must not die: it tries again
            failed(error)
        await wait_for(wake, seconds)
