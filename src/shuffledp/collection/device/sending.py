"""Sending a report over HTTP: the same bytes again and again, with growing and random pauses, until it is answered."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from shuffledp.collection.transport.connection import Answer, Connection, backoff_seconds, failure_reason
from shuffledp.errors import ParameterError, RefusedError, UnreachableError

_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_NEVER = (409, 410, 413, 422)
_TOKEN = re.compile("[A-Za-z0-9._~+/=-]{16,512}")


@dataclass(frozen=True)
class Patience:
    """How long and how often to try."""

    attempts: int = 12
    first_pause: float = 0.5
    longest_pause: float = 60.0
    longest_wait: float = 600.0
    """A server that asks for more time than this is left alone until the next call."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or not (0 < self.first_pause <= self.longest_pause and self.longest_wait >= 0):
            raise ParameterError(f"Patience needs at least one attempt and growing pauses, not {self}.")

    def pause(self, attempt: int, asked: float = 0.0) -> float:
        """Seconds before the next attempt: random up to a doubling limit, on top of what the server asked for.

        Random also then, or all devices that were sent away at once would come back at once.
        """
        return asked + backoff_seconds(attempt, first=self.first_pause, longest=self.longest_pause)


def reports_path(task_id: bytes) -> str:
    """Where the reports of a task go."""
    return f"/v1/tasks/{task_id.hex()}/reports"


def deliver(
    connection: Connection,
    path: str,
    report: bytes,
    *,
    token: str | None = None,
    patience: Patience | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Answer:
    """Send until the server has the report for good.

    RefusedError if it says no, with ``final`` true if it always will; UnreachableError if it never answers or
    asks for more time than there is.
    """
    patience = patience or Patience()
    headers = _headers(token)
    trouble = ""
    for attempt in range(patience.attempts):
        asked = 0.0
        try:
            answer = connection.request("POST", path, report, headers)
        except ssl.SSLCertVerificationError as error:  # waiting does not make a certificate better
            raise UnreachableError(
                f"The certificate of {connection.url} is not good: {error.verify_message}."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            trouble = failure_reason(error)
        else:
            if answer.accepted:
                return answer
            if answer.status not in _AGAIN:
                raise _refusal(answer)
            trouble, asked = answer.sentence, answer.retry_after or 0.0
            if asked > patience.longest_wait:
                raise UnreachableError(f"The server asks to come back in {asked:g} s: {trouble}", retry_after=asked)
        if attempt + 1 < patience.attempts:
            wait(patience.pause(attempt, asked))
    times = "attempt" if patience.attempts == 1 else "attempts"
    raise UnreachableError(
        f"The report could not be delivered to {connection.url} after {patience.attempts} {times}: {trouble}"
    )


def _headers(token: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/octet-stream", "User-Agent": "shuffledp"}
    if token is not None:
        if not _TOKEN.fullmatch(token):
            raise ParameterError("A token has 16 to 512 letters, digits and signs of ._~+/=-")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _refusal(answer: Answer) -> RefusedError:
    """A proxy or a page of somebody else may say anything; only a shuffler's word is final."""
    return RefusedError(
        f"The server refused the report ({answer.sentence})",
        status=answer.status,
        problem=answer.problem,
        final=answer.status in _NEVER and answer.problem is not None,
    )
