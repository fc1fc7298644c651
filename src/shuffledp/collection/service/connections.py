"""HTTP connections that cannot be held open for ever, nor fill the memory with headers, nor be too many."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shuffledp.collection.service.problems import Answer, problem

__all__ = ["GuardedConnection", "guarded_connections"]

_TOO_MANY = problem(503, "overloaded", "Too many connections; come back later.", retry_after=5, close=True)
_TOO_SLOW = problem(408, "too-slow", "The request took too long to arrive.", close=True)
_HEADERS_TOO_LARGE = problem(431, "headers-too-large", "The headers of the request are too large.", close=True)
_NOT_HTTP = problem(400, "not-http", "This is no valid HTTP request.", close=True)


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; one timer a connection, so that a request costs nothing more."""

    most_connections: ClassVar[int] = 4096
    most_header_bytes: ClassVar[int] = 1 << 16
    request_seconds: ClassVar[float] = 30.0
    """A request must have arrived within twice this time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many, else watch it."""
        super().connection_made(transport)
        self._number, self._watched = 0, -1
        self._arriving = self._in_headers = False
        self._header_bytes = 0
        self._watch: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most_connections:
            self._refuse(_TOO_MANY)
        else:
            self._watch = self.loop.call_later(self.request_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of headers; the rest is uvicorn's."""
        if self.transport.is_closing():
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

    def on_message_begin(self) -> None:
        """A request begins."""
        self._number += 1
        self._arriving = self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is there."""
        self._arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What uvicorn says to something that is not HTTP."""
        self._refuse(_NOT_HTTP)

    def _look(self) -> None:
        """Give up on a request that was arriving at the last look as well, and on one that never began."""
        if self.transport.is_closing():
            return
        if self._number == 0 or (self._arriving and self._number == self._watched):
            self._refuse(_TOO_SLOW)
            return
        self._watched = self._number if self._arriving else -1
        self._watch = self.loop.call_later(self.request_seconds, self._look)

    def _refuse(self, answer: Answer) -> None:
        """Say why, unless an answer is under way already, and hang up."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            lines: list[Any] = [STATUS_LINE[answer.status], b"content-length: %d\r\n" % len(answer.body)]
            lines += [b"%s: %s\r\n" % each for each in answer.headers]
            self.transport.write(b"".join([*lines, b"\r\n", answer.body]))
        self.transport.close()


def guarded_connections(
    *, most_connections: int, request_seconds: float, most_header_bytes: int = 1 << 16
) -> type[GuardedConnection]:
    """The class of connections with these limits, as uvicorn wants it."""
    limits = {
        "most_connections": most_connections,
        "most_header_bytes": most_header_bytes,
        "request_seconds": request_seconds,
    }
    return type("LimitedConnection", (GuardedConnection,), limits)
