"""Worker processes that are killed when nobody waits for their result any more."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from shuffledp.errors import ShuffledpError
from shuffledp.native import available_cores

Result = TypeVar("Result")
_START = "forkserver"
_PRELOADED = ["shuffledp.app.calculations"]


class WorkerError(ShuffledpError):
    """A worker process failed, and its work was lost."""


class Workers:
    """A few processes, each of which makes one calculation at a time.

    A calculation whose caller is cancelled is of no use; since it cannot be interrupted, its process is killed and
    replaced.
    """

    def __init__(self, count: int | None = None) -> None:
        """By default one process less than there are cores, but at least one."""
        self._count = count or max(1, available_cores() - 1)
        self._free: asyncio.Queue[_Worker] = asyncio.Queue()
        self._all: set[_Worker] = set()
        self._replacing: set[asyncio.Task[None]] = set()
        self._context = multiprocessing.get_context(_START)
        self._context.set_forkserver_preload(_PRELOADED)
        self.killed = 0
        """Number of processes that were killed because their caller was cancelled."""

    async def start(self) -> None:
        """Start the processes."""
        for _ in range(self._count):
            await self._add()

    async def _add(self) -> None:
        worker = await asyncio.to_thread(_Worker, self._context)
        self._all.add(worker)
        self._free.put_nowait(worker)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a function in a worker process; ShuffledpErrors are raised here."""
        worker = await self._free.get()
        try:
            result = await worker.call(function, arguments)
        except (asyncio.CancelledError, EOFError, OSError) as error:
            self._all.discard(worker)
            worker.kill()
            # in a task of its own: nothing may be awaited here, since the caller may be cancelled again
            replacing = asyncio.create_task(self._add())
            self._replacing.add(replacing)
            replacing.add_done_callback(self._replacing.discard)
            if isinstance(error, asyncio.CancelledError):
                self.killed += 1
                raise
            raise WorkerError("A calculation failed: its process was ended.") from None
        self._free.put_nowait(worker)
        if isinstance(result, ShuffledpError):
            raise result
        value: Result = result
        return value

    def stop(self) -> None:
        """Kill all processes."""
        for worker in self._all:
            worker.kill()
        self._all.clear()


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, context: Any) -> None:
        self._pipe, remote = context.Pipe()
        self._reader = ThreadPoolExecutor(1, "planner")
        self._process = context.Process(target=_work, args=(remote,), daemon=True)
        self._process.start()
        remote.close()

    async def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result of a function, or the ShuffledpError that it raised; EOFError if the process ended."""
        self._pipe.send((function, arguments))
        # in a thread: libuv would make the pipe non-blocking, which multiprocessing cannot read
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._pipe.recv)

    def kill(self) -> None:
        """End the process; a thread that waits for its result then gets an EOFError."""
        self._process.kill()
        threading.Thread(target=self._clean_up, daemon=True).start()

    def _clean_up(self) -> None:
        self._process.join()
        self._reader.shutdown(wait=True)
        self._pipe.close()


def _work(pipe: Connection) -> None:
    """Make calculations until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = function(*arguments)
        except ShuffledpError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - a bug: one line for the page
            result = WorkerError(f"A calculation failed: {type(error).__name__}: {error}")
        pipe.send(result)
