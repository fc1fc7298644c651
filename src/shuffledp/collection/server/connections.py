"""HTTP connections with limits on their number, on the duration of requests, and on memory.

Every byte that arrives is counted, as one of two kinds:

- Bytes of a body. The application reads and counts them (``server.bodies``).
- All other bytes: request line, headers, chunk sizes and their extensions, empty lines between requests. A request has
  one small budget for all of them. Trailers are refused.

The bytes that all connections together buffer until the application reads them have a limit of their own
(``BufferedBytes``). The buffer that a TLS connection reads into never shrinks: the large buffers of idle connections
have the same limit again.

If a response is sent before the complete request has arrived, the connection lingers: further bytes are read and
discarded for a short time. If it were closed at once, the operating system would send a reset, and the peer might never
read the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shuffledp.collection.server.responses import PreparedResponse, problem
from shuffledp.collection.server.tls import LimitedContext

_TOO_MANY = problem(503, "overloaded", "Too many connections; try again later.", retry_after=5, close=True)
_NO_MEMORY = problem(503, "overloaded", "Too many bytes at once; try again later.", retry_after=2, close=True)
_TOO_SLOW = problem(408, "too-slow", "The request took too long to arrive.", close=True)
_HEADERS_TOO_LARGE = problem(
    431, "headers-too-large", "The headers of the request, or the framing of its body, are too large.", close=True
)
_NO_TRAILERS = problem(400, "no-trailers", "Fields after a body (trailers) are not accepted.", close=True)
_TOO_EAGER = problem(429, "too-eager", "Too many requests without waiting for an answer.", close=True)
_NO_UPGRADE = problem(400, "no-upgrade", "Only HTTP/1.1 is supported.", close=True)
_NOT_HTTP = problem(400, "not-http", "This is not a valid HTTP request.", close=True)

SPARE_CONNECTIONS = 64
"""Connections beyond the limit that get a response; further ones are closed without a response."""
_PIECE_BYTES = 1 << 14
"""The parser gets at most this much at a time, so that exceeding a limit is detected early."""
_BYTES_PER_CHUNK = 32
"""Added to the budget for each chunk, since its processing takes time: each is a call of Python code."""
_LARGE_BUFFER_BYTES = 1 << 18
"""Size of the event loop's read buffer of a TLS connection; as much of it as was ever filled stays in memory."""
_BODY_BYTES_PER_OTHER_BYTE = 64
"""This many bytes of body allow one more byte outside it: a body in chunks of some kilobytes may have any length."""


