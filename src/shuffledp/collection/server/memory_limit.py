"""Memory limits for incoming request bodies: admission, queueing, eviction of slow uploads.

Only bytes that have arrived count, and an upload counts as a report once it is complete: a slow sender takes nothing
from quick ones, and if memory runs short the slow uploads are evicted first. A report that finds the queue full waits a
little rather than be refused at once, since a sender who comes back costs as much as a report.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from starlette.types import Receive

from shuffledp.collection.server.bodies import read_body

_SLOW_SECONDS = 2.0
"""An upload that takes longer than this may be evicted."""


class MemoryLimitError(Exception):
    """Too much is in memory already."""


class MemoryLimit:
    """Limits on complete reports and on bytes. All methods are called in the event loop's thread."""

    def __init__(self, *, most_bytes: int, most_reports: int = 0, wait_seconds: float = 0.0) -> None:
        self._most_reports, self._most_bytes, self._wait_seconds = most_reports, most_bytes, wait_seconds
        self.reports = 0
        """Complete reports."""
        self.bytes = 0
        """Bytes of all uploads, complete or not."""
        self._arriving: dict[Upload, None] = {}
        """Incomplete uploads, the oldest first."""
        self._queue: deque[asyncio.Future[bool]] = deque()

    def upload(self) -> Upload:
        """For one request, in a ``with`` block, at whose end its memory is free again."""
        return Upload(self)

    def check(self, size: int) -> None:
        """Refuse an upload of an announced size that does not fit now; one alone may have any size."""
        if self.bytes and self.bytes + size > self._most_bytes:
            raise MemoryLimitError

    def _take_bytes(self, size: int, upload: Upload) -> None:
        """Count bytes that have arrived; one body may always arrive, however long it is."""
        while self.bytes + size > self._most_bytes and self.bytes > upload.bytes:
            oldest = next(iter(self._arriving), None)
            if oldest is None or oldest is upload or not oldest.is_slow():
                raise MemoryLimitError
            oldest.evict()
        self.bytes += size

    def _give_bytes(self, size: int) -> None:
        self.bytes -= size

    async def _enter(self) -> None:
        """Count one more complete report, after those that wait already."""
        if self.reports < self._most_reports:
            self.reports += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        while self._queue and self._queue[0].done():  # whose time is over
            self._queue.popleft()
        self._queue.append(turn)
        timer = loop.call_later(self._wait_seconds, _decide, turn, False)
        try:
            if not await turn:
                raise MemoryLimitError
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._leave()
            raise
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """The next in the queue takes the slot at once, so that nobody comes in between."""
        while self._queue:
            if _decide(self._queue.popleft(), True):
                return
        self.reports -= 1


class Upload:
    """One request body, and the memory it takes."""

    __slots__ = ("_entered", "_limit", "_since", "_task", "bytes", "evicted", "is_complete")

    def __init__(self, limit: MemoryLimit) -> None:
        self._limit, self._entered = limit, False
        self.bytes = 0
        self.is_complete = self.evicted = False
        self._task: asyncio.Task[object] | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        limit = self._limit
        limit._arriving.pop(self, None)
        limit._give_bytes(self.bytes)
        self.bytes = 0
        if self._entered:
            limit._leave()

    async def read(self, receive: Receive, most: int) -> bytes:
        """The complete body; else an error of ``read_body`` or a MemoryLimitError."""
        try:
            body = await read_body(receive, most=most, arrived=self._arrived)
        except asyncio.CancelledError:
            if not self.evicted or self._task is None:
                raise
            self._task.uncancel()
            raise MemoryLimitError from None
        self._limit._arriving.pop(self, None)
        self.is_complete = True
        return body

    async def enter(self) -> None:
        """Count as a complete report, if need be after waiting for others; else a MemoryLimitError."""
        await self._limit._enter()
        self._entered = True

    def is_slow(self) -> bool:
        """Whether it has been arriving for a long time."""
        return asyncio.get_running_loop().time() - self._since >= _SLOW_SECONDS

    def evict(self) -> None:
        """Interrupt the reading, and free the memory."""
        self.evicted = True
        self._limit._arriving.pop(self, None)
        self._limit._give_bytes(self.bytes)
        self.bytes = 0
        if self._task is not None:
            self._task.cancel()

    def _arrived(self, size: int, more: bool) -> None:
        self._limit._take_bytes(size, self)
        self.bytes += size
        if more and self._task is None:
            self._task, self._since = asyncio.current_task(), asyncio.get_running_loop().time()
            self._limit._arriving[self] = None


def _decide(turn: asyncio.Future[bool], outcome: bool) -> bool:
    """Whether it was undecided until now."""
    if turn.done():
        return False
    turn.set_result(outcome)
    return True
