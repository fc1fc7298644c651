"""Sending of a report over HTTP: the same bytes at every attempt, with exponential backoff."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Answer, Connection, backoff_seconds, failure_reason
from shuffledp.collection.wire.tokens import authorization
from shuffledp.errors import ParameterError, RefusedError, UnreachableError

_RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
_FINAL_STATUSES = (409, 410, 413, 422)


@dataclass(frozen=True)
class Patience:
    """Number of attempts, and the pauses between them in seconds."""

    attempts: int = 12
    first_pause: float = 0.5
    longest_pause: float = 60.0
    longest_wait: float = 600.0
    """If the server asks for a longer pause than this, delivery is given up until the next call."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or not (0 < self.first_pause <= self.longest_pause and self.longest_wait >= 0):
            raise ParameterError(f"Patience needs at least one attempt and growing pauses, not {self}.")

    def pause(self, attempt: int, requested: float = 0.0) -> float:
        """Seconds before the next attempt: exponential backoff with jitter, plus the pause that the server requested.

        The jitter spreads the retries of devices that were all refused at the same time.
        """
        return requested + backoff_seconds(attempt, first=self.first_pause, longest=self.longest_pause)


def reports_path(task: Task) -> str:
    """The path for reports of a task, by its version."""
    return f"/v{task.version}/tasks/{task.id.hex()}/reports"


def deliver(
    connection: Connection,
    path: str,
    report: bytes,
    *,
    token: str | bytes | None = None,
    version: int = 1,
    patience: Patience | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Answer:
    """Send a report until the server has stored it durably.

    In ``version`` 2 of the wire format an enrolment token is bound to the report, and is not sent itself. A token of
    type ``bytes`` is a Privacy Pass token for this report.
    RefusedError if the server rejects it, with ``final`` true if retries cannot succeed; UnreachableError if it does
    not answer or asks for too long a pause.
    """
    patience = patience or Patience()
    headers = {"Content-Type": "application/octet-stream", "User-Agent": "shuffledp"}
    if token is not None:
        headers["Authorization"] = _authorization(token, report, version)
    failure = ""
    for attempt in range(patience.attempts):
        requested = 0.0
        try:
            answer = connection.request("POST", path, report, headers)
        except ssl.SSLCertVerificationError as error:  # a retry would not help
            raise UnreachableError(
                f"The certificate of {connection.url} is not valid: {error.verify_message}."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            failure = failure_reason(error)
        else:
            if answer.accepted:
                return answer
            if answer.status not in _RETRY_STATUSES:
                raise _refusal(answer)
            failure, requested = answer.sentence, answer.retry_after or 0.0
            if requested > patience.longest_wait:
                raise UnreachableError(
                    f"The server asks for a retry in {requested:g} s: {failure}", retry_after=requested
                )
        if attempt + 1 < patience.attempts:
            wait(patience.pause(attempt, requested))
    times = "attempt" if patience.attempts == 1 else "attempts"
    raise UnreachableError(
        f"The report could not be delivered to {connection.url} after {patience.attempts} {times}: {failure}"
    )


def _authorization(token: str | bytes, report: bytes, version: int) -> str:
    if isinstance(token, bytes):
        from shuffledp.collection.wire.privacy_pass import token_header  # most devices do not need it

        return token_header(token)
    return authorization(token, report, version)


def _refusal(answer: Answer) -> RefusedError:
    """The error for a refusal; final only with a problem document of a shuffler, since a proxy may answer anything."""
    return RefusedError(
        f"The server refused the report ({answer.sentence})",
        status=answer.status,
        problem=answer.problem,
        final=answer.status in _FINAL_STATUSES and answer.problem is not None,
    )
