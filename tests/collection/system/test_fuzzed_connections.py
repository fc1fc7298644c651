"""Any bytes on any connection to either server: its memory stays within a limit, and it answers others meanwhile.

``test_fuzzed`` sends requests; this sends streams of bytes that need never be a request or come to an end. Each stream
makes a parser hold on to something: headers, trailers, chunk sizes, empty lines, requests that wait for their turn.
"""

import contextlib
import http.client
import random
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MAX_GROWTH = 96 << 20
"""Bytes that a server may take more than before, at any time during an attack. It was 2,485 MB with trailers."""
LONGEST_ANSWER = 10.0
"""Seconds for ``/healthz`` during an attack, on a busy machine. It was 6 to 15 s on an idle one."""
PIECE = 1 << 16

START = [
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
    b"GET /nothing HTTP/1.1\r\nHost: x\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n",
    b"POST /v1/tasks/TASK/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n",
    b"PUT /v1/batches/TASK HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n",
    b"PUT /v1/batches/TASK/chunks/0 HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n",
]
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
TOKENS = [
    *START, CHUNKED, WHOLE, b"\r\n", b"\r\n\r\n", b"0\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"1;a=b\r\nx\r\n",
    b"a: b\r\n", b"Content-Length: 5\r\n", b"Content-Length: 70000\r\n\r\n", b"Connection: close\r\n\r\n",
    b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"x" * 5000, bytes(5000), b"\xff\xfe",
    b" ", b"\t", b":", b"PRI * HTTP/2.0", b"Cookie: " + b"c" * 9000 + b"\r\n", b"ffffffffffffffff\r\n",
    b"00000000000000001\r\nx\r\n", b"Trailer: a\r\n",
]  # fmt: skip


def endless(begin: bytes, again: bytes) -> Callable[[random.Random], tuple[bytes, bytes]]:
    """A stream that begins so and goes on so; what it begins with gets a target."""
    return lambda chance: (chance.choice(START) + begin, again)


STREAMS: dict[str, Callable[[random.Random], tuple[bytes, bytes]]] = {
    "headers": endless(b"", b"a:b\r\n"),
    "header without a value": endless(b"", b"a:\r\n"),
    "header value": endless(b"a: ", b"b" * 1000),
    "header name": endless(b"", b"a" * 1000),
    "target": lambda _: (b"GET /", b"a" * 1000),
    "query": lambda _: (b"GET /healthz?", b"a=b&" * 250),
    "method": lambda _: (b"", b"G" * 1000),
    "trailers": endless(CHUNKED + b"5\r\nhello\r\n0\r\n", b"a:b\r\n"),
    "trailer value": endless(CHUNKED + b"0\r\na: ", b"b" * 1000),
    "trailer name": endless(CHUNKED + b"0\r\n", b"b" * 1000),
    "chunk extension": endless(CHUNKED + b"5", b";a=b" * 250),
    "one chunk extension": endless(CHUNKED + b"5;", b"a" * 1000),
    "chunk size": endless(CHUNKED, b"0" * 1000),
    "tiny chunks": endless(CHUNKED, b"1\r\nx\r\n"),
    "chunk": endless(CHUNKED + b"fffffff\r\n", bytes(1000)),
    "body": endless(b"Content-Length: 999999999\r\n\r\n", bytes(1000)),
    "awaited body": endless(b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n", bytes(1000)),
    "empty lines": lambda _: (b"", b"\r\n"),
    "empty lines after a request": lambda _: (WHOLE, b"\r\n"),
    "data after the last request": lambda _: (WHOLE.replace(b"Host", b"Connection: close\r\nHost"), b"x" * 1000),
    "requests": lambda _: (b"", WHOLE),
    "requests with bodies": lambda _: (b"", START[3] + b"Content-Length: 20000\r\n\r\n" + bytes(20_000)),
    "requests for much": lambda _: (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    "bytes": lambda chance: (b"", chance.randbytes(1000)),
    "tokens": lambda chance: (b"", b"".join(chance.choices(TOKENS, k=200))),
}


def memory(process) -> int:
    """Bytes that a process holds."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


class Watch(threading.Thread):
    """Looks at a server's memory and asks for ``/healthz``, again and again."""

    def __init__(self, process, port: int):
        super().__init__()
        self._process, self._port, self._over = process, port, threading.Event()
        self.before = self.most = memory(process)
        self.longest, self.answers = 0.0, 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, memory(self._process))
            self.ask()

    def ask(self) -> None:
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LONGEST_ANSWER)
        try:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            self.answers += 1
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.failures.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()
        self.longest = max(self.longest, time.monotonic() - begun)
        self.most = max(self.most, memory(self._process))

    def __enter__(self) -> "Watch":
        self.ask()
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self.join()
        self.ask()


