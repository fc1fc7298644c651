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
    """Failed attempts at one step: their number, the last error, and the pause before the next attempt."""

    failures: int = 0
    last_error: str = ""
    """The reason that was logged last, so that it is logged once."""

    def fail(self, reason: str) -> bool:
        """Count a failed attempt; whether its reason differs from the last one and should be logged."""
        self.failures += 1
        return self.note(reason)

    def note(self, reason: str) -> bool:
        """Record a reason without counting an attempt; whether it differs from the last one."""
        is_new, self.last_error = reason != self.last_error, reason
        return is_new

    def succeed(self) -> None:
        """Reset after a success."""
        self.failures, self.last_error = 0, ""

    def pause_seconds(self, *, first: float, longest: float) -> float:
        """Seconds before the next attempt."""
        return backoff_seconds(self.failures, first=first, longest=longest)


async def wait_for(wake: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most ``seconds``."""
    with suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), seconds)


async def repeat(
    step: Callable[[], Awaitable[None]], *, seconds: float, wake: asyncio.Event, failed: Callable[[Exception], None]
) -> None:
    """Run a step every ``seconds``, and when woken, until it raises ShutdownError; ``failed`` gets other errors."""
    while True:
        wake.clear()
        try:
            await step()
        except ShutdownError:
            return
        except Exception as error:  # noqa: BLE001  # the worker must not die: it tries again
            failed(error)
        await wait_for(wake, seconds)
