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
"""What the system holds of an answer: who reads slowly is seen to read only when this is nearly empty."""

_SWITCH_SECONDS = 0.0005
_OBJECTS = 20_000
_OTHER_FILES = 256
"""Descriptors for everything but connections of the server: stores, batches, logs, its own connections to others."""
_FEWEST = 16


@contextmanager
def clean_stop() -> Iterator[None]:
    """For a process that starts a server and serves: asked to stop by SIGTERM, it ends with status 0 at any moment.

    Before ``serve`` takes over there is nothing to clean up: whatever a start leaves behind, it leaves behind when the
    machine fails too, and the next start deals with it. After it, Python ends, and a signal must not end it otherwise.
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
    """A socket that takes connections; a port that is in use is said in one line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # of its connections too
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        raise OutputError(f"Cannot listen on {host} port {port}: {error.strerror or error}.") from None
    return listener


def possible_connections(wanted: int) -> int:
    """As many of the wanted connections as the hard limit on open files allows; DataError if that is next to none."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return wanted
    possible = hard - SPARE_CONNECTIONS - _OTHER_FILES
    if possible < min(wanted, _FEWEST):
        needed = wanted + SPARE_CONNECTIONS + _OTHER_FILES
        raise DataError(
            f"This process may have {hard:,} open files, and {wanted:,} connections need {needed:,}: raise the hard "
            "limit (ulimit -Hn, LimitNOFILE= of systemd)."
        )
    return min(wanted, possible)


def reserve_connections(wanted: int) -> int:
    """Raise this process's limit on open files for so many connections; how many there can be, if that is fewer.

    Without descriptors a server can neither take a connection nor open a file of its store.
    """
    possible = possible_connections(wanted)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = possible + SPARE_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    if possible < wanted:
        event("connections-limited", level=logging.WARNING, wanted=wanted, possible=possible, open_files=hard)
    return possible


def tune_process() -> None:
    """For a process that does nothing else.

    The thread that writes needs its turn only for moments, and devices wait for it. Requests that wait for the disk are
    many objects that live, through which the collector would go in vain, again and again.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def run_server(settings: ServerSettings, start: Callable[[], tuple[Any, Server]]) -> None:
    """Run a server in this process until it is asked to stop (SIGTERM, SIGINT): logs, port, application.

    ``start`` opens the server and makes its application, once the port is taken: a second process that is started by
    mistake must not touch the files of the first.
    """
    with clean_stop():
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
    """Serve a Starlette application, which has its metrics in its state, until asked to stop (SIGTERM, SIGINT).

    ``stopping`` is called at once when that is asked; requests under way are answered, and the application's
    lifespan ends after them.
    """
    bound = listener or listen(settings.host, settings.port)
    connections = reserve_connections(settings.connections)
    config = uvicorn.Config(
        app,
        http=guarded_connections(
            most_connections=connections,
            request_seconds=settings.request_seconds,
            most_held_bytes=settings.connection_megabytes << 20,
            refused=app.state.metrics.refused,
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # addresses of users are not wanted here, from whoever
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        backlog=_BACKLOG,
    )
    config.load()
    if settings.tls_certificate is not None and settings.tls_key is not None:
        config.ssl = server_context(
            settings.tls_certificate, settings.tls_key, most_connections=connections + SPARE_CONNECTIONS
        )
    server = _Server(config, stopping, handshake_seconds=settings.request_seconds)
    scheme = "https" if settings.tls_certificate else "http"
    gc.freeze()  # what was loaded stays; the collector need not look at it while requests wait
    try:
        with server.capture_signals():  # who reads that it listens may ask it to stop at once
            event("listening", role=role, scheme=scheme, host=settings.host, port=bound.getsockname()[1])
            server.run([bound])
    finally:
        bound.close()
    event("stopped", role=role)


class _Server(uvicorn.Server):
    """Being asked to stop ends it without an error."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None], *, handshake_seconds: float) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._handshake_seconds = handshake_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which has no setting for how long a TLS handshake may take."""
        if self.config.ssl is not None:
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=self._handshake_seconds)
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Tell the application at once."""
        self._stopping()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal is not raised again in the end: the exit status is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
