"""Bodies that come in tiny pieces take no more memory than others."""

import asyncio
import tracemalloc

import pytest

from shuffledp.collection.server.bodies import DisconnectedError, TooLongError, read_body

PIECES = 50_000


def read(pieces: list[bytes], *, most: int, ends: bool = True) -> bytes:
    last = len(pieces) - 1
    messages = ({"type": "http.request", "body": each, "more_body": at < last} for at, each in enumerate(pieces))

    async def receive():
        message = next(messages, None) if ends else {"type": "http.disconnect"}
        return message if message is not None else {"type": "http.disconnect"}

    return asyncio.run(read_body(receive, max_bytes=most))


def test_tiny_pieces():
    made = [bytes([number % 251, number % 7]) for number in range(PIECES)]  # each an object of its own
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    messages = iter(made)
    made = []

    async def receive():
        piece = next(messages, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    body = asyncio.run(read_body(receive, max_bytes=2 * PIECES))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert len(body) == 2 * PIECES
    assert peak < 6 * len(body)


def test_the_longest():
    assert read([b"ab", b"c"], most=3) == b"abc"
    assert read([b"abc"], most=3) == b"abc"
    for pieces in ([b"ab", b"cd"], [b"abcd"]):
        with pytest.raises(TooLongError):
            read(pieces, most=3)


def test_cut_off():
    with pytest.raises(DisconnectedError):
        read([b""], most=3, ends=False)
