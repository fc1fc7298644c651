"""TLS: connections whose handshake is not finished count, and those that have ended do not."""

import gc
import http.client
import resource
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shuffledp.collection.server.connections import guarded_connections
from shuffledp.collection.server.responses import PreparedResponse
from shuffledp.collection.server.running import _Server, listen
from shuffledp.collection.server.tls import MAX_HANDSHAKE_BYTES, LimitedHandshake, server_context

MOST = 8
WAIT_SECONDS = 60.0


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    (folder / "tls.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "tls.pem", folder / "tls.key"


async def app(scope, receive, send):
    await PreparedResponse(200)(scope, receive, send)


@contextmanager
def serving(folder, *, most, handshake_seconds=30.0, buffered_bytes=1 << 26):
    """The port of a server with these limits, with the event loop of the servers."""
    bound = listen("127.0.0.1", 0)
    kind = guarded_connections(max_connections=most, request_seconds=30, max_buffered_bytes=buffered_bytes)
    config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None, loop="uvloop")
    config.load()
    config.ssl = server_context(*certificate(folder), max_connections=most)
    server = _Server(config, lambda: None, handshake_seconds=handshake_seconds)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
        bound.close()


@pytest.fixture
def port(tmp_path):
    """Of a server that has at most a few connections."""
    with serving(tmp_path, most=MOST) as port:
        yield port


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def status(port: int) -> int:
    """Of an answer over TLS; 0 if there is none."""
    context = client_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_SECONDS, context=context)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def until(condition) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_handshakes_that_are_not_finished(port):
    with ExitStack() as opened:
        for _ in range(MOST):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        until(lambda: status(port) == 0)
        another = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS))
        with suppress(ConnectionResetError):
            assert another.recv(1000) == b"", "it is closed at once"
    until(lambda: status(port) == 200)


def test_connections_that_have_ended_do_not_count(port):
    for _ in range(5 * MOST):
        until(lambda: status(port) == 200)
    for _ in range(3 * MOST):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"no hello\r\n\r\n")
    until(lambda: status(port) == 200)


def first_message(size: int) -> bytes:
    """So many bytes of a first message that says it has 131,000, in records."""
    message = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(size)
    records = (message[start : start + 16_000] for start in range(0, size, 16_000))
    return b"".join(b"\x16\x03\x01" + len(record).to_bytes(2, "big") + record for record in records)


def is_ended(peer: socket.socket) -> bool:
    """Whether the server ends the connection, or resets it."""
    try:
        while received := peer.recv(1 << 16):
            assert received
    except ConnectionResetError:
        return True
    return True


def test_a_handshake_that_is_too_long_is_ended(port):
    """Each would be held in memory three times: a gigabyte and a half for all connections that a server may have."""
    for _ in range(3 * MOST):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as peer:
            with suppress(OSError):
                peer.sendall(first_message(8 * MAX_HANDSHAKE_BYTES))
            assert is_ended(peer)
    until(lambda: status(port) == 200)


def test_a_handshake_may_take_as_long_as_a_request(tmp_path):
    with serving(tmp_path, most=MOST, handshake_seconds=0.3) as port:
        for begun in (b"", first_message(100)):
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS / 2) as peer:
                peer.sendall(begun)
                assert is_ended(peer)
        until(lambda: status(port) == 200)


def resident_bytes() -> int:
    """Of this process, in which the server runs."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_many_stalled_handshakes(tmp_path):
    """Also such of which as much has arrived as may."""
    stalled = 400
    with serving(tmp_path, most=2 * stalled) as port, ExitStack() as opened:
        until(lambda: status(port) == 200)
        before = resident_bytes()
        for number in range(stalled):
            peer = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS))
            peer.sendall(first_message((0, 100, MAX_HANDSHAKE_BYTES // 2)[number % 3]))
        assert status(port) == 200
        assert resident_bytes() - before < stalled * 200_000


def test_idle_connections_that_have_sent_much_count(tmp_path):
    """The buffer that TLS reads into stays as large as it was, 256 kB at most: the limit on all bytes ends some."""
    peers, buffered_bytes, size = 60, 1 << 21, 200_000
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    with serving(tmp_path, most=2 * peers, buffered_bytes=buffered_bytes) as port, ExitStack() as opened:
        connections = []
        for _ in range(peers):
            plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
            peer = opened.enter_context(client_context().wrap_socket(plain))
            peer.sendall(request)
            assert peer.recv(1000).startswith(b"HTTP/1.1 200")
            connections.append(peer)
        ended = 0
        for peer in connections:
            peer.settimeout(0.01)
            try:
                ended += peer.recv(1000) == b""
            except TimeoutError:
                continue
            except OSError:
                ended += 1
        assert ended >= peers // 2
        assert status(port) == 200


def test_ended_connections_are_freed_at_once(port):
    """Not when the collector of cycles comes by: 300 kB each would wait for it."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(2 * MOST):
            until(lambda: status(port) == 200)
        until(lambda: sum(isinstance(each, LimitedHandshake) for each in gc.get_objects()) <= MOST // 2)
    finally:
        gc.enable()
