"""Running a server: uvicorn with TLS and limits, also on open files (RLIMIT_NOFILE), and graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from shuffledp.collection.server.application import Server
from shuffledp.collection.server.connections import SPARE_CONNECTIONS, guarded_connections
from shuffledp.collection.server.logs import configure_logs, event
from shuffledp.collection.server.settings import ServerSettings
from shuffledp.collection.server.tls import server_context
from shuffledp.errors import DataError, OutputError

_BACKLOG = 2048
_SEND_BYTES = 1 << 17
"""Size of the kernel's send buffer: progress of a slow reader is detected only when it is nearly empty."""

_SWITCH_SECONDS = 0.0005
_GC_THRESHOLD = 20_000
_OTHER_FILES = 256
"""Descriptors for everything but incoming connections: stores, batches, logs, outgoing connections."""
_MIN_CONNECTIONS = 16


@contextmanager
def clean_stop() -> Iterator[None]:
    """Exit with status 0 on SIGTERM at any moment of a process that starts a server.

    Before ``serve`` there is nothing to clean up: the next start handles what an interrupted start leaves behind, as
    after a crash. After ``serve`` the process exits, and a further signal must not change its status.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, before)
        raise
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; OutputError if the address cannot be bound."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # inherited by its connections
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        raise OutputError(f"Cannot listen on {host} port {port}: {error.strerror or error}.") from None
    return listener


def possible_connections(requested: int) -> int:
    """How many of the requested connections the hard limit on open files allows; DataError if they are too few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return requested
    possible = hard - SPARE_CONNECTIONS - _OTHER_FILES
    if possible < min(requested, _MIN_CONNECTIONS):
        needed = requested + SPARE_CONNECTIONS + _OTHER_FILES
        raise DataError(
            f"This process may have {hard:,} open files, and {requested:,} connections need {needed:,}: raise the hard "
            "limit (ulimit -Hn, LimitNOFILE= of systemd)."
        )
    return min(requested, possible)


def reserve_connections(requested: int) -> int:
    """Raise this process's soft limit on open files for ``requested`` connections; return the possible number.

    Without free descriptors a server can neither accept a connection nor open a file of its store.
    """
    possible = possible_connections(requested)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = possible + SPARE_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    if possible < requested:
        event("connections-limited", level=logging.WARNING, wanted=requested, possible=possible, open_files=hard)
    return possible


def prevent_core_dumps() -> None:
    """Write no core dump of this process and its children, which would contain keys and reports."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 1 if hard == resource.RLIM_INFINITY or hard >= 1 else 0  # 1, unlike 0, also prevents dumps to a program
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def tune_process() -> None:
    """Tune the interpreter of a process that only serves.

    The writer thread needs the interpreter lock often and briefly, and devices wait for it, so threads switch sooner.
    Requests that wait for the disk keep many objects alive; garbage collection is rarer, since it would free few.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])


def run_server(settings: ServerSettings, start: Callable[[], tuple[Any, Server]]) -> None:
    """Run a server in this process until it is asked to stop (SIGTERM, SIGINT): logs, port, application.

    ``start`` opens the server and creates its application after the port is bound: a second process that is started by
    mistake must not touch the files of the first.
    """
    with clean_stop():
        prevent_core_dumps()
        configure_logs(level=settings.log_level)
        listener = listen(settings.host, settings.port)
        app, server = start()
        serve(app, settings, role=server.role, stopping=server.stop, listener=listener)


def serve(
    app: Any,
    settings: ServerSettings,
    *,
    role: str,
    stopping: Callable[[], None],
    listener: socket.socket | None = None,
) -> None:
    """Serve a Starlette application with ``app.state.metrics`` until asked to stop (SIGTERM, SIGINT).

    ``stopping`` is called at once on a signal; requests in progress are answered, then the application's lifespan ends.
    """
    bound = listener or listen(settings.host, settings.port)
    connections = reserve_connections(settings.connections)
    config = uvicorn.Config(
        app,
        http=guarded_connections(
            max_connections=connections,
            request_seconds=settings.request_seconds,
            max_buffered_bytes=settings.connection_megabytes << 20,
            refused=app.state.metrics.refused,
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # client addresses are not used
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        backlog=_BACKLOG,
    )
    config.load()
    if settings.tls_certificate is not None and settings.tls_key is not None:
        config.ssl = server_context(
            settings.tls_certificate, settings.tls_key, max_connections=connections + SPARE_CONNECTIONS
        )
    server = _Server(config, stopping, handshake_seconds=settings.request_seconds)
    scheme = "https" if settings.tls_certificate else "http"
    gc.freeze()  # loaded modules stay, so the collector need not traverse them
    try:
        with server.capture_signals():  # first, since a reader of the log may send a signal at once
            event("listening", role=role, scheme=scheme, host=settings.host, port=bound.getsockname()[1])
            server.run([bound])
    finally:
        bound.close()
    event("stopped", role=role)


class _Server(uvicorn.Server):
    """uvicorn's server, which exits with status 0 on a signal."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None], *, handshake_seconds: float) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._handshake_seconds = handshake_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Set the timeout of TLS handshakes, for which uvicorn has no setting."""
        if self.config.ssl is not None:
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=self._handshake_seconds)
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Notify the application at once."""
        self._stopping()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but without raising the signal again at the end: the exit status is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
