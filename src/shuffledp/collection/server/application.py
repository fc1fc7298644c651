"""The web application of a server: its routes, health, operator's socket and lifespan; the same for both servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.operator import Actions, OperatorServer, Overview
from shuffledp.collection.server.origins import guard_origins
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse, json_response, problem

_ALIVE = json_response({"state": "alive"})
_READY = json_response({"state": "ready"})
_NOT_READY = problem(503, "not-ready", "The server cannot work at the moment.", retry_after=5)


class Server(ABC):
    """What the shuffler and the analyzer have in common: a role, metrics, and that they can be asked to stop."""

    def __init__(self, role: str) -> None:
        self.role, self.metrics = role, Metrics(role)
        self.stopping = False
        self._when_stopping: list[Callable[[], None]] = []

    def when_stopping(self, action: Callable[[], None]) -> None:
        """Have something done when the server is asked to stop."""
        self._when_stopping.append(action)

    def stop(self) -> None:
        """Refuse new work, and interrupt what can be repeated."""
        self.stopping = True
        for action in self._when_stopping:
            action()

    @abstractmethod
    def close(self) -> None:
        """Close all files."""


@dataclass(frozen=True)
class OperatorInterface:
    """What the operator of a server sees and can do, on a socket in its work directory."""

    work: Path
    overview: Overview
    actions: Actions


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

    Web pages of the listed ``origins`` may send requests, and any page may read addresses below ``public``.
    """
    socket = OperatorServer(operator.work, server.role, operator.overview, operator.actions, is_ready)

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
    app.router.redirect_slashes = False  # a redirection would repeat what the client calls this host
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
