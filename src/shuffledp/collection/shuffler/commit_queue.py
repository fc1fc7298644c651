"""The commit queue: one thread commits waiting reports in groups while further reports arrive (group commit)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import SIZES, Metrics
from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, Store, StoreError

_MAX_IN_A_GROUP = 512
_MAX_BYTES_IN_A_GROUP = 1 << 23
_GROUP_DIVISOR = 3
"""The writer starts when the number of waiting reports is a third of the last group; further requests are read while it
writes. If it waited for all of them, reading and writing would alternate, and one of two cores would be idle."""
_CHECK_SECONDS = 1.0
_STUCK_SECONDS = 10.0  # a commit that takes longer indicates that the store hangs

_Waiting = tuple[Incoming, "asyncio.Future[ReportOutcome]"]


class CommitQueue:
    """The queue between requests and the store. All methods are called in the event loop's thread."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._waiting: deque[_Waiting] = deque()
        self._lock = Lock()
        self._writing = False
        """Whether the writer runs or is scheduled; guarded by ``_lock``, like ``_waiting``."""
        self._group_started = 0.0
        """When the writer began the current group."""
        self._start_threshold = _MAX_IN_A_GROUP
        """The number of waiting reports at which the writer starts before all arrived requests are read."""
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._checked: float | None = None
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self.failing = False
        """Whether the last attempt to write failed."""
        self._group_sizes = metrics.histogram("commit_reports", "Reports that became durable at once", SIZES)
        self._commit_seconds = metrics.histogram("commit_seconds", "Time to make a group durable")
        self._failures = metrics.counter("store_failures", "Groups that the store could not take")

    def submit(self, incoming: Incoming) -> asyncio.Future[ReportOutcome]:
        """A future for the outcome of the report, set once it is durable; StoreError if the store fails."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ReportOutcome] = loop.create_future()
        if not self._pending:
            self._idle.clear()
        self._pending += 1
        with self._lock:
            self._waiting.append((incoming, future))
            number = len(self._waiting)
        if number == 1:
            loop.call_soon(self._begin, loop)  # at the latest after the other requests that have just arrived
        if number == self._start_threshold:
            self._begin(loop)
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the writer, unless it runs or no report waits."""
        with self._lock:
            if self._writing or not self._waiting:
                return
            self._writing = True
        self._group_started = time.monotonic()
        self._writer.submit(self._write, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit groups until no report waits; in the writer's thread."""
        while group := self._next_group():
            self._group_started = started = time.monotonic()
            outcomes: list[ReportOutcome] = []
            error: Exception | None = None
            try:
                outcomes = self._store.accept([incoming for incoming, _ in group])
            except Exception as failure:  # noqa: BLE001  # any error must reach the waiting requests
                error = failure
            loop.call_soon_threadsafe(self._committed, group, outcomes, error, time.monotonic() - started)

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        with self._lock:
            while self._waiting and len(group) < _MAX_IN_A_GROUP and size < _MAX_BYTES_IN_A_GROUP:
                group.append(self._waiting.popleft())
                size += len(group[-1][0].body)
            self._writing = bool(group)
        if group:
            self._start_threshold = max(1, len(group) // _GROUP_DIVISOR)
        return group

    def _committed(
        self, group: list[_Waiting], outcomes: list[ReportOutcome], error: Exception | None, seconds: float
    ) -> None:
        """Set the outcomes of a group."""
        if error is None:
            self._group_sizes.observe(len(group))
            self._commit_seconds.observe(seconds)
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
        else:
            self._failures.inc()
            failure = error if isinstance(error, StoreError) else StoreError(type(error).__name__)
            for _, future in group:
                if not future.done():
                    future.set_exception(failure)
        self._note(error)
        self._pending -= len(group)
        if not self._pending:
            self._idle.set()

    def _note(self, error: BaseException | None) -> None:
        """Log when the store begins to fail and when it works again, not every failure."""
        if error is not None and not self.failing:
            reason = str(error) if isinstance(error, StoreError) else type(error).__name__
            event("store-fails", level=logging.ERROR, reason=reason)
        elif error is None and self.failing:
            event("store-works-again")
        self.failing = error is not None

    async def is_writable(self) -> bool:
        """Whether the last commit succeeded; without one in progress, check the store, at most once a second."""
        loop = asyncio.get_running_loop()
        if self._writing:
            return not self.failing and time.monotonic() < self._group_started + _STUCK_SECONDS
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
        """Wait until every submitted report has its outcome."""
        await self._idle.wait()
        self._writer.shutdown(wait=False)
