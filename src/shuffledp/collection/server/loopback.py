"""Pages for people on this machine: which requests are answered, and the headers of every response.

A page of another origin can make a browser send requests to loopback. The name in the Host header is checked, so that
a name of an attacker that resolves to 127.0.0.1 (DNS rebinding) gets nothing, and requests on behalf of other pages are
refused; links to a page are allowed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shuffledp.collection.server.bodies import header
from shuffledp.collection.server.responses import PreparedResponse
from shuffledp.pages.assets import CONTENT_TYPES, read_asset
from shuffledp.pages.headers import security_headers

LOOPBACK = "127.0.0.1"
_LOCAL_NAME = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_WRONG_HOST = PreparedResponse(
    421, b"This page is for this machine alone: open it as 127.0.0.1 or localhost.\n", (_TEXT,)
)
_OTHER_PAGE = PreparedResponse(403, b"Pages of other origins may not send requests to this page.\n", (_TEXT,))
_READ_ONLY = PreparedResponse(405, b"This page only answers GET.\n", (_TEXT, (b"allow", b"GET, HEAD")))
_MAX_QUERY_BYTES = 8192
_LONG_QUERY = PreparedResponse(414, b"The query of a URL has at most %d bytes here.\n" % _MAX_QUERY_BYTES, (_TEXT,))


class LoopbackPages:
    """Middleware of pages on loopback; outermost, so that also errors have the headers."""

    def __init__(self, inner: ASGIApp, *, forms: bool = False) -> None:
        """``forms`` says whether a page may send a form to its own origin."""
        headers = security_headers(forms=forms)
        self._inner = inner
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                names = {name.lower() for name, _ in given}
                added = [(name, value) for name, value in self._headers if name not in names]
                message = {**message, "headers": [*given, *added]}
            await send(message)

        await (_refusal(scope) or self._inner)(scope, receive, with_headers)


def _refusal(scope: Scope) -> PreparedResponse | None:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not _LOCAL_NAME.fullmatch(hosts[0]):
        return _WRONG_HOST
    origin = header(scope, b"origin")
    if origin is not None and origin != b"http://" + hosts[0]:
        return _OTHER_PAGE
    if header(scope, b"sec-fetch-site") not in (None, b"same-origin", b"none"):
        navigation = header(scope, b"sec-fetch-mode") == b"navigate" and header(scope, b"sec-fetch-dest") == b"document"
        if not navigation:
            return _OTHER_PAGE
    if len(scope["query_string"]) > _MAX_QUERY_BYTES:
        return _LONG_QUERY
    return None if scope["method"] in ("GET", "HEAD") else _READ_ONLY


def asset_routes(prefix: str, names: Collection[str]) -> Sequence[Route]:
    """Routes of the static files of a page."""

    async def show(request: Request) -> PreparedResponse:
        name = request.url.path.rpartition("/")[2]
        return revalidated(request, read_asset(name), CONTENT_TYPES[name.rpartition(".")[2]])

    return [Route(f"{prefix}/{name}", show) for name in names]


def revalidated(request: Request, body: bytes, content_type: str, tag: str | None = None) -> PreparedResponse:
    """A response with an ETag, by default of the body; 304 without a body if the client has it."""
    tag = f'"{tag or hashlib.sha256(body).hexdigest()[:32]}"'
    headers = ((b"etag", tag.encode()), (b"content-type", content_type.encode()))
    if tag in (part.strip() for part in request.headers.get("if-none-match", "").split(",")):
        return PreparedResponse(304, headers=headers[:1])
    return PreparedResponse(200, body if request.method == "GET" else b"", headers)
