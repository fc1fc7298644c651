"""Intake of batches: manifests signed by a shuffler of the task, and the chunks that they name.

The analyzer takes the batch of the last shuffler, and in a chain every later shuffler that of the one before it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route

from shuffledp.collection.server.batches import Batches, BatchOutcome, EarlyBatchError, ExpectedBatch
from shuffledp.collection.server.bodies import (
    WRONG_TYPE,
    DisconnectedError,
    MemoryLimit,
    MemoryLimitError,
    TooLongError,
    declared_length,
    has_type,
)
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.responses import VERSIONS, PreparedResponse, json_response, problem, version_of
from shuffledp.errors import ParameterError

_MAX_MISSING = 1000
_MAX_DISCARDED_BYTES = 1 << 16  # an unwanted body of at most this size is read and dropped, to keep the connection open
_CLOSE = (b"connection", b"close")
_UNKNOWN_TASK = problem(403, "unknown-task", "This server does not take batches of that task.", close=True)
_NO_BATCH = problem(404, "no-batch", "There is no batch of this task, or it does not have that chunk.", close=True)
_BAD_SIGNATURE = problem(403, "bad-signature", "The manifest is not signed by the shuffler of the task.")
_MALFORMED = problem(422, "malformed", "The manifest is not valid for this task.")
_OTHER_MANIFEST = problem(409, "other-manifest", "The batch of this task has another manifest.")
_WRONG_CHUNK = problem(409, "wrong-chunk", "The hash of the chunk is not the one in the manifest.")
_TOO_LONG = problem(413, "too-long", "The body is longer than allowed.", close=True)
_CUT_OFF = problem(400, "cut-off", "The body ended too early.", close=True)
_BUSY = problem(503, "overloaded", "Too many uploads at once; try again later.", retry_after=1, close=True)
_NOT_DURABLE = problem(503, "not-durable", "Durable storage fails at the moment; try again later.", retry_after=5)
_STOPPING = problem(503, "shutting-down", "The server is shutting down.", retry_after=5, close=True)


def batch_routes(endpoints: BatchEndpoints) -> list[Route]:
    """The routes of both versions."""
    return [
        route
        for version in VERSIONS
        for route in (
            Route(f"/v{version}/batches/{{task}}", endpoints.put_manifest, methods=["PUT"]),
            Route(f"/v{version}/batches/{{task}}", endpoints.show_batch, methods=["GET"]),
            Route(f"/v{version}/batches/{{task}}/chunks/{{index}}", endpoints.put_chunk, methods=["PUT"]),
        )
    ]


def read_task_id(segment: str) -> bytes | None:
    """The id of a task in the path of a URL, 64 hexadecimal digits in lower case; None if it is not one."""
    if len(segment) != 64 or any(character not in "0123456789abcdef" for character in segment):
        return None
    return bytes.fromhex(segment)


class BatchTasks(Protocol):
    """The tasks whose batches a server takes."""

    def expected(self, task_id: bytes) -> ExpectedBatch | None:
        """The batch of the task that the server takes; None if it takes none."""


class BatchEndpoints:
    """Endpoints for manifests and chunks, with a limit on the memory of all uploads together."""

    def __init__(
        self,
        tasks: BatchTasks,
        batches: Batches,
        metrics: Metrics,
        *,
        max_bytes: int,
        arrived: Callable[[], None],
    ) -> None:
        self._tasks, self._batches, self._arrived = tasks, batches, arrived
        self.memory = MemoryLimit(max_bytes=max_bytes)
        self._manifest_lock = asyncio.Lock()  # one at a time: parsing takes several times its size in memory
        self._stopping = False
        self._manifests = metrics.counter("manifests", "Manifests by outcome", ["outcome"])
        self._chunks = metrics.counter("chunks", "Chunks by outcome", ["outcome"])

    def stop(self) -> None:
        """Answer with 503 from now on."""
        self._stopping = True

    async def put_manifest(self, request: Request) -> PreparedResponse:
        """Begin a batch with its signed manifest."""
        answer = await self._put_manifest(request)
        self._manifests.labels(str(answer.status)).inc()
        return answer

    async def put_chunk(self, request: Request) -> PreparedResponse:
        """Store a chunk of a batch."""
        answer = await self._put_chunk(request)
        self._chunks.labels(str(answer.status)).inc()
        return answer

    async def show_batch(self, request: Request) -> PreparedResponse:
        """The state of a batch, and its missing chunks."""
        task_id = read_task_id(request.path_params["task"])
        return await run_in_threadpool(self._show, task_id) if task_id else _NO_BATCH

    async def _put_manifest(self, request: Request) -> PreparedResponse:
        if self._stopping:
            return _STOPPING
        if not has_type(request.scope, b"application/json"):
            return _unread(request, WRONG_TYPE)
        task_id = read_task_id(request.path_params["task"])
        expected = self._tasks.expected(task_id) if task_id else None
        if expected is None or expected.task.version != version_of(request.scope):
            return _UNKNOWN_TASK
        async with self._body(request, expected.max_manifest_bytes) as content:
            if isinstance(content, PreparedResponse):
                return content
            async with self._manifest_lock:
                return await _durably(self._begin, expected, content)

    def _begin(self, expected: ExpectedBatch, content: bytes) -> PreparedResponse:
        try:
            manifest = expected.read(content)
        except EarlyBatchError as error:
            return problem(425, "too-early", "The round is not over yet; try again later.", detail=str(error))
        except ParameterError:
            return _MALFORMED
        if manifest is None:
            return _BAD_SIGNATURE
        outcome = self._batches.put_manifest(manifest, content)
        if outcome is BatchOutcome.CONFLICT:
            return _OTHER_MANIFEST
        if outcome is BatchOutcome.GONE:
            batch = self._batches.get(expected.task.id)
            detail = f"The SHA-256 of its manifest was {batch.manifest.hex() if batch else ''}."
            return problem(410, "finished", "The batch of this task is finished.", detail=detail)
        return self._show(expected.task.id, status=201 if outcome is BatchOutcome.NEW else 200)

    async def _put_chunk(self, request: Request) -> PreparedResponse:
        if self._stopping:
            return _STOPPING
        if not has_type(request.scope, b"application/octet-stream"):
            return _unread(request, WRONG_TYPE)
        task_id = read_task_id(request.path_params["task"])
        index = _read_index(request.path_params["index"])
        if task_id is None or index is None:
            return _NO_BATCH
        size = await run_in_threadpool(self._size, task_id, index)
        if isinstance(size, PreparedResponse):
            return _unread(request, size)
        async with self._body(request, size) as content:
            if isinstance(content, PreparedResponse):
                return content
            return await _durably(self._store_chunk, task_id, index, content)

    def _store_chunk(self, task_id: bytes, index: int, content: bytes) -> PreparedResponse:
        outcome = self._batches.put_chunk(task_id, index, content)
        if outcome is BatchOutcome.UNKNOWN:
            return _NO_BATCH
        if outcome is BatchOutcome.CONFLICT:
            return _WRONG_CHUNK
        batch = self._batches.get(task_id)
        state = batch.state.value if batch else ""
        return json_response({"state": state}, status=201 if outcome is BatchOutcome.NEW else 200)

    def _size(self, task_id: bytes, index: int) -> int | PreparedResponse:
        """The size of a missing chunk; for any other chunk the answer, which does not depend on the body."""
        batch = self._batches.get(task_id)
        if batch is None or not 0 <= index < batch.chunks:
            return _NO_BATCH
        try:
            if not batch.state.is_final and not self._batches.has_chunk(task_id, index):
                return self._batches.manifest(task_id).chunk_size(index)
        except FileNotFoundError:  # finished just now
            batch = self._batches.get(task_id) or batch
        return json_response({"state": batch.state.value})

    def _show(self, task_id: bytes, *, status: int = 200) -> PreparedResponse:
        batch = self._batches.get(task_id)
        if batch is None:
            return _NO_BATCH
        missing = self._batches.missing(task_id, _MAX_MISSING)
        document = {"state": batch.state.value, "manifest": batch.manifest.hex(), "missing": missing}
        return json_response(document, status=status)

    @asynccontextmanager
    async def _body(self, request: Request, max_bytes: int) -> AsyncIterator[bytes | PreparedResponse]:
        """The body if it has at most ``max_bytes`` bytes, else the refusal; its memory counts until the block ends."""
        length = declared_length(request.scope) or 0
        try:
            with self.memory.upload() as upload:
                try:
                    if length > max_bytes:
                        raise TooLongError
                    self.memory.check(length)
                    content: bytes | PreparedResponse = await upload.read(request.receive, max_bytes)
                except (TooLongError, DisconnectedError, MemoryLimitError) as error:
                    content = _REFUSALS[type(error)]
                yield content
        finally:
            self._arrived()


_REFUSALS: dict[type[Exception], PreparedResponse] = {
    TooLongError: _TOO_LONG,
    DisconnectedError: _CUT_OFF,
    MemoryLimitError: _BUSY,
}


def _unread(request: Request, answer: PreparedResponse) -> PreparedResponse:
    """The answer to a request whose body is not read: if the body is or may be long, the connection is closed."""
    length = declared_length(request.scope)
    if (length is not None and length <= _MAX_DISCARDED_BYTES) or _CLOSE in answer.headers:
        return answer
    return PreparedResponse(answer.status, answer.body, (*answer.headers, _CLOSE), answer.problem)


async def _durably(function: Callable[..., PreparedResponse], *arguments: Any) -> PreparedResponse:
    """Call the function in another thread; if the disk is full or broken, answer that the sender should retry."""
    try:
        return await run_in_threadpool(function, *arguments)
    except (OSError, sqlite3.Error) as error:
        event("not-durable", level=logging.ERROR, reason=type(error).__name__)
        return _NOT_DURABLE


def _read_index(segment: str) -> int | None:
    """The index of a chunk: at most nine decimal digits without leading zeros."""
    is_number = segment.isascii() and segment.isdigit() and len(segment) <= 9 and str(int(segment)) == segment
    return int(segment) if is_number else None
