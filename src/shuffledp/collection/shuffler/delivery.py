"""Handing a batch to the analyzer: the manifest, then the chunks it misses, until it has them all.

Every step can be repeated, and an attempt that broke off is continued by the next.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shuffledp.collection.shuffler.release import Batch, StoppingError
from shuffledp.collection.wire.formats import digest
from shuffledp.errors import DataError, ShuffledpError

__all__ = ["Delivery", "DeliveryError", "DeliveryRefusedError"]

_MOST_ANSWER_BYTES = 1 << 20
_DONE = ("complete", "released", "refused")
_LATER = (408, 425, 429)
"""Of the statuses that put the fault with the sender, those that time alone mends."""


class DeliveryError(ShuffledpError):
    """The analyzer could not be reached or did not take the batch."""


class DeliveryRefusedError(DeliveryError):
    """The analyzer answered, and its answer is no: the same batch will get the same answer until somebody acts."""


@dataclass(frozen=True)
class Delivery:
    """Delivers to one analyzer."""

    address: str
    certificates: Path | None = None
    seconds: float = 60.0
    stopping: Callable[[], bool] = field(default=lambda: False)
    _connections: set[http.client.HTTPConnection] = field(default_factory=set, repr=False, compare=False)

    def deliver(self, batch: Batch) -> str:
        """Return the analyzer's state of the batch once it has all of it; else a DeliveryError."""
        connection = self._connect()
        self._connections.add(connection)
        try:
            path = f"{urlsplit(self.address).path.rstrip('/')}/v1/batches/{batch.manifest.task_id.hex()}"
            told = self._put(connection, path, batch.signed, "application/json")
            while not (state := _finished(told, batch)):
                for index in _missing(told, batch):
                    self._send_chunk(connection, path, batch, index)
                told = self._get(connection, path)
            return state
        except (OSError, http.client.HTTPException) as error:
            raise DeliveryError(f"Delivery broke off: {_reason(error)}.") from None
        finally:
            self._connections.discard(connection)
            connection.close()

    def abort(self) -> None:
        """Break off what is under way, from another thread."""
        for connection in list(self._connections):
            with suppress(OSError, AttributeError):  # it may be closed by now
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _send_chunk(self, connection: http.client.HTTPConnection, path: str, batch: Batch, index: int) -> None:
        if self.stopping():
            raise StoppingError
        self._put(connection, f"{path}/chunks/{index}", batch.chunk(index), "application/octet-stream")

    def _put(self, connection: http.client.HTTPConnection, path: str, body: bytes, kind: str) -> dict[str, Any]:
        connection.request("PUT", path, body, {"Content-Type": kind})
        return _read(connection, (200, 201))

    def _get(self, connection: http.client.HTTPConnection, path: str) -> dict[str, Any]:
        connection.request("GET", path)
        return _read(connection, (200,))

    def _connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.address)
        host = address.hostname or ""
        if address.scheme == "http":
            return http.client.HTTPConnection(host, address.port, timeout=self.seconds)
        context = trust(self.certificates)
        return http.client.HTTPSConnection(host, address.port, timeout=self.seconds, context=context)


def trust(certificates: Path | None) -> ssl.SSLContext:
    """What the analyzer's certificate is checked against: the system's authorities, or those of a file alone."""
    try:
        return ssl.create_default_context(cafile=str(certificates) if certificates else None)
    except OSError as error:
        raise DataError(f"Cannot use the certificates {certificates}: {error.strerror or error}.") from None


def _finished(told: dict[str, Any], batch: Batch) -> str:
    """The state of the batch if the analyzer has all of it, else nothing; what is no such answer is an error.

    Other servers than an analyzer may answer with 200 as well, and the batch is deleted because of this answer.
    """
    state, missing = told.get("state"), told.get("missing")
    if (
        not isinstance(state, str)
        or not isinstance(missing, list)
        or told.get("manifest") != digest(batch.signed).hex()
    ):
        raise DeliveryError("What answers there is no analyzer: its answer does not tell the state of this batch.")
    if state not in _DONE:
        return ""
    if missing:
        raise DeliveryError("The analyzer says that it has the batch, and that it misses chunks.")
    return state


def _missing(told: dict[str, Any], batch: Batch) -> list[int]:
    """The chunks that the analyzer asks for."""
    missing: list[int] = told["missing"]
    if told["state"] != "receiving" or not missing:
        raise DeliveryError("The analyzer says neither that it has the batch nor what it misses.")
    if any(type(each) is not int or not 0 <= each < len(batch.manifest.chunks) for each in missing):
        raise DeliveryError("The analyzer asks for a chunk that the batch does not have.")
    return missing


def _read(connection: http.client.HTTPConnection, wanted: tuple[int, ...]) -> dict[str, Any]:
    """The JSON of a good answer; others become errors with their status and the name of the problem."""
    answer = connection.getresponse()
    content = answer.read(_MOST_ANSWER_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if answer.status not in wanted:
        name = str(document.get("type", "")).rpartition(":")[2][:60] if isinstance(document, dict) else ""
        refused = 400 <= answer.status < 500 and answer.status not in _LATER
        kind = DeliveryRefusedError if refused else DeliveryError
        raise kind(f"The analyzer answered {answer.status} {name}".rstrip() + ".", status=answer.status)
    if not isinstance(document, dict):
        raise DeliveryError("What answers there is no analyzer: its answer is no JSON object.")
    return document


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
