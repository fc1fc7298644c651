"""Simulation of many devices: each has its own value, randomness and report id, on a few connections.

They exist in memory only. A real device is a ``Client``, which stores its report durably.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shuffledp.collection.device.client import sealed_report
from shuffledp.collection.device.sending import Patience, deliver, reports_path
from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Connection
from shuffledp.errors import ParameterError, RefusedError, ShuffledpError, UnreachableError

_POLL_SECONDS = 0.1  # maximum delay until an interrupt is handled
_UNREACHABLE = "unreachable"
_FATAL_STATUSES = (404, 410)  # every other device would get the same response


@dataclass
class Summary:
    """The outcomes of the reports."""

    devices: int
    delivered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Numbers of refused reports, by the reason of the server."""

    @property
    def unsent(self) -> int:
        """Devices that did not start, and the few that were interrupted before they had an answer."""
        return self.devices - self.delivered - self.refused.total()

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "devices": self.devices,
            "delivered": self.delivered,
            "refused": dict(sorted(self.refused.items())),
            "unsent": self.unsent,
        }


class Devices:
    """Simulated devices, one for each value, that report independently."""

    def __init__(
        self,
        task: Task,
        values: Sequence[Any],
        *,
        connect: Callable[[], Connection],
        connections: int = 8,
        patience: Patience | None = None,
        tokens: Sequence[str] | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        if connections < 1:
            raise ParameterError(f"The number of connections must be at least 1, not {connections}.")
        if tokens is not None and len(tokens) < len(values):
            raise ParameterError(f"{len(tokens):,} tokens are too few for {len(values):,} devices; each needs its own.")
        self._task, self._values, self._tokens = task, values, tokens
        self._connect, self._connections, self._patience = connect, connections, patience
        self._progress = progress
        self._remaining: Iterator[int] = iter(range(len(values)))
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.summary = Summary(len(values))

    def report(self) -> Summary:
        """Send one report of every device; stop once the round is closed or the server does not answer."""
        from concurrent.futures import ThreadPoolExecutor, wait  # slow to import, and not needed by a real device

        workers = min(self._connections, len(self._values))
        with ThreadPoolExecutor(max(workers, 1)) as pool:
            try:
                futures = [pool.submit(self._work) for _ in range(workers)]
                while wait(futures, timeout=_POLL_SECONDS).not_done:
                    pass  # lets the main thread handle signals
            finally:  # also after an interrupt: no further report starts
                self._stop.set()
        for future in futures:
            future.result()
        return self.summary

    def _work(self) -> None:
        try:
            with self._connect() as connection:
                while (device := self._next()) is not None:
                    self._count(*self._outcome(connection, device))
        except BaseException:
            self._stop.set()
            raise

    def _next(self) -> int | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._remaining, None)

    def _outcome(self, connection: Connection, device: int) -> tuple[str | None, bool]:
        """Why the report was refused, "" if it was accepted, None if interrupted; and whether to stop all devices."""
        report = sealed_report(self._task, self._values[device])
        token = self._tokens[device] if self._tokens is not None else None
        try:
            deliver(
                connection,
                reports_path(self._task),
                report,
                token=token,
                version=self._task.version,
                patience=self._patience,
                wait=self._pause,
            )
        except RefusedError as error:
            status = error.values["status"]
            return f"{status} {error.values['problem'] or ''}".strip(), status in _FATAL_STATUSES
        except UnreachableError:
            return _UNREACHABLE, True
        except _InterruptedError:
            return None, True
        return "", False

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _InterruptedError("The simulation was stopped.")

    def _count(self, reason: str | None, is_fatal: bool) -> None:
        with self._lock:
            if reason:
                self.summary.refused[reason] += 1
            elif reason is not None:
                self.summary.delivered += 1
            self._progress((self.summary.delivered + self.summary.refused.total()) / self.summary.devices)
            if is_fatal:
                self._stop.set()


class _InterruptedError(ShuffledpError):
    """A pause was interrupted."""
