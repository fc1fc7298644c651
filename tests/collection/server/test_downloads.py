"""Files as answers: whole, in order, and never more in memory than a reader has still to take."""

import contextlib
import http.client
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from shuffledp.collection.server.connections import guarded_connections
from shuffledp.collection.server.responses import FileResponse
from shuffledp.collection.server.running import listen

HEADERS = ((b"content-type", b"text/csv"),)


@pytest.fixture
def serve(tmp_path):
    """A server that answers every request with the file, and its port."""
    ended = []

    def run(size, *, request_seconds=30.0):
        file = tmp_path / "file"
        file.write_bytes(os.urandom(min(size, 1 << 20)))
        os.truncate(file, size)

        async def app(scope, receive, send):
            await FileResponse(file.open("rb"), HEADERS)(scope, receive, send)

        kind = guarded_connections(max_connections=100, request_seconds=request_seconds)
        bound = listen("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None))
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()

        def end():
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
            bound.close()

        ended.append(end)
        while not server.started:
            time.sleep(0.005)
        return file, bound.getsockname()[1]

    yield run
    for each in ended:
        each()


def ask(port, method="GET", *, buffer=None):
    """A socket on which something was asked."""
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"{method} / HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    return connection


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(file):
    """How often this process has the file open; others are opened and closed meanwhile."""
    number = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            number += link.samefile(file)
    return number


def wait_until_closed(file):
    deadline = time.monotonic() + 60
    while open_files(file):
        assert time.monotonic() < deadline, "it is read to its end for nobody"
        time.sleep(0.01)


@pytest.mark.parametrize("size", [0, 1, 32768, 32769, 3_000_000])
def test_a_file_comes_whole_and_on_one_connection_again(serve, size):
    file, port = serve(size)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for method in ("GET", "HEAD", "GET"):
        connection.request(method, "/")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["content-length"] == str(size)
        assert answer.headers["content-type"] == "text/csv"
        assert answer.read() == (b"" if method == "HEAD" else file.read_bytes())
    connection.close()
    wait_until_closed(file)


def test_readers_that_never_read_take_no_memory(serve):
    _, port = serve(200 << 20)
    before = resident()
    readers = [ask(port, buffer=1 << 14) for _ in range(10)]
    grown = 0
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        grown = max(grown, resident() - before)
        time.sleep(0.01)
    for reader in readers:
        assert reader.recv(12) == b"HTTP/1.1 200"
        reader.close()
    assert grown < 30 << 20


def test_a_file_is_let_go_of_when_its_reader_is_gone(serve):
    file, port = serve(1 << 30)
    reader = ask(port)
    reader.recv(1 << 16)
    assert open_files(file) == 1
    reader.close()
    wait_until_closed(file)


def test_who_reads_slowly_gets_all_and_who_does_not_read_is_given_up(serve):
    file, port = serve(16 << 20, request_seconds=0.5)
    silent, slow = ask(port, buffer=1 << 14), ask(port, buffer=1 << 16)
    start = time.monotonic()
    answer = http.client.HTTPResponse(slow)
    answer.begin()
    body = b""
    while piece := answer.read(1 << 16):
        body += piece
        time.sleep(0.01)
    assert time.monotonic() - start > 5 * 0.5, "too quick to show anything"
    assert body == file.read_bytes()
    answer.close()
    slow.close()
    lost = 0
    try:
        while piece := silent.recv(1 << 20):
            lost += len(piece)
    except ConnectionResetError:
        pass
    silent.close()
    assert lost < file.stat().st_size
