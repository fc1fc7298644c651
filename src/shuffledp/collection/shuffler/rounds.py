"""Scheduling of rounds: open, collect, close at the deadline or when full, mix, deliver, delete.

For each round there is one coroutine, which looks where the round is and takes it one step further. It starts the same
way whether the server has just been started or was killed in the middle of something. The states of all rounds are
read at once, every tick: a round that waits costs no statement of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.scheduling import Retries, ShutdownError, wait_for
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.delivery import Delivery, DeliveryError, DeliveryRefusedError
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.mixing import Mixer
from shuffledp.collection.shuffler.store.interface import (
    FINISHED,
    DamagedRoundError,
    RoundRecord,
    RoundState,
    Store,
    StoreError,
    Survey,
)
from shuffledp.collection.shuffler.store.rules import check_give_up
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.collection.transport.connection import backoff_seconds
from shuffledp.errors import DataError, ShuffledpError

_LONGEST_WAIT = 300.0
_LONGEST_WAIT_REFUSED = 3600.0
_LONGEST_WAIT_ELSEWHERE = 60.0
_FAILURES_UNTIL_NOT_READY = 3
_CLAIM_SECONDS, _CLAIM_PAUSE_SECONDS = 5.0, 0.05
_THREADS, _DELIVERIES = 4, 2

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class RoundStatus:
    """What an operator sees of a round."""

    task: str
    """The task's id in hexadecimal."""
    name: str | None
    """The task's name; None, like the other fields of the task, if its file is missing or refused."""
    state: str
    reports: int
    opens: float | None = None
    closes: float | None = None
    """Seconds since 1970."""
    minimum: int | None = None
    maximum: int | None = None
    report_bytes: int | None = None
    """Size of one report."""
    failures: int = 0
    """Attempts of the present step that failed."""
    error: str | None = None
    """Why the round does not go on."""
    refused: bool = False
    """Whether the analyzer does not want its batch."""


