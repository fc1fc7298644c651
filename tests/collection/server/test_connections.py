"""Connections: a refusal reaches whoever is still sending, and nobody can hold a connection or fill the memory."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from shuffledp.collection.server.connections import SPARE_CONNECTIONS, guarded_connections
from shuffledp.collection.server.responses import PreparedResponse, problem
from shuffledp.collection.server.running import listen

LONGEST = 1000
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Echo:
    """Tells the length of a body, refuses long ones without reading on.

    ``/big`` answers with much, ``/wait`` when it is allowed to, ``/early`` without reading.
    """

    seen: int = 0
    allowed: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.seen += 1
        if scope["path"] == "/early":
            await PreparedResponse(200)(scope, receive, send)
            return
        while scope["path"] == "/wait" and not self.allowed.is_set():
            await asyncio.sleep(0.01)
        if scope["path"] == "/big":
            await PreparedResponse(200, bytes(1 << 24))(scope, receive, send)
            return
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length += len(message["body"])
            if length > LONGEST:
                await problem(413, "too-long", "Too long.", close=True)(scope, receive, send)
                return
            if not message["more_body"]:
                break
        await PreparedResponse(200, b"%d" % length)(scope, receive, send)


@dataclass
class Server:
    app: Echo
    port: int
    running: uvicorn.Server
    refused: list[str]
    """The names of problems that connections were refused with."""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def connections(self) -> int:
        return len(self.running.server_state.connections)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    ended: list[Callable[[], None]] = []

    def run(
        *, max_connections: int = 100, request_seconds: float = 30, max_buffered_bytes: int = 1 << 26, **limits: float
    ) -> Server:
        refused: list[str] = []
        kind = guarded_connections(
            max_connections=max_connections,
            request_seconds=request_seconds,
            max_buffered_bytes=max_buffered_bytes,
            refused=refused.append,
        )
        for name, value in limits.items():
            setattr(kind, name, value)
        app = Echo()
        bound = listen("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, http=kind, ws="none", lifespan="on", log_config=None))
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()

        def end() -> None:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
            bound.close()

        ended.append(end)
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        return Server(app, bound.getsockname()[1], server, refused)

    yield run
    for each in ended:
        each()


def read_all(peer: socket.socket) -> bytes:
    pieces = []
    while piece := peer.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def read_answer(peer: socket.socket) -> int:
    """The status of one answer, which is read whole."""
    with http.client.HTTPResponse(peer) as answer:
        answer.begin()
        answer.read()
        return answer.status


def send_for_a_minute(peer: socket.socket) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        peer.sendall(bytes(10_000))
        time.sleep(0.001)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_sends_too_much_still_reads_why(serve):
    """Closed at once, the peer would see a reset in most of these rounds."""
    server = serve()
    for _ in range(20):
        with server.connect() as peer:
            peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\n\r\n" + bytes(LONGEST + 1))
            time.sleep(0.01)
            for _ in range(6):
                peer.sendall(bytes(900_000))
            assert read_all(peer).startswith(b"HTTP/1.1 413 ")
    until(lambda: server.connections() == 0)


def test_who_never_stops_sending_is_cut_off(serve):
    for limits in ({"linger_seconds": 0.2}, {"linger_seconds": 600.0, "linger_bytes": 1 << 20}):
        server = serve(**limits)
        with server.connect() as peer:
            peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n" + bytes(LONGEST + 1))
            with pytest.raises(ConnectionError):
                send_for_a_minute(peer)
        until(lambda server=server: server.connections() == 0)


@pytest.mark.parametrize(
    ("request_bytes", "status", "name"),
    [
        (b"nonsense\r\n\r\n", 400, "not-http"),
        (b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 100_000), 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n" % (b"a" * 100_000), 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: bcdefgh\r\n" * 10_000 + b"\r\n", 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: %s" % (b"a" * 1_000_000), 431, "headers-too-large"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
            400,
            "no-upgrade",
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n\r\n", 400, "not-http"),
        (b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 102, 431, "headers-too-large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: %s" % (b"a" * 17_000), 431, "headers-too-large"),
        (CHUNKED + b"3\r\nabc\r\n0\r\na: b\r\n\r\n", 400, "no-trailers"),
        (CHUNKED + b"0\r\na: b\r\nc: d\r\n", 400, "no-trailers"),
        (CHUNKED + b"0\r\na: %s" % (b"b" * 20_000), 431, "headers-too-large"),
        (CHUNKED + b"3;%s" % (b"a" * 20_000), 431, "headers-too-large"),
        (CHUNKED + b"0" * 20_000, 431, "headers-too-large"),
        (CHUNKED + b"1\r\nx\r\n" * 900 + b"1;%s\r\n" % (b"a" * 20_000), 431, "headers-too-large"),
        (b"\r\n" * 20_000, 431, "headers-too-large"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not-http"),
    ],
)
def test_what_is_refused_gets_one_answer(serve, request_bytes, status, name):
    server = serve()
    with server.connect() as peer:
        peer.sendall(request_bytes)
        answer = read_all(peer)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"content-length: ") == 1
    assert b"connection: close" in answer
    assert server.refused == [name]


def test_a_large_body_in_the_same_piece_is_no_large_header(serve):
    with serve().connect() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000))
        assert read_all(peer).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("rubbish", [b"rubbish\r\n\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"])
def test_requests_before_rubbish_are_answered(serve, rubbish):
    """The rubbish itself gets no answer, which could be taken for that of another request."""
    server = serve()
    for number in (1, 3):
        with server.connect() as peer:
            peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" * number + rubbish)
            answer = read_all(peer)
        assert answer.count(b"HTTP/1.1 200 ") == number
        assert answer.count(b"content-length: ") == number


def test_only_some_requests_are_taken_ahead_of_their_answers(serve):
    server = serve()
    with server.connect() as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3000)
        answer = read_all(peer)
    assert 1 <= answer.count(b"HTTP/1.1 200 ") == server.app.seen <= 17
    assert server.refused == ["too-eager"]


def test_who_does_not_read_the_answer_is_cut_off(serve):
    server = serve(request_seconds=0.2)
    with server.connect() as peer:
        peer.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: server.app.seen == 1)
        until(lambda: server.connections() == 0)
    with server.connect() as peer:  # also when the connection was to end after it
        peer.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        until(lambda: server.app.seen == 2)
        until(lambda: server.connections() == 0)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"])
def test_a_request_that_does_not_arrive(serve, begun):
    server = serve(request_seconds=0.2)
    with server.connect() as peer:
        peer.sendall(begun)
        assert read_all(peer).startswith(b"HTTP/1.1 408 ")
    until(lambda: server.connections() == 0)
    assert server.refused == ["too-slow"]


def test_one_connection_too_many(serve):
    server = serve(max_connections=2)
    with server.connect() as first, server.connect() as second:
        for peer in (first, second):
            peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert peer.recv(1000).startswith(b"HTTP/1.1 200 ")
        with server.connect() as third:
            third.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_all(third).startswith(b"HTTP/1.1 503 ")
        assert server.refused == ["overloaded"]
        first.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_connections_far_beyond_the_limit_are_closed_at_once(serve):
    """Each that is told so lingers, and takes a descriptor: only some are told."""
    server = serve(max_connections=2)
    peers = [server.connect() for _ in range(2 + 2 * SPARE_CONNECTIONS)]
    try:
        until(lambda: len(server.refused) == 2 * SPARE_CONNECTIONS)
        assert server.connections() <= 2 + SPARE_CONNECTIONS + 1
        assert server.app.seen == 0
    finally:
        for peer in peers:
            peer.close()


def test_a_body_in_chunks_may_be_long(serve):
    """Chunk sizes count, but in proportion to what comes with them."""
    server = serve(max_header_bytes=2000)
    for chunk, number, status in ((b"x" * 1000, 1, 200), (b"x", 40, 200), (b"x", 100, 431), (b"x" * 10_000, 1, 413)):
        with server.connect() as peer:
            peer.sendall(CHUNKED + b"%x\r\n%b\r\n" % (len(chunk), chunk) * number)
            if status == 200:
                peer.sendall(b"0\r\n\r\n")
            assert read_answer(peer) == status


def test_many_requests_one_after_the_other_do_not_add_up(serve):
    server = serve(max_header_bytes=500)
    with server.connect() as peer:
        for request in (b"GET / HTTP/1.1\r\nA: %s\r\n\r\n" % (b"a" * 300), CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n\r\n"):
            for _ in range(20):
                peer.sendall(request)
                assert read_answer(peer) == 200


UNFINISHED = b"GET / HTTP/1.1\r\nHost: x\r\nA: "


def test_what_all_connections_hold_has_a_limit(serve):
    """Those that have been arriving for longest are given up; whoever sends a whole request is served."""
    server = serve(max_buffered_bytes=100_000)
    peers = []
    try:
        for _ in range(30):
            peers.append(server.connect())
            peers[-1].sendall(UNFINISHED + b"a" * 10_000)
            with server.connect() as other:
                other.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
                assert other.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert 20 <= server.refused.count("overloaded") < 30
        assert read_all(peers[0]).startswith(b"HTTP/1.1 503 ")
        peers[-1].sendall(b"\r\n\r\n")
        assert peers[-1].recv(1000).startswith(b"HTTP/1.1 200 ")
    finally:
        for peer in peers:
            peer.close()


def test_requests_that_wait_for_their_turn_are_held_too(serve):
    """They are dropped if there is no more memory; the one that is being answered is answered."""
    server = serve(max_buffered_bytes=100_000)
    first = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
    waiting = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + bytes(900)
    peers = [server.connect() for _ in range(30)]
    try:
        for number, peer in enumerate(peers, 1):
            peer.sendall(first)
            until(lambda number=number: server.app.seen == number)
            peer.sendall(waiting * 10)
        until(lambda: "overloaded" in server.refused)
        server.app.allowed.set()
        assert read_all(peers[0]).count(b"HTTP/1.1 200 ") == 1
    finally:
        server.app.allowed.set()
        for peer in peers:
            peer.close()


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n",
        b"GET /early HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n",
    ],
)
def test_a_connection_on_which_nothing_comes_ends(serve, begun):
    """uvicorn forgets to end those on which something came after an answer."""
    server = serve(request_seconds=0.3)
    with server.connect() as peer:
        peer.sendall(begun)
        assert peer.recv(1000).startswith(b"HTTP/1.1 200 ")
        peer.sendall(b"abc" if b"early" in begun else b"\r\n")
        peer.settimeout(60)
        assert peer.recv(1000) == b""
    until(lambda: server.connections() == 0)


def test_a_body_after_its_answer_is_thrown_away_but_not_for_ever(serve):
    server = serve(linger_bytes=1 << 20)
    with server.connect() as peer:
        peer.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(ConnectionError):
            send_for_a_minute(peer)
    until(lambda: server.connections() == 0)


def test_an_answer_is_sent_as_it_is_taken(serve):
    """Only a piece of it is held for somebody who does not read."""
    server = serve()
    with server.connect() as peer:
        peer.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        until(lambda: server.app.seen == 1)
        (connection,) = server.running.server_state.connections
        until(lambda: connection.flow.write_paused)
        assert connection.transport._inner.get_write_buffer_size() < 1 << 18
        assert len(read_all(peer)) > 1 << 24


def test_what_nobody_has_read_of_a_body_is_dropped_with_the_answer(serve):
    server = serve()
    with server.connect() as peer:
        peer.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + bytes(50_000))
        assert read_answer(peer) == 200
        (connection,) = server.running.server_state.connections
        assert len(connection.cycle.body) == 0
        peer.sendall(bytes(10_000) + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(peer) == 200
