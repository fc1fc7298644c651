"""Whatever is sent, the shuffler answers in order, stores nothing that is no report, and goes on."""

import secrets
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

METHODS = ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "CONNECT", "X" * 100]
HEADERS = [
    b"Content-Length: 5", b"Content-Length: -5", b"Content-Length: 99999999999999999999", b"Content-Length: x",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Connection: close",
    b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"Authorization: Bearer \xff\xfe", b"Host: \x01",
    b"X: " + b"x" * 5000, b"Content-Type: text/html", b"no header at all", b" folded",
]  # fmt: skip


@pytest.fixture
def target(place, serve):
    form = place.task(maximum=10**6)
    return form, serve(), place


def exchange(port: int, content: bytes) -> bytes:
    """Send bytes, then nothing more; everything that comes back."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:
            pass
    return received


def check(received: bytes) -> None:
    for line in received.split(b"\r\n"):
        if line.startswith(b"HTTP/1.1 "):
            assert line[9:12] != b"500", received


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_request(target, data):
    form, here, place = target
    name = form.task_id.hex()
    paths = st.sampled_from(
        [f"/v1/tasks/{name}/reports", f"/v1/tasks/{name}", "/readyz", "/metrics", "*", "http://", "//", "/%ff%00", ""]
    )
    path = data.draw(paths | st.text(max_size=60).map(lambda text: "/" + text))
    headers = data.draw(st.lists(st.sampled_from(HEADERS) | st.binary(max_size=60), max_size=5))
    body = data.draw(st.binary(max_size=300) | st.just(place.report(form)))
    line = f"{data.draw(st.sampled_from(METHODS))} {path} HTTP/1.1\r\n".encode("utf-8", "surrogatepass")
    check(exchange(here.port, line + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=2000))
def test_any_bytes(target, content):
    check(exchange(target[1].port, content))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_reports_that_were_changed(target, data):
    """Cut, lengthened or with bytes of the header changed: none is accepted."""
    form, here, place = target
    body = bytearray(place.report(form))
    kind = data.draw(st.sampled_from(["cut", "lengthened", "changed"]))
    if kind == "cut":
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    elif kind == "lengthened":
        body += data.draw(st.binary(min_size=1, max_size=200))
    else:
        body[data.draw(st.integers(0, 36))] ^= data.draw(st.integers(1, 255))
    before = here.shuffler.store.count(form.task_id)
    assert here.post(form, bytes(body)).status_code == (413 if kind == "lengthened" else 422)
    assert here.shuffler.store.count(form.task_id) == before


def test_it_goes_on_after_all_that(target):
    form, here, place = target
    for _ in range(200):
        exchange(here.port, secrets.token_bytes(200))
    assert here.post(form, place.report(form)).status_code == 201
    assert here.shuffler.memory.reports == here.shuffler.memory.bytes == 0
