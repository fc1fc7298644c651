"""Whether a server lives, whether it can work, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.problems import PreparedResponse, json_response, problem

__all__ = ["health_routes"]

_ALIVE = json_response({"state": "alive"})
_READY = json_response({"state": "ready"})
_NOT_READY = problem(503, "not-ready", "The server cannot work at the moment.", retry_after=5)


def health_routes(metrics: Metrics, is_ready: Callable[[], Awaitable[bool]]) -> list[Route]:
    """``/healthz``, ``/readyz`` and ``/metrics``."""

    async def healthz(_: Request) -> PreparedResponse:
        return _ALIVE

    async def readyz(_: Request) -> PreparedResponse:
        return _READY if await is_ready() else _NOT_READY

    async def show_metrics(_: Request) -> PreparedResponse:
        return PreparedResponse(200, metrics.text(), ((b"content-type", metrics.content_type.encode()),))

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show_metrics)]
