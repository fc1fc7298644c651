"""Groups follow each other without a turn of the event loop, and everybody who waits is told."""

import asyncio
import threading
import time

import pytest

from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.shuffler import ingest as ingest_module
from shuffledp.collection.shuffler.ingest import Ingest
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
        ingest = Ingest(store, Metrics("test"))
        await work(store, ingest)
        store.go_on.set()
        await asyncio.wait_for(ingest.finish(), 30)

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
    async def work(store, ingest):
        futures = [ingest.submit(report()) for _ in range(3)]
        await until(lambda: store.groups == [3])
        futures += [ingest.submit(report()) for _ in range(5)]
        store.go_on.set()
        end = time.monotonic() + 30
        while store.groups != [3, 5] and time.monotonic() < end:
            time.sleep(0.001)  # the loop stands still
        assert store.groups == [3, 5]
        assert not any(each.done() for each in futures)
        assert await asyncio.gather(*futures) == [ReportOutcome.NEW] * 8

    run(work)


def test_the_writer_begins_when_a_third_of_the_last_group_waits():
    async def work(store, ingest):
        store.go_on.set()
        await asyncio.gather(*[ingest.submit(report()) for _ in range(9)])
        await until(lambda: not ingest._writing)
        store.go_on.clear()
        futures = [ingest.submit(report()) for _ in range(2)]
        time.sleep(0.1)
        assert store.groups == [9]  # two are not enough before all that arrived were read
        futures.append(ingest.submit(report()))
        end = time.monotonic() + 30
        while len(store.groups) < 2 and time.monotonic() < end:
            time.sleep(0.001)  # the loop is still at reading
        assert store.groups == [9, 3]
        futures += [ingest.submit(report()) for _ in range(6)]
        store.go_on.set()
        assert await asyncio.gather(*futures) == [ReportOutcome.NEW] * 9
        assert store.groups == [9, 3, 6]

    run(work)


def test_fewer_than_a_third_need_not_wait_for_more():
    async def work(store, ingest):
        store.go_on.set()
        await asyncio.gather(*[ingest.submit(report()) for _ in range(9)])
        assert await asyncio.wait_for(ingest.submit(report()), 30) is ReportOutcome.NEW
        assert store.groups == [9, 1]

    run(work)


def test_finish_waits_for_what_was_submitted():
    async def work(store, ingest):
        future = ingest.submit(report())
        finishing = asyncio.create_task(ingest.finish())
        await until(lambda: store.groups == [1])
        assert not finishing.done()
        store.go_on.set()
        await asyncio.wait_for(finishing, 30)
        assert future.result() is ReportOutcome.NEW

    run(work)


@pytest.mark.parametrize("error", [StoreError("no room left"), ZeroDivisionError()])
def test_a_failure_is_told_to_the_whole_group(error):
    async def work(store, ingest):
        store.error = error
        store.go_on.set()
        futures = [ingest.submit(report()) for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(each) for each in outcomes] == [StoreError] * 3
        assert ingest.failing
        store.error = None
        assert await ingest.submit(report()) is ReportOutcome.NEW
        assert not ingest.failing

    run(work)


def test_a_store_that_hangs_is_not_ready(monkeypatch):
    async def work(store, ingest):
        assert await ingest.is_writable()
        assert store.checks == 1
        ingest.submit(report())
        await until(lambda: store.groups == [1])
        assert await ingest.is_writable()  # and is not asked, since that would wait as well
        monkeypatch.setattr(ingest_module, "_STUCK_SECONDS", 0.0)
        assert not await ingest.is_writable()
        store.go_on.set()
        await until(lambda: not ingest._writing)
        assert await ingest.is_writable()
        assert store.checks == 1

    run(work)
