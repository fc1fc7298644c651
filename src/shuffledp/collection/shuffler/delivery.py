"""Delivery of a batch to the analyzer or the next shuffler: the manifest, then chunks until the batch is complete.

Every step is idempotent, and the next attempt continues an interrupted one.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.collection.shuffler.shuffling import ShuffledBatch
from shuffledp.collection.transport.connection import Answer, Connection
from shuffledp.collection.wire.formats import digest
from shuffledp.errors import ShuffledpError

_DONE = ("complete", "released", "refused")
_RETRY_STATUSES = (408, 425, 429)
"""Client errors after which a later attempt may succeed."""


class DeliveryError(ShuffledpError):
    """The receiver could not be reached or did not accept the batch."""


class DeliveryRefusedError(DeliveryError):
    """The receiver rejected the batch; retries fail until an operator acts."""


@dataclass(frozen=True)
class Delivery:
    """Delivers to one server."""

    address: str
    certificates: Path | None = None
    seconds: float = 60.0
    stopping: Callable[[], bool] = field(default=lambda: False)
    receiver: str = "analyzer"
    """What messages call that server."""
    _connections: set[Connection] = field(default_factory=set, repr=False, compare=False)

    def deliver(self, batch: ShuffledBatch) -> str:
        """Deliver all of a batch, and return its state there; DeliveryError if that fails."""
        with self._connect() as connection:
            self._connections.add(connection)
            try:
                path = f"/v{batch.manifest.version}/batches/{batch.manifest.task_id.hex()}"
                status = self._put(connection, path, batch.signed, "application/json")
                while not (state := self._finished(status, batch)):
                    for index in self._missing(status, batch):
                        self._send_chunk(connection, path, batch, index)
                    status = self._checked(connection.request("GET", path), (200,))
                return state
            except (OSError, http.client.HTTPException) as error:
                raise DeliveryError(
                    f"The delivery to the {self.receiver} at {self.address} was interrupted: {_reason(error)}."
                ) from None
            finally:
                self._connections.discard(connection)

    def abort(self) -> None:
        """Interrupt deliveries that are in progress, from another thread."""
        for connection in list(self._connections):
            connection.abort()

    def _send_chunk(self, connection: Connection, path: str, batch: ShuffledBatch, index: int) -> None:
        if self.stopping():
            raise ShutdownError
        self._put(connection, f"{path}/chunks/{index}", batch.chunk(index), "application/octet-stream")

    def _connect(self) -> Connection:
        """Plain HTTP is allowed here: the settings have checked the address."""
        return Connection(self.address, insecure_http=True, timeout=self.seconds, authorities=self.certificates)

    def _put(self, connection: Connection, path: str, body: bytes, kind: str) -> Mapping[str, Any]:
        return self._checked(connection.request("PUT", path, body, {"Content-Type": kind}), (200, 201))

    def _finished(self, status: Mapping[str, Any], batch: ShuffledBatch) -> str:
        """The state of the batch if the receiver has all of it, else ""; DeliveryError if the answer is not valid.

        The answer is checked carefully: the batch is deleted after it, and any server may answer with 200.
        """
        state, missing = status.get("state"), status.get("missing")
        if (
            not isinstance(state, str)
            or not isinstance(missing, list)
            or status.get("manifest") != digest(batch.signed).hex()
        ):
            raise DeliveryError(f"This is not the {self.receiver}: its answer does not have the state of this batch.")
        if state not in _DONE:
            return ""
        if missing:
            raise DeliveryError("The answer is contradictory: the batch is complete, and chunks are missing.")
        return state

    def _missing(self, status: Mapping[str, Any], batch: ShuffledBatch) -> list[int]:
        """The chunks that the receiver asks for."""
        missing: list[int] = status["missing"]
        if status["state"] != "receiving" or not missing:
            raise DeliveryError("The answer names neither a final state nor missing chunks.")
        if any(type(index) is not int or not 0 <= index < len(batch.manifest.chunks) for index in missing):
            raise DeliveryError(f"The {self.receiver} asks for a chunk that the batch does not have.")
        return missing

    def _checked(self, answer: Answer, expected: tuple[int, ...]) -> Mapping[str, Any]:
        """The JSON object of a response with an expected status; others become errors with status and problem."""
        if answer.status not in expected:
            name = str((answer.document or {}).get("type", "")).rpartition(":")[2][:60]
            refused = 400 <= answer.status < 500 and answer.status not in _RETRY_STATUSES
            kind = DeliveryRefusedError if refused else DeliveryError
            raise kind(f"The {self.receiver} answered {answer.status} {name}".rstrip() + ".", status=answer.status)
        if answer.document is None:
            raise DeliveryError(f"This is not the {self.receiver}: its answer is not a JSON object.")
        return answer.document


def _reason(error: Exception) -> str:
    message = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
