"""The operator's interface of a server: JSON over HTTP on a UNIX socket in its work directory, for its user alone.

Each server has its own socket and shows nothing of the other party. Since it is not a port, no proxy can expose it by
mistake. On request there is also a page for reading, on a loopback port of its own.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

import shuffledp
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.loopback import LOOPBACK
from shuffledp.collection.server.operator_page import OperatorPage
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse, json_response
from shuffledp.collection.server.task_directory import TaskDirectory
from shuffledp.collection.task.series import MAX_SERIES_BYTES
from shuffledp.collection.task.signed_documents import kind_of_document
from shuffledp.collection.transport.connection import LocalConnection, failure_reason, local_address
from shuffledp.collection.wire.keys import SealingKey, SigningKey, VerifyingKey
from shuffledp.collection.wire.times import time_to
from shuffledp.errors import DataError, RefusedError, ShuffledpError, UnreachableError

SOCKET = "operator.sock"
_NOT_READY = "The server is not ready: it cannot write durably, or its rounds do not advance. The log says why."
_MAX_ANSWER_BYTES = 1 << 28
_ASK_SECONDS = 120.0
_EXPIRES_SOON = timedelta(days=30)
KEPT_SECONDS = 7 * 86_400.0
"""How long after its end a round is expected to arrive; later its key is not needed any more."""

Overview = Callable[[bool], Mapping[str, Any]]
"""The state of a server; called with whether numbers of reports are to be exact."""
Actions = Mapping[str, Callable[[str], Mapping[str, Any]]]
"""Actions on the round of a task, called with the task's id; they return the new state or raise ShuffledpError."""


@dataclass(frozen=True)
class Alert:
    """Something that the operator should know before everything else."""

    level: str
    """``act`` if the operator must act, ``watch`` if it may resolve itself."""
    message: str
    task: str | None = None
    """The id of the task whose round it is about, if it is about one."""

    @classmethod
    def act(cls, message: str, task: str | None = None) -> Alert:
        """An alert that calls for an action."""
        return cls("act", message, task)

    @classmethod
    def watch(cls, message: str, task: str | None = None) -> Alert:
        """An alert that may resolve itself."""
        return cls("watch", message, task)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"level": self.level, "task": self.task, "message": self.message}


def expiry_alerts(keys: Iterable[SigningKey | SealingKey], now: datetime) -> list[Alert]:
    """Alerts about keys of a server that have expired or soon do."""
    alerts = []
    for key in keys:
        if key.expires is None or key.expires > now + _EXPIRES_SOON:
            continue
        name = f"The {key.kind} key {key.public.id}"
        if key.expires <= now:
            alerts.append(Alert.act(f"{name} expired at {time_to(key.expires)}; rounds that need it do not advance."))
        else:
            alerts.append(Alert.watch(f"{name} expires at {time_to(key.expires)}: create its successor."))
    return alerts


def author_alerts(keys: Iterable[VerifyingKey], now: datetime) -> list[Alert]:
    """Alerts about the newest keys of authors that have expired or soon do: what opens later is refused."""
    return [
        Alert.watch(
            f"The author's key {key.id} {'expired' if key.expires <= now else 'expires'} at {time_to(key.expires)}: "
            "tasks that open later are refused; ask the author for a rotation, or for a new key."
        )
        for key in keys
        if key.expires is not None and key.expires <= now + _EXPIRES_SOON
    ]


