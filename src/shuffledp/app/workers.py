"""Worker processes that are killed when nobody waits for their result any more, or when it takes too long."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from shuffledp.errors import ShuffledpError
from shuffledp.native import available_cores

Result = TypeVar("Result")
_START = "forkserver"
_PRELOADED = ["shuffledp.app.calculations"]
_PROCESSOR_SECONDS = 60


class WorkerError(ShuffledpError):
    """A worker process failed, and its work was lost."""


class Workers:
    """A few processes, each of which makes one calculation at a time.

    A calculation whose caller is cancelled is of no use; since it cannot be interrupted, its process is killed and
    replaced. One that uses too much processor time is ended by the operating system.
    """

    def __init__(self, count: int | None = None, *, processor_seconds: int = _PROCESSOR_SECONDS) -> None:
        """By default one process less than there are cores, but at least one."""
        self._count = count or max(1, available_cores() - 1)
        self._processor_seconds = processor_seconds
        self._free: list[_Worker] = []
        self._waiting: dict[Hashable, deque[asyncio.Future[_Worker]]] = {}
        self._used_seconds: dict[Hashable, float] = {}
        self._all: set[_Worker] = set()
        self._replacing: set[asyncio.Task[int]] = set()
        self._stopped = False
        self._context = multiprocessing.get_context(_START)
        self._context.set_forkserver_preload(_PRELOADED)
        self.killed = 0
        """Number of processes that were killed because their caller was cancelled."""

    async def start(self) -> None:
        """Start the processes."""
        for _ in range(self._count):
            await self._add()

    async def _add(self) -> None:
        if self._stopped:
            return
        worker = await asyncio.to_thread(_Worker, self._context, self._processor_seconds)
        self._all.add(worker)
        if self._stopped:
            worker.kill()
        else:
            self._release(worker)

    async def run(self, function: Callable[..., Result], *arguments: Any, group: Hashable = None) -> Result:
        """The result of a function in a worker process; ShuffledpErrors are raised here.

        A free process is for the group that has used the least time of those that wait: a question of many long
        calculations delays another by one of them at most.
        """
        worker = await self._acquire(group)
        started = time.monotonic()
        try:
            result = await worker.call(function, arguments)
        except asyncio.CancelledError:
            self.killed += 1
            self._replace(worker)  # nothing may be awaited here, since the caller may be cancelled again
            raise
        except (EOFError, OSError):
            if self._stopped:
                raise _stopped() from None
            status = await asyncio.shield(self._replace(worker))
            if status == -signal.SIGXCPU:
                raise WorkerError(
                    f"A calculation was ended after {self._processor_seconds} s of processor time. Ask for fewer "
                    "releases, users or categories; the command shuffledp plan has no such limit."
                ) from None
            raise WorkerError("A calculation failed: its process was ended.") from None
        finally:
            self._account(group, time.monotonic() - started)
        self._release(worker)
        if isinstance(result, ShuffledpError):
            raise result
        value: Result = result
        return value

    async def _acquire(self, group: Hashable) -> _Worker:
        if self._stopped:
            raise _stopped()
        if self._free:
            return self._free.pop()
        turn: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled just when it was its turn
                self._release(turn.result())
            raise

    def _account(self, group: Hashable, seconds: float) -> None:
        """Add to the time that a group has used, as long as it waits for more."""
        used = self._used_seconds.pop(group, 0.0)
        if group in self._waiting:
            self._used_seconds[group] = used + seconds

    def _release(self, worker: _Worker) -> None:
        """Give a process to the next caller."""
        while self._waiting:
            group = min(self._waiting, key=lambda group: self._used_seconds.get(group, 0.0))
            turn = self._waiting[group].popleft()
            if not self._waiting[group]:
                del self._waiting[group]
            if not turn.done():
                turn.set_result(worker)
                return
        self._free.append(worker)

    def _replace(self, worker: _Worker) -> asyncio.Task[int]:
        """Kill a process and start another one, in a task of its own; its result is the exit code."""

        async def replaced() -> int:
            status = await asyncio.to_thread(worker.end)
            await self._add()
            return status

        self._all.discard(worker)
        task = asyncio.create_task(replaced())
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)
        return task

    def kill(self) -> None:
        """Kill all processes; callers that wait for results get a WorkerError."""
        self._stopped = True
        for turn in (turn for turns in self._waiting.values() for turn in turns if not turn.done()):
            turn.set_exception(_stopped())
        self._waiting.clear()
        for worker in self._all:
            worker.kill()

    async def stop(self) -> None:
        """Kill all processes, and return when they have ended."""
        self.kill()
        await asyncio.gather(*self._replacing)
        self._free.clear()
        await asyncio.gather(*(asyncio.to_thread(worker.end) for worker in self._all))
        self._all.clear()


def _stopped() -> WorkerError:
    return WorkerError("The planner has been stopped.")


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, context: Any, processor_seconds: int) -> None:
        self._pipe, remote = context.Pipe()
        self._reader = ThreadPoolExecutor(1, "planner")
        self._process = context.Process(target=_work, args=(remote, processor_seconds), daemon=True)
        # Ctrl-C is for the server: it is blocked here, which the started processes inherit. Starting the tracker would
        # unblock it, so the tracker is started first
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        remote.close()

    async def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result of a function, or the ShuffledpError that it raised; EOFError if the process ended."""
        self._pipe.send((function, arguments))
        # in a thread: libuv would make the pipe non-blocking, which multiprocessing cannot read
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._pipe.recv)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def end(self) -> int:
        """Kill the process and wait for its end: its exit code. A thread that waits for its result gets an EOFError."""
        self._process.kill()
        self._process.join()
        self._reader.shutdown(wait=True)
        self._pipe.close()
        status: int = self._process.exitcode
        self._process.close()
        return status


def _work(pipe: Connection, processor_seconds: int) -> None:
    """Make calculations until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        _limit_processor_time(processor_seconds)
        try:
            result = function(*arguments)
        except ShuffledpError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - a bug: one line for the page
            result = WorkerError(f"A calculation failed: {type(error).__name__}: {error}")
        pipe.send(result)


def _limit_processor_time(seconds: int) -> None:
    """Let the operating system end this process when it has used this many seconds more, even inside a kernel."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
