"""The HTTP client of devices, servers and operators, on the standard library alone, and backoff between attempts."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import SystemRandom
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from shuffledp.errors import DataError, ParameterError

_MAX_ANSWER_BYTES = 1 << 16
_MAX_LOCAL_ADDRESS_BYTES = 100  # of a UNIX socket; the limit of the system is a little above
_PROBLEM = "urn:shuffledp:problem:"
_PATH = re.compile("[A-Za-z0-9._~/%-]*")
_MAX_TIMEOUTS = 10  # a request takes at most this many times the timeout
_LONGEST_RETRY = 86_400.0
_LONGEST_DATE = 64
_MAX_EXPONENT = 1000
_RANDOM = SystemRandom()


@dataclass(frozen=True)
class Answer:
    """The response of a server."""

    status: int
    accepted: bool = False
    """Whether the server has stored the report durably."""
    problem: str | None = None
    """The name of the problem, if the response is a problem document of shuffledp."""
    detail: str = ""
    retry_after: float | None = None
    """Seconds until the next attempt, if the server asked for a pause."""
    document: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The body, if it is a JSON object."""

    @property
    def sentence(self) -> str:
        """The status and its detail, in one line."""
        return f"{self.status} {self.detail}".strip() if self.detail else f"{self.status}"


@dataclass(frozen=True)
class ServerUrl:
    """The parts of a server URL."""

    scheme: str
    host: str
    port: int | None
    path: str
    """Without a trailing slash."""

    @classmethod
    def parse(cls, url: str) -> ServerUrl:
        """Accept http or https, a host, a port and a plain path; anything else is a ParameterError."""
        if "@" in url:  # not shown, since it may contain a password
            raise ParameterError("A server URL must be given without a user name and a password.")
        invalid = ParameterError(f"{url!r} is not a valid server URL (expected e.g. https://server.example).")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise invalid from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or port == 0:
            raise invalid
        if not (_PATH.fullmatch(parts.path) and host.isascii() and host.isprintable() and " " not in host):
            raise invalid
        return cls(parts.scheme, host, port, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Host and port as in an HTTP request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine, by its name alone."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Response(Protocol):
    """What an answer is made of, apart from its content."""

    @property
    def status(self) -> int:
        """The status code."""

    def getheader(self, name: str) -> str | None:
        """The value of a header field."""


@dataclass(eq=False)
class Connection:
    """A connection to a server that stays open between requests; for use in one thread.

    Certificates are always verified, against the system's authorities or those of ``authorities``. Redirects are not
    followed.
    """

    url: str
    insecure_http: bool = False
    """Allow plain HTTP to other machines: reports are sealed, but an eavesdropper sees who reports."""
    timeout: float = 30.0
    """Seconds without data after which a request fails; it takes at most ten times as long in total."""
    authorities: str | Path | None = None
    """A file of certificates (PEM) to trust instead of the system's."""
    _open: http.client.HTTPConnection | None = field(default=None, init=False, repr=False)
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)
    _aborted: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self._parts = ServerUrl.parse(self.url)
        if self._parts.scheme == "http" and not self.insecure_http and not self._parts.is_loopback:
            raise ParameterError(f"{self.url} is not encrypted; use https, or allow plain HTTP explicitly.")
        if not 0 < self.timeout < float("inf"):
            raise ParameterError(f"The timeout must be a positive number of seconds, not {self.timeout}.")
        if self._parts.scheme == "https":
            self._context = tls_context(self.authorities)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        max_bytes: int = _MAX_ANSWER_BYTES,
    ) -> Answer:
        """Send one request and read at most ``max_bytes`` bytes of its answer; OSError or HTTPException if it fails.

        The server may have closed an idle connection; then the request is repeated once on a new one.
        """
        return _answer(*self._request_with_retry(method, path, body, dict(headers or {}), max_bytes))

    def download(self, path: str, *, max_bytes: int) -> tuple[Answer, bytes]:
        """GET a path; HTTPException if the content is longer than ``max_bytes``, other errors as in ``request``."""
        response, content = self._request_with_retry("GET", path, None, {}, max_bytes)
        if len(content) > max_bytes:
            raise http.client.HTTPException(f"more than {max_bytes:,} bytes")
        return _answer(response, content if response.status != 200 else b""), content

    def _request_with_retry(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], max_bytes: int
    ) -> tuple[Response, bytes]:
        reused = self._open is not None
        try:
            return self._request(method, path, body, headers, max_bytes)
        except (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            if not reused or self._aborted:
                raise
        return self._request(method, path, body, headers, max_bytes)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def abort(self) -> None:
        """Interrupt the request that is in progress, from another thread; no further request is sent."""
        self._aborted = True
        if self._open is not None:
            _shut_down(self._open.sock)

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], max_bytes: int
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connected()
        try:
            with _deadline(_MAX_TIMEOUTS * self.timeout, connection.sock):
                try:
                    connection.request(method, self._parts.path + path, body=body, headers=headers)
                except (BrokenPipeError, ConnectionResetError):
                    if connection.sock is None:
                        raise
                    # the server may have answered before it stopped reading, as for a report that is too long
                response = connection.getresponse()
                content = response.read(max_bytes + 1)
                if response.length and len(content) <= max_bytes:  # truncated, which a partial read does not report
                    raise http.client.IncompleteRead(content, response.length)
        except BaseException:
            self.close()
            raise
        if response.will_close or len(content) > max_bytes:
            self.close()
        return response, content

    def _connected(self) -> http.client.HTTPConnection:
        if self._aborted:
            raise ConnectionAbortedError("the connection was aborted")
        if self._open is None:
            opened = self._new_connection()
            try:
                opened.connect()
            except BaseException:
                opened.close()
                raise
            self._open = opened
        return self._open

    def _new_connection(self) -> http.client.HTTPConnection:
        """A connection object that is not connected yet."""
        host, port = self._parts.host, self._parts.port
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self.timeout)


