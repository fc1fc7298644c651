"""Reports become durable in groups: as many as wait are committed at once, by one thread, while the next gather."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from shuffledp.collection.service.logs import event
from shuffledp.collection.service.metrics import SIZES, Metrics
from shuffledp.collection.store.interface import Incoming, Outcome, Store, StoreError

__all__ = ["Ingest"]

_MOST_IN_A_GROUP = 512
_MOST_BYTES_IN_A_GROUP = 1 << 23
_CHECK_SECONDS = 1.0

_Waiting = tuple[Incoming, "asyncio.Future[Outcome]"]


class Ingest:
    """The queue between requests and the store. All methods are called in the event loop's thread."""

    def __init__(self, store: Store, metrics: Metrics, *, most_reports: int, most_bytes: int) -> None:
        self._store = store
        self._most_reports, self._most_bytes = most_reports, most_bytes
        self._reports = self._bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._committing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._checked: float | None = None
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self.failing = False
        """Whether the last attempt to write failed."""
        self._group_sizes = metrics.histogram("commit_reports", "Reports that became durable at once", SIZES)
        self._commit_seconds = metrics.histogram("commit_seconds", "Time to make a group durable")
        self._failures = metrics.counter("store_failures", "Groups that the store could not take")
        metrics.gauge("waiting_reports", "Reports that are read or wait to become durable").set_function(
            lambda: self._reports
        )

    def enter(self, size: int) -> bool:
        """Whether there is room for one more report of that many bytes; if so it is taken until ``leave``."""
        if self._reports >= self._most_reports or (self._bytes + size > self._most_bytes and self._reports):
            return False
        self._reports += 1
        self._bytes += size
        return True

    def leave(self, size: int) -> None:
        """Give back what ``enter`` took."""
        self._reports -= 1
        self._bytes -= size

    def submit(self, incoming: Incoming) -> asyncio.Future[Outcome]:
        """What becomes of the report, once that is durable; StoreError if the store fails."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((incoming, future))
        if not self._committing:
            self._committing = True
            self._idle.clear()
            loop.call_soon(self._commit)  # after the other requests that have just arrived
        return future

    def _commit(self) -> None:
        """Hand a group to the writer."""
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < _MOST_IN_A_GROUP and size < _MOST_BYTES_IN_A_GROUP:
            group.append(self._waiting.popleft())
            size += len(group[-1][0].body)
        loop = asyncio.get_running_loop()
        started = loop.time()
        done = loop.run_in_executor(self._writer, self._store.accept, [incoming for incoming, _ in group])
        done.add_done_callback(lambda finished: self._committed(group, finished, loop.time() - started))

    def _committed(self, group: list[_Waiting], finished: asyncio.Future[list[Outcome]], seconds: float) -> None:
        """Tell those who wait, and go on with the next group."""
        if self._waiting:
            self._commit()  # first, so that the disk works while answers are sent
        else:
            self._committing = False
            self._idle.set()
        error = finished.exception()
        if error is None:
            self._group_sizes.observe(len(group))
            self._commit_seconds.observe(seconds)
            for (_, future), outcome in zip(group, finished.result(), strict=True):
                if not future.done():
                    future.set_result(outcome)
        else:
            self._failures.inc()
            failure = error if isinstance(error, StoreError) else StoreError(type(error).__name__)
            for _, future in group:
                if not future.done():
                    future.set_exception(failure)
        self._note(error)

    def _note(self, error: BaseException | None) -> None:
        """Log when the store begins to fail and when it works again, not each time."""
        if error is not None and not self.failing:
            reason = str(error) if isinstance(error, StoreError) else type(error).__name__
            event("store-fails", level=logging.ERROR, reason=reason)
        elif error is None and self.failing:
            event("store-works-again")
        self.failing = error is not None

    async def is_writable(self) -> bool:
        """Ask the store, in turn with the reports, at most once in a while: anybody may ask."""
        loop = asyncio.get_running_loop()
        if self._checked is None or loop.time() > self._checked + _CHECK_SECONDS:
            self._checked = loop.time()
            error: BaseException | None = None
            try:
                await loop.run_in_executor(self._writer, self._store.check)
            except StoreError as failure:
                error = failure
            self._note(error)
        return not self.failing

    async def finish(self) -> None:
        """Return when everything that was submitted is decided."""
        await self._idle.wait()
        self._writer.shutdown(wait=False)