@dataclass
class _ScheduledRound:
    """The state of a round that is not in the store."""

    served: ServedTask
    record: RoundRecord | None = None
    """From the last survey; None if the store did not have the round."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    full: bool = False
    retries: Retries = field(default_factory=Retries)
    """Of the step that it is at."""
    refused: bool = False
    """Whether the analyzer does not want its batch; somebody has to act."""
    confined: bool = False
    """Whether the last failure says nothing about this server: a delivery, a damaged round, a list of tokens."""
    refreshed_at: float = 0.0
    """When the record was last read by itself; a survey that began before is older."""
    below_since: float | None = None
    """When its time was first seen to be over with too few reports; it is destroyed after the grace period."""
    elsewhere: int = 0
    """How often its batch was looked for in vain."""

    @property
    def stuck(self) -> bool:
        """Whether this server keeps failing to take the round further."""
        damaged = self.record is not None and self.record.error is not None
        return self.retries.failures >= _FAILURES_UNTIL_NOT_READY and not self.confined and not damaged


class RoundScheduler:
    """Takes the rounds of all tasks through their states."""

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        mixer: Mixer,
        delivery: Delivery,
        metrics: Metrics,
        *,
        tokens: TokenDirectory | None,
        grace_seconds: float = 0.0,
        tick: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tasks, self._store, self._mixer, self._delivery = tasks, store, mixer, delivery
        self._tokens, self._grace_seconds, self._tick, self._clock = tokens, grace_seconds, tick, clock
        self._steady = clock.steady if isinstance(clock, RoundClock) else clock
        self._threads = ThreadPoolExecutor(_THREADS, "rounds")
        self._deliveries = ThreadPoolExecutor(_DELIVERIES, "deliveries")  # an analyzer that hangs stops nothing else
        self._one_permutation = asyncio.Semaphore(1)  # its memory is what was allowed for
        self._scheduled: dict[bytes, _ScheduledRound] = {}
        self._orphans: set[bytes] = set()
        self._damaged: dict[bytes, str] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._failed_surveys = 0
        self._states = metrics.gauge("rounds", "Rounds by state", ["state"])
        self._reports = metrics.gauge("round_reports", "Reports that a round accepted", ["task"])
        self._failed = metrics.counter("round_failures", "Steps of rounds that have to be tried again")
        refused = metrics.gauge("refused_batches", "Batches that the analyzer does not want; they are scheduled")
        refused.set_function(lambda: sum(each.refused for each in list(self._scheduled.values())))
        below = metrics.gauge("rounds_below_minimum", "Rounds past their closing time that are to be destroyed")
        below.set_function(lambda: sum(each.below_since is not None for each in list(self._scheduled.values())))
        self._destroyed = metrics.counter("destroyed_rounds", "Rounds destroyed with fewer reports than their minimum")
        damaged = metrics.gauge("damaged_rounds", "Rounds whose stored reports cannot be used")
        damaged.set_function(lambda: len(self._damaged))

    def overview(self) -> list[RoundStatus]:
        """Every round of the store, in the order of closing; may be called from any thread."""
        survey = self._store.survey()
        rounds = [self._status(task_id, record) for task_id, record in survey.rounds.items()]
        return sorted(rounds, key=lambda each: (each.closes or 0.0, each.task))

    def _status(self, task_id: bytes, record: RoundRecord) -> RoundStatus:
        served, scheduled = self._tasks.get(task_id.hex()), self._scheduled.get(task_id)
        error = record.error or (scheduled.retries.last_error or None if scheduled is not None else None)
        if record.state in FINISHED:
            error = None
        elif served is None:
            error = error or "The task of this round is missing or refused, so that nobody looks after it."
        return RoundStatus(
            task=task_id.hex(),
            name=served.task.name if served else None,
            state=record.state.value,
            reports=record.reports,
            opens=served.opens if served else None,
            closes=served.closes if served else None,
            minimum=served.task.minimum_users if served else None,
            maximum=served.task.maximum_users if served else None,
            report_bytes=served.size if served else None,
            failures=scheduled.retries.failures if scheduled else 0,
            error=error,
            refused=scheduled.refused if scheduled else False,
        )

    def close_now(self, task: str) -> int:
        """Close a round before its time, and return its number of reports; may be called from any thread.

        A round below its minimum is refused, since closing it would destroy its reports.
        """
        task_id, record = self._find(task)
        served = self._tasks.get(task_id.hex())
        if served is None:
            raise StoreError(f"The task of round {task} is missing or refused; put its file back to close the round.")
        if record.state is not RoundState.COLLECTING:
            raise StoreError(f"Round {task} is {record.state.value}; only a collecting round can be closed.")
        if record.error is not None:
            raise StoreError(record.error)
        missing = served.task.minimum_users - record.reports
        if missing > 0:
            raise StoreError(
                f"Round {task} has {record.reports:,} reports; the guarantee requires {served.task.minimum_users:,}. "
                f"Wait for {missing:,} more, or cancel the round."
            )
        reports = self._store.close_round(task_id)
        event("closed", task=task, reports=reports, operator=True)
        return reports

    def cancel(self, task: str) -> None:
        """End a round that is not yet mixed: its reports are destroyed; may be called from any thread."""
        task_id, record = self._find(task)
        self._give_up(task_id, record, RoundState.CANCELLED)

    def abandon(self, task: str) -> None:
        """Give up a round that is damaged or keeps failing, or a batch that cannot be delivered any more.

        What is left of it is destroyed. May be called from any thread.
        """
        task_id, record = self._find(task)
        scheduled = self._scheduled.get(task_id)
        in_order = record.error is None and (scheduled is not None and not scheduled.retries.failures)
        if record.state in (RoundState.COLLECTING, RoundState.CLOSED) and in_order:
            raise StoreError(f"Round {task} is {record.state.value} and in order; to end it, cancel it.")
        self._give_up(task_id, record, RoundState.ABANDONED)

    def _find(self, task: str) -> tuple[bytes, RoundRecord]:
        with suppress(ValueError):
            task_id = bytes.fromhex(task)
            record = self._store.survey().rounds.get(task_id)
            if record is not None:
                return task_id, record
        raise StoreError(f"There is no round {task!r} in this store; a round is named by its task's id in hexadecimal.")

    def _give_up(self, task_id: bytes, record: RoundRecord, to: RoundState) -> None:
        is_new = check_give_up(record.state, to)
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            with self._store.claim(task_id) as mine:
                if mine:
                    self._store.give_up(task_id, to)
                    self._mixer.clean(task_id.hex())
                    if not is_new:
                        return
                    if to is RoundState.CANCELLED:
                        event("cancelled", level=logging.WARNING, task=task_id.hex(), reports=record.reports)
                    else:
                        event("abandoned", level=logging.WARNING, task=task_id.hex(), reports=record.reports)
                    return
            if time.monotonic() > deadline:
                raise StoreError(f"Round {task_id.hex()} is being mixed or delivered at the moment; try again later.")
            time.sleep(_CLAIM_PAUSE_SECONDS)

    @property
    def failing(self) -> bool:
        """Whether rounds cannot be looked after: the store cannot be read, or steps of rounds keep failing."""
        stuck = any(each.stuck for each in list(self._scheduled.values()))
        return stuck or self._failed_surveys >= _FAILURES_UNTIL_NOT_READY

    def open_rounds(self) -> None:
        """Open the rounds of all tasks that are served; for the start, before requests come."""
        for served in self._tasks:
            try:
                self._open(served)
            except DamagedRoundError as error:  # the others go on
                self._tasks.postpone(served.name, str(error))

    def start(self) -> None:
        """Begin to look after rounds, in the running event loop."""
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Leave every round where it is; steps that cannot be broken off are waited for."""
        if self._watcher is not None:
            self._watcher.cancel()
        for worker in self._workers:
            worker.cancel()
        self._delivery.abort()
        await asyncio.gather(*self._workers, *filter(None, [self._watcher]), return_exceptions=True)
        for threads in (self._deliveries, self._threads):
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)

    def full(self, served: ServedTask) -> None:
        """The round is full: close it now."""
        scheduled = self._scheduled.get(served.id)
        if scheduled is not None:
            scheduled.full = True
            scheduled.wake.set()

    def _open(self, served: ServedTask) -> None:
        self._store.open_round(served.id, maximum=served.task.maximum_users, tokens=self._tokens is not None)
        if self._tokens is not None and self._store.state(served.id) is RoundState.COLLECTING:
            with suppress(DamagedRoundError):  # one damaged round must not keep the server from starting
                self._bring_tokens(served)

    def _bring_tokens(self, served: ServedTask) -> None:
        if self._tokens is not None:
            self._tokens.bring(served.name, lambda hashes: self._store.add_tokens(served.id, hashes))

    async def _watch(self) -> None:
        """Notice new tasks and how far all rounds are, for ever."""
        while True:
            started = time.monotonic()
            try:
                survey = await self._call(self._survey)
            except Exception as error:  # noqa: BLE001  # it is tried again with the next tick
                self._failed_surveys += 1
                if self._failed_surveys == 1:
                    event("rounds-unavailable", level=logging.ERROR, reason=_reason(error))
            else:
                self._apply(survey, started)
            await asyncio.sleep(self._tick)

    def _survey(self) -> Survey:
        self._tasks.refresh(self._open)
        survey = self._store.survey()
        if isinstance(self._clock, RoundClock):
            if survey.time is not None:
                self._clock.compare(survey.time)
            self._clock.save()
        return survey

    def _apply(self, survey: Survey, started: float) -> None:
        """Tell the rounds what is new about them; ``started`` is when the survey began."""
        self._clock()  # a jump is noticed also if no round needs the time
        recovered, self._failed_surveys = self._failed_surveys > 0, 0
        if recovered:
            event("rounds-available-again")
        for served in self._tasks:
            if served.id not in self._scheduled:
                self._scheduled[served.id] = _ScheduledRound(served, survey.rounds.get(served.id))
                worker = asyncio.create_task(self._run(self._scheduled[served.id]))
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
        for task_id, scheduled in self._scheduled.items():
            if scheduled.refreshed_at >= started and not recovered:
                continue
            before, scheduled.record = scheduled.record, survey.rounds.get(task_id)
            if recovered or _significant(before) != _significant(scheduled.record):
                scheduled.wake.set()
        self._count(survey)

    def _count(self, survey: Survey) -> None:
        for state in RoundState:
            self._states.labels(state.value).set(sum(each.state is state for each in survey.rounds.values()))
        damaged = {task_id: record.error for task_id, record in survey.rounds.items() if record.error is not None}
        for task_id, error in damaged.items():
            if self._damaged.get(task_id) != error:
                event("round-damaged", level=logging.ERROR, task=task_id.hex(), reason=error)
        self._damaged = damaged
        for task_id, record in survey.rounds.items():
            if task_id not in self._scheduled and task_id not in self._orphans and record.state not in FINISHED:
                self._orphans.add(task_id)
                event("round-without-task", level=logging.ERROR, task=task_id.hex(), state=record.state.value)

    async def _run(self, scheduled: _ScheduledRound) -> None:
        """Take a round through its states to the end, whatever fails on the way."""
        while True:
            try:
                if await self._step(scheduled):
                    return
                if scheduled.retries.failures:
                    scheduled.retries.succeed()
                    scheduled.refused = False
            except ShutdownError:
                return
            except Exception as error:  # noqa: BLE001  # the scheduler of a round must not die
                self._record_failure(scheduled, error)
                await self._wait(scheduled, self._pause_seconds(scheduled))

    async def _step(self, scheduled: _ScheduledRound) -> bool:
        """One step; whether the round has come to its end."""
        served, record = scheduled.served, scheduled.record
        if record is None:  # of a database that was emptied, say
            await self._call(self._open, served)
            await self._wait(scheduled, self._tick)
            return False
        if record.state in FINISHED:
            await self._call(self._mixer.clean, served.name)
            scheduled.retries.succeed()
            scheduled.refused, scheduled.below_since = False, None
            with suppress(KeyError):
                self._reports.remove(served.name)
            return True
        self._reports.labels(served.name).set(record.reports)
        if record.state is RoundState.SHUFFLED:
            await self._hand_over(scheduled)
        elif record.error is not None:
            await self._wait(scheduled, self._tick)
        elif record.state is RoundState.COLLECTING:
            await self._collect(scheduled, record)
        else:
            async with self._one_permutation:
                if await self._call(self._mixer.shuffle, served) is RoundState.DESTROYED:
                    self._destroyed.inc()
            await self._refresh(scheduled)
            if scheduled.record is not None and scheduled.record.state is RoundState.CLOSED:
                await self._wait(scheduled, self._tick)  # another process is at it
        return False

    async def _collect(self, scheduled: _ScheduledRound, record: RoundRecord) -> None:
        """Close the round if it is time or full, else wait a little."""
        served = scheduled.served
        left = served.closes - self._clock()
        if left > 0:
            scheduled.below_since = None  # the clock may have been set back
        elif not scheduled.full:
            left = await self._grace_left(scheduled)
        if left <= 0 or scheduled.full or record.reports >= served.task.maximum_users:
            reports = await self._call(self._store.close_round, served.id)
            event("closed", task=served.name, reports=reports)
            await self._refresh(scheduled)
            return
        if self._tokens is not None:
            try:
                await self._call(self._bring_tokens, served)
            except DataError as error:  # the round goes on with the tokens that it has
                self._failed.inc()
                self._log_once(scheduled, str(error))
            else:
                scheduled.retries.note("")
        await self._wait(scheduled, min(left, self._tick))

    async def _grace_left(self, scheduled: _ScheduledRound) -> float:
        """How long a round is still scheduled whose time is over: 0 unless it has too few reports.

        It counts from when that was noticed: a machine that starts with a wrong clock can be set right.
        """
        served, now = scheduled.served, self._steady()
        if scheduled.below_since is None:
            await self._refresh(scheduled)  # the last survey may be older than the last report
        if scheduled.record is None or scheduled.record.reports >= served.task.minimum_users:
            return 0.0
        if scheduled.below_since is None:
            scheduled.below_since = now
            event(
                "round-below-minimum",
                level=logging.ERROR,
                task=served.name,
                reports=scheduled.record.reports,
                minimum=served.task.minimum_users,
                grace_seconds=self._grace_seconds,
            )
        return self._grace_seconds - (now - scheduled.below_since)

    async def _hand_over(self, scheduled: _ScheduledRound) -> None:
        """Deliver the batch; if another process has it, look again later, and ever less often."""
        loop = asyncio.get_running_loop()
        delivered = await loop.run_in_executor(self._deliveries, self._deliver, scheduled)
        await self._refresh(scheduled)
        if delivered:
            return
        pause = backoff_seconds(scheduled.elsewhere, first=self._tick, longest=_LONGEST_WAIT_ELSEWHERE)
        await self._wait(scheduled, pause)

    async def _refresh(self, scheduled: _ScheduledRound) -> None:
        """Read how far the round is, after a step."""

        def read() -> RoundRecord:
            return RoundRecord(self._store.state(scheduled.served.id), self._store.count(scheduled.served.id))

        now = time.monotonic()
        scheduled.record = await self._call(read)
        scheduled.refreshed_at = now

    async def _wait(self, scheduled: _ScheduledRound, seconds: float) -> None:
        """Wait until the round is woken, or so long."""
        await wait_for(scheduled.wake, seconds)
        scheduled.wake.clear()

    def _deliver(self, scheduled: _ScheduledRound) -> bool:
        """Forget the reports, hand over the batch, forget it too; False if another process has it."""
        served = scheduled.served
        with self._store.claim(served.id) as mine:
            if not mine or self._store.state(served.id) is not RoundState.SHUFFLED:
                return False
            self._store.destroy(served.id)
            batch = self._mixer.batch(served)
            if batch is None:
                scheduled.elsewhere += 1
                self._log_once(
                    scheduled, "The batch is not in this work directory; the process that has it must deliver it."
                )
                return False
            self._mixer.clean(served.name, keep=batch.file)
            answer = self._delivery.deliver(batch)
            self._store.advance(served.id, RoundState.DELIVERED)
            self._mixer.clean(served.name)
        event("delivered", task=served.name, reports=batch.manifest.reports, analyzer=answer)
        return True

    def _record_failure(self, scheduled: _ScheduledRound, error: Exception) -> None:
        scheduled.refused = isinstance(error, DeliveryRefusedError)
        scheduled.confined = isinstance(error, DeliveryError | DamagedRoundError)
        scheduled.retries.failures += 1
        self._failed.inc()
        self._log_once(scheduled, _reason(error))

    def _log_once(self, scheduled: _ScheduledRound, reason: str) -> None:
        if not scheduled.retries.note(reason):
            return
        if scheduled.refused:
            event("batch-refused", level=logging.ERROR, task=scheduled.served.name, reason=reason)
        else:
            event("round-fails", level=logging.ERROR, task=scheduled.served.name, reason=reason)

    def _pause_seconds(self, scheduled: _ScheduledRound) -> float:
        """Longer with every failure, and not the same for all rounds."""
        longest = _LONGEST_WAIT_REFUSED if scheduled.refused else _LONGEST_WAIT
        return scheduled.retries.pause_seconds(first=self._tick, longest=longest)

    async def _call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _significant(record: RoundRecord | None) -> tuple[RoundState, str | None] | None:
    """The part of a record whose change wakes the worker of the round."""
    return None if record is None else (record.state, record.error)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ShuffledpError | OSError) else type(error).__name__
