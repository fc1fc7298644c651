"""How much of what devices send is in memory at a time, and who has to go when there is no more room.

Only bytes that have arrived count, and a report counts once it is here whole: a sender who is slow takes no room from
quick ones, and if memory runs short the slow ones are sent away first. A report that finds too many before it waits a
little rather than be refused at once, since a sender who comes back costs as much as a report.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from starlette.types import Receive

from shuffledp.collection.server.bodies import read_body

__all__ = ["NoRoomError", "Place", "Room"]

_SLOW_SECONDS = 2.0
"""A body that is not here after this time may be sent away."""


class NoRoomError(Exception):
    """Too much is in memory already."""


class Room:
    """So many reports and bytes and no more. All is called in the event loop's thread."""

    def __init__(self, *, most_reports: int, most_bytes: int, patience: float) -> None:
        self._most_reports, self._most_bytes, self._patience = most_reports, most_bytes, patience
        self.reports = 0
        """Those that are here whole."""
        self.bytes = 0
        """Of all that have arrived, whole or not."""
        self._arriving: dict[Place, None] = {}
        """Bodies of which a part is here, those that began first before the others."""
        self._queue: deque[asyncio.Future[bool]] = deque()

    def place(self) -> Place:
        """For one report, within a ``with`` block, after which what it took is free again."""
        return Place(self)

    def _take_bytes(self, size: int, place: Place) -> None:
        """Count bytes that have arrived; one body may always arrive, however long it is."""
        while self.bytes + size > self._most_bytes and self.bytes > place.bytes:
            oldest = next(iter(self._arriving), None)
            if oldest is None or oldest is place or not oldest.is_slow():
                raise NoRoomError
            oldest.send_away()
        self.bytes += size

    def _give_bytes(self, size: int) -> None:
        self.bytes -= size

    async def _enter(self) -> None:
        """Take the place of a report, after those that wait for one already."""
        if self.reports < self._most_reports:
            self.reports += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        while self._queue and self._queue[0].done():  # whose patience ended
            self._queue.popleft()
        self._queue.append(turn)
        timer = loop.call_later(self._patience, _decide, turn, False)
        try:
            if not await turn:
                raise NoRoomError
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._leave()
            raise
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """The next that waits takes the place at once, so that nobody comes in between."""
        while self._queue:
            if _decide(self._queue.popleft(), True):
                return
        self.reports -= 1


class Place:
    """What one report takes of the room."""

    __slots__ = ("_entered", "_room", "_since", "_task", "bytes", "is_whole", "sent_away")

    def __init__(self, room: Room) -> None:
        self._room, self._entered = room, False
        self.bytes = 0
        self.is_whole = self.sent_away = False
        self._task: asyncio.Task[object] | None = None
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        room = self._room
        room._arriving.pop(self, None)
        room._give_bytes(self.bytes)
        self.bytes = 0
        if self._entered:
            room._leave()

    async def read(self, receive: Receive, most: int) -> bytes:
        """The body, once it is here whole; else an error of ``read_body`` or a NoRoomError."""
        try:
            body = await read_body(receive, most=most, arrived=self._arrived)
        except asyncio.CancelledError:
            if not self.sent_away or self._task is None:
                raise
            self._task.uncancel()
            raise NoRoomError from None
        self._room._arriving.pop(self, None)
        self.is_whole = True
        return body

    async def enter(self) -> None:
        """Be one of the reports that may wait, if need be after others; else a NoRoomError."""
        await self._room._enter()
        self._entered = True

    def is_slow(self) -> bool:
        """Whether it is arriving for a long time."""
        return asyncio.get_running_loop().time() - self._since >= _SLOW_SECONDS

    def send_away(self) -> None:
        """Break off the reading, and give back what it took."""
        self.sent_away = True
        self._room._arriving.pop(self, None)
        self._room._give_bytes(self.bytes)
        self.bytes = 0
        if self._task is not None:
            self._task.cancel()

    def _arrived(self, size: int, more: bool) -> None:
        self._room._take_bytes(size, self)
        self.bytes += size
        if more and self._task is None:
            self._task, self._since = asyncio.current_task(), asyncio.get_running_loop().time()
            self._room._arriving[self] = None


def _decide(turn: asyncio.Future[bool], outcome: bool) -> bool:
    """Whether it was undecided until now."""
    if turn.done():
        return False
    turn.set_result(outcome)
    return True
