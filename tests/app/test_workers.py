"""Worker processes: results, errors, and the end of calculations that nobody waits for."""

import asyncio
import os
import time

import pytest

from shuffledp.app.workers import WorkerError, Workers
from shuffledp.errors import ParameterError, ShuffledpError


def run(coroutine_of):
    async def whole():
        workers = Workers(1)
        await workers.start()
        try:
            return await coroutine_of(workers)
        finally:
            workers.stop()

    return asyncio.run(whole())


def test_results_and_errors():
    async def work(workers):
        assert await workers.run(divmod, 7, 3) == (2, 1)
        assert len(await workers.run(bytes, 10_000_000)) == 10_000_000, "more than a pipe holds"
        with pytest.raises(ShuffledpError, match=r"A calculation failed: ZeroDivisionError: .*"):
            await workers.run(divmod, 7, 0)
        assert await workers.run(divmod, 9, 3) == (3, 0), "the process goes on"

    run(work)


def test_errors_of_the_library_arrive_as_they_are():
    async def work(workers):
        from shuffledp.app.calculations import preview
        from shuffledp.app.query import Query

        with pytest.raises(ParameterError, match="There is no plan cheu \\(none\\)"):
            await workers.run(preview, Query(question="count", users=500, delta=1e-6), "cheu", "none")

    run(work)


def test_a_process_that_dies_is_replaced():
    async def work(workers):
        with pytest.raises(WorkerError, match="its process was ended"):
            await workers.run(os._exit, 1)
        assert await workers.run(divmod, 7, 3) == (2, 1)

    run(work)


def test_a_cancelled_calculation_is_killed():
    """Of an hour of sleep nothing is waited for; cancelling twice loses no process."""

    async def work(workers):
        started = time.monotonic()
        for _ in range(3):
            sleeping = asyncio.create_task(workers.run(time.sleep, 3600))
            await asyncio.sleep(0.1)
            sleeping.cancel()
            await asyncio.sleep(0)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
        assert await workers.run(divmod, 7, 3) == (2, 1)
        assert workers.killed == 3
        assert time.monotonic() - started < 600

    run(work)
