"""Releasing of complete batches: count, estimate, reserve the budget, publish, delete the messages.

Each step is idempotent: after a crash the release is repeated and produces the same bytes. The ledger reserves the
budget once, and the batch becomes released only after its files are durable.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shuffledp.collection.analyzer.counting import Counted, count_messages, pieces_of
from shuffledp.collection.analyzer.estimating import NotReleasedError, estimate_round
from shuffledp.collection.analyzer.ledger import Ledger
from shuffledp.collection.analyzer.publishing import Releases
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.server.batches import Batch, Batches, BatchState
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.scheduling import Retries, ShutdownError, repeat
from shuffledp.collection.task.task import Task
from shuffledp.errors import ShuffledpError

_LONGEST_PAUSE_SECONDS = 300.0
_ABANDONED = "Abandoned by the operator."
_TASK_ID = re.compile("[0-9a-f]{64}")

Files = list[tuple[Path, int]]
"""The chunks of a batch and their sizes."""


@dataclass(frozen=True)
class Releaser:
    """Releases or refuses complete batches."""

    tasks: AnalyzerTasks
    batches: Batches
    ledger: Ledger
    releases: Releases
    confidence: float
    processes: int
    progress: Callable[[bytes, Counted], None] = lambda *_: None
    """Called with the id of the task and the result of opening further messages."""
    stopping: Callable[[], bool] = lambda: False
    begin: Callable[[bytes], None] = lambda _: None
    """Called with the id of the task before its messages are opened."""
    count_elsewhere: Callable[[Task, Files], Counted] | None = None
    """Opens and counts the messages of files, such as on a cluster; None for processes of this machine."""
    hidden_strings: frozenset[str] = frozenset()
    """A public block list: found strings that are left out of releases, which say how many they are."""

    def release(self, task_id: bytes) -> BatchState:
        """Release a complete batch or refuse it permanently, and return its new state."""
        task = self.tasks.get(task_id)
        if task is None:
            raise ShuffledpError("The task of the batch is missing from the task directory, or refused.")
        batch = self.batches.get(task_id)
        if batch is None:
            raise ShuffledpError("There is no batch of this task.")
        manifest = self.batches.manifest(task_id)
        reports = manifest.reports
        self.begin(task_id)
        try:
            counted = self._count(task, self.batches.chunk_files(task_id))
            result = estimate_round(task, counted, reports, carriers=manifest.carriers, proceed=self._proceed)
            result = result.without(self.hidden_strings).at(self.confidence)
            entry = self.ledger.reserve(task, self.tasks.budget(task), batch.manifest)
            if not entry.granted:
                raise NotReleasedError(entry.reason)
        except NotReleasedError as error:
            self.batches.finish(task_id, BatchState.REFUSED, str(error))
            event("refused", level=logging.WARNING, task=task_id.hex(), reason=str(error))
            self.tasks.destroy_key(task)
            return BatchState.REFUSED
        self.releases.publish(result, entry, self.confidence)
        self.batches.finish(task_id, BatchState.RELEASED)
        event("released", task=task_id.hex(), reports=reports, rejected=counted.total_rejected)
        self.tasks.destroy_key(task)
        return BatchState.RELEASED

    def destroy_keys(self) -> None:
        """Destroy the round keys of all batches that are released or refused; a killed process may have left some."""
        self.tasks.retry_keys()
        for batch in self.batches.all():
            task = self.tasks.get(batch.task_id) if batch.state.is_final else None
            if task is not None:
                self.tasks.destroy_key(task)

    def _count(self, task: Task, files: Files) -> Counted:
        progress = partial(self.progress, task.id)
        if self.count_elsewhere is None:
            return count_messages(
                task,
                self.tasks.key(task),
                list(pieces_of(task, files)),
                processes=self.processes,
                progress=progress,
                stopping=self.stopping,
            )
        counted = self.count_elsewhere(task, files)
        progress(counted)
        return counted

    def _proceed(self) -> None:
        if self.stopping():
            raise ShutdownError


@dataclass
class _FailedRelease:
    retries: Retries = field(default_factory=Retries)
    due_at: float = 0.0
    """Time of the next attempt, on the monotonic clock."""


@dataclass
class ReleaseScheduler:
    """Two workers, each with its own thread: one discovers tasks, one releases complete batches in turn.

    A release can take minutes, and does not delay the discovery of tasks and the intake of batches.
    """

    releaser: Releaser
    metrics: Metrics
    tick: float = 1.0
    _failed_releases: dict[bytes, _FailedRelease] = field(default_factory=dict)
    _releasing: bytes | None = None
    """The task whose batch is being released now."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Prevents abandoning a batch that is being released."""
    _workers: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1, name) for name in ("discovery", "release")]
        self._wake = asyncio.Event()
        self._states = self.metrics.gauge("batches", "Batches by state", ["state"])
        self._failed = self.metrics.counter("release_failures", "Releases that have to be tried again")
        self._seconds = self.metrics.histogram("release_seconds", "Time to open, count and publish a batch")

    def start(self) -> None:
        """Start the workers, in the running event loop."""
        discovery, release = self._threads
        self._workers = [
            asyncio.create_task(self._repeat(discovery, self._discover, asyncio.Event())),
            asyncio.create_task(self._repeat(release, self._release_complete, self._wake)),
        ]

    def check_now(self) -> None:
        """Check for complete batches now."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop after the steps that cannot be interrupted; every batch keeps its state."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for thread in self._threads:
            await asyncio.to_thread(thread.shutdown, wait=True, cancel_futures=True)

    def failures(self, task_id: bytes) -> tuple[int, str | None]:
        """The number of failed attempts to release a task, and the last error."""
        retries = self._failed_releases.get(task_id, _FailedRelease()).retries
        return retries.failures, retries.last_error or None

    def abandon(self, task: str) -> dict[str, str]:
        """Abandon a batch whose chunks do not arrive or whose release keeps failing; its messages are deleted.

        The round is never released. May be called from any thread.
        """
        task_id = bytes.fromhex(task) if _TASK_ID.fullmatch(task) else b""
        with self._lock:
            batch = self.releaser.batches.get(task_id)
            if batch is None:
                raise ShuffledpError(f"There is no batch of a task {task!r} here; give the complete id of the task.")
            if batch.state.is_final:
                raise ShuffledpError(f"The batch of {task} is {batch.state.value} already.")
            if self._releasing == task_id:
                raise ShuffledpError(f"The batch of {task} is being released at the moment; try again later.")
            if batch.state is BatchState.COMPLETE and task_id not in self._failed_releases:
                raise ShuffledpError(f"The batch of {task} is complete and about to be released.")
            self.releaser.batches.give_up(task_id, _ABANDONED)
            self._failed_releases.pop(task_id, None)
        event("batch-abandoned", level=logging.WARNING, task=task)
        return {"task": task, "state": BatchState.REFUSED.value, "reason": _ABANDONED}

    async def _repeat(self, thread: ThreadPoolExecutor, step: Callable[[], None], wake: asyncio.Event) -> None:
        """Run a step in a thread at every tick, and when woken."""
        loop = asyncio.get_running_loop()

        async def run() -> None:
            await loop.run_in_executor(thread, step)

        def log(error: Exception) -> None:
            event("worker-fails", level=logging.ERROR, reason=type(error).__name__)

        await repeat(run, seconds=self.tick, wake=wake, failed=log)

    def _discover(self) -> None:
        """Read new tasks, and count batches by state."""
        self.releaser.tasks.refresh()
        self.releaser.destroy_keys()
        batches = self.releaser.batches.all()
        for state in BatchState:
            self._states.labels(state.value).set(sum(batch.state is state for batch in batches))

    def _release_complete(self) -> None:
        """Release every complete batch, one after the other."""
        complete = [batch for batch in self.releaser.batches.all() if batch.state is BatchState.COMPLETE]
        for batch in complete:
            failed = self._failed_releases.get(batch.task_id, _FailedRelease())
            if time.monotonic() >= failed.due_at and self._begin(batch.task_id):
                try:
                    self._release(batch, failed)
                finally:
                    self._releasing = None

    def _begin(self, task_id: bytes) -> bool:
        """Mark a batch as being released, so that it cannot be abandoned; False if it is no longer complete."""
        with self._lock:
            batch = self.releaser.batches.get(task_id)
            if batch is None or batch.state is not BatchState.COMPLETE:
                return False
            self._releasing = task_id
            return True

    def _release(self, batch: Batch, failed: _FailedRelease) -> None:
        start = time.perf_counter()
        try:
            self.releaser.release(batch.task_id)
        except ShutdownError:
            raise
        except Exception as error:  # noqa: BLE001  # any error: the release is retried with growing pauses
            self._failed.inc()
            reason = str(error) if isinstance(error, ShuffledpError | OSError) else _fault(error)
            pause = failed.retries.pause_seconds(first=self.tick, longest=_LONGEST_PAUSE_SECONDS)
            if failed.retries.fail(reason):
                event("release-fails", level=logging.ERROR, task=batch.task_id.hex(), reason=reason)
            failed.due_at = time.monotonic() + pause
            self._failed_releases[batch.task_id] = failed
        else:
            self._failed_releases.pop(batch.task_id, None)
            self._seconds.observe(time.perf_counter() - start)


def _fault(error: Exception) -> str:
    """The type and location of an unexpected error; its message may quote data."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"Internal error: {type(error).__name__}{where}."
