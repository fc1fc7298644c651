"""Serving of a survey's site on loopback, with the headers that a real host must send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shuffledp.collection.survey.site import BuiltSite
from shuffledp.errors import OutputError

_HOST = "127.0.0.1"
_IDLE_SECONDS = 20


class SiteServer(ThreadingHTTPServer):
    """A server of one site on 127.0.0.1; other machines cannot reach it. Port 0 takes any free one."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, site: BuiltSite, port: int) -> None:
        self.site = site
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"Cannot listen on port {port}: {reason}; choose another.") from None

    @property
    def origin(self) -> str:
        """The origin of the page, which the shuffler must allow."""
        return f"http://{_HOST}:{self.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread until the block ends; the value is the origin."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield self.origin
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that disconnects is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server: SiteServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        name = "index.html" if self.path == "/" else self.path.removeprefix("/")
        status, content, kind = HTTPStatus.NOT_FOUND, b"There is no such file.\n", "text/plain; charset=utf-8"
        if self.headers.get("Host") != self.server.origin.removeprefix("http://"):  # DNS rebinding
            status, content = HTTPStatus.MISDIRECTED_REQUEST, b"This server has another name.\n"
        elif name in self.server.site.served:
            with suppress(OSError):
                content = (self.server.site.directory / name).read_bytes()
                status, kind = HTTPStatus.OK, self.server.site.served[name]
        self.send_response(status)
        for header, value in self.server.site.headers().items():
            self.send_header(header, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def version_string(self) -> str:
        """The name of this program, without versions."""
        return "shuffledp"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the base class
        """Requests are not logged."""
