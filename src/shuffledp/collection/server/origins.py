"""Which web pages may talk to a server: CORS for listed origins, and refusal of all others.

A browser sends a request of a page to any server, and by default only keeps the answer from the page: a report would
have been counted by then. So a request that says that it comes from a page (``Origin``) is refused unless its page is
listed, and types of content that a page can send without asking first are refused too.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shuffledp.collection.server.responses import PreparedResponse, problem

_NOT_ALLOWED = problem(
    403, "origin-not-allowed", "Web pages of this origin may not send requests to this server.", close=True
)
_REPORTS = re.compile(r"/v1/tasks/[^/]+/reports")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
    (b"access-control-max-age", b"7200"),
)
_EXPOSED = (b"access-control-expose-headers", b"Retry-After")
_VARY = (b"vary", b"Origin")
_ANYBODY = (b"access-control-allow-origin", b"*")


def guard_origins(app: Starlette, *, origins: Collection[str] = (), public: str | None = None) -> None:
    """Have an application refuse requests of pages whose origin is not listed, before anything of them is read.

    Addresses that begin with ``public`` may be read by any page.
    """
    app.middleware_stack = _Origins(app.build_middleware_stack(), origins, public)


class _Origins:
    """Around everything else, so that every answer has the headers, also that of a fault."""

    def __init__(self, inner: ASGIApp, origins: Collection[str], public: str | None) -> None:
        self._inner, self._public = inner, public
        self._allowed = {
            origin.encode("ascii"): (b"access-control-allow-origin", origin.encode()) for origin in origins
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        if self._public is not None and scope["path"].startswith(self._public) and scope["method"] in ("GET", "HEAD"):
            await self._inner(scope, receive, _adding(send, (_ANYBODY,)))
            return
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        if not origins:
            await self._inner(scope, receive, _adding(send, (_VARY,)) if self._allowed else send)
            return
        if len(origins) > 1 or origins[0] not in self._allowed:
            await _NOT_ALLOWED(scope, receive, send)
            return
        allowed = self._allowed[origins[0]]
        if scope["method"] == "OPTIONS" and _REPORTS.fullmatch(scope["path"]):
            await PreparedResponse(204, headers=(allowed, _VARY, *_PREFLIGHT))(scope, receive, send)
            return
        await self._inner(scope, receive, _adding(send, (allowed, _VARY, _EXPOSED)))


def _adding(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> Send:
    """A ``send`` that adds headers to the answer."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return add
