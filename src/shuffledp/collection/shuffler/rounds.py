"""The life of rounds: open, collect, close at the deadline or when full, mix, deliver, forget.

For each round there is one coroutine, which looks where the round is and takes it one step further. It starts the same
way whether the server has just been started or was killed in the middle of something.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shuffledp.collection.service.logs import event
from shuffledp.collection.service.metrics import Metrics
from shuffledp.collection.shuffler.book import KnownTask, TaskBook
from shuffledp.collection.shuffler.delivery import Delivery, DeliveryRefusedError
from shuffledp.collection.shuffler.enrolment import TokenFolder
from shuffledp.collection.shuffler.release import Releaser, StoppingError
from shuffledp.collection.store.interface import RoundState, Store, StoreError
from shuffledp.errors import ShuffledpError

__all__ = ["RoundKeeper"]

_FINISHED = (RoundState.DELIVERED, RoundState.DESTROYED)
_LONGEST_WAIT = 300.0
_LONGEST_WAIT_REFUSED = 3600.0
_THREADS, _DELIVERIES = 4, 2

Value = TypeVar("Value")


@dataclass
class _Kept:
    """A round that is looked after."""

    known: KnownTask
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    complaint: str = ""
    """What was last logged of it, so that it is said once."""
    refused: bool = False
    """Whether the analyzer does not want its batch; somebody has to act."""


class RoundKeeper:
    """Looks after all rounds of the book."""

    def __init__(
        self,
        book: TaskBook,
        store: Store,
        releaser: Releaser,
        delivery: Delivery,
        metrics: Metrics,
        *,
        tokens: TokenFolder | None,
        tick: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._book, self._store, self._releaser, self._delivery = book, store, releaser, delivery
        self._tokens, self._tick, self._clock = tokens, tick, clock
        self._threads = ThreadPoolExecutor(_THREADS, "rounds")
        self._deliveries = ThreadPoolExecutor(_DELIVERIES, "deliveries")  # an analyzer that hangs stops nothing else
        self._one_permutation = asyncio.Semaphore(1)  # its memory is what was allowed for
        self._kept: dict[bytes, _Kept] = {}
        self._orphans: set[bytes] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._states = metrics.gauge("rounds", "Rounds by state", ["state"])
        self._reports = metrics.gauge("round_reports", "Reports that a round accepted", ["task"])
        self._failed = metrics.counter("round_failures", "Steps of rounds that have to be tried again")
        refused = metrics.gauge("refused_batches", "Batches that the analyzer does not want; they are kept")
        refused.set_function(lambda: sum(each.refused for each in list(self._kept.values())))

    def open_rounds(self) -> None:
        """Open the rounds of all tasks that are known; for the start, before requests come."""
        for known in self._book:
            self._open(known)

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

    def full(self, known: KnownTask) -> None:
        """The round is full: close it now."""
        if known.id in self._kept:
            self._kept[known.id].wake.set()

    def _open(self, known: KnownTask) -> None:
        self._store.open_round(known.id, maximum=known.task.maximum_users, tokens=self._tokens is not None)
        if self._tokens is not None and self._store.state(known.id) is RoundState.COLLECTING:
            self._tokens.bring(known.name, lambda hashes: self._store.add_tokens(known.id, hashes))

    async def _watch(self) -> None:
        """Notice new tasks and count rounds by state, for ever."""
        while True:
            await self._call(self._book.refresh, self._open)
            for known in self._book:
                if known.id not in self._kept:
                    self._kept[known.id] = _Kept(known)
                    worker = asyncio.create_task(self._keep(self._kept[known.id]))
                    self._workers.add(worker)
                    worker.add_done_callback(self._workers.discard)
            with suppress(StoreError):  # the rounds themselves will complain
                self._count(await self._call(self._store.rounds))
            await asyncio.sleep(self._tick)

    def _count(self, rounds: Mapping[bytes, RoundState]) -> None:
        for state in RoundState:
            self._states.labels(state.value).set(sum(each is state for each in rounds.values()))
        for task_id, state in rounds.items():
            if task_id not in self._kept and task_id not in self._orphans and state not in _FINISHED:
                self._orphans.add(task_id)
                event("round-without-task", level=logging.ERROR, task=task_id.hex(), state=state.value)

    async def _keep(self, kept: _Kept) -> None:
        """Take a round through its states to the end, whatever fails on the way."""
        while True:
            try:
                if await self._step(kept):
                    return
                if kept.failures:
                    kept.failures, kept.complaint, kept.refused = 0, "", False
            except StoppingError:
                return
            except Exception as error:  # noqa: BLE001  # the keeper of a round must not die
                self._complain(kept, error)
                await self._pause(kept)

    async def _step(self, kept: _Kept) -> bool:
        """One step; whether the round has come to its end."""
        known = kept.known
        await self._call(self._open, known)
        state = await self._call(self._store.state, known.id)
        self._reports.labels(known.name).set(await self._call(self._store.count, known.id))
        if state is RoundState.COLLECTING:
            await self._collect(kept)
        elif state is RoundState.CLOSED:
            async with self._one_permutation:
                await self._call(self._releaser.shuffle, known)
            if await self._call(self._store.state, known.id) is RoundState.CLOSED:
                await asyncio.sleep(self._tick)  # another process is at it
        elif state is RoundState.SHUFFLED:
            loop = asyncio.get_running_loop()
            if not await loop.run_in_executor(self._deliveries, self._deliver, kept):
                await asyncio.sleep(self._tick)
        else:
            await self._call(self._releaser.clean, known)
            self._reports.remove(known.name)
            return True
        return False

    async def _collect(self, kept: _Kept) -> None:
        """Close the round if it is time or full, else wait a little."""
        known = kept.known
        left = known.closes - self._clock()
        if left <= 0 or await self._call(self._store.count, known.id) >= known.task.maximum_users:
            reports = await self._call(self._store.close_round, known.id)
            event("closed", task=known.name, reports=reports)
            return
        kept.wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(kept.wake.wait(), min(left, self._tick))

    def _deliver(self, kept: _Kept) -> bool:
        """Forget the reports, hand over the batch, forget it too; False if another process has it."""
        known = kept.known
        with self._store.claim(known.id) as mine:
            if not mine or self._store.state(known.id) is not RoundState.SHUFFLED:
                return False
            self._store.destroy(known.id)
            batch = self._releaser.batch(known)
            if batch is None:
                self._say_once(kept, "The batch is not in this work folder; the process that has it must deliver it.")
                return False
            self._releaser.clean(known, keep=batch.file)
            answer = self._delivery.deliver(batch)
            self._store.advance(known.id, RoundState.DELIVERED)
            self._releaser.clean(known)
        event("delivered", task=known.name, reports=batch.manifest.reports, analyzer=answer)
        return True

    def _complain(self, kept: _Kept, error: Exception) -> None:
        kept.refused = isinstance(error, DeliveryRefusedError)
        kept.failures += 1
        self._failed.inc()
        reason = str(error) if isinstance(error, ShuffledpError | OSError) else type(error).__name__
        self._say_once(kept, reason)

    def _say_once(self, kept: _Kept, reason: str) -> None:
        if reason == kept.complaint:
            return
        kept.complaint = reason
        if kept.refused:
            event("batch-refused", level=logging.ERROR, task=kept.known.name, reason=reason)
        else:
            event("round-fails", level=logging.ERROR, task=kept.known.name, reason=reason)

    async def _pause(self, kept: _Kept) -> None:
        """Wait longer with every failure, and not all rounds equally long."""
        most = _LONGEST_WAIT_REFUSED if kept.refused else _LONGEST_WAIT
        longest = min(most, self._tick * 2 ** min(kept.failures, 20))
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))

    async def _call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
