"""Scheduling of rounds: open, collect, close at the deadline or when full, shuffle, deliver, delete.

One coroutine per round reads the state of the round and makes the next step; after a crash it continues in the same
way. The states of all rounds are read together at every tick, so a waiting round needs no query of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.round_keys import KeylessError
from shuffledp.collection.server.scheduling import Retries, ShutdownError, wait_for
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.delivery import Delivery, DeliveryError, DeliveryRefusedError
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store.interface import (
    FINISHED,
    DamagedRoundError,
    RoundRecord,
    RoundState,
    Store,
    StoreSnapshot,
)
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.collection.transport.connection import backoff_seconds
from shuffledp.collection.wire.keys import ExpiredKeyError, RoundPublicKey
from shuffledp.collection.wire.times import time_to
from shuffledp.errors import DataError, ParameterError, ShuffledpError

_LONGEST_PAUSE_SECONDS = 300.0
_LONGEST_PAUSE_IF_REFUSED_SECONDS = 3600.0
_LONGEST_PAUSE_WITHOUT_BATCH_SECONDS = 60.0
_FAILURES_UNTIL_NOT_READY = 3
_OVERDUE_SECONDS = 3600.0  # after the closing time, until a missing batch of the shuffler before is an alert
_THREADS, _DELIVERIES = 4, 2

Value = TypeVar("Value")


@dataclass
class ScheduledRound:
    """The part of a round's state that is in memory only."""

    served: ServedTask
    record: RoundRecord | None = None
    """From the last snapshot; None if the round was not in the store."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    full: bool = False
    retries: Retries = field(default_factory=Retries)
    """Failed attempts at the current step."""
    refused: bool = False
    """Whether the analyzer refuses its batch; an operator has to act."""
    keyless: bool = False
    """Whether its round key is missing; nothing is deleted, and an operator has to act."""
    confined: bool = False
    """Whether the last failure does not concern the whole server: a delivery, a damaged round, a token file."""
    refreshed_at: float = 0.0
    """When the record was last read individually; a snapshot that began earlier is outdated."""
    below_since: float | None = None
    """When it was first past its closing time with too few reports; it is destroyed after the grace period."""
    missing_batch: int = 0
    """How often its batch was not in the work directory of this process."""

    @property
    def stuck(self) -> bool:
        """Whether this server repeatedly fails to advance the round."""
        damaged = self.record is not None and self.record.error is not None
        return self.retries.failures >= _FAILURES_UNTIL_NOT_READY and not self.confined and not damaged


class RoundScheduler:
    """Advances the rounds of all tasks through their states."""

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        round_shuffler: RoundShuffler,
        delivery: Delivery,
        metrics: Metrics,
        *,
        tokens: TokenDirectory | None,
        grace_seconds: float = 0.0,
        tick: float = 1.0,
        clock: Callable[[], float] = time.time,
        next_delivery: Delivery | None = None,
    ) -> None:
        """``delivery`` is to the analyzer, ``next_delivery`` to the next shuffler of chains."""
        self._tasks, self._store, self._round_shuffler, self._delivery = tasks, store, round_shuffler, delivery
        self._next_delivery = next_delivery
        self._tokens, self._grace_seconds, self._tick, self._clock = tokens, grace_seconds, tick, clock
        self._steady = clock.steady if isinstance(clock, RoundClock) else clock
        self._threads = ThreadPoolExecutor(_THREADS, "rounds")
        self._deliveries = ThreadPoolExecutor(_DELIVERIES, "deliveries")  # a hanging analyzer blocks no other step
        self._one_permutation = asyncio.Semaphore(1)  # one at a time: the memory setting is for one
        self._scheduled: dict[bytes, ScheduledRound] = {}
        self._orphans: set[bytes] = set()
        self._damaged: dict[bytes, str] = {}
        self._undestroyed: set[RoundPublicKey] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._failed_snapshots = 0
        self._states = metrics.gauge("rounds", "Rounds by state", ["state"])
        self._reports = metrics.gauge("round_reports", "Reports that a round accepted", ["task"])
        self._failed = metrics.counter("round_failures", "Steps of rounds that have to be tried again")
        refused = metrics.gauge("refused_batches", "Batches that the analyzer refuses; delivery is retried")
        refused.set_function(lambda: sum(scheduled.refused for scheduled in list(self._scheduled.values())))
        below = metrics.gauge("rounds_below_minimum", "Rounds past their closing time that are to be destroyed")
        below.set_function(
            lambda: sum(scheduled.below_since is not None for scheduled in list(self._scheduled.values()))
        )
        self._destroyed = metrics.counter(
            "destroyed_rounds", "Rounds destroyed with fewer reports or carriers than their minimum"
        )
        self._carriers = metrics.counter("carriers", "Reports of carriers in delivered batches")
        damaged = metrics.gauge("damaged_rounds", "Rounds whose stored reports cannot be used")
        damaged.set_function(lambda: len(self._damaged))

    def get(self, task_id: bytes) -> ScheduledRound | None:
        """The round of a task, if it is scheduled; for reading, from any thread."""
        return self._scheduled.get(task_id)

    @property
    def failing(self) -> bool:
        """Whether rounds cannot advance: the store cannot be read, or steps of rounds keep failing."""
        stuck = any(scheduled.stuck for scheduled in list(self._scheduled.values()))
        return stuck or self._failed_snapshots >= _FAILURES_UNTIL_NOT_READY

    def open_rounds(self) -> None:
        """Open the rounds of all served tasks; at the start, before requests arrive."""
        for served in self._tasks:
            try:
                self._open(served)
            except (
                DamagedRoundError,
                ExpiredKeyError,
                KeylessError,
                ParameterError,
            ) as error:  # the other rounds continue
                self._tasks.postpone(served.name, str(error))

    def start(self) -> None:
        """Start scheduling, in the running event loop."""
        self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop after the steps that cannot be interrupted; every round keeps its state."""
        if self._watcher is not None:
            self._watcher.cancel()
        for worker in self._workers:
            worker.cancel()
        for delivery in filter(None, (self._delivery, self._next_delivery)):
            delivery.abort()
        await asyncio.gather(*self._workers, *filter(None, [self._watcher]), return_exceptions=True)
        for threads in (self._deliveries, self._threads):
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)

    def full(self, served: ServedTask) -> None:
        """Close a round now, since it is full."""
        scheduled = self._scheduled.get(served.id)
        if scheduled is not None:
            scheduled.full = True
            scheduled.wake.set()

    def _open(self, served: ServedTask) -> None:
        if served.id not in (rounds := self._store.rounds()):
            self._check_new_keys(served, rounds)
        if not served.is_last and self._next_delivery is None:
            raise ParameterError("This shuffler is not the last of the task: set next_shuffler, the URL of the next.")
        traps = self._round_shuffler.traps
        if served.hop > 0 and served.task.wire is not None and served.task.wire.traps:
            if traps is None or traps.first_shuffler is None:
                raise ParameterError("The task has traps: set first_shuffler, the URL to which they are sent.")
            if served.id not in self._store.rounds():
                traps.prepare(served.task, served.hop)
        needs_tokens = self._tokens is not None and served.hop == 0
        self._store.open_round(served.id, maximum=served.task.maximum_users, tokens=needs_tokens)
        if needs_tokens and self._store.state(served.id) is RoundState.COLLECTING:
            with suppress(DamagedRoundError):  # one damaged round must not prevent the start
                self._load_tokens(served)

    def _check_new_keys(self, served: ServedTask, rounds: Collection[bytes]) -> None:
        """Refuse to open a round that could not be mixed later: a key is missing, expires, or is another round's."""
        signing, closes = self._round_shuffler.key, served.task.closes
        if signing.expires is not None and signing.expires <= closes:
            raise KeylessError(
                f"The signing key {signing.public.id} expires at {time_to(signing.expires)}, and the round closes at "
                f"{time_to(closes)}: name a key in the task that lives longer."
            )
        round_key = served.round_key
        if round_key is None:
            return
        self._round_shuffler.round_keys.load(round_key, until=served.task.closes)
        is_used = any(other.round_key == round_key and other.id in rounds for other in self._tasks)
        if is_used or self._tasks.is_key_of_other_series(served):
            raise ParameterError(
                f"The round key {round_key.id} belongs to another round, with which it is destroyed; every round needs "
                "its own."
            )

    def _load_tokens(self, served: ServedTask) -> None:
        if self._tokens is not None and served.hop == 0:
            self._tokens.load_new(served.name, lambda hashes: self._store.add_tokens(served.id, hashes))

    async def _watch(self) -> None:
        """Read new tasks and the states of all rounds at every tick, until cancelled."""
        while True:
            started = time.monotonic()
            try:
                snapshot = await self._call(self._take_snapshot)
            except Exception as error:  # noqa: BLE001  # the next tick tries again
                self._failed_snapshots += 1
                if self._failed_snapshots == 1:
                    event("rounds-unavailable", level=logging.ERROR, reason=_reason(error))
            else:
                self._apply(snapshot, started)
            await asyncio.sleep(self._tick)

    def _take_snapshot(self) -> StoreSnapshot:
        self._tasks.refresh(self._open)
        self._destroy_cancelled_keys()
        snapshot = self._store.snapshot()
        if isinstance(self._clock, RoundClock):
            if snapshot.time is not None:
                self._clock.compare(snapshot.time)
            self._clock.save()
        return snapshot

    def _apply(self, snapshot: StoreSnapshot, started: float) -> None:
        """Update the scheduled rounds from a snapshot that began at ``started``, and wake those that changed."""
        self._clock()  # detect a jump of the clock even if no round needs the time
        recovered, self._failed_snapshots = self._failed_snapshots > 0, 0
        if recovered:
            event("rounds-available-again")
        for served in self._tasks:
            if served.id not in self._scheduled:
                self._scheduled[served.id] = ScheduledRound(served, snapshot.rounds.get(served.id))
                worker = asyncio.create_task(self._run(self._scheduled[served.id]))
                self._workers.add(worker)
                worker.add_done_callback(self._workers.discard)
        for task_id, scheduled in self._scheduled.items():
            if scheduled.refreshed_at >= started and not recovered:
                continue
            before, scheduled.record = scheduled.record, snapshot.rounds.get(task_id)
            if recovered or _significant(before) != _significant(scheduled.record):
                scheduled.wake.set()
        self._count(snapshot)

    def _count(self, snapshot: StoreSnapshot) -> None:
        for state in RoundState:
            self._states.labels(state.value).set(sum(record.state is state for record in snapshot.rounds.values()))
        damaged = {task_id: record.error for task_id, record in snapshot.rounds.items() if record.error is not None}
        for task_id, error in damaged.items():
            if self._damaged.get(task_id) != error:
                event("round-damaged", level=logging.ERROR, task=task_id.hex(), reason=error)
        self._damaged = damaged
        for task_id, record in snapshot.rounds.items():
            if task_id not in self._scheduled and task_id not in self._orphans and record.state not in FINISHED:
                self._orphans.add(task_id)
                event("round-without-task", level=logging.ERROR, task=task_id.hex(), state=record.state.value)

    async def _run(self, scheduled: ScheduledRound) -> None:
        """Advance a round to its final state, and retry failed steps."""
        while True:
            try:
                if await self._step(scheduled):
                    return
                if scheduled.retries.failures:
                    scheduled.retries.succeed()
                    scheduled.refused = scheduled.keyless = False
            except ShutdownError:
                return
            except Exception as error:  # noqa: BLE001  # the worker of a round must not die
                self._record_failure(scheduled, error)
                await self._wait(scheduled, self._pause_seconds(scheduled))

    async def _step(self, scheduled: ScheduledRound) -> bool:
        """One step; whether the round has reached a final state."""
        served, record = scheduled.served, scheduled.record
        if record is None:  # for example after the database was emptied
            await self._call(self._open, served)
            await self._wait(scheduled, self._tick)
            return False
        if record.state in FINISHED:
            await self._call(self._clean_finished, served)
            scheduled.retries.succeed()
            scheduled.refused, scheduled.below_since = False, None
            with suppress(KeyError):
                self._reports.remove(served.name)
            return True
        if record.state in (RoundState.COLLECTING, RoundState.CLOSED) and self._tasks.is_cancelled(served.task):
            await self._call(self._cancel, scheduled)
            await self._refresh(scheduled)
            return False
        self._reports.labels(served.name).set(record.reports)
        if record.state is RoundState.SHUFFLED:
            await self._deliver_batch(scheduled)
        elif record.error is not None:
            await self._wait(scheduled, self._tick)
        elif record.state is RoundState.COLLECTING:
            await self._collect(scheduled, record)
        else:
            async with self._one_permutation:
                if await self._call(self._round_shuffler.shuffle, served) is RoundState.DESTROYED:
                    self._destroyed.inc()
            await self._refresh(scheduled)
            if scheduled.record is not None and scheduled.record.state is RoundState.CLOSED:
                await self._wait(scheduled, self._tick)  # another process is shuffling it
        return False

    def _cancel(self, scheduled: ScheduledRound) -> None:
        """End a round of a cancelled series, and destroy its reports."""
        served = scheduled.served
        with self._store.claim(served.id) as claimed:
            if claimed and self._store.state(served.id) in (RoundState.COLLECTING, RoundState.CLOSED):
                self._store.give_up(served.id, RoundState.CANCELLED)
                self._round_shuffler.clean(served.name)
                event("cancelled", level=logging.WARNING, task=served.name)

    def _destroy_cancelled_keys(self) -> None:
        """Destroy the keys of cancelled rounds that were never opened; those of open rounds end with their round.

        One that cannot be destroyed is tried again at the next tick.
        """
        keys = self._tasks.cancelled_keys
        rounds = self._store.rounds() if keys else ()
        for task_id, key in keys:
            is_used = any(other.round_key == key and other.id != task_id for other in self._tasks)
            if task_id not in rounds and not is_used:
                try:
                    self._round_shuffler.round_keys.destroy(key)
                except (OSError, KeylessError) as error:  # other rounds must not wait for it
                    if key not in self._undestroyed:
                        self._undestroyed.add(key)
                        event("key-not-destroyed", level=logging.ERROR, key=key.id, reason=str(error))
                    continue
            self._tasks.forget_cancelled_key(task_id, key)

    def _clean_finished(self, served: ServedTask) -> None:
        """Remove what is left of a finished round; its reports are destroyed."""
        self._round_shuffler.clean(served.name)
        self._round_shuffler.delete_received(served, "The round is over.")
        self._round_shuffler.destroy_key(served)

    async def _collect(self, scheduled: ScheduledRound, record: RoundRecord) -> None:
        """Close the round if it is full or past its closing time, else wait until the next tick."""
        served = scheduled.served
        if served.hop > 0:
            await self._await_batch(scheduled)
            return
        remaining = served.closes - self._clock()
        if remaining > 0:
            scheduled.below_since = None  # the clock may have been set back
        elif not scheduled.full:
            remaining = await self._remaining_grace(scheduled)
        if remaining <= 0 or scheduled.full or record.reports >= served.task.maximum_users:
            reports = await self._call(self._store.close_round, served.id)
            event("closed", task=served.name, reports=reports)
            await self._refresh(scheduled)
            return
        self._note_missing_key(scheduled)
        if self._tokens is not None:
            try:
                await self._call(self._load_tokens, served)
            except DataError as error:  # the round continues with the tokens that it has
                self._failed.inc()
                self._log_once(scheduled, str(error))
            else:
                scheduled.retries.note("")
        await self._wait(scheduled, min(remaining, self._tick))

    async def _await_batch(self, scheduled: ScheduledRound) -> None:
        """Close the round once the batch of the shuffler before is complete; alert the operator if it is overdue."""
        served = scheduled.served
        if await self._call(self._round_shuffler.has_received, served):
            await self._call(self._store.close_round, served.id)
            event("received", task=served.name, hop=served.hop)
            await self._refresh(scheduled)
            return
        self._note_missing_key(scheduled)
        await self._send_traps(scheduled)
        if not scheduled.keyless and self._clock() > served.closes + _OVERDUE_SECONDS:
            self._log_once(scheduled, "The batch of the shuffler before has not arrived; ask its operator.")
        await self._wait(scheduled, self._tick)

    async def _send_traps(self, scheduled: ScheduledRound) -> None:
        """Send the traps that are due; a failure is logged once and tried again."""
        traps = self._round_shuffler.traps
        if traps is None or scheduled.keyless:
            return
        try:
            await self._call(traps.send_due, scheduled.served.task, self._clock())
        except (ShuffledpError, OSError) as error:
            self._log_once(scheduled, f"A trap could not be sent: {error}")

    def _note_missing_key(self, scheduled: ScheduledRound) -> None:
        """Alert the operator while the round still collects, when the key may still be put back in time."""
        round_key = scheduled.served.round_key
        is_missing = round_key is not None and not self._round_shuffler.round_keys.has(round_key)
        if is_missing and round_key is not None:
            scheduled.keyless = True
            self._log_once(scheduled, f"The round key {round_key.id} is missing; without it the round is lost.")
        elif scheduled.keyless:
            scheduled.keyless = False
            scheduled.retries.note("")

    async def _remaining_grace(self, scheduled: ScheduledRound) -> float:
        """Seconds until a round past its closing time is closed: 0 unless it has too few reports.

        The grace period begins when the server notices, so that a clock that is wrong at boot can be corrected in time.
        """
        served, now = scheduled.served, self._steady()
        if scheduled.below_since is None:
            await self._refresh(scheduled)  # the last snapshot may be older than the last report
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

    async def _deliver_batch(self, scheduled: ScheduledRound) -> None:
        """Deliver the batch; if another process has it, check again with growing pauses."""
        loop = asyncio.get_running_loop()
        delivered = await loop.run_in_executor(self._deliveries, self._deliver, scheduled)
        await self._refresh(scheduled)
        if delivered:
            return
        pause = backoff_seconds(scheduled.missing_batch, first=self._tick, longest=_LONGEST_PAUSE_WITHOUT_BATCH_SECONDS)
        await self._wait(scheduled, pause)

    async def _refresh(self, scheduled: ScheduledRound) -> None:
        """Read the state of the round after a step."""

        def read() -> RoundRecord:
            return RoundRecord(self._store.state(scheduled.served.id), self._store.count(scheduled.served.id))

        now = time.monotonic()
        scheduled.record = await self._call(read)
        scheduled.refreshed_at = now

    async def _wait(self, scheduled: ScheduledRound, seconds: float) -> None:
        """Wait until the round is woken, at most ``seconds``."""
        await wait_for(scheduled.wake, seconds)
        scheduled.wake.clear()

    def _deliver(self, scheduled: ScheduledRound) -> bool:
        """Destroy the reports, deliver the batch, delete it; False if another process has it."""
        served = scheduled.served
        with self._store.claim(served.id) as claimed:
            if not claimed or self._store.state(served.id) is not RoundState.SHUFFLED:
                return False
            self._store.destroy(served.id)
            self._round_shuffler.delete_received(served)
            self._round_shuffler.destroy_key(served)  # with it and the batch, copies of reports could be linked
            batch = self._round_shuffler.batch(served)
            if batch is None:
                scheduled.missing_batch += 1
                self._log_once(
                    scheduled, "The batch is not in this work directory; the process that has it must deliver it."
                )
                return False
            self._round_shuffler.clean(served.name, keep=batch.file)
            delivery = self._delivery if served.is_last or self._next_delivery is None else self._next_delivery
            answer = delivery.deliver(batch)
            self._store.advance(served.id, RoundState.DELIVERED)
            self._round_shuffler.clean(served.name)
        self._carriers.inc(batch.manifest.carriers)
        event("delivered", task=served.name, reports=batch.manifest.reports, analyzer=answer)
        return True

    def _record_failure(self, scheduled: ScheduledRound, error: Exception) -> None:
        scheduled.refused = isinstance(error, DeliveryRefusedError)
        scheduled.keyless = isinstance(error, KeylessError | ExpiredKeyError)
        scheduled.confined = isinstance(error, DeliveryError | DamagedRoundError | KeylessError | ExpiredKeyError)
        scheduled.retries.failures += 1
        self._failed.inc()
        self._log_once(scheduled, _reason(error))

    def _log_once(self, scheduled: ScheduledRound, reason: str) -> None:
        if not scheduled.retries.note(reason):
            return
        if scheduled.keyless:
            event("keyless", level=logging.ERROR, task=scheduled.served.name, reason=reason)
        elif scheduled.refused:
            event("batch-refused", level=logging.ERROR, task=scheduled.served.name, reason=reason)
        else:
            event("round-fails", level=logging.ERROR, task=scheduled.served.name, reason=reason)

    def _pause_seconds(self, scheduled: ScheduledRound) -> float:
        """Grows with every failure, with jitter."""
        longest = _LONGEST_PAUSE_IF_REFUSED_SECONDS if scheduled.refused else _LONGEST_PAUSE_SECONDS
        return scheduled.retries.pause_seconds(first=self._tick, longest=longest)

    async def _call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _significant(record: RoundRecord | None) -> tuple[RoundState, str | None] | None:
    """The part of a record whose change wakes the worker of the round."""
    return None if record is None else (record.state, record.error)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ShuffledpError | OSError) else type(error).__name__
