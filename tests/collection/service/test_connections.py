"""Connections: a refusal reaches whoever is still sending, and nobody can hold a connection or fill the memory."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from shuffledp.collection.service.connections import guarded_connections
from shuffledp.collection.service.problems import Answer, problem
from shuffledp.collection.service.running import listen

LONGEST = 1000


@dataclass
class Echo:
    """Tells the length of a body, refuses long ones without reading on; ``/big`` answers with much, ``/wait`` late."""

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
        if scope["path"] == "/big":
            await Answer(200, bytes(1 << 24))(scope, receive, send)
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
        await Answer(200, b"%d" % length)(scope, receive, send)


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

    def run(*, most_connections: int = 100, request_seconds: float = 30, **limits: float) -> Server:
        refused: list[str] = []
        kind = guarded_connections(
            most_connections=most_connections, request_seconds=request_seconds, refused=refused.append
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
    server = serve(most_connections=2)
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
