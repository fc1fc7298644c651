"""The web application of a server: its routes, health, operator's socket and lifespan; the same for both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from shuffledp.collection.server.health import health_routes
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.operator import Actions, OperatorServer, Overview
from shuffledp.collection.server.origins import guard_origins
from shuffledp.collection.server.problems import EXCEPTION_HANDLERS

__all__ = ["OperatorInterface", "Server", "create_server_app"]


class Server:
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

    def close(self) -> None:
        """Close all files."""
        raise NotImplementedError


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

    all_routes = [*routes, *health_routes(server.metrics, is_ready)]
    app = Starlette(routes=all_routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirection would repeat what the client calls this host
    app.state.metrics = server.metrics
    guard_origins(app, origins=origins, public=public)
    return app
