"""A connection to a server over HTTP, kept open between requests; of the standard library alone."""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from shuffledp.errors import DataError, ParameterError

__all__ = ["Answer", "Connection"]

_MOST_ANSWER = 1 << 16
_PROBLEM = "urn:shuffledp:problem:"
_PATH = re.compile("[A-Za-z0-9._~/%-]*")
_LONGEST = 10  # times the timeout
_LONGEST_RETRY = 86_400.0
_LONGEST_DATE = 64


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    accepted: bool = False
    """It has the report for good."""
    problem: str | None = None
    """The name of the problem, if a server of shuffledp said it."""
    detail: str = ""
    retry_after: float | None = None
    """Seconds until it should be asked again, if it said so."""

    @property
    def sentence(self) -> str:
        """The status and what was said about it, in a line."""
        return f"{self.status} {self.detail}".strip() if self.detail else f"{self.status}"


@dataclass
class Connection:
    """A connection to a server that is kept open between requests; of one thread.

    Certificates are always checked, against the system's authorities or those of ``authorities``. Redirections are
    not followed.
    """

    url: str
    insecure_http: bool = False
    """Allow plain HTTP to other machines: reports are sealed, but whoever listens sees who reports."""
    timeout: float = 30.0
    """Seconds of silence that end a request; no request takes more than ten times as long."""
    authorities: str | Path | None = None
    """A file of certificates (PEM) to trust instead of the system's."""
    _open: http.client.HTTPConnection | None = field(default=None, init=False, repr=False)
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        wrong = ParameterError(f"{self.url!r} is no address like https://shuffler.example.")
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
            raise wrong
        if parts.username is not None or parts.password is not None or not _PATH.fullmatch(parts.path):
            raise wrong
        if not (parts.hostname.isascii() and parts.hostname.isprintable() and " " not in parts.hostname):
            raise wrong
        if parts.scheme == "http" and not self.insecure_http and not _is_loopback(parts.hostname):
            raise ParameterError(f"{self.url} is not encrypted; use https, or allow plain HTTP explicitly.")
        if not 0 < self.timeout <= 3600:
            raise ParameterError(f"The timeout must be a number of seconds up to 3600, not {self.timeout}.")
        self._host, self._port, self._secure = parts.hostname, port, parts.scheme == "https"
        self._base = parts.path.rstrip("/")
        if self._secure:
            self._context = _context(self.authorities)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request and its answer; OSError or HTTPException if there is none.

        A server may have closed a connection that was idle, so then it is tried once on a new one.
        """
        return _answer(*self._twice(method, path, body, dict(headers or {}), _MOST_ANSWER))

    def download(self, path: str, *, most: int) -> tuple[Answer, bytes]:
        """What is there, if it has at most so many bytes, with the status; errors as of ``request``."""
        response, content = self._twice("GET", path, None, {}, most)
        if len(content) > most:
            raise http.client.HTTPException(f"more than {most:,} bytes")
        return _answer(response, content if response.status != 200 else b""), content

    def _twice(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], most: int
    ) -> tuple[http.client.HTTPResponse, bytes]:
        reused = self._open is not None
        try:
            return self._request(method, path, body, headers, most)
        except (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            if not reused:
                raise
        return self._request(method, path, body, headers, most)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], most: int
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connected()
        try:
            with _at_most(_LONGEST * self.timeout, connection.sock):
                try:
                    connection.request(method, self._base + path, body=body, headers=headers)
                except (BrokenPipeError, ConnectionResetError):
                    if connection.sock is None:
                        raise
                    # it may have said why before it stopped to listen, as when a report is too long
                response = connection.getresponse()
                content = response.read(most + 1)
                if response.length and len(content) <= most:  # cut off, which reading a part does not complain of
                    raise http.client.IncompleteRead(content, response.length)
        except BaseException:
            self.close()
            raise
        if response.will_close or len(content) > most:
            self.close()
        return response, content

    def _connected(self) -> http.client.HTTPConnection:
        if self._open is None:
            if self._context is not None:
                opened: http.client.HTTPConnection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self.timeout, context=self._context
                )
            else:
                opened = http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
            try:
                opened.connect()
            except BaseException:
                opened.close()
                raise
            self._open = opened
        return self._open


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _context(authorities: str | Path | None) -> ssl.SSLContext:
    """Certificates and host names are checked."""
    try:
        return ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    except OSError as error:  # also ssl.SSLError
        raise DataError(f"Cannot read the certificates {authorities}: {error.strerror or error}.") from None


@contextmanager
def _at_most(seconds: float, sock: socket.socket | None) -> Iterator[None]:
    """End a request that goes on and on, byte by byte."""

    def end() -> None:
        try:
            if sock is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # an SSLSocket's own would first drop its encryption
        except OSError:
            pass  # it was over already

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _answer(response: http.client.HTTPResponse, content: bytes) -> Answer:
    """A page that says 200 and is not the shuffler's, as of a proxy, is no receipt: that has no content, or JSON."""
    document = _document(content)
    accepted = response.status in (200, 201) and (not content or document is not None)
    kind = str((document or {}).get("type", ""))
    told = (document or {}).get("detail") or (document or {}).get("title") or ""
    return Answer(
        response.status,
        accepted=accepted,
        problem=kind.removeprefix(_PROBLEM) if kind.startswith(_PROBLEM) and not accepted else None,
        detail="".join(each for each in str(told)[:300] if each.isprintable()),
        retry_after=_retry_after(response.getheader("Retry-After"), response.getheader("Date")),
    )


def _document(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _retry_after(header: str | None, date: str | None) -> float | None:
    """Seconds until a request should be sent again: an integer, or an HTTP date as proxies send it; at most a day.

    A date is compared with the answer's own, if it has one, since a device's clock may be wrong.
    """
    if header is None:
        return None
    if re.fullmatch("[0-9]{1,20}", header.strip(), re.ASCII):
        return min(float(header), _LONGEST_RETRY)
    then, now = _http_date(header), _http_date(date)
    if then is None:
        return None
    return min(max(0.0, then - (time.time() if now is None else now)), _LONGEST_RETRY)


def _http_date(text: str | None) -> float | None:
    """Seconds since 1970, of any of the three forms of RFC 9110; None if it is none of them."""
    if text is None or len(text) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
