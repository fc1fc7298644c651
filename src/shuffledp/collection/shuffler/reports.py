"""``POST /v1/tasks/{task}/reports``: a report is checked, and answered once it is durable. Who sent it is not asked."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from shuffledp.collection.server.bodies import DisconnectedError, TooLongError, declared_length, header
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.origins import WRONG_TYPE, has_type
from shuffledp.collection.server.problems import Answer, problem
from shuffledp.collection.shuffler.book import KnownTask, TaskBook
from shuffledp.collection.shuffler.enrolment import TokenFolder, bearer_token, token_hash
from shuffledp.collection.shuffler.ingest import Ingest
from shuffledp.collection.shuffler.rate import RateLimit
from shuffledp.collection.shuffler.room import NoRoomError, Room
from shuffledp.collection.shuffler.store.interface import Incoming, Outcome, StoreError
from shuffledp.errors import ParameterError

UNKNOWN_TASK = problem(404, "unknown-task", "This shuffler does not serve that task.")
_NOT_OPEN = problem(403, "not-open-yet", "The round of this task is not open yet.")
_CLOSED = problem(410, "closed", "The round of this task takes no reports any more.")
_STOPPING = problem(503, "stopping", "The server is about to stop; send the report again.", retry_after=5)
_OVERLOADED = problem(503, "overloaded", "Too many reports at once; send it again later.", retry_after=2)
_NO_ROOM = problem(503, "overloaded", "Too many reports at once; send it again later.", retry_after=2, close=True)
_STORE_FAILS = problem(503, "store-fails", "The report could not be stored; send it again later.", retry_after=10)
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_TOKEN_MISSING = problem(401, "token-missing", "This task wants an enrolment token.", headers=_CHALLENGE)
_GONE = Answer(499)  # the sender went away: counted, and sent to nobody

_OUTCOMES = {
    Outcome.NEW: Answer(201),
    Outcome.SAME: Answer(200),
    Outcome.CONFLICT: problem(409, "conflict", "Another report with this id was accepted."),
    Outcome.CLOSED: _CLOSED,
    Outcome.FULL: problem(410, "full", "The round of this task is full."),
    Outcome.TOKEN_UNKNOWN: problem(403, "token-unknown", "This enrolment token is not one of the task's."),
    Outcome.TOKEN_SPENT: problem(403, "token-spent", "This enrolment token was used for another report."),
    Outcome.UNAVAILABLE: _STORE_FAILS,
}


class _Limit:
    """A rate, and what is said to those who are over it."""

    def __init__(self, rate: RateLimit) -> None:
        self.rate = rate
        self.answer = problem(429, "over-the-rate", "Too many reports a second.", retry_after=rate.retry_after)


class ReportEndpoint:
    """The application behind the address of a task's reports."""

    def __init__(
        self,
        book: TaskBook,
        room: Room,
        ingest: Ingest,
        rate: RateLimit,
        metrics: Metrics,
        *,
        tokens: TokenFolder | None,
        full: Callable[[KnownTask], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._book, self._room, self._ingest, self._tokens, self._clock = book, room, ingest, tokens, clock
        self._with_token, self._without = _Limit(rate), _Limit(rate.tenth())
        """Whoever shows a token that is not known here takes nothing from those who have one."""
        self._full = full
        """Called when a round is found to be full."""
        self.stopping = False
        """Once set, every report is answered with 503."""
        answers = metrics.counter("reports", "Reports by the status that they were answered with", ["status"])
        self._counts = {status: answers.labels(str(status)) for status in _STATUSES}
        self._seconds = metrics.histogram("report_seconds", "Time from the headers of a report to its answer")
        waiting = metrics.gauge("waiting_reports", "Reports that are here whole and wait to become durable")
        waiting.set_function(lambda: room.reports)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        answer = await self._answer(scope, receive)
        self._counts[answer.status].inc()
        self._seconds.observe(time.perf_counter() - started)
        if answer is not _GONE:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        known = self._book.get(scope["path_params"]["task"])
        if known is None:
            return UNKNOWN_TASK
        if not has_type(scope, b"application/octet-stream"):
            return WRONG_TYPE
        refusal = self._refuse_early(known)
        if refusal is not None:
            return refusal
        token: bytes | None = None
        limit = self._with_token
        if self._tokens is not None:
            shown = bearer_token(header(scope, b"authorization"))
            if shown is None:
                return _TOKEN_MISSING
            token = token_hash(shown)
            if not self._tokens.knows(known.name, token):
                limit = self._without
        if not limit.rate.take():
            return limit.answer
        length = declared_length(scope)
        if length is not None and length > known.size:
            return _too_long(known)
        return await self._take(known, receive, token)

    def _refuse_early(self, known: KnownTask) -> Answer | None:
        """Refuse what need not be read."""
        if self.stopping:
            return _STOPPING
        now = self._clock()
        if now >= known.closes:
            return _CLOSED
        return _NOT_OPEN if now < known.opens else None

    async def _take(self, known: KnownTask, receive: Receive, token: bytes | None) -> Answer:
        """Read the report, check it, and wait until it is durable."""
        with self._room.place() as place:
            try:
                body = await place.read(receive, known.size)
                report_id = known.format.report_id(body)
                await place.enter()
                outcome = await self._ingest.submit(Incoming(known.id, report_id, body, token))
            except NoRoomError:
                return _OVERLOADED if place.is_whole else _NO_ROOM
            except TooLongError:
                return _too_long(known)
            except DisconnectedError:
                return _GONE
            except ParameterError as error:
                return problem(422, "malformed", "This is no report of this task.", detail=str(error))
            except StoreError:
                return _STORE_FAILS
        if outcome is Outcome.FULL:
            self._full(known)
        return _OUTCOMES[outcome]


def _too_long(known: KnownTask) -> Answer:
    return problem(413, "too-long", f"A report of this task has {known.size:,} bytes; this is longer.", close=True)


_STATUSES = (200, 201, 401, 403, 404, 409, 410, 413, 415, 422, 429, 499, 503)
