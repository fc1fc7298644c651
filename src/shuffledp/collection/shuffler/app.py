"""The shuffler as a web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.server.health import health_routes
from shuffledp.collection.server.operator import OperatorServer
from shuffledp.collection.server.origins import guard_origins
from shuffledp.collection.server.problems import EXCEPTION_HANDLERS, PreparedResponse
from shuffledp.collection.shuffler.intake import UNKNOWN_TASK, ReportEndpoint
from shuffledp.collection.shuffler.overview import actions_of, overview_of
from shuffledp.collection.shuffler.server import Shuffler

__all__ = ["create_app"]


def create_app(shuffler: Shuffler) -> Starlette:
    """The application of a shuffler whose store is open; its lifespan looks after the rounds."""
    reports = ReportEndpoint(
        shuffler.tasks,
        shuffler.memory,
        shuffler.ingest,
        shuffler.rate,
        shuffler.metrics,
        tokens=shuffler.tokens,
        full=shuffler.scheduler.full,
        clock=shuffler.clock,
    )
    shuffler.when_stopping(lambda: setattr(reports, "stopping", True))

    async def show_task(request: Request) -> PreparedResponse:
        served = shuffler.tasks.get(request.path_params["task"])
        return UNKNOWN_TASK if served is None else served.answer

    async def is_ready() -> bool:
        return not reports.stopping and not shuffler.scheduler.failing and await shuffler.ingest.is_writable()

    operator = OperatorServer(
        shuffler.settings.work,
        "shuffler",
        lambda exact: overview_of(shuffler, exact),
        actions_of(shuffler.scheduler),
        is_ready,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        shuffler.scheduler.start()
        await operator.start()
        yield
        await operator.stop()
        shuffler.stop()
        await shuffler.ingest.finish()
        await shuffler.scheduler.stop()
        shuffler.close()

    routes = [
        Route("/v1/tasks/{task}/reports", reports, methods=["POST"]),
        Route("/v1/tasks/{task}", show_task),
        *health_routes(shuffler.metrics, is_ready),
    ]
    app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.metrics = shuffler.metrics
    guard_origins(app, origins=shuffler.settings.origins)
    return app
