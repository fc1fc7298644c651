"""The web application of a server: routes, health, allowed origins (CORS), operator's socket and lifespan.

Browsers send cross-origin requests to any server, and by default only hide the response from the page: a report would
already be counted. So a request with an ``Origin`` header is refused unless its origin is listed. Content types that
a page can send without a preflight request are refused too (``bodies.has_type``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.operator import Actions, OperatorServer, Overview
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse, json_response, problem
from shuffledp.collection.server.task_directory import TaskDirectory

_ALIVE = json_response({"state": "alive"})
_READY = json_response({"state": "ready"})
_NOT_READY = problem(503, "not-ready", "The server is temporarily unavailable.", retry_after=5)
_NOT_ALLOWED = problem(
    403, "origin-not-allowed", "Web pages of this origin may not send requests to this server.", close=True
)
_REPORTS = re.compile(r"/v[12]/tasks/[^/]+/reports")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
    (b"access-control-max-age", b"7200"),
)
_EXPOSED = (b"access-control-expose-headers", b"Retry-After")
_VARY = (b"vary", b"Origin")
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")


class Server(ABC):
    """Base class of the shuffler and the analyzer: role, metrics, and shutdown."""

    def __init__(self, role: str) -> None:
        self.role, self.metrics = role, Metrics(role)
        self.stopping = False
        self._when_stopping: list[Callable[[], None]] = []

    def when_stopping(self, action: Callable[[], None]) -> None:
        """Register an action for when the server is asked to stop."""
        self._when_stopping.append(action)

    def stop(self) -> None:
        """Refuse new work, and interrupt steps that can be repeated."""
        self.stopping = True
        for action in self._when_stopping:
            action()

    @abstractmethod
    def close(self) -> None:
        """Close all files."""


@dataclass(frozen=True)
class OperatorInterface:
    """The operator's overview and actions, served on a socket in the work directory, and on a page if it has a port."""

    work: Path
    overview: Overview
    actions: Actions
    tasks: TaskDirectory[Any]
    port: int | None = None
    """The port of the operator's page; None for no page."""
    release_url: str = ""
    """Where the operator's browser finds releases; empty if there are none."""


def create_server_app(
    server: Server,
    routes: Sequence[Route],
    operator: OperatorInterface,
    *,
    is_ready: Callable[[], Awaitable[bool]],
    start: Callable[[], None],
    finish: Callable[[], Awaitable[None]],
    origins: Collection[str] = (),
    public: str | None = None,
) -> Starlette:
    """The application of a server. Its lifespan begins with ``start`` and ends with ``finish``, then closes the server.

    Web pages of the listed ``origins`` may send requests, and any page may read paths that begin with ``public``.
    """
    socket = OperatorServer(
        operator.work,
        server.role,
        operator.overview,
        operator.actions,
        is_ready,
        tasks=operator.tasks,
        port=operator.port,
        release_url=operator.release_url,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        start()
        await socket.start()
        yield
        await socket.stop()
        server.stop()
        await finish()
        server.close()

    all_routes = [*routes, *_health_routes(server.metrics, is_ready)]
    app = Starlette(routes=all_routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirect would repeat the Host header of the client
    app.state.metrics = server.metrics
    guard_origins(app, origins=origins, public=public)
    return app


def _health_routes(metrics: Metrics, is_ready: Callable[[], Awaitable[bool]]) -> list[Route]:
    """``/healthz``, ``/readyz`` and ``/metrics``."""

    async def healthz(_: Request) -> PreparedResponse:
        return _ALIVE

    async def readyz(_: Request) -> PreparedResponse:
        return _READY if await is_ready() else _NOT_READY

    async def show_metrics(_: Request) -> PreparedResponse:
        return PreparedResponse(200, metrics.text(), ((b"content-type", metrics.content_type.encode()),))

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show_metrics)]


def guard_origins(app: Starlette, *, origins: Collection[str] = (), public: str | None = None) -> None:
    """Make an application refuse requests of pages whose origin is not listed, before their bodies are read.

    Paths that begin with ``public`` may be read by any page.
    """
    app.middleware_stack = _Origins(app.build_middleware_stack(), origins, public)


class _Origins:
    """Middleware that checks origins and adds CORS headers; outermost, so that also internal errors have them."""

    def __init__(self, inner: ASGIApp, origins: Collection[str], public: str | None) -> None:
        self._inner, self._public = inner, public
        self._allowed = {
            origin.encode("ascii"): (b"access-control-allow-origin", origin.encode()) for origin in origins
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        if self._public is not None and scope["path"].startswith(self._public) and scope["method"] in ("GET", "HEAD"):
            await self._inner(scope, receive, _adding(send, (_ANY_ORIGIN,)))
            return
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        if not origins:
            await self._inner(scope, receive, _adding(send, (_VARY,)) if self._allowed else send)
            return
        if len(origins) > 1 or origins[0] not in self._allowed:
            await _NOT_ALLOWED(scope, receive, send)
            return
        allowed = self._allowed[origins[0]]
        if scope["method"] == "OPTIONS" and _REPORTS.fullmatch(scope["path"]):
            await PreparedResponse(204, headers=(allowed, _VARY, *_PREFLIGHT))(scope, receive, send)
            return
        await self._inner(scope, receive, _adding(send, (allowed, _VARY, _EXPOSED)))


def _adding(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> Send:
    """A ``send`` that adds headers to the response."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return add