class BufferedBytes:
    """The bytes of requests that all connections together buffer until the application reads them.

    The total is recomputed only when the bytes that have arrived since the last time might exceed the limit. If it is
    exceeded, the requests that have been arriving for longest are dropped, so that fast senders are served. All methods
    are called in the event loop's thread.
    """

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes
        self._spare = max_bytes

    def arrived(self, size: int, connections: Iterable[GuardedConnection]) -> None:
        """Count bytes that have arrived; this may close connections."""
        self._spare -= size
        if self._spare < 0:
            self._count(connections)

    def _count(self, connections: Iterable[GuardedConnection]) -> None:
        sizes = [(connection, connection.buffered_bytes()) for connection in connections]
        total = sum(size for _, size in sizes)
        if total > self._limit * 3 // 4:
            for connection, size in sorted(sizes, key=lambda item: item[0].arriving_since):
                if total <= self._limit // 2:
                    break
                if size and connection.give_up():
                    total -= size
        self._spare = max(self._limit - total, self._limit // 8)
        self._end_idle([connection for connection, _ in sizes if connection.has_large_buffer])

    def _end_idle(self, large: list[GuardedConnection]) -> None:
        """End idle connections whose buffers together are larger than the limit."""
        excess = len(large) - self._limit // _LARGE_BUFFER_BYTES
        for connection in sorted(large, key=lambda connection: connection.arriving_since):
            if excess <= 0:
                break
            excess -= connection.end_if_idle()


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; one timer per connection, not per request."""

    max_connections: ClassVar[int] = 4096
    max_header_bytes: ClassVar[int] = 1 << 14
    """Limit on the request line, the headers and all other bytes outside the body."""
    max_headers: ClassVar[int] = 100
    max_waiting: ClassVar[int] = 16
    """Limit on pipelined requests that wait for a response."""
    request_seconds: ClassVar[float] = 30.0
    """A request must arrive within twice this time; a connection is aborted if its peer reads nothing for this time."""
    linger_seconds: ClassVar[float] = 2.0
    linger_bytes: ClassVar[int] = 1 << 24
    buffered: ClassVar[BufferedBytes] = BufferedBytes(1 << 26)

    @staticmethod
    def refused(problem: str) -> None:
        """Called with the name of the problem when a connection is refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse a connection beyond the limit, else start its timer."""
        super().connection_made(_GuardedTransport(transport, self))
        self._is_tls, self.has_large_buffer = hasattr(transport, "set_read_buffer_limits"), False
        if self._is_tls:  # which continues to read after pause_reading
            transport.set_read_buffer_limits(high=_PIECE_BYTES)  # type: ignore[attr-defined]
        self._number, self._watched, self._watched_idle = 0, -1, -1
        self._arriving = self._in_headers = self._ignores_input = self._stuck = False
        self._other_bytes = self._body_bytes = self._discarded = 0
        self._body_in_piece, self._ended_in_piece = 0, False
        self._reason = _NOT_HTTP
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.arriving_since = self.loop.time()
        """When the current or last request began to arrive."""
        others = len(self.connections)
        if others > self.max_connections + SPARE_CONNECTIONS:
            self.refused(_TOO_MANY.problem)
            self._ignores_input = True
            self.transport.abort()
        elif others > self.max_connections:
            self._refuse(_TOO_MANY)
        else:
            self._set_timer(self.request_seconds, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and end the application's wait for the rest of a request."""
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
        if isinstance(self.transport, _GuardedTransport):
            self.transport.detach()

    def data_received(self, data: bytes) -> None:
        """Count the bytes, then let uvicorn process them."""
        if self._is_tls and len(data) > _PIECE_BYTES:
            self.has_large_buffer = True
        if len(data) <= _PIECE_BYTES:
            self._piece_received(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), _PIECE_BYTES):
            self._piece_received(view[start : start + _PIECE_BYTES])

    def _piece_received(self, piece: bytes | memoryview) -> None:
        if self._ignores_input or self.transport.is_closing():
            self._discard(len(piece))
            return
        if not self._arriving:
            self.arriving_since = self.loop.time()
        self._body_in_piece, self._ended_in_piece = 0, False
        try:
            super().data_received(piece)  # type: ignore[arg-type]
        except (ValueError, httptools.HttpParserError):  # a request target that is not ASCII or not a URL
            self._refuse(_NOT_HTTP)
            return
        if self._ignores_input:
            return
        if self._ended_in_piece:  # at an unknown position: count the parsed headers of the next request
            self._other_bytes = self._length_of_headers() if self._in_headers else 0
        else:
            self._other_bytes += len(piece) - self._body_in_piece
        if self._is_over_budget():
            self._refuse(_HEADERS_TOO_LARGE)
            return
        self.buffered.arrived(len(piece), self.connections)  # type: ignore[arg-type]

    def _is_over_budget(self) -> bool:
        return self._other_bytes > self.max_header_bytes + self._body_bytes // _BODY_BYTES_PER_OTHER_BYTE

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > self.linger_bytes:
            self.transport.abort()

    def _length_of_headers(self) -> int:
        """Length of the headers of the current request, as far as they are parsed."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def buffered_bytes(self) -> int:
        """Bytes that this connection buffers, apart from those that the application has read."""
        cycles = {id(cycle): cycle for cycle in (self._running, self.cycle, *(queued for queued, _ in self.pipeline))}
        size = self._other_bytes
        for cycle in cycles.values():
            if cycle is not None and not cycle.response_complete:
                size += len(cycle.body) + sum(len(name) + len(value) for name, value in cycle.scope["headers"])
        return size

    def give_up(self) -> bool:
        """Drop the request that is arriving and those that wait; False if that would release no memory."""
        if self._ignores_input or not (self._arriving or self._other_bytes or self.pipeline):
            return False
        self.pipeline.clear()
        if self._running is not None and self._running is not self.cycle:
            self.cycle = self._running  # the requests after it are dropped
            self._arriving = self._in_headers = False
        self._refuse(_NO_MEMORY)
        return True

    def end_if_idle(self) -> bool:
        """End this connection at once, if nothing arrives and nothing is answered; whether it did."""
        if self._ignores_input or self._arriving or self._other_bytes or self.pipeline or self._is_answering():
            return False
        self._ignores_input = True
        self.transport.abort()
        return True

    def resume_writing(self) -> None:
        """The peer reads, however slowly."""
        self._stuck = False
        super().resume_writing()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._number += 1
        self._discarded = self._body_bytes = 0
        self._arriving = self._in_headers = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        if not self._in_headers:
            raise self._parser_error(_NO_TRAILERS)
        if len(self.headers) >= self.max_headers:
            raise self._parser_error(_HEADERS_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers of a request are complete."""
        if self.parser.should_upgrade():
            raise self._parser_error(_NO_UPGRADE)
        if self._length_of_headers() > self.max_header_bytes:
            raise self._parser_error(_HEADERS_TOO_LARGE)
        if len(self.pipeline) >= self.max_waiting:
            raise self._parser_error(_TOO_EAGER)
        self._in_headers = False
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A chunk of the body begins."""
        self._other_bytes += _BYTES_PER_CHUNK
        if self._is_over_budget():
            raise self._parser_error(_HEADERS_TOO_LARGE)

    def on_body(self, body: bytes) -> None:
        """A part of the body; after the response it is discarded, up to a limit."""
        self._body_in_piece += len(body)
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._discard(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._arriving = False
        self._ended_in_piece = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A response is sent: drop the part of the body that the application has not read."""
        if self._running is not None:
            self._running.body = bytearray()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Replaces uvicorn's response to a request that the parser rejects."""
        self._refuse(self._reason)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _parser_error(self, reason: PreparedResponse) -> ValueError:
        """An exception for the parser callbacks that ends the connection with this response."""
        self._reason = reason
        return ValueError(reason.status)

    def _set_timer(self, seconds: float, callback: Any) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_later(seconds, callback)

    def _check_progress(self) -> None:
        """End a connection without progress since the last check: a slow request, or a response that is not read."""
        if self._number == 0 or (self._arriving and self._number == self._watched and not self._ignores_input):
            self._refuse(_TOO_SLOW)
            return
        if not self._arriving and self._number == self._watched_idle and not self._is_answering():
            self.transport.close()  # uvicorn's own timer stops at the first byte of a request
            return
        if self._stuck and self.flow.write_paused:
            self.transport.abort()
            return
        self._stuck = self.flow.write_paused
        self._watched = self._number if self._arriving else -1
        self._watched_idle = -1 if self._arriving or self._is_answering() else self._number
        self._set_timer(self.request_seconds, self._check_progress)

    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _refuse(self, answer: PreparedResponse) -> None:
        """Stop reading; answer the complete requests before, else send ``answer``; then close the connection."""
        if self._ignores_input:
            return
        self.refused(answer.problem)
        self._ignores_input = True
        self._other_bytes, self.url, self.headers = 0, b"", []
        incomplete = self.cycle if self._arriving and not self._in_headers else None
        if self.pipeline and self.pipeline[0][0] is incomplete:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._running
        if last is not None and last is not incomplete and not last.response_complete:
            last.keep_alive = False  # so that uvicorn closes the connection after it
            return
        if incomplete is None or not incomplete.response_started:
            lines: list[Any] = [STATUS_LINE[answer.status], b"content-length: %d\r\n" % len(answer.body)]
            lines += [b"%s: %s\r\n" % header for header in answer.headers]
            self.transport.write(b"".join([*lines, b"\r\n", answer.body]))
        if incomplete is not None and not incomplete.response_complete:
            incomplete.disconnected = True
            incomplete.message_event.set()
            incomplete.body = bytearray()
        self.transport.close()

    def close_or_linger(self, transport: asyncio.Transport) -> None:
        """Close the transport: at once when the whole request was read, else after lingering."""
        if transport.is_closing():
            return

        def end() -> None:
            self._set_timer(self.request_seconds, transport.abort)  # a peer that never reads
            transport.close()

        if not (self._arriving or self._ignores_input):
            end()
            return
        if transport.can_write_eof():
            transport.write_eof()
        self.flow.resume_reading()
        self._set_timer(self.linger_seconds, end)


