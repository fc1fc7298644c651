"""The parts of the HTTP client that devices do not use: aborting, UNIX sockets, server URLs."""

from __future__ import annotations

import socket
import threading

import pytest

from shuffledp.collection.transport.connection import Connection, LocalConnection, ServerUrl
from shuffledp.errors import ParameterError

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"here": 10}'


def answer_requests(listener: socket.socket, count: int) -> threading.Thread:
    """Answer so many requests of one connection, then wait until it is closed."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            for _ in range(count):
                peer.recv(1 << 16)
                peer.sendall(ANSWER)
            while peer.recv(1 << 16):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_aborted_from_another_thread_it_neither_waits_nor_tries_again():
    listener = socket.create_server(("127.0.0.1", 0))
    server = answer_requests(listener, 1)
    with listener, Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as connection:
        assert connection.request("GET", "/").document == {"here": 10}
        timer = threading.Timer(0.1, connection.abort)
        timer.start()
        with pytest.raises(OSError, match=r"."):  # of whatever kind; without an answer and a new connection
            connection.request("GET", "/")
        with pytest.raises(ConnectionAbortedError):
            connection.request("GET", "/")
        timer.join()
    server.join(60)
    assert not server.is_alive()


@pytest.mark.parametrize("length", [1, 150])
def test_http_over_a_unix_socket_however_long_its_path(tmp_path, length):
    directory = tmp_path / ("x" * length)
    directory.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    from shuffledp.collection.transport.connection import local_address

    with local_address(directory / "socket") as address:
        listener.bind(address)
    listener.listen()
    server = answer_requests(listener, 2)
    with listener, LocalConnection(directory / "socket", timeout=60) as connection:
        assert [connection.request("GET", "/").document for _ in range(2)] == [{"here": 10}] * 2
    server.join(60)


def test_server_urls():
    assert ServerUrl.parse("https://server.example:8443/below/") == ServerUrl("https", "server.example", 8443, "/below")
    assert [ServerUrl.parse(f"http://{host}").is_loopback for host in ("localhost", "[::1]", "127.9.9.9")] == [True] * 3
    assert not ServerUrl.parse("http://localhost.example").is_loopback
    for wrong in ("server.example", "ftp://server.example", "https://", "https://a:0", "https://a/?b", "https://a b"):
        with pytest.raises(ParameterError, match="not a valid server URL"):
            ServerUrl.parse(wrong)
    with pytest.raises(ParameterError, match="without a user name") as refused:
        ServerUrl.parse("https://user:secret@server.example")
    assert "secret" not in str(refused.value)