class LocalConnection(Connection):
    """HTTP over a UNIX socket."""

    def __init__(self, socket_path: Path, *, timeout: float = 30.0) -> None:
        self._socket_path = socket_path
        super().__init__("http://localhost", timeout=timeout)

    def _new_connection(self) -> http.client.HTTPConnection:
        return _LocalHttpConnection(self._socket_path, self.timeout)


class _LocalHttpConnection(http.client.HTTPConnection):
    def __init__(self, socket_path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._socket_path = socket_path

    def connect(self) -> None:
        """Connect to the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with local_address(self._socket_path) as address:
            self.sock.connect(address)


@contextmanager
def local_address(socket_path: Path) -> Iterator[str]:
    """A path of a UNIX socket that is short enough for its address, however long the original path is."""
    if len(os.fsencode(socket_path)) <= _MAX_LOCAL_ADDRESS_BYTES:
        yield str(socket_path)
        return
    directory = os.open(socket_path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{socket_path.name}"
    finally:
        os.close(directory)


def failure_reason(error: Exception) -> str:
    """Why a request failed, in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def tls_context(authorities: str | Path | None) -> ssl.SSLContext:
    """A context that verifies certificates and host names, with the system's authorities or only those of a file."""
    try:
        return ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    except OSError as error:  # also ssl.SSLError
        raise DataError(f"Cannot read the certificates {authorities}: {error.strerror or error}.") from None


@contextmanager
def _deadline(seconds: float, sock: socket.socket | None) -> Iterator[None]:
    """Abort a request after ``seconds``, even if bytes keep arriving."""
    timer = threading.Timer(seconds, _shut_down, (sock,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(sock: socket.socket | None) -> None:
    with suppress(OSError):  # it may be closed
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket.shutdown would first drop the encryption


def _answer(response: Response, content: bytes) -> Answer:
    """The answer in a response; accepted means status 200 or 201 with JSON or no content, not with a proxy's page."""
    document = _document(content)
    accepted = response.status in (200, 201) and (not content or document is not None)
    kind = str((document or {}).get("type", ""))
    detail = (document or {}).get("detail") or (document or {}).get("title") or ""
    return Answer(
        response.status,
        accepted=accepted,
        problem=kind.removeprefix(_PROBLEM) if kind.startswith(_PROBLEM) and not accepted else None,
        detail="".join(character for character in str(detail)[:300] if character.isprintable()),
        retry_after=_retry_after(response.getheader("Retry-After"), response.getheader("Date")),
        document=document,
    )


def _document(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _retry_after(header: str | None, date: str | None) -> float | None:
    """Seconds until the next attempt, from an integer or an HTTP date, at most a day.

    A date is compared with the ``Date`` of the answer, if it has one, since the clock of a device may be wrong.
    """
    if header is None:
        return None
    if re.fullmatch("[0-9]{1,20}", header.strip(), re.ASCII):
        return min(float(header), _LONGEST_RETRY)
    then, now = _http_date(header), _http_date(date)
    if then is None:
        return None
    return min(max(0.0, then - (time.time() if now is None else now)), _LONGEST_RETRY)


def _http_date(value: str | None) -> float | None:
    """Seconds since 1970 of a date in any of the three formats of RFC 9110; None if it is not valid."""
    if value is None or len(value) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """The pause after a number of failures: ``first``, doubled with each failure, at most ``longest``, with jitter.

    It is uniform between half of that and all of it, so that senders that failed together do not retry together.
    """
    return min(longest, first * 2.0 ** min(failures, _MAX_EXPONENT)) * _RANDOM.uniform(0.5, 1.0)
