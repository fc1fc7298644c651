"""Memory limits: what has arrived counts, slow uploads are evicted first, and the queue is served in order."""

import asyncio

import pytest

from shuffledp.collection.server import bodies
from shuffledp.collection.server.bodies import MemoryLimit, MemoryLimitError, TooLongError


class Sender:
    """Pieces of a body that arrive when they are told to."""

    def __init__(self):
        self._pieces = asyncio.Queue()

    def send(self, piece: bytes, *, more: bool = True) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    async def receive(self):
        return await self._pieces.get()


async def take(limit: MemoryLimit, sender: Sender, until: asyncio.Event | None = None, most: int = 100):
    with limit.upload() as upload:
        body = await upload.read(sender.receive, most)
        await upload.enter()
        if until is not None:
            await until.wait()
        return body


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def make(*, max_reports: int = 10, max_bytes: int = 1000, wait_seconds: float = 0.05) -> MemoryLimit:
    return MemoryLimit(max_reports=max_reports, max_bytes=max_bytes, wait_seconds=wait_seconds)


def check_empty(limit: MemoryLimit) -> None:
    assert (limit.reports, limit.bytes, len(limit._arriving)) == (0, 0, 0)


def test_only_what_has_arrived_counts():
    async def run():
        limit, sender = make(), Sender()
        reading = asyncio.create_task(take(limit, sender))
        sender.send(b"four")
        await settle()
        assert (limit.reports, limit.bytes) == (0, 4)
        sender.send(b"more", more=False)
        assert await reading == b"fourmore"
        check_empty(limit)

    asyncio.run(run())


def test_who_is_slow_is_evicted_when_memory_runs_short(monkeypatch):
    async def run():
        limit = make(max_bytes=100)
        senders = [Sender() for _ in range(3)]
        slow = [asyncio.create_task(take(limit, each)) for each in senders]
        for each in senders:
            each.send(b"x" * 30)
        await settle()
        quick = Sender()
        quick.send(b"y" * 50, more=False)
        with pytest.raises(MemoryLimitError):  # nobody is slow yet
            await take(limit, quick)
        monkeypatch.setattr(bodies, "_SLOW_SECONDS", 0.0)
        quick.send(b"y" * 60, more=False)
        assert await take(limit, quick) == b"y" * 60
        outcomes = await asyncio.gather(*slow[:2], return_exceptions=True)  # the first that began
        assert [type(each) for each in outcomes] == [MemoryLimitError] * 2
        assert not any(each.cancelled() for each in slow)
        senders[2].send(b"z", more=False)
        assert await slow[2] == b"x" * 30 + b"z"
        check_empty(limit)

    asyncio.run(run())


def test_one_body_may_always_arrive():
    async def run():
        limit, sender = make(max_bytes=10), Sender()
        for _ in range(8):
            sender.send(b"x" * 10)
        sender.send(b"", more=False)
        assert len(await take(limit, sender)) == 80
        sender.send(b"x" * 101, more=False)
        with pytest.raises(TooLongError):
            await take(limit, sender)
        check_empty(limit)

    asyncio.run(run())


def test_places_are_given_in_turn():
    async def run():
        limit, done = make(max_reports=2, wait_seconds=60), []

        async def one(number: int, until: asyncio.Event) -> None:
            sender = Sender()
            sender.send(b"x", more=False)
            await take(limit, sender, until)
            done.append(number)

        events = [asyncio.Event() for _ in range(5)]
        tasks = [asyncio.create_task(one(number, each)) for number, each in enumerate(events)]
        await settle()
        assert (limit.reports, limit.bytes) == (2, 5)
        for each in reversed(events):
            each.set()
            await settle()
        await asyncio.gather(*tasks)
        assert done == [1, 2, 3, 4, 0]
        check_empty(limit)

    asyncio.run(run())


def test_wait_seconds_ends():
    async def run():
        limit, hold = make(max_reports=1), asyncio.Event()
        holder = Sender()
        holder.send(b"x", more=False)
        holding = asyncio.create_task(take(limit, holder, hold))
        await settle()
        for _ in range(3):
            sender = Sender()
            sender.send(b"x", more=False)
            with pytest.raises(MemoryLimitError):
                await take(limit, sender)
            assert len(limit._queue) <= 1
        hold.set()
        await holding
        check_empty(limit)

    asyncio.run(run())


@pytest.mark.parametrize("has_turn", [False, True])
def test_who_is_cancelled_while_waiting_leaves_no_trace(has_turn):
    async def run():
        limit, hold = make(max_reports=1, wait_seconds=60), asyncio.Event()
        senders = [Sender(), Sender()]
        for each in senders:
            each.send(b"x", more=False)
        first = asyncio.create_task(take(limit, senders[0], hold))
        await settle()
        second = asyncio.create_task(take(limit, senders[1]))
        await settle()
        if has_turn:
            limit._queue[0].set_result(True)  # as if the first had left just now
            limit.reports += 1
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        hold.set()
        await first
        check_empty(limit)

    asyncio.run(run())
