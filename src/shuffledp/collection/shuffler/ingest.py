"""Rounds as a process of the role ``ingest`` sees them: it receives reports, and leaves every step to the mixer.

It has no keys and changes the state of no round. A task is served once the mixer has opened its round, so a process
without access to the round keys cannot collect reports that nobody will be able to open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.task_directory import reason_of
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.store.interface import DamagedRoundError, RoundState, Store
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.errors import DataError, ShuffledpError

_FAILURES_UNTIL_NOT_READY = 3


class NotOpenedError(ShuffledpError):
    """The mixer has not opened the round of a task yet."""


class IngestScheduler:
    """Reads new tasks and tokens at every tick, and whether the store can be reached."""

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        metrics: Metrics,
        *,
        tokens: TokenDirectory | None,
        tick: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tasks, self._store, self._tokens, self._tick, self._clock = tasks, store, tokens, tick, clock
        self._token_errors: dict[bytes, str] = {}
        self._failures = 0
        self._watcher: asyncio.Task[None] | None = None
        self._states = metrics.gauge("rounds", "Rounds by state", ["state"])

    def get(self, task_id: bytes) -> None:
        """No round is scheduled by this process."""

    def full(self, served: ServedTask) -> None:
        """The mixer notices by itself that a round is full."""

    @property
    def failing(self) -> bool:
        """Whether the store cannot be read."""
        return self._failures >= _FAILURES_UNTIL_NOT_READY

    def open_rounds(self) -> None:
        """Stop serving tasks whose rounds the mixer has not opened; they are offered again at every tick."""
        for served in self._tasks:
            try:
                self._admit(served)
            except ShuffledpError as error:
                self._tasks.postpone(served.name, str(error))

    def start(self) -> None:
        """Start reading, in the running event loop."""
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop reading."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    def _admit(self, served: ServedTask) -> None:
        if served.id not in self._store.rounds():
            raise NotOpenedError("Its round is not open in the store yet; the mixer opens it.")
        self._load_tokens(served)

    async def _watch(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._read)
            except Exception as error:  # noqa: BLE001  # the next tick tries again
                self._failures += 1
                if self._failures == 1:
                    event("rounds-unavailable", level=logging.ERROR, reason=reason_of(error))
            else:
                if self._failures:
                    event("rounds-available-again")
                self._failures = 0
            await asyncio.sleep(self._tick)

    def _read(self) -> None:
        self._tasks.refresh(self._admit)
        snapshot = self._store.snapshot()
        for state in RoundState:
            self._states.labels(state.value).set(sum(record.state is state for record in snapshot.rounds.values()))
        if isinstance(self._clock, RoundClock):
            self._clock()  # detect a jump of the clock even if no report arrives
            if snapshot.time is not None:
                self._clock.compare(snapshot.time)
            self._clock.save()
        for served in self._tasks:
            record = snapshot.rounds.get(served.id)
            if record is not None and record.state is RoundState.COLLECTING and record.error is None:
                self._refresh_tokens(served)

    def _refresh_tokens(self, served: ServedTask) -> None:
        """Read new tokens; the round continues with the tokens that it has if their file is invalid."""
        try:
            self._load_tokens(served)
        except DataError as error:
            if self._token_errors.get(served.id) != str(error):
                event("round-fails", level=logging.ERROR, task=served.name, reason=str(error))
            self._token_errors[served.id] = str(error)
        else:
            self._token_errors.pop(served.id, None)

    def _load_tokens(self, served: ServedTask) -> None:
        if self._tokens is not None:
            with suppress(DamagedRoundError):
                self._tokens.load_new(served.name, lambda hashes: self._store.add_tokens(served.id, hashes))