def missing_key_alerts(series: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """Alerts about series whose coming rounds have no keys, while there is time to put them back."""
    return [
        Alert.act(
            f"{entry['missing_keys']:,} coming rounds of the series {entry['name']} ({entry['series'][:16]}) have no "
            "key here: put the key files into round_keys."
        )
        for entry in series
        if entry["missing_keys"]
    ]


def unused_key_alerts(series: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """Alerts about keys of rounds that are over and never arrived here, so that nothing destroys their keys.

    They are not destroyed without a person, since a clock that is wrong by years would end a whole series.
    """
    return [
        Alert.watch(
            f"{entry['unused_keys']:,} rounds of the series {entry['name']} ({entry['series'][:16]}) ended more than "
            "a week ago and never arrived here; their keys still exist: destroy them with shuffledp keys destroy."
        )
        for entry in series
        if entry["unused_keys"]
    ]


class OperatorServer:
    """Answers the operator of a server, in the server's event loop."""

    def __init__(
        self,
        directory: Path,
        role: str,
        overview: Overview,
        actions: Actions,
        is_ready: Callable[[], Awaitable[bool]],
        *,
        tasks: TaskDirectory[Any],
        port: int | None = None,
        release_url: str = "",
    ) -> None:
        """``port`` is that of the page, if there is one; ``release_url`` is where the page finds releases."""
        self._path, self._role, self._is_ready = directory / SOCKET, role, is_ready
        self._overview, self._actions, self._tasks = overview, actions, tasks
        self._port, self._release_url = port, release_url
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen. If that fails, the server runs without this interface and logs the reason."""
        with _logged_failure():
            self._servers.append(await _serve(self._app(), _listen(self._path)))
        if self._port is not None:
            with _logged_failure():
                listener = socket.create_server((LOOPBACK, self._port))
                page = OperatorPage(self._role, self.overview, release_url=self._release_url)
                self._servers.append(await _serve(page.app(), listener))
                event("operator-page", role=self._role, host=LOOPBACK, port=listener.getsockname()[1])

    def _app(self) -> Starlette:
        routes = [
            Route("/operator/v1/overview", self._show),
            Route("/operator/v1/rounds/{task}/{action}", self._act, methods=["POST"]),
            Route("/operator/v1/tasks", self._list_tasks, methods=["GET"]),
            Route("/operator/v1/tasks", self._put, methods=["PUT"]),
            Route("/operator/v1/series/{series}/cancel", self._put, methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)

    async def stop(self) -> None:
        """Close the sockets."""
        for server in self._servers:
            server.close()
        with suppress(OSError):  # a read-only disk must not prevent the shutdown
            self._path.unlink(missing_ok=True)

    async def overview(self, exact: bool) -> dict[str, Any]:
        """The state of the server, its alerts first."""
        ready = await self._is_ready()
        document = dict(await run_in_threadpool(self._overview, exact))
        alerts = [] if ready else [Alert.act(_NOT_READY).to_json()]
        head = {
            "role": self._role,
            "now": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": shuffledp.__version__,
            "ready": ready,
        }
        return head | document | {"alerts": alerts + document["alerts"]}

    async def _show(self, request: Request) -> PreparedResponse:
        return await _answer(self.overview(request.query_params.get("exact") == "true"))

    async def _act(self, request: Request) -> PreparedResponse:
        task, name = request.path_params["task"], request.path_params["action"]
        action = self._actions.get(name)
        if action is None:
            offered = " or ".join(self._actions)
            return json_response({"error": f"The {self._role} can {offered} a round, not {name!r}."}, status=404)
        return await _answer(run_in_threadpool(action, task))

    async def _list_tasks(self, _: Request) -> PreparedResponse:
        now = datetime.now(UTC).timestamp()
        series = [accepted.to_json(now) for accepted in self._tasks.series]
        return json_response({"tasks": self._tasks.names, "series": series})

    async def _put(self, request: Request) -> PreparedResponse:
        """Accept a signed task, series, cancellation or rotation."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > MAX_SERIES_BYTES:
                return json_response({"error": f"A document has at most {MAX_SERIES_BYTES:,} bytes."}, status=413)
        named = request.path_params.get("series")
        if named is not None and (kind_of_document(bytes(content)) != "cancel" or named.encode() not in content):
            return json_response({"error": f"This is not a cancellation of the series {named!r}."}, status=409)
        return await _answer(run_in_threadpool(self._tasks.put, bytes(content)))


@contextmanager
def _logged_failure() -> Iterator[None]:
    """Log a failure instead of raising it: the server can run without this interface."""
    try:
        yield
    except OSError as error:
        event("operator-unavailable", level=logging.ERROR, reason=error.strerror or type(error).__name__)


async def _serve(app: ASGIApp, listener: socket.socket) -> asyncio.Server:
    """Serve an application in the running event loop."""
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    listener.setblocking(False)

    def connection() -> HttpToolsProtocol:
        return HttpToolsProtocol(config=config, server_state=state, app_state={}, _loop=loop)

    if listener.family == socket.AF_UNIX:
        return await loop.create_unix_server(connection, sock=listener)
    return await loop.create_server(connection, sock=listener)


async def _answer(result: Awaitable[Mapping[str, Any]]) -> PreparedResponse:
    """The result of an action; errors become JSON documents of one line."""
    try:
        return json_response(await result)
    except ShuffledpError as error:
        return json_response({"error": str(error)}, status=409)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return json_response({"error": f"The action failed: {reason}. Try again later."}, status=503)


def _listen(path: Path) -> socket.socket:
    """A socket for its owner alone. A socket that exists is a leftover, since this process has locked the directory."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with local_address(path) as name:
            listener.bind(name)
        path.chmod(0o600)  # before it listens, so that no connection was accepted
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def ask_server(directory: Path, method: str, path: str, content: bytes | None = None) -> dict[str, Any]:
    """The answer of the server that runs in a directory to its operator; RefusedError with its reason if it refuses."""
    try:
        with LocalConnection(directory / SOCKET, timeout=_ASK_SECONDS) as connection:
            answer = connection.request(method, path, content, max_bytes=_MAX_ANSWER_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        raise UnreachableError(f"No server runs in {directory}; start it, or name the settings it runs with.") from None
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"Cannot ask the server in {directory}: {failure_reason(error)}.") from None
    if answer.document is None:
        raise DataError(f"The server in {directory} did not answer with JSON.")
    if answer.status != 200:
        raise RefusedError(str(answer.document.get("error") or answer.document.get("title") or answer.status))
    return dict(answer.document)
