"""The web application of the shuffler: endpoints for tasks and reports."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.server.application import OperatorInterface, Server, create_server_app
from shuffledp.collection.server.batch_intake import BatchEndpoints, batch_routes
from shuffledp.collection.server.responses import VERSIONS, PreparedResponse, version_of
from shuffledp.collection.server.running import run_server, tune_process
from shuffledp.collection.shuffler.intake import UNKNOWN_SERIES, UNKNOWN_TASK, ReportEndpoint
from shuffledp.collection.shuffler.server import Shuffler
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.shuffler.tasks import HEADERS


def create_app(shuffler: Shuffler) -> Starlette:
    """The application of a shuffler; its lifespan runs the scheduler of rounds."""
    reports = ReportEndpoint(
        shuffler.tasks,
        shuffler.memory,
        shuffler.commit_queue,
        shuffler.rate,
        shuffler.metrics,
        admissions=shuffler.admissions,
        full=shuffler.scheduler.full,
        clock=shuffler.clock,
    )
    shuffler.when_stopping(lambda: setattr(reports, "stopping", True))

    async def show_task(request: Request) -> PreparedResponse:
        served = shuffler.tasks.get(request.path_params["task"], version_of(request.scope))
        return UNKNOWN_TASK if served is None else served.answer

    async def show_series(request: Request) -> PreparedResponse:
        accepted = shuffler.tasks.series.get(request.path_params["series"])
        if accepted is None:
            return UNKNOWN_SERIES
        content = accepted.answer(shuffler.clock(), lambda name: shuffler.tasks.get(name) is not None)
        return PreparedResponse(200, content, HEADERS)

    async def is_ready() -> bool:
        return not reports.stopping and not shuffler.scheduler.failing and await shuffler.commit_queue.is_writable()

    async def finish() -> None:
        await shuffler.commit_queue.finish()
        await shuffler.scheduler.stop()

    receiving = [
        *(Route(f"/v{version}/tasks/{{task}}/reports", reports, methods=["POST"]) for version in VERSIONS),
        *(Route(f"/v{version}/tasks/{{task}}", show_task) for version in VERSIONS),
        Route("/v2/series/{series}", show_series),
    ]
    routes: list[Route] = [] if shuffler.settings.role == "mixer" else receiving
    if shuffler.received is not None:
        batches = BatchEndpoints(
            shuffler.tasks,
            shuffler.received,
            shuffler.metrics,
            max_bytes=shuffler.settings.waiting_megabytes << 20,
            arrived=lambda: None,
        )
        shuffler.when_stopping(batches.stop)
        routes = routes + batch_routes(batches)
    return create_server_app(
        shuffler,
        routes,
        OperatorInterface(
            shuffler.settings.work,
            shuffler.operator.overview,
            shuffler.operator.actions,
            tasks=shuffler.tasks,
            port=shuffler.settings.operator_port,
        ),
        is_ready=is_ready,
        start=shuffler.scheduler.start,
        finish=finish,
        origins=shuffler.settings.origins,
    )


def run_shuffler(settings: ShufflerSettings) -> None:
    """Run a shuffler in this process, which does nothing else, until it is asked to stop."""

    def start() -> tuple[Starlette, Server]:
        tune_process()
        shuffler = Shuffler(settings)
        return create_app(shuffler), shuffler

    run_server(settings, start)
