"""The web application of the planner's page, on loopback: pages, a stream of results, and JSON."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

import shuffledp
from shuffledp.app.planner import Planner, account_document, choose
from shuffledp.app.preview import Preview
from shuffledp.app.query import Query, plan_id
from shuffledp.app.view import form_view, results_view
from shuffledp.app.workers import WorkerError, Workers
from shuffledp.collection.server.loopback import LOOPBACK, LoopbackPages, asset_routes
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse, json_response
from shuffledp.collection.task.costs import CollectionCost as Collected
from shuffledp.errors import InfeasibleError, OutputError, ParameterError, ShuffledpError
from shuffledp.pages.rendering import render_page
from shuffledp.planning.planner import Plan, Plans

_HTML = (b"content-type", b"text/html; charset=utf-8")
_SHOW = "show"
"""A parameter of the page: ``all`` computes everything first, ``known`` shows cached results only."""
_SHUTDOWN_SECONDS = 2
_REQUEST_SECONDS = 60
"""A request without signs of progress is answered within this time; a stream goes on while somebody listens."""


class PlannerApp:
    """The endpoints of the page."""

    def __init__(self, workers: Workers | None = None, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self.workers = workers or Workers()
        self.planner = Planner(self.workers)
        self._request_seconds = request_seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    def app(self) -> ASGIApp:
        """The application, which answers only requests of this machine."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._loop = asyncio.get_running_loop()
            try:
                await self.workers.start()
                yield
            finally:
                await self.workers.stop()

        routes = [
            Route("/", self._page),
            Route("/api/plan", self._stream),
            Route("/api/preview", self._preview),
            Route("/api/account", self._account),
            Route("/api/command", self._command),
            *asset_routes("/static", ("planner.js", "planner.css")),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS, lifespan=lifespan)
        return LoopbackPages(app, forms=True)

    def stop(self) -> None:
        """End all calculations, so that requests are answered; may be called by a signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.workers.kill)

    async def _page(self, request: Request) -> PreparedResponse:
        parameters = dict(request.query_params)
        show = parameters.pop(_SHOW, "")
        try:
            query = Query.parse(parameters)
        except ShuffledpError as error:
            return _rendered(Query.parse_valid(parameters), None, str(error), status=400)
        try:
            return await _unless_disconnected(request, self._shown(query, show))
        except ShuffledpError as error:
            return _rendered(query, None, str(error))

    async def _shown(self, query: Query, show: str) -> PreparedResponse:
        if show not in ("all", "known"):
            return _rendered(query, None)
        error = ""
        if show == "all":
            try:
                async with asyncio.timeout(self._request_seconds):
                    await self._compute(query)
            except TimeoutError:
                error = self._too_long(query)
            except WorkerError as failure:
                error = str(failure)
        cached = self.planner.cached_results(query)
        preview: Preview | str | None = None
        if cached.is_complete and cached.plans is not None:
            preview = await self.planner.preview(query, choose(cached.plans, query))
        return _rendered(query, results_view(cached, query, preview), error)

    async def _compute(self, query: Query) -> None:
        """Compute everything that the page shows."""
        with suppress(InfeasibleError):  # the page says why there is no plan
            plans = await self.planner.plans(query)
            collected = (self.planner.collected(query, plan) for plan in plans if not plan.protocol.needs_trusted_party)
            await asyncio.gather(self.planner.account(query, choose(plans, query)), *collected)

    def _too_long(self, query: Query) -> str:
        return (
            f"This was not computed within {self._request_seconds:g} s; what was computed is kept, and asking again "
            f"continues from there. Ask for fewer releases, users or categories, or run: {query.plan_command()}"
        )

    async def _stream(self, request: Request) -> PreparedResponse | StreamingResponse:
        try:
            query = Query.parse(dict(request.query_params))
        except ShuffledpError as error:
            return json_response({"error": str(error)}, status=400)
        return StreamingResponse(self._events(query), media_type="text/event-stream")

    async def _events(self, query: Query) -> AsyncIterator[str]:
        stream = self.planner.stream(query)
        try:
            async for name, document in stream:
                yield f"event: {name}\ndata: {json.dumps(document, allow_nan=False, default=list)}\n\n"
        except ShuffledpError as error:
            yield f"event: failed\ndata: {json.dumps({'error': str(error)})}\n\n"
        finally:
            await stream.aclose()

    async def _preview(self, request: Request) -> PreparedResponse:
        async def answer(query: Query, plan: Plan, _: Plans) -> dict[str, Any]:
            result = await self.planner.preview(query, plan)
            if isinstance(result, str):
                raise ParameterError(result)
            rows = [dict(zip(("name", *result.head[1:]), row, strict=True)) for row in result.rows]
            return {"id": plan_id(plan), "shape": query.shape, "rows": rows}

        return await self._answer(request, answer)

    async def _account(self, request: Request) -> PreparedResponse:
        async def answer(query: Query, plan: Plan, _: Plans) -> dict[str, Any]:
            curve = await self.planner.account(query, plan)
            return {"id": plan_id(plan), "delta": query.delta} | account_document(curve)

        return await self._answer(request, answer)

    async def _command(self, request: Request) -> PreparedResponse:
        async def answer(query: Query, plan: Plan, plans: Plans) -> dict[str, Any]:
            collected = await self.planner.collected(query, plan)
            task = query.task_command(plan, collected.messages) if isinstance(collected, Collected) else None
            return {
                "id": plan_id(plan),
                "plan": query.plan_command(),
                "task": task,
                "python": query.python(plans, plan),
            }

        return await self._answer(request, answer)

    async def _answer(
        self, request: Request, answer: Callable[[Query, Plan, Plans], Awaitable[dict[str, Any]]]
    ) -> PreparedResponse:
        """JSON about the chosen plan of the query; errors as JSON of one line."""

        async def work(query: Query) -> PreparedResponse:
            try:
                async with asyncio.timeout(self._request_seconds):
                    plans = await self.planner.plans(query)
                    return json_response(await answer(query, choose(plans, query), plans))
            except TimeoutError:
                return json_response({"error": self._too_long(query)}, status=503)
            except WorkerError as error:
                return json_response({"error": str(error)}, status=503)

        try:
            return await _unless_disconnected(request, work(Query.parse(dict(request.query_params))))
        except ShuffledpError as error:
            return json_response({"error": str(error)}, status=400)


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, PreparedResponse]) -> PreparedResponse:
    """The result of some work, which is cancelled if the client disconnects."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            return PreparedResponse(499)
        return working.result()
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()


def _rendered(query: Query, results: dict[str, Any] | None, error: str = "", *, status: int = 200) -> PreparedResponse:
    body = render_page(
        "planner.html", form=form_view(query), results=results, error=error, version=shuffledp.__version__
    )
    return PreparedResponse(status, body, (_HTML,))


class _Server(uvicorn.Server):
    """Ends open streams when it is asked to stop: it would wait for them, and then log their end as an error."""

    def __init__(self, config: uvicorn.Config, planner: PlannerApp) -> None:
        super().__init__(config)
        self._planner = planner

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._planner.stop()
        super().handle_exit(sig, frame)


def serve_planner(port: int, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve the page on 127.0.0.1 until SIGINT or SIGTERM; ``started`` is called with its URL."""
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise OutputError(
            f"Cannot listen on {LOOPBACK} port {port}: {error.strerror}; choose another port with `port`."
        ) from None
    planner = PlannerApp()
    config = uvicorn.Config(
        planner.app(),
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = _Server(config, planner)
    # set here already: a signal before the server has set its own must not interrupt it halfway
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with listener:
            started(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
            server.run([listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
