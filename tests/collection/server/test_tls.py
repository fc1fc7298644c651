"""TLS: connections whose handshake is not finished count, and those that have ended do not."""

import http.client
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
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
from shuffledp.collection.server.running import listen
from shuffledp.collection.server.tls import server_context

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


@pytest.fixture
def port(tmp_path):
    """Of a server that has at most a few connections, with the event loop of the servers."""
    bound = listen("127.0.0.1", 0)
    kind = guarded_connections(most_connections=MOST, request_seconds=30)
    config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None, loop="uvloop")
    config.load()
    config.ssl = server_context(*certificate(tmp_path), most_connections=MOST)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    yield bound.getsockname()[1]
    server.should_exit = True
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    bound.close()


def status(port: int) -> int:
    """Of an answer over TLS; 0 if there is none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
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
