"""Request bodies: declared type and length, reading, and the limit on the memory of all bodies together.

Memory limits: admission, queueing, eviction of slow uploads. Only bytes that have arrived count, and an upload counts
as a report once it is complete: slow senders take no memory from quick ones, and if memory runs short, slow uploads are
evicted first. A report that arrives when the queue is full waits a little before it is refused, since every retry costs
as much as a report.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from starlette.types import Receive, Scope

from shuffledp.collection.server.responses import problem

WRONG_TYPE = problem(415, "wrong-type", "The Content-Type of the request is not the one that is accepted here.")
_SLOW_SECONDS = 2.0
"""An upload that takes longer than this may be evicted."""


class TooLongError(Exception):
    """The body is longer than allowed."""


class DisconnectedError(Exception):
    """The sender disconnected before the end of the body."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of the first header with this lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def declared_length(scope: Scope) -> int | None:
    """The Content-Length of a request, if it is valid."""
    value = header(scope, b"content-length")
    return int(value) if value is not None and value.isdigit() and len(value) <= 18 else None


def has_type(scope: Scope, expected: bytes) -> bool:
    """Whether a request has exactly one Content-Type header, of this type with any parameters."""
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(types) == 1 and bytes(types[0]).partition(b";")[0].strip().lower() == expected


async def read_body(receive: Receive, *, max_bytes: int, arrived: Callable[[int, bool], None] | None = None) -> bytes:
    """The complete body; TooLongError as soon as it has more than ``max_bytes`` bytes.

    ``arrived`` is called with the size of every piece and whether more follows; an exception that it raises ends the
    reading. Senders that never finish are handled by the connection (``server.connections``).
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        content: bytes = message.get("body", b"")
        if len(content) > max_bytes:
            raise TooLongError
        if arrived is not None:
            arrived(len(content), False)
        return content
    body = bytearray()  # a list of pieces of two bytes would take twenty times as much memory
    while True:
        if message["type"] != "http.request":
            raise DisconnectedError
        piece = message.get("body", b"")
        if len(body) + len(piece) > max_bytes:
            raise TooLongError
        more = bool(message.get("more_body", False))
        if arrived is not None:
            arrived(len(piece), more)
        body += piece
        if not more:
            return bytes(body)
        message = await receive()


class MemoryLimitError(Exception):
    """The memory limit is reached."""


class MemoryLimit:
    """Limits on complete reports and on bytes. All methods are called in the event loop's thread."""

    def __init__(self, *, max_bytes: int, max_reports: int = 0, wait_seconds: float = 0.0) -> None:
        self._max_reports, self._max_bytes, self._wait_seconds = max_reports, max_bytes, wait_seconds
        self.reports = 0
        """Complete reports."""
        self.bytes = 0
        """Bytes of all uploads, complete or not."""
        self._arriving: dict[Upload, None] = {}
        """Incomplete uploads, the oldest first."""
        self._queue: deque[asyncio.Future[bool]] = deque()

    def upload(self) -> Upload:
        """A context manager for one request body; its memory counts until the block ends."""
        return Upload(self)

    def check(self, size: int) -> None:
        """Refuse an upload whose declared size does not fit now; a single upload may have any size."""
        if self.bytes and self.bytes + size > self._max_bytes:
            raise MemoryLimitError

    def _take_bytes(self, size: int, upload: Upload) -> None:
        """Count bytes that have arrived, and evict slow uploads if needed; a single upload is always allowed."""
        while self.bytes + size > self._max_bytes and self.bytes > upload.bytes:
            oldest = next(iter(self._arriving), None)
            if oldest is None or oldest is upload or not oldest.is_slow():
                raise MemoryLimitError
            oldest.evict()
        self.bytes += size

    def _release_bytes(self, size: int) -> None:
        self.bytes -= size

    async def _enter(self) -> None:
        """Count one more complete report; if the limit is reached, wait in the queue."""
        if self.reports < self._max_reports:
            self.reports += 1
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        while self._queue and self._queue[0].done():  # timed out
            self._queue.popleft()
        self._queue.append(waiter)
        timer = loop.call_later(self._wait_seconds, _resolve, waiter, False)
        try:
            if not await waiter:
                raise MemoryLimitError
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._leave()
            raise
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """Hand the slot to the next in the queue, so that no newer report takes it."""
        while self._queue:
            if _resolve(self._queue.popleft(), True):
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
        limit._release_bytes(self.bytes)
        self.bytes = 0
        if self._entered:
            limit._leave()

    async def read(self, receive: Receive, max_bytes: int) -> bytes:
        """The complete body; errors of ``read_body``, or MemoryLimitError if it was evicted."""
        try:
            body = await read_body(receive, max_bytes=max_bytes, arrived=self._arrived)
        except asyncio.CancelledError:
            if not self.evicted or self._task is None:
                raise
            self._task.uncancel()
            raise MemoryLimitError from None
        self._limit._arriving.pop(self, None)
        self.is_complete = True
        return body

    async def enter(self) -> None:
        """Count as a complete report, if necessary after waiting; MemoryLimitError after too long a wait."""
        await self._limit._enter()
        self._entered = True

    def is_slow(self) -> bool:
        """Whether it has been arriving for so long that it may be evicted."""
        return asyncio.get_running_loop().time() - self._since >= _SLOW_SECONDS

    def evict(self) -> None:
        """Cancel the reading, and release the memory."""
        self.evicted = True
        self._limit._arriving.pop(self, None)
        self._limit._release_bytes(self.bytes)
        self.bytes = 0
        if self._task is not None:
            self._task.cancel()

    def _arrived(self, size: int, more: bool) -> None:
        self._limit._take_bytes(size, self)
        self.bytes += size
        if more and self._task is None:
            self._task, self._since = asyncio.current_task(), asyncio.get_running_loop().time()
            self._limit._arriving[self] = None


def _resolve(waiter: asyncio.Future[bool], outcome: bool) -> bool:
    """Set the outcome of a waiter; False if it was already set."""
    if waiter.done():
        return False
    waiter.set_result(outcome)
    return True
