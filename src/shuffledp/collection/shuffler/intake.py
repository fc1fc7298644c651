"""Intake of reports, ``POST /v1/tasks/{task}/reports`` or ``/v2``: rate limit, checks, an answer once it is durable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from shuffledp.collection.server.bodies import (
    WRONG_TYPE,
    DisconnectedError,
    MemoryLimit,
    MemoryLimitError,
    TooLongError,
    declared_length,
    has_type,
    header,
)
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.responses import PreparedResponse, problem, version_of
from shuffledp.collection.shuffler.admission import TOKEN_UNKNOWN, Admission, Admissions
from shuffledp.collection.shuffler.commit_queue import CommitQueue
from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, StoreError
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.errors import ParameterError

UNKNOWN_TASK = problem(404, "unknown-task", "This shuffler does not serve that task.")
UNKNOWN_SERIES = problem(404, "unknown-series", "This shuffler does not serve that series.")
_NOT_OPEN = problem(403, "not-open-yet", "The round of this task is not open yet.")
_CLOSED = problem(410, "closed", "The round of this task is closed.")
_STOPPING = problem(503, "stopping", "The server is shutting down; send the report again later.", retry_after=5)
_OVERLOADED = problem(503, "overloaded", "Too many reports at once; send it again later.", retry_after=2)
_NO_MEMORY = problem(503, "overloaded", "Too many reports at once; send it again later.", retry_after=2, close=True)
_STORE_FAILS = problem(503, "store-fails", "The report could not be stored; send it again later.", retry_after=10)
_GONE = PreparedResponse(499)  # the sender disconnected: counted, but not sent

_OUTCOMES = {
    ReportOutcome.NEW: PreparedResponse(201),
    ReportOutcome.SAME: PreparedResponse(200),
    ReportOutcome.CONFLICT: problem(409, "conflict", "Another report with this id was accepted."),
    ReportOutcome.CLOSED: _CLOSED,
    ReportOutcome.FULL: problem(410, "full", "The round of this task is full."),
    ReportOutcome.TOKEN_UNKNOWN: TOKEN_UNKNOWN,
    ReportOutcome.TOKEN_SPENT: problem(403, "token-spent", "This enrolment token was used for another report."),
    ReportOutcome.UNAVAILABLE: _STORE_FAILS,
}


class RateLimit:
    """A token bucket: at most ``per_second`` reports on average and ``burst`` at once.

    It is shared by all senders on purpose: limits per sender would require their addresses.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, float(burst), clock
        self._available, self._at = float(burst), clock()

    def tenth(self) -> RateLimit:
        """A separate limit of a tenth of this one; unlimited if this is unlimited."""
        return RateLimit(self._per_second / 10, max(1, round(self._burst / 10)), self._clock)

    def take(self) -> bool:
        """Whether one more report is allowed now; it is counted."""
        if not self._per_second:
            return True
        now = self._clock()
        self._available = min(self._burst, self._available + (now - self._at) * self._per_second)
        self._at = now
        if self._available < 1:
            return False
        self._available -= 1
        return True

    @property
    def retry_after(self) -> int:
        """Seconds after which a retry may succeed, as an integer."""
        return min(3600, max(1, math.ceil(1 / self._per_second))) if self._per_second else 1


class _Limit:
    """A rate limit, and the response beyond it."""

    def __init__(self, rate: RateLimit) -> None:
        self.rate = rate
        self.answer = problem(429, "over-the-rate", "Too many reports a second.", retry_after=rate.retry_after)


class ReportEndpoint:
    """The ASGI application for the reports of a task."""

    def __init__(
        self,
        tasks: ShufflerTasks,
        memory: MemoryLimit,
        commit_queue: CommitQueue,
        rate: RateLimit,
        metrics: Metrics,
        *,
        admissions: Admissions,
        full: Callable[[ServedTask], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tasks, self._memory, self._commit_queue = tasks, memory, commit_queue
        self._admissions, self._clock = admissions, clock
        self._with_token, self._without_token = _Limit(rate), _Limit(rate.tenth())
        """Requests with invalid tokens have a limit of their own, and do not use up that of valid ones."""
        self._full = full
        """Called when a round is full."""
        self.stopping = False
        """Once set, every report is answered with 503."""
        answers = metrics.counter("reports", "Reports by the status that they were answered with", ["status"])
        self._counts = {status: answers.labels(str(status)) for status in _STATUSES}
        self._seconds = metrics.histogram("report_seconds", "Time from the headers of a report to its answer")
        waiting = metrics.gauge("waiting_reports", "Complete reports that wait to become durable")
        waiting.set_function(lambda: memory.reports)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        answer = await self._answer(scope, receive)
        self._counts[answer.status].inc()
        self._seconds.observe(time.perf_counter() - started)
        if answer is not _GONE:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> PreparedResponse:
        served = self._tasks.get(scope["path_params"]["task"], version_of(scope))
        if served is None:
            return UNKNOWN_TASK
        if not has_type(scope, b"application/octet-stream"):
            return WRONG_TYPE
        refusal = self._refuse_early(served)
        if refusal is not None:
            return refusal
        admission = self._admissions.examine(served, header(scope, b"authorization"))
        if isinstance(admission, PreparedResponse):
            return admission
        limit = self._with_token if admission.is_known else self._without_token
        if not limit.rate.take():
            return limit.answer
        length = declared_length(scope)
        if length is not None and length > served.size:
            return _too_long(served)
        return await self._take(served, receive, admission)

    def _refuse_early(self, served: ServedTask) -> PreparedResponse | None:
        """The response to a report that is refused before its body is read, or None."""
        if self.stopping:
            return _STOPPING
        now = self._clock()
        if now >= served.closes:
            return _CLOSED
        return _NOT_OPEN if now < served.opens else None

    async def _take(self, served: ServedTask, receive: Receive, admission: Admission) -> PreparedResponse:
        """Read the report, check it, and wait until it is durable."""
        with self._memory.upload() as upload:
            try:
                body = await upload.read(receive, served.size)
                report_id = served.format.report_id(body)
                refusal = admission.refuse(body)
                if refusal is not None:
                    return refusal
                await upload.enter()
                incoming = Incoming(served.id, report_id, body, admission.token_hash)
                outcome = await self._commit_queue.submit(incoming)
            except MemoryLimitError:
                return _OVERLOADED if upload.is_complete else _NO_MEMORY
            except TooLongError:
                return _too_long(served)
            except DisconnectedError:
                return _GONE
            except ParameterError as error:
                return problem(422, "malformed", "The body is not a valid report of this task.", detail=str(error))
            except StoreError:
                return _STORE_FAILS
        if outcome is ReportOutcome.FULL:
            self._full(served)
        return _OUTCOMES[outcome]


def _too_long(served: ServedTask) -> PreparedResponse:
    return problem(
        413, "too-long", f"A report of this task has at most {served.size:,} bytes; this is longer.", close=True
    )


_STATUSES = (200, 201, 401, 403, 404, 409, 410, 413, 415, 422, 429, 499, 503)
