"""Pools of processes that work on many sealed messages: few parts wait at a time; processes end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from shuffledp.collection.server.logs import configure_logs
from shuffledp.errors import DataError

_WAITING_PER_PROCESS = 3

Part = TypeVar("Part")
Outcome = TypeVar("Outcome")


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes_with(begin: Callable[..., None], *arguments: Any, count: int) -> Iterator[ProcessPoolExecutor]:
    """New processes, each initialized with ``begin(*arguments)``; they end with this process, however it ends."""
    pool = ProcessPoolExecutor(
        count, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(begin, *arguments)
    )
    try:
        yield pool
    except BrokenProcessPool:
        reason = "A process that works on messages ended unexpectedly; there may be too little memory."
        raise DataError(reason) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def mapped(
    pool: ProcessPoolExecutor, function: Callable[[Part], Outcome], parts: Iterable[Part], count: int
) -> Iterator[Outcome]:
    """The results for all parts in their order; few are submitted at a time, so that memory stays bounded."""
    waiting: deque[Future[Outcome]] = deque()
    for part in parts:
        waiting.append(pool.submit(function, part))
        if len(waiting) >= _WAITING_PER_PROCESS * count:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begin(begin: Callable[..., None], *arguments: Any) -> None:
    """Initialize a new process, which ends when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent shuts the pool down
    configure_logs()  # warnings included
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
