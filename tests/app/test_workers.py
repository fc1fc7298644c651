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
            await workers.stop()

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
            assert await workers.run(divmod, 7, 3) == (2, 1)  # the process was replaced
            sleeping = asyncio.create_task(workers.run(time.sleep, 3600))
            await asyncio.sleep(0.1)
            sleeping.cancel()
            await asyncio.sleep(0)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
        assert workers.killed == 3
        assert time.monotonic() - started < 600

    run(work)


def test_processor_time_is_limited():
    """The operating system ends what would take for ever; the next calculation gets the whole time again."""

    async def work():
        workers = Workers(1, processor_seconds=1)
        await workers.start()
        try:
            for _ in range(2):
                with pytest.raises(WorkerError, match=r"was ended after 1 s of processor time\."):
                    await workers.run(sum, range(10**15))
                assert await workers.run(divmod, 7, 3) == (2, 1)
        finally:
            await workers.stop()

    asyncio.run(work())


@pytest.mark.parametrize("groups", [("long", "short"), ("one", "one")])
def test_groups_share_the_time(groups):
    """Five calculations of one group wait when another group comes: it is next. In the same group it would be last."""

    async def work(workers):
        ended = []

        async def sleep(name, group):
            await workers.run(time.sleep, 0.05, group=group)
            ended.append(name)

        first, second = groups
        tasks = [asyncio.create_task(sleep(f"first {number}", first)) for number in range(6)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(sleep("second", second)))
        await asyncio.gather(*tasks)
        assert ended.index("second") == (1 if first != second else 6)

    run(work)


def test_a_stop_ends_what_runs_and_what_waits():
    async def work(workers):
        calls = [asyncio.create_task(workers.run(time.sleep, 3600)) for _ in range(3)]
        await asyncio.sleep(0.1)
        workers.kill()
        for call in [*calls, workers.run(divmod, 7, 3)]:
            with pytest.raises(WorkerError, match="The planner has been stopped"):
                await call

    run(work)
