"""HTTP connections with limits on their number, on the time of a request, and on every byte that they hold in memory.

Every byte that arrives is counted, as one of two kinds:

- A byte of a body. The application takes these and counts them (``server.bodies``).
- Any other byte: request line, headers, chunk sizes and their extensions, empty lines between requests. A request has
  one small budget for all of them. Trailers are refused.

What all connections together hold, and the application has not taken yet, has a limit of its own (``HeldBytes``). The
buffer that a TLS connection reads into is never made smaller: connections that had much to read and are idle have the
same limit again for their buffers.

A connection on which an answer was given before the request had arrived lingers: what still comes is read and thrown
away for a short while. Closed at once, the operating system would tell the peer of a reset, and the peer would never
read why it was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shuffledp.collection.server.responses import PreparedResponse, problem
from shuffledp.collection.server.tls import LimitedContext

_TOO_MANY = problem(503, "overloaded", "Too many connections; come back later.", retry_after=5, close=True)
_NO_MEMORY = problem(503, "overloaded", "Too much arrives at once; come back later.", retry_after=2, close=True)
_TOO_SLOW = problem(408, "too-slow", "The request took too long to arrive.", close=True)
_HEADERS_TOO_LARGE = problem(
    431, "headers-too-large", "The headers of the request, or what frames its body, are too large.", close=True
)
_NO_TRAILERS = problem(400, "no-trailers", "Fields after a body (trailers) are not accepted.", close=True)
_TOO_EAGER = problem(429, "too-eager", "Too many requests without waiting for an answer.", close=True)
_NO_UPGRADE = problem(400, "no-upgrade", "Nothing but HTTP/1.1 is spoken here.", close=True)
_NOT_HTTP = problem(400, "not-http", "This is no valid HTTP request.", close=True)

SPARE_CONNECTIONS = 64
"""Connections beyond the limit that are told so; further ones are closed without an answer."""
_PIECE_BYTES = 1 << 14
"""The parser gets at most this much at a time, so that a limit is noticed soon."""
_BYTES_PER_CHUNK = 32
"""What a chunk counts for on top of its bytes, since it takes time: each is a call of Python code."""
_LARGE_BUFFER_BYTES = 1 << 18
"""What the event loop reads into for a TLS connection; as much of it as was ever filled stays in memory."""
_BODY_PER_OTHER_BYTE = 64
"""So much body earns a byte of what is not: in chunks of some kilobytes it may have any length."""


class HeldBytes:
    """What all connections together hold of requests, until the application takes it. In the event loop's thread.

    Connections are counted anew when that much has arrived since the last count that the limit could be exceeded. If
    they do hold too much, requests that have been arriving for longest are given up, so that those who send quickly
    are served.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._spare = most_bytes

    def arrived(self, size: int, connections: Iterable[GuardedConnection]) -> None:
        """Count bytes that have arrived; this may end connections."""
        self._spare -= size
        if self._spare < 0:
            self._count(connections)

    def _count(self, connections: Iterable[GuardedConnection]) -> None:
        held = [(each, each.held_bytes()) for each in connections]
        total = sum(size for _, size in held)
        if total > self._most * 3 // 4:
            for connection, size in sorted(held, key=lambda each: each[0].arriving_since):
                if total <= self._most // 2:
                    break
                if size and connection.give_up():
                    total -= size
        self._spare = max(self._most - total, self._most // 8)
        self._end_idle([connection for connection, _ in held if connection.has_large_buffer])

    def _end_idle(self, large: list[GuardedConnection]) -> None:
        """End idle connections whose buffers together are larger than the limit."""
        excess = len(large) - self._most // _LARGE_BUFFER_BYTES
        for connection in sorted(large, key=lambda each: each.arriving_since):
            if excess <= 0:
                break
            excess -= connection.end_if_idle()


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; one timer a connection, so that a request costs nothing more."""

    most_connections: ClassVar[int] = 4096
    most_header_bytes: ClassVar[int] = 1 << 14
    """Of a request's line, headers and everything else that is not its body."""
    most_headers: ClassVar[int] = 100
    most_waiting: ClassVar[int] = 16
    """Requests that may follow one that is not answered yet."""
    request_seconds: ClassVar[float] = 30.0
    """A request must have arrived within twice this time; who takes nothing of an answer for so long is given up."""
    linger_seconds: ClassVar[float] = 2.0
    linger_bytes: ClassVar[int] = 1 << 24
    held: ClassVar[HeldBytes] = HeldBytes(1 << 26)

    @staticmethod
    def refused(problem: str) -> None:
        """Told the name of the problem when a connection is refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many, else watch it."""
        super().connection_made(_Guarded(transport, self))
        self._is_tls, self.has_large_buffer = hasattr(transport, "set_read_buffer_limits"), False
        if self._is_tls:  # which reads on for a while when it is to pause
            transport.set_read_buffer_limits(high=_PIECE_BYTES)  # type: ignore[attr-defined]
        self._number, self._watched, self._watched_idle = 0, -1, -1
        self._arriving = self._in_headers = self._deaf = self._stuck = False
        self._other_bytes = self._body_bytes = self._thrown_away = 0
        self._body_in_piece, self._ended_in_piece = 0, False
        self._reason = _NOT_HTTP
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.arriving_since = self.loop.time()
        """Of the request that arrives, or arrived last."""
        others = len(self.connections)
        if others > self.most_connections + SPARE_CONNECTIONS:
            self.refused(_TOO_MANY.problem)
            self._deaf = True
            self.transport.abort()
        elif others > self.most_connections:
            self._refuse(_TOO_MANY)
        else:
            self._later(self.request_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching; whoever waits for the rest of a request need not."""
        if self._watch is not None:
            self._watch.cancel()
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None and isinstance(tls.context, LimitedContext):
            tls.context.forget(tls)
        if self._running is not None and self._running is not self.cycle:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        if isinstance(self.transport, _Guarded):
            self.transport.let_go()

    def data_received(self, data: bytes) -> None:
        """Count what is not body, and what is held; the rest is uvicorn's."""
        if self._is_tls and len(data) > _PIECE_BYTES:
            self.has_large_buffer = True
        if len(data) <= _PIECE_BYTES:
            self._piece_received(data)
            return
        whole = memoryview(data)
        for start in range(0, len(data), _PIECE_BYTES):
            self._piece_received(whole[start : start + _PIECE_BYTES])

    def _piece_received(self, piece: bytes | memoryview) -> None:
        if self._deaf or self.transport.is_closing():
            self._throw_away(len(piece))
            return
        if not self._arriving:
            self.arriving_since = self.loop.time()
        self._body_in_piece, self._ended_in_piece = 0, False
        try:
            super().data_received(piece)  # type: ignore[arg-type]
        except (ValueError, httptools.HttpParserError):  # a target that is no ASCII or no URL
            self._refuse(_NOT_HTTP)
            return
        if self._deaf:
            return
        if self._ended_in_piece:  # where in the piece is not known: count what is known of the request after it
            self._other_bytes = self._length_of_headers() if self._in_headers else 0
        else:
            self._other_bytes += len(piece) - self._body_in_piece
        if self._is_over_budget():
            self._refuse(_HEADERS_TOO_LARGE)
            return
        self.held.arrived(len(piece), self.connections)  # type: ignore[arg-type]

    def _is_over_budget(self) -> bool:
        return self._other_bytes > self.most_header_bytes + self._body_bytes // _BODY_PER_OTHER_BYTE

    def _throw_away(self, size: int) -> None:
        self._thrown_away += size
        if self._thrown_away > self.linger_bytes:
            self.transport.abort()

    def _length_of_headers(self) -> int:
        """Of the request whose headers arrive, as far as they are parsed."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def held_bytes(self) -> int:
        """What is in memory because of this connection, apart from what the application has taken."""
        cycles = {id(cycle): cycle for cycle in (self._running, self.cycle, *(queued for queued, _ in self.pipeline))}
        held = self._other_bytes
        for cycle in cycles.values():
            if cycle is not None and not cycle.response_complete:
                held += len(cycle.body) + sum(len(name) + len(value) for name, value in cycle.scope["headers"])
        return held

    def give_up(self) -> bool:
        """End this connection, if that frees memory: what arrives, and what waits for its turn, is dropped."""
        if self._deaf or not (self._arriving or self._other_bytes or self.pipeline):
            return False
        self.pipeline.clear()
        if self._running is not None and self._running is not self.cycle:
            self.cycle = self._running  # what came after it is gone
            self._arriving = self._in_headers = False
        self._refuse(_NO_MEMORY)
        return True

    def end_if_idle(self) -> bool:
        """End this connection at once, if nothing arrives and nothing is answered; whether it did."""
        if self._deaf or self._arriving or self._other_bytes or self.pipeline or self._is_answering():
            return False
        self._deaf = True
        self.transport.abort()
        return True

    def resume_writing(self) -> None:
        """The other side takes what is sent, however slowly."""
        self._stuck = False
        super().resume_writing()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._number += 1
        self._thrown_away = self._body_bytes = 0
        self._arriving = self._in_headers = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if not self._in_headers:
            raise self._because(_NO_TRAILERS)
        if len(self.headers) >= self.most_headers:
            raise self._because(_HEADERS_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        if self.parser.should_upgrade():
            raise self._because(_NO_UPGRADE)
        if self._length_of_headers() > self.most_header_bytes:
            raise self._because(_HEADERS_TOO_LARGE)
        if len(self.pipeline) >= self.most_waiting:
            raise self._because(_TOO_EAGER)
        self._in_headers = False
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A chunk of the body begins."""
        self._other_bytes += _BYTES_PER_CHUNK
        if self._is_over_budget():
            raise self._because(_HEADERS_TOO_LARGE)

    def on_body(self, body: bytes) -> None:
        """A part of the body; what nobody will read any more is thrown away, but not for ever."""
        self._body_in_piece += len(body)
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._throw_away(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is there."""
        self._arriving = False
        self._ended_in_piece = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is sent: what the application has not read of the request's body is of no use any more."""
        if self._running is not None:
            self._running.body = bytearray()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What uvicorn says to something that the parser does not take."""
        self._refuse(self._reason)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _because(self, reason: PreparedResponse) -> ValueError:
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
        if not self._arriving and self._number == self._watched_idle and not self._is_answering():
            self.transport.close()  # uvicorn's own timer ends with the first byte that comes
            return
        if self._stuck and self.flow.write_paused:
            self.transport.abort()
            return
        self._stuck = self.flow.write_paused
        self._watched = self._number if self._arriving else -1
        self._watched_idle = -1 if self._arriving or self._is_answering() else self._number
        self._later(self.request_seconds, self._look)

    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _refuse(self, answer: PreparedResponse) -> None:
        """Listen no longer; let whole requests before be answered, else say why; then hang up."""
        if self._deaf:
            return
        self.refused(answer.problem)
        self._deaf = True
        self._other_bytes, self.url, self.headers = 0, b"", []
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
            broken.body = bytearray()
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

    def let_go(self) -> None:
        """It is lost: the buffers of TLS are freed now, not when the collector looks for cycles of objects."""
        self._ended = True
        self._inner = _LOST
        self.get_extra_info = _LOST.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = _LOST.pause_reading  # type: ignore[method-assign]
        self.resume_reading = _LOST.resume_reading  # type: ignore[method-assign]


class _LostTransport(asyncio.Transport):
    """What is left of a transport whose connection is lost."""

    def is_closing(self) -> bool:
        """It is closed."""
        return True

    def abort(self) -> None:
        """Nothing is left to do."""

    def pause_reading(self) -> None:
        """Nothing is left to read."""

    def resume_reading(self) -> None:
        """Nothing is left to read."""


_LOST = _LostTransport()


def guarded_connections(
    *,
    most_connections: int,
    request_seconds: float,
    most_header_bytes: int = 1 << 14,
    most_held_bytes: int = 1 << 26,
    refused: Callable[[str], None] = lambda _: None,
) -> type[GuardedConnection]:
    """The class of connections with these limits, as uvicorn wants it."""
    limits = {
        "refused": staticmethod(refused),
        "most_connections": most_connections,
        "most_header_bytes": most_header_bytes,
        "held": HeldBytes(most_held_bytes),
        "request_seconds": request_seconds,
    }
    return type("LimitedConnection", (GuardedConnection,), limits)