class _GuardedTransport(asyncio.Transport):
    """The transport of a connection; closing goes through the connection, which may linger."""

    __slots__ = ("_connection", "_ended", "_inner", "get_extra_info", "pause_reading", "resume_reading")

    def __init__(self, inner: asyncio.Transport, connection: GuardedConnection) -> None:
        self._inner, self._connection, self._ended = inner, connection, False
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, unless the transport is closed."""
        if not self._ended:
            self._inner.write(data)

    def is_closing(self) -> bool:
        """Whether it is closed or lingers."""
        return self._ended or self._inner.is_closing()

    def close(self) -> None:
        """Close it, once."""
        if not self._ended:
            self._ended = True
            self._connection.close_or_linger(self._inner)

    def abort(self) -> None:
        """Close it without lingering."""
        self._ended = True
        self._inner.abort()

    def detach(self) -> None:
        """Drop the lost transport, so that TLS buffers are freed now and not by the cyclic garbage collector."""
        self._ended = True
        self._inner = _LOST
        self.get_extra_info = _LOST.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = _LOST.pause_reading  # type: ignore[method-assign]
        self.resume_reading = _LOST.resume_reading  # type: ignore[method-assign]


class _LostTransport(asyncio.Transport):
    """Placeholder for the transport of a lost connection."""

    def is_closing(self) -> bool:
        """It is closed."""
        return True

    def abort(self) -> None:
        """No effect."""

    def pause_reading(self) -> None:
        """Nothing is left to read."""

    def resume_reading(self) -> None:
        """Nothing is left to read."""


_LOST = _LostTransport()


def guarded_connections(
    *,
    max_connections: int,
    request_seconds: float,
    max_header_bytes: int = 1 << 14,
    max_buffered_bytes: int = 1 << 26,
    refused: Callable[[str], None] = lambda _: None,
) -> type[GuardedConnection]:
    """A class of connections with these limits, for uvicorn."""
    limits = {
        "refused": staticmethod(refused),
        "max_connections": max_connections,
        "max_header_bytes": max_header_bytes,
        "buffered": BufferedBytes(max_buffered_bytes),
        "request_seconds": request_seconds,
    }
    return type("LimitedConnection", (GuardedConnection,), limits)
