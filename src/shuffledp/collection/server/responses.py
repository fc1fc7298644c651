"""HTTP responses: prepared bytes, JSON, files in parts, and errors as problem documents (RFC 9457)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

_PIECE_BYTES = 1 << 16
VERSIONS = (1, 2)
"""Versions of the wire format, each with paths of its own."""
_WITHOUT_BODY = (204, 304)  # and without Content-Length


@dataclass(frozen=True)
class PreparedResponse:
    """A complete response that is built once and sent often; an ASGI application, which Starlette accepts."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    problem: str = ""
    """The name of the problem, if the response is one; metrics count them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        if self.problem and (app := scope.get("app")) is not None and hasattr(app.state, "metrics"):
            app.state.metrics.refused(self.problem)
        lengths = [] if self.status in _WITHOUT_BODY else [(b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": [*lengths, *self.headers]})
        end = max(0, len(self.body) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, end, _PIECE_BYTES):  # at most one piece is buffered for a peer that does not read
            piece = self.body[start : start + _PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": self.body[end:]})


def version_of(scope: Scope) -> int:
    """The version of the wire format in the path of a request: ``/v2/...`` or ``/v1/...``."""
    return 2 if scope["path"].startswith("/v2/") else 1


def json_response(document: Mapping[str, Any], *, status: int = 200) -> PreparedResponse:
    """A JSON document."""
    content = json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    return PreparedResponse(status, content, ((b"content-type", b"application/json"),))


def problem(
    status: int,
    name: str,
    title: str,
    *,
    detail: str = "",
    retry_after: int | None = None,
    close: bool = False,
    headers: Mapping[str, str] | None = None,
) -> PreparedResponse:
    """A problem document: programs use ``name``; ``title`` and ``detail`` are for people.

    With ``close`` the connection is closed after the response, so that an unwanted body is not read.
    """
    document = {"type": f"urn:shuffledp:problem:{name}", "title": title, "status": status}
    if detail:
        document["detail"] = detail
    added = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    if retry_after is not None:
        added.append((b"retry-after", b"%d" % retry_after))
    if close:
        added.append((b"connection", b"close"))
    added += [(key.lower().encode("latin-1"), value.encode("latin-1")) for key, value in (headers or {}).items()]
    return PreparedResponse(status, json.dumps(document, ensure_ascii=False).encode() + b"\n", tuple(added), name)


async def _http_exception(request: Request, error: Exception) -> Any:  # noqa: ARG001
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    phrase = HTTPStatus(status).phrase
    return problem(status, phrase.lower().replace(" ", "-"), f"{phrase}.", headers=headers)


async def _fault(request: Request, error: Exception) -> Any:  # noqa: ARG001
    return problem(500, "fault", "Internal error of the server; it was logged.", close=True)


EXCEPTION_HANDLERS: Mapping[Any, Any] = {HTTPException: _http_exception, Exception: _fault}
"""For Starlette: every exception becomes a problem document."""


_FILE_PART_BYTES = 1 << 15


@dataclass(frozen=True, eq=False)
class FileResponse:
    """An open file, which must not change while it is sent and is closed afterwards."""

    file: BinaryIO
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file in parts; a slow reader holds only one part in memory."""
        with self.file as file:
            size = os.fstat(file.fileno()).st_size
            headers = [(b"content-length", b"%d" % size), *self.headers]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                await _send_body(file, receive, send)
            await send({"type": "http.response.body"})


async def _send_body(file: BinaryIO, receive: Receive, send: Send) -> None:
    disconnected = asyncio.create_task(_until_disconnected(receive))
    try:
        while not disconnected.done() and (piece := await run_in_threadpool(file.read, _FILE_PART_BYTES)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        disconnected.cancel()


async def _until_disconnected(receive: Receive) -> None:
    """Wait for the peer to disconnect, which ``send`` does not report."""
    while (await receive())["type"] != "http.disconnect":
        pass
