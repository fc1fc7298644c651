"""How bodies arrive: only what has arrived takes memory, and what is not wanted is not read."""

import asyncio

import numpy as np
import pytest
from starlette.requests import Request

from shuffledp.collection.server.batch_intake import BatchEndpoints
from shuffledp.collection.server.batches import BatchState

LIMIT = 20_000


@pytest.fixture
def batch(collection):
    task = collection.task("histogram/k-rr")
    return collection.batch(task, collection.sealed(task, np.arange(220) % 4), chunk_records=150)


@pytest.fixture
def analyzer(collection, batch):
    opened = collection.open()
    opened.batches.put_manifest(batch.manifest, batch.signed)
    yield opened
    opened.close()


@pytest.fixture
def endpoints(analyzer):
    return BatchEndpoints(analyzer.tasks, analyzer.batches, analyzer.metrics, max_bytes=LIMIT, arrived=lambda: None)


class Sender:
    """A request whose body comes when the test says so."""

    def __init__(self, batch, place: int, length: int | None) -> None:
        self.pieces: asyncio.Queue = asyncio.Queue()
        self.asked = 0
        headers = [(b"content-type", b"application/octet-stream")]
        headers += [] if length is None else [(b"content-length", b"%d" % length)]
        parameters = {"task": batch.task.id.hex(), "index": str(place)}
        scope = {"type": "http", "method": "PUT", "headers": headers, "path_params": parameters}
        self.request = Request(scope, self._receive)

    async def _receive(self):
        self.asked += 1
        return await self.pieces.get()

    def send(self, content: bytes, *, more: bool = False) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": content, "more_body": more})


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def test_slow_senders_do_not_keep_out_quick_ones(endpoints, batch):
    chunk = batch.chunks[0]

    async def run():
        slow = [Sender(batch, 0, len(chunk)) for _ in range(10)]
        assert len(slow) * len(chunk) > 2 * LIMIT
        under_way = [asyncio.create_task(endpoints.put_chunk(each.request)) for each in slow]
        for each in slow:
            each.send(chunk[:10], more=True)
        await until(lambda: all(each.asked == 2 for each in slow))
        assert endpoints.memory.bytes == 10 * len(slow), "what has arrived, not what was announced"
        quick = Sender(batch, 1, len(batch.chunks[1]))
        quick.send(batch.chunks[1])
        assert (await endpoints.put_chunk(quick.request)).status == 201
        for each in slow[:2]:
            each.send(chunk[10:])
        assert {(await each).status for each in under_way[:2]} == {200, 201}, "one of them was the first"
        for task in under_way[2:]:
            task.cancel()
        await asyncio.gather(*under_way[2:], return_exceptions=True)
        assert endpoints.memory.bytes == 0, "whoever breaks off leaves no trace"

    asyncio.run(run())


def test_too_much_that_has_arrived_is_refused_and_leaves_memory(endpoints, batch):
    chunk = batch.chunks[0]

    async def run():
        senders = [Sender(batch, 0, None) for _ in range(4)]
        under_way = [asyncio.create_task(endpoints.put_chunk(each.request)) for each in senders]
        for each in senders:
            each.send(chunk[:-1], more=True)
        fit = LIMIT // (len(chunk) - 1)
        assert 0 < fit < len(senders)
        await until(lambda: sum(task.done() for task in under_way) == len(senders) - fit)
        done, waiting = ([task for task in under_way if task.done() == over] for over in (True, False))
        assert {task.result().status for task in done} == {503}
        assert endpoints.memory.bytes == fit * (len(chunk) - 1)
        announced = Sender(batch, 1, len(batch.chunks[1]))
        endpoints.memory.bytes += LIMIT
        assert (await endpoints.put_chunk(announced.request)).status == 503
        assert announced.asked == 0
        endpoints.memory.bytes -= LIMIT
        for each in senders:
            each.send(chunk[-1:])
        assert 201 in [(await task).status for task in waiting]
        assert endpoints.memory.bytes == 0

    asyncio.run(run())


def test_one_that_is_longer_than_the_room_may_come_alone(analyzer, batch):
    endpoints = BatchEndpoints(analyzer.tasks, analyzer.batches, analyzer.metrics, max_bytes=100, arrived=lambda: None)

    async def run():
        alone = Sender(batch, 0, len(batch.chunks[0]))
        alone.send(batch.chunks[0][:1000], more=True)
        alone.send(batch.chunks[0][1000:])
        assert (await endpoints.put_chunk(alone.request)).status == 201

    asyncio.run(run())


@pytest.mark.parametrize("length", [None, 100, 1 << 26])
def test_a_chunk_that_is_here_or_no_longer_wanted_is_not_read(endpoints, analyzer, batch, length):
    """At any time, also when there is no room: nothing is read, nothing is reserved."""

    async def answer(place=0):
        sender = Sender(batch, place, length)
        told = await asyncio.wait_for(endpoints.put_chunk(sender.request), 60)
        assert sender.asked == 0
        closes = (b"connection", b"close") in told.headers
        assert closes == (length != 100), "the rest of a short body is dropped, and the connection goes on"
        return told.status, told.body

    async def run():
        analyzer.batches.put_chunk(batch.task.id, 0, batch.chunks[0])
        endpoints.memory.bytes = 2 * LIMIT
        assert await answer() == (200, b'{"state": "receiving"}\n')
        analyzer.batches.put_chunk(batch.task.id, 1, batch.chunks[1])
        assert await answer() == (200, b'{"state": "complete"}\n')
        for state in (BatchState.RELEASED, BatchState.REFUSED):
            analyzer.batches.finish(batch.task.id, state)
            assert await answer() == (200, b'{"state": "released"}\n')
        assert endpoints.memory.bytes == 2 * LIMIT

    asyncio.run(run())
