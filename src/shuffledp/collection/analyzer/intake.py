"""Intake of batches: manifests signed by the shuffler of the task, and the chunks that they name."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from shuffledp.collection.analyzer.batches import Batches, BatchOutcome, most_manifest_bytes, read_manifest
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
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
from shuffledp.collection.server.responses import PreparedResponse, json_response, problem
from shuffledp.errors import ParameterError

_MOST_MISSING = 1000
_SHORT = 1 << 16  # a body that is not wanted is let through and dropped, so that the connection can go on
_CLOSE = (b"connection", b"close")
_UNKNOWN_TASK = problem(403, "unknown-task", "This analyzer answers no such task.", close=True)
_NO_BATCH = problem(404, "no-batch", "There is no batch of this task, or it has no such chunk.", close=True)
_BAD_SIGNATURE = problem(403, "bad-signature", "The manifest is not signed by the shuffler of the task.")
_MALFORMED = problem(422, "malformed", "This is no manifest of a batch that this task can have.")
_OTHER_MANIFEST = problem(409, "other-manifest", "The batch of this task has another manifest.")
_WRONG_CHUNK = problem(409, "wrong-chunk", "The chunk is not the one that the manifest says.")
_TOO_LONG = problem(413, "too-long", "The body has more bytes than it can have here.", close=True)
_CUT_OFF = problem(400, "cut-off", "The body ended too early.", close=True)
_BUSY = problem(503, "overloaded", "Too much arrives at the same time; come back later.", retry_after=1, close=True)
_NOT_DURABLE = problem(503, "not-durable", "It cannot be kept at the moment.", retry_after=5)
_STOPPING = problem(503, "shutting-down", "The analyzer is shutting down.", retry_after=5, close=True)


def read_task_id(text: str) -> bytes | None:
    """The id of a task from an address: 64 hexadecimal digits in lower case."""
    if len(text) != 64 or any(letter not in "0123456789abcdef" for letter in text):
        return None
    return bytes.fromhex(text)


class BatchEndpoints:
    """Takes manifests and chunks, within a limit on the memory of all together."""

    def __init__(
        self,
        tasks: AnalyzerTasks,
        batches: Batches,
        metrics: Metrics,
        *,
        most_bytes: int,
        arrived: Callable[[], None],
    ) -> None:
        self._tasks, self._batches, self._arrived = tasks, batches, arrived
        self.memory = MemoryLimit(most_bytes=most_bytes)
        self._one_manifest = asyncio.Lock()  # reading one takes several times its size
        self._stopping = False
        self._manifests = metrics.counter("manifests", "Manifests by what became of them", ["outcome"])
        self._chunks = metrics.counter("chunks", "Chunks by what became of them", ["outcome"])

    def stop(self) -> None:
        """PreparedResponse with 503 from now on."""
        self._stopping = True

    async def put_manifest(self, request: Request) -> PreparedResponse:
        """Begin a batch."""
        answer = await self._put_manifest(request)
        self._manifests.labels(str(answer.status)).inc()
        return answer

    async def put_chunk(self, request: Request) -> PreparedResponse:
        """Keep a chunk of a batch."""
        answer = await self._put_chunk(request)
        self._chunks.labels(str(answer.status)).inc()
        return answer

    async def show_batch(self, request: Request) -> PreparedResponse:
        """How far a batch is, and which chunks it misses."""
        task_id = read_task_id(request.path_params["task"])
        return await run_in_threadpool(self._show, task_id) if task_id else _NO_BATCH

    async def _put_manifest(self, request: Request) -> PreparedResponse:
        if self._stopping:
            return _STOPPING
        if not has_type(request.scope, b"application/json"):
            return _unread(request, WRONG_TYPE)
        task_id = read_task_id(request.path_params["task"])
        task = self._tasks.get(task_id) if task_id else None
        if task is None or task_id is None:
            return _UNKNOWN_TASK
        async with self._body(request, most_manifest_bytes(task)) as content:
            if isinstance(content, PreparedResponse):
                return content
            async with self._one_manifest:
                return await _durably(self._begin, task, content)

    def _begin(self, task: Any, content: bytes) -> PreparedResponse:
        try:
            manifest = read_manifest(content, task)
        except ParameterError:
            return _MALFORMED
        if manifest is None:
            return _BAD_SIGNATURE
        outcome = self._batches.put_manifest(manifest, content)
        if outcome is BatchOutcome.CONFLICT:
            return _OTHER_MANIFEST
        if outcome is BatchOutcome.GONE:
            known = self._batches.get(task.id)
            detail = f"The SHA-256 of its manifest was {known.manifest.hex() if known else ''}."
            return problem(410, "finished", "The batch of this task is finished.", detail=detail)
        return self._show(task.id, status=201 if outcome is BatchOutcome.NEW else 200)

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
            return await _durably(self._keep, task_id, index, content)

    def _keep(self, task_id: bytes, index: int, content: bytes) -> PreparedResponse:
        outcome = self._batches.put_chunk(task_id, index, content)
        if outcome is BatchOutcome.UNKNOWN:
            return _NO_BATCH
        if outcome is BatchOutcome.CONFLICT:
            return _WRONG_CHUNK
        known = self._batches.get(task_id)
        state = known.state.value if known else ""
        return json_response({"state": state}, status=201 if outcome is BatchOutcome.NEW else 200)

    def _size(self, task_id: bytes, index: int) -> int | PreparedResponse:
        """The bytes of a chunk that is missing; of any other, the answer, which does not depend on what is sent."""
        known = self._batches.get(task_id)
        if known is None or not 0 <= index < known.chunks:
            return _NO_BATCH
        try:
            if not known.state.is_final and not self._batches.holds(task_id, index):
                return self._batches.manifest(task_id).chunk_size(index)
        except FileNotFoundError:  # finished just now
            known = self._batches.get(task_id) or known
        return json_response({"state": known.state.value})

    def _show(self, task_id: bytes, *, status: int = 200) -> PreparedResponse:
        known = self._batches.get(task_id)
        if known is None:
            return _NO_BATCH
        missing = self._batches.missing(task_id, _MOST_MISSING)
        told = {"state": known.state.value, "manifest": known.manifest.hex(), "missing": missing}
        return json_response(told, status=status)

    @asynccontextmanager
    async def _body(self, request: Request, most: int) -> AsyncIterator[bytes | PreparedResponse]:
        """The body, if it has at most so many bytes, or the refusal; it counts as memory until the block ends."""
        length = declared_length(request.scope) or 0
        try:
            with self.memory.upload() as upload:
                try:
                    if length > most:
                        raise TooLongError
                    self.memory.check(length)
                    content: bytes | PreparedResponse = await upload.read(request.receive, most)
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
    """The answer to a request whose body does not matter: if it is long, or may be, the connection ends with it."""
    told = declared_length(request.scope)
    if (told is not None and told <= _SHORT) or _CLOSE in answer.headers:
        return answer
    return PreparedResponse(answer.status, answer.body, (*answer.headers, _CLOSE), answer.problem)


async def _durably(function: Callable[..., PreparedResponse], *arguments: Any) -> PreparedResponse:
    """Do it in another thread; a disk that is full or broken is no fault of the sender, who should come again."""
    try:
        return await run_in_threadpool(function, *arguments)
    except (OSError, sqlite3.Error) as error:
        event("not-durable", level=logging.ERROR, reason=type(error).__name__)
        return _NOT_DURABLE


def _read_index(text: str) -> int | None:
    """A chunk's place, written as numbers are."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 and str(int(text)) == text else None
