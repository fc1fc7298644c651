"""HTTP connections that cannot be held open for ever, nor fill the memory, nor be too many, and that get their answer.

A connection on which an answer was given before the request had arrived lingers: what still comes is read and thrown
away for a short while. Closed at once, the operating system would tell the peer of a reset, and the peer would never
read why it was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shuffledp.collection.service.problems import Answer, problem

__all__ = ["GuardedConnection", "guarded_connections"]

_TOO_MANY = problem(503, "overloaded", "Too many connections; come back later.", retry_after=5, close=True)
_TOO_SLOW = problem(408, "too-slow", "The request took too long to arrive.", close=True)
_HEADERS_TOO_LARGE = problem(431, "headers-too-large", "The headers of the request are too large.", close=True)
_TOO_EAGER = problem(429, "too-eager", "Too many requests without waiting for an answer.", close=True)
_NO_UPGRADE = problem(400, "no-upgrade", "Nothing but HTTP/1.1 is spoken here.", close=True)
_NOT_HTTP = problem(400, "not-http", "This is no valid HTTP request.", close=True)


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; one timer a connection, so that a request costs nothing more."""

    most_connections: ClassVar[int] = 4096
    most_header_bytes: ClassVar[int] = 1 << 16
    most_waiting: ClassVar[int] = 16
    """Requests that may follow one that is not answered yet."""
    request_seconds: ClassVar[float] = 30.0
    """A request must have arrived within twice this time; who takes nothing of an answer for so long is given up."""
    linger_seconds: ClassVar[float] = 2.0
    linger_bytes: ClassVar[int] = 1 << 24

    @staticmethod
    def refused(problem: str) -> None:
        """Told the name of the problem when a connection is refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many, else watch it."""
        super().connection_made(_Guarded(transport, self))
        self._number, self._watched = 0, -1
        self._arriving = self._in_headers = self._deaf = self._stuck = False
        self._header_bytes = self._thrown_away = 0
        self._reason = _NOT_HTTP
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most_connections:
            self._refuse(_TOO_MANY)
        else:
            self._later(self.request_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching; whoever waits for the rest of a request need not."""
        if self._watch is not None:
            self._watch.cancel()
        if self._running is not None and self._running is not self.cycle:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of headers; the rest is uvicorn's."""
        if self._deaf or self.transport.is_closing():
            self._thrown_away += len(data)
            if self._thrown_away > self.linger_bytes:
                self.transport.abort()
            return
        if self._in_headers or not self._arriving:
            self._header_bytes += len(data)
        try:
            super().data_received(data)
        except (ValueError, httptools.HttpParserError):  # a target that is no ASCII or no URL
            self._refuse(_NOT_HTTP)
            return
        if self._in_headers and self._header_bytes > self.most_header_bytes:
            self._refuse(_HEADERS_TOO_LARGE)

    def resume_writing(self) -> None:
        """The other side takes what is sent, however slowly."""
        self._stuck = False
        super().resume_writing()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._number += 1
        self._arriving = self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        if self.parser.should_upgrade():
            raise self._because(_NO_UPGRADE)
        if self._header_bytes > self.most_header_bytes:  # with what came in the same piece: look closer
            length = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if length > self.most_header_bytes:
                raise self._because(_HEADERS_TOO_LARGE)
        if len(self.pipeline) >= self.most_waiting:
            raise self._because(_TOO_EAGER)
        self._in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there."""
        self._arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What uvicorn says to something that the parser does not take."""
        self._refuse(self._reason)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _because(self, reason: Answer) -> ValueError:
        """Raised through the parser, this ends the connection with the reason."""
        self._reason = reason
        return ValueError(reason.status)

    def _later(self, seconds: float, do: Any) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_later(seconds, do)

    def _look(self) -> None:
        """Give up on what has not moved since the last look: a request that arrives, an answer that nobody reads."""
        if self._number == 0 or (self._arriving and self._number == self._watched and not self._deaf):
            self._refuse(_TOO_SLOW)
            return
        if self._stuck and self.flow.write_paused:
            self.transport.abort()
            return
        self._stuck = self.flow.write_paused
        self._watched = self._number if self._arriving else -1
        self._later(self.request_seconds, self._look)

    def _refuse(self, answer: Answer) -> None:
        """Listen no longer; let whole requests before be answered, else say why; then hang up."""
        if self._deaf:
            return
        self.refused(answer.problem)
        self._deaf = True
        broken = self.cycle if self._arriving and not self._in_headers else None
        if self.pipeline and self.pipeline[0][0] is broken:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._running
        if last is not None and last is not broken and not last.response_complete:
            last.keep_alive = False  # and so uvicorn hangs up after it
            return
        if broken is None or not broken.response_started:
            lines: list[Any] = [STATUS_LINE[answer.status], b"content-length: %d\r\n" % len(answer.body)]
            lines += [b"%s: %s\r\n" % each for each in answer.headers]
            self.transport.write(b"".join([*lines, b"\r\n", answer.body]))
        if broken is not None and not broken.response_complete:
            broken.disconnected = True
            broken.message_event.set()
        self.transport.close()

    def hang_up(self, transport: asyncio.Transport) -> None:
        """Close the transport: at once when the whole request was read, else after lingering."""
        if transport.is_closing():
            return

        def end() -> None:
            self._later(self.request_seconds, transport.abort)  # to a peer that never reads nothing can be sent
            transport.close()

        if not (self._arriving or self._deaf):
            end()
            return
        if transport.can_write_eof():
            transport.write_eof()
        self.flow.resume_reading()
        self._later(self.linger_seconds, end)


class _Guarded(asyncio.Transport):
    """A connection's transport; that it is closed goes through the connection, which may linger."""

    __slots__ = ("_connection", "_ended", "_inner", "get_extra_info", "pause_reading", "resume_reading")

    def __init__(self, inner: asyncio.Transport, connection: GuardedConnection) -> None:
        self._inner, self._connection, self._ended = inner, connection, False
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; after the end nothing more."""
        if not self._ended:
            self._inner.write(data)

    def is_closing(self) -> bool:
        """Whether it is closed or lingers."""
        return self._ended or self._inner.is_closing()

    def close(self) -> None:
        """End it, if it is not ended."""
        if not self._ended:
            self._ended = True
            self._connection.hang_up(self._inner)

    def abort(self) -> None:
        """End it now."""
        self._ended = True
        self._inner.abort()


def guarded_connections(
    *,
    most_connections: int,
    request_seconds: float,
    most_header_bytes: int = 1 << 16,
    refused: Callable[[str], None] = lambda _: None,
) -> type[GuardedConnection]:
    """The class of connections with these limits, as uvicorn wants it."""
    limits = {
        "refused": staticmethod(refused),
        "most_connections": most_connections,
        "most_header_bytes": most_header_bytes,
        "request_seconds": request_seconds,
    }
    return type("LimitedConnection", (GuardedConnection,), limits)