class Stream:
    """Bytes over a connection of its own, as fast as they are taken."""

    def __init__(self, port: int, begin: bytes, again: bytes, most: int):
        self._left, self._again, self._most = begin, again * max(1, PIECE // len(again)), most
        self.peer = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_ANSWER)
        self.peer.setblocking(False)

    def send(self) -> bool:
        """Send a piece; whether there is more to send."""
        self._left = self._left or self._again
        sent = self.peer.send(self._left[: self._most])
        self._left = self._left[sent:]
        self._most -= sent
        return self._most > 0


def attack(port: int, contents: list[tuple[bytes, bytes]], *, most: int, seconds: float) -> None:
    """Send so many bytes of each stream, all at the same time, until all is sent or refused, or the time is over.

    Of what the server answers nothing is read, and connections stay open until the end.
    """
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as ready:
        for begin, again in contents:
            stream = Stream(port, begin, again, most)
            opened.enter_context(stream.peer)
            ready.register(stream.peer, selectors.EVENT_WRITE, stream)
        while ready.get_map() and time.monotonic() < deadline:
            for key, _ in ready.select(0.1):
                try:
                    if not key.data.send():
                        ready.unregister(key.fileobj)
                except BlockingIOError:
                    continue
                except OSError:  # the server has had enough
                    ready.unregister(key.fileobj)
        time.sleep(min(0.3, max(0.0, deadline - time.monotonic())))  # what was sent is looked at


@pytest.fixture(params=["shuffler", "analyzer"])
def server(request, new_round, until) -> Iterator[tuple[object, int, str]]:
    """A server as a process, its port, and the task it has; it stops cleanly in the end."""
    here, role = new_round(), request.param
    process = here.start(role)
    port = {"shuffler": here.shuffler_port, "analyzer": here.analyzer_port}[role]

    def is_ready() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LONGEST_ANSWER):
            return True
        assert process.is_alive()
        return False

    until(is_ready)
    yield process, port, here.name
    process.terminate()
    process.join(60)
    assert process.exitcode == 0
    assert not [event for event in here.events(role) if event.get("level") == "error"]


def check(watch: Watch, what: str) -> None:
    print(f"{what}: {watch.before >> 20} MB, at most {watch.most >> 20} MB, /healthz in {watch.longest:.2f} s")
    assert not watch.failures, what
    assert watch.most - watch.before < MAX_GROWTH, what
    assert watch.longest < LONGEST_ANSWER, what


def contents_of(names: list[str], chance: random.Random, task: str) -> list[tuple[bytes, bytes]]:
    made = (STREAMS[name](chance) for name in names)
    return [(begin.replace(b"TASK", task.encode()), again.replace(b"TASK", task.encode())) for begin, again in made]


def test_endless_streams(server):
    """One of each kind at a time, and more bytes than a connection may ever hold."""
    process, port, task = server
    chance = random.Random(12)
    with Watch(process, port) as watch:
        attack(port, contents_of(list(STREAMS), chance, task), most=8 << 20, seconds=10)
    check(watch, "one of each")


def test_unfinished_headers_on_many_connections(server):
    """Each within its own limit; what they hold together has a limit too."""
    process, port, _ = server
    with Watch(process, port) as watch:
        attack(port, [(START[0] + b"a: ", b"b" * 1000)] * 400, most=15_000, seconds=20)
        attack(port, [(START[0], b"a:b\r\n")] * 400, most=15_000, seconds=20)
    check(watch, "400 unfinished headers")


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_one_kind_of_stream(server, name):
    """A hundred megabytes over one connection, then many connections at the same time."""
    process, port, task = server
    chance = random.Random(name)
    with Watch(process, port) as watch:
        attack(port, contents_of([name], chance, task), most=100 << 20, seconds=30)
        attack(port, contents_of([name] * 300, chance, task), most=1 << 20, seconds=30)
    check(watch, name)


@pytest.mark.slow
def test_mixtures_of_streams(server):
    process, port, task = server
    for seed in range(10):
        chance = random.Random(seed)
        names = chance.choices(list(STREAMS), k=200)
        with Watch(process, port) as watch:
            attack(port, contents_of(names, chance, task), most=chance.choice([1000, 20_000, 1 << 20]), seconds=20)
        check(watch, f"mixture {seed}")
