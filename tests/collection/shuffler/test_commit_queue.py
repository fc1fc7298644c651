"""Groups follow each other without a turn of the event loop, and everybody who waits is told."""

import asyncio
import threading
import time

import pytest

from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.shuffler import commit_queue
from shuffledp.collection.shuffler.commit_queue import CommitQueue
from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome, StoreError


class FakeStore:
    """Says what it was given; the first group waits until it may go on."""

    def __init__(self):
        self.groups: list[int] = []
        self.go_on = threading.Event()
        self.error: Exception | None = None
        self.checks = 0

    def accept(self, batch):
        self.groups.append(len(batch))
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        return [ReportOutcome.NEW] * len(batch)

    def check(self):
        self.checks += 1


def run(work) -> None:
    async def main():
        store = FakeStore()
        queue = CommitQueue(store, Metrics("test"))
        await work(store, queue)
        store.go_on.set()
        await asyncio.wait_for(queue.finish(), 30)

    asyncio.run(main())


def report() -> Incoming:
    return Incoming(bytes(32), bytes(16), b"report")


async def until(condition) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it took too long")


def test_the_next_group_does_not_wait_for_the_event_loop():
    async def work(store, queue):
        futures = [queue.submit(report()) for _ in range(3)]
        await until(lambda: store.groups == [3])
        futures += [queue.submit(report()) for _ in range(5)]
        store.go_on.set()
        end = time.monotonic() + 30
        while store.groups != [3, 5] and time.monotonic() < end:
            time.sleep(0.001)  # the loop stands still
        assert store.groups == [3, 5]
        assert not any(each.done() for each in futures)
        assert await asyncio.gather(*futures) == [ReportOutcome.NEW] * 8

    run(work)


def test_the_writer_begins_when_a_third_of_the_last_group_waits():
    async def work(store, queue):
        store.go_on.set()
        await asyncio.gather(*[queue.submit(report()) for _ in range(9)])
        await until(lambda: not queue._writing)
        store.go_on.clear()
        futures = [queue.submit(report()) for _ in range(2)]
        time.sleep(0.1)
        assert store.groups == [9]  # two are not enough before all that arrived were read
        futures.append(queue.submit(report()))
        end = time.monotonic() + 30
        while len(store.groups) < 2 and time.monotonic() < end:
            time.sleep(0.001)  # the loop is still at reading
        assert store.groups == [9, 3]
        futures += [queue.submit(report()) for _ in range(6)]
        store.go_on.set()
        assert await asyncio.gather(*futures) == [ReportOutcome.NEW] * 9
        assert store.groups == [9, 3, 6]

    run(work)


def test_fewer_than_a_third_need_not_wait_for_more():
    async def work(store, queue):
        store.go_on.set()
        await asyncio.gather(*[queue.submit(report()) for _ in range(9)])
        assert await asyncio.wait_for(queue.submit(report()), 30) is ReportOutcome.NEW
        assert store.groups == [9, 1]

    run(work)


def test_finish_waits_for_what_was_submitted():
    async def work(store, queue):
        future = queue.submit(report())
        finishing = asyncio.create_task(queue.finish())
        await until(lambda: store.groups == [1])
        assert not finishing.done()
        store.go_on.set()
        await asyncio.wait_for(finishing, 30)
        assert future.result() is ReportOutcome.NEW

    run(work)


@pytest.mark.parametrize("error", [StoreError("no room left"), ZeroDivisionError()])
def test_a_failure_is_told_to_the_whole_group(error):
    async def work(store, queue):
        store.error = error
        store.go_on.set()
        futures = [queue.submit(report()) for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(each) for each in outcomes] == [StoreError] * 3
        assert queue.failing
        store.error = None
        assert await queue.submit(report()) is ReportOutcome.NEW
        assert not queue.failing

    run(work)


def test_a_store_that_hangs_is_not_ready(monkeypatch):
    async def work(store, queue):
        assert await queue.is_writable()
        assert store.checks == 1
        queue.submit(report())
        await until(lambda: store.groups == [1])
        assert await queue.is_writable()  # and is not asked, since that would wait as well
        monkeypatch.setattr(commit_queue, "_STUCK_SECONDS", 0.0)
        assert not await queue.is_writable()
        store.go_on.set()
        await until(lambda: not queue._writing)
        assert await queue.is_writable()
        assert store.checks == 1

    run(work)
