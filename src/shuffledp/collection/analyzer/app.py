"""The web application of the analyzer: endpoints for batches and releases."""

from __future__ import annotations

from typing import BinaryIO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.analyzer.overview import running_overview
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
from shuffledp.collection.analyzer.server import Analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings
from shuffledp.collection.server.application import OperatorInterface, Server, create_server_app
from shuffledp.collection.server.batch_intake import BatchEndpoints, batch_routes, read_task_id
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.server.responses import FileResponse, PreparedResponse, problem
from shuffledp.collection.server.running import run_server

_NO_RELEASE = problem(404, "no-release", "There is no release of this task yet.")
_CONTENT_TYPES = {
    "json": b"application/json",
    "csv": b"text/csv; charset=utf-8",
    "html": b"text/html; charset=utf-8",
}
_SAFE_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; img-src data:; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
)


def create_app(analyzer: Analyzer) -> Starlette:
    """The application of an analyzer; its lifespan runs the release scheduler."""
    scheduler = ReleaseScheduler(analyzer.releaser, analyzer.metrics, analyzer.tick)
    endpoints = BatchEndpoints(
        analyzer.tasks,
        analyzer.batches,
        analyzer.metrics,
        max_bytes=analyzer.settings.arriving_megabytes << 20,
        arrived=scheduler.check_now,
    )
    analyzer.when_stopping(endpoints.stop)

    async def show(request: Request, kind: str) -> PreparedResponse | FileResponse:
        task_id = read_task_id(request.path_params["task"])
        file = await run_in_threadpool(_released, analyzer, task_id, kind) if task_id else None
        return FileResponse(file, ((b"content-type", _CONTENT_TYPES[kind]), *_SAFE_HEADERS)) if file else _NO_RELEASE

    async def show_json(request: Request) -> PreparedResponse | FileResponse:
        return await show(request, "json")

    async def show_csv(request: Request) -> PreparedResponse | FileResponse:
        return await show(request, "csv")

    async def show_page(request: Request) -> PreparedResponse | FileResponse:
        return await show(request, "html")

    async def is_ready() -> bool:
        return not analyzer.stopping and await run_in_threadpool(analyzer.batches.is_writable)

    return create_server_app(
        analyzer,
        [
            *batch_routes(endpoints),
            Route("/v1/releases/{task}.csv", show_csv),
            Route("/v1/releases/{task}/page", show_page),
            Route("/v1/releases/{task}", show_json),
        ],
        OperatorInterface(
            analyzer.settings.work,
            lambda _: running_overview(analyzer, scheduler),
            {"abandon": scheduler.abandon},
            tasks=analyzer.tasks,
            port=analyzer.settings.operator_port,
            release_url=analyzer.settings.local_url,
        ),
        is_ready=is_ready,
        start=scheduler.start,
        finish=scheduler.stop,
        public="/v1/releases/",
    )


def run_analyzer(settings: AnalyzerSettings) -> None:
    """Run an analyzer in this process until it is asked to stop."""

    def start() -> tuple[Starlette, Server]:
        analyzer = Analyzer(settings)
        return create_app(analyzer), analyzer

    run_server(settings, start)


def _released(analyzer: Analyzer, task_id: bytes, kind: str) -> BinaryIO | None:
    """A file of a release, only once the batch is in the state released: never a part of a release."""
    batch = analyzer.batches.get(task_id)
    if batch is None or batch.state is not BatchState.RELEASED:
        return None
    return analyzer.releases.open(task_id, kind)
