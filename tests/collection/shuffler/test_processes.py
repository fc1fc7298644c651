"""A shuffler in a process of its own: killed, flooded, asked to stop, looked at from outside."""

import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffledp.collection.shuffler.store.interface import Incoming, RoundState
from shuffledp.collection.shuffler.store.sqlite import SqliteStore

BINARY = {"Content-Type": "application/octet-stream"}
ANSWER_SECONDS = 60.0
"""An answer takes milliseconds; the machine may be busy."""


class Devices:
    """Many devices that send a report each, over as many connections as there are threads."""

    def __init__(self, process, form, reports):
        self.process, self.path = process, f"/v1/tasks/{form.task_id.hex()}/reports"
        self.todo = list(reports)
        self.answers: list[tuple[bytes, int]] = []
        self.seconds: list[float] = []
        self._lock = threading.Lock()

    def _one(self) -> None:
        connection = self.process.connection()
        while True:
            with self._lock:
                if not self.todo:
                    break
                body = self.todo.pop()
            start = time.perf_counter()
            try:
                connection.request("POST", self.path, body, BINARY)
                answer = connection.getresponse()
                answer.read()
            except (OSError, ConnectionError):
                connection.close()
                self.answers.append((body, 0))
                if self.process.process.poll() is not None:
                    break
                continue
            except Exception:  # half an answer
                connection.close()
                self.answers.append((body, 0))
                continue
            self.seconds.append(time.perf_counter() - start)
            self.answers.append((body, answer.status))
        connection.close()

    def run(self, connections: int = 16) -> "Devices":
        with ThreadPoolExecutor(connections) as pool:
            for each in [pool.submit(self._one) for _ in range(connections)]:
                each.result()
        return self

    @property
    def accepted(self) -> list[bytes]:
        return [body for body, status in self.answers if status in (200, 201)]

    @property
    def statuses(self) -> Counter:
        return Counter(status for _, status in self.answers)


def stored(place, form) -> list[bytes]:
    """What the store of a process that has ended holds."""
    store = SqliteStore(place.folder / "store")
    try:
        store.close_round(form.task_id)
        return list(store.reports(form.task_id))
    finally:
        store.close()


def fill(place, form, count: int) -> list[bytes]:
    reports = [place.report(form) for _ in range(count)]
    store = SqliteStore(place.folder / "store")
    store.open_round(form.task_id, maximum=10**6, tokens=False)
    store.accept([Incoming(form.task_id, form.report_id(each), each) for each in reports])
    store.close()
    return reports


@pytest.mark.parametrize(("kills", "reports"), [(1, 1000), pytest.param(3, 3000, marks=pytest.mark.slow)])
def test_acknowledged_reports_survive_being_killed(place, start, kills, reports):
    """Whatever was answered with 201 before kill -9 is counted, each once; what was not is sent again."""
    form = place.task(maximum=10**6, size=20)
    pending = [place.report(form) for _ in range(reports)]
    everything = set(pending)
    acknowledged: Counter = Counter()
    for _ in range(kills):
        process = start()
        timer = threading.Timer(random.uniform(0.1, 0.2 * kills), process.kill)
        timer.start()
        devices = Devices(process, form, pending).run()
        timer.join()
        acknowledged.update(devices.accepted)
        pending = list(everything - set(devices.accepted) - set(acknowledged))
    process = start()
    devices = Devices(process, form, pending).run()
    assert set(devices.statuses) <= {200, 201}
    assert process.stop() == 0
    acknowledged.update(devices.accepted)
    assert set(acknowledged) == everything
    found = stored(place, form)
    assert len(found) == len(everything)
    assert set(found) == everything


SMALL_CHUNKS = """
from shuffledp.collection.shuffler import shuffling
shuffling._CHUNK_BYTES = 1 << 18  # several chunks, so that there is something to break
main.main()
"""


@pytest.mark.parametrize("kills", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_at_any_moment_of_a_release(place, start, until, kills):
    """Killed again and again between start and delivery: one batch arrives, with every message once."""
    form = place.task(users=100, maximum=10**6, size=20, opens=-7200, closes=-1)
    reports = fill(place, form, 2000)
    name = form.task_id.hex()
    manifests = set()
    place.analyzer.before_answer = lambda *_: time.sleep(0.02)
    for _ in range(kills):
        process = start(code=SMALL_CHUNKS)
        time.sleep(random.uniform(0.0, 0.5))
        process.kill()
        manifests |= set(place.analyzer.manifests.values())
        if place.analyzer.has(name):
            break
    process = start(code=SMALL_CHUNKS)
    until(lambda: process.event("delivered", task=name) or (place.analyzer.has(name) and not place.files()))
    assert process.stop() == 0
    manifests |= set(place.analyzer.manifests.values())
    assert len(manifests) == 1
    assert Counter(place.analyzer.messages(name)) == Counter(place.messages_of(form, reports))
    assert place.files() == set()
    store = SqliteStore(place.folder / "store")
    assert store.state(form.task_id) is RoundState.DELIVERED
    store.close()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("PUT manifest", marks=pytest.mark.slow),
        pytest.param("GET", marks=pytest.mark.slow),
        pytest.param("PUT chunk 0", marks=pytest.mark.slow),
        "PUT chunk 2",
    ],
)
def test_killed_in_the_middle_of_a_delivery(place, start, until, moment):
    form = place.task(users=100, maximum=10**6, size=20, opens=-7200, closes=-1)
    reports = fill(place, form, 1000)
    name = form.task_id.hex()
    running = []

    def kill(method: str, path: str) -> None:
        last = path.rpartition("/")[2]
        here = f"{method} chunk {last}" if "chunks" in path else "PUT manifest" if method == "PUT" else method
        if here == moment and running:
            running.pop().kill()

    place.analyzer.before_answer = kill
    process = start(code=SMALL_CHUNKS, running=running)
    until(lambda: process.process.poll() is not None)
    manifest = place.analyzer.manifests.get(name)
    again = start(code=SMALL_CHUNKS)
    until(lambda: again.event("delivered", task=name))
    assert manifest in (None, place.analyzer.manifests[name])
    assert Counter(place.analyzer.messages(name)) == Counter(place.messages_of(form, reports))
    assert again.stop() == 0
    assert place.files() == set()


def test_many_connections(place, start):
    """64 connections at once, none of which waits in vain: how long they wait, the benchmark measures."""
    form = place.task(maximum=10**6, size=20)
    process = start()
    reports = [place.report(form) for _ in range(1000)]
    devices = Devices(process, form, reports).run(64)
    assert devices.statuses == {201: 1000}
    assert max(devices.seconds) < ANSWER_SECONDS
    assert process.stop() == 0
    assert set(stored(place, form)) == set(reports)


def test_overload_is_answered_not_suffered(place, start):
    form = place.task(maximum=10**6, size=20)
    process = start(waiting_reports=1, waiting_seconds=0.001)
    reports = [place.report(form) for _ in range(500)]
    devices = Devices(process, form, reports).run(32)
    assert set(devices.statuses) == {201, 503}
    assert process.request("GET", "/healthz")[0] == 200
    assert process.stop() == 0
    assert set(stored(place, form)) == set(devices.accepted)


def test_over_the_rate(place, start):
    form = place.task(maximum=10**6)
    process = start(reports_per_second=200.0, burst=50)
    begun = time.monotonic()
    devices = Devices(process, form, [place.report(form) for _ in range(500)]).run(16)
    passed = time.monotonic() - begun
    assert set(devices.statuses) == {201, 429}
    assert devices.statuses[201] <= 50 + 200 * passed + 1
    assert process.stop() == 0
    assert set(stored(place, form)) == set(devices.accepted)


def test_asked_to_stop_under_load(place, start):
    """Exit status 0, what was acknowledged is stored, and nobody waits for an answer in vain."""
    form = place.task(maximum=10**6, size=20)
    process = start()
    devices = Devices(process, form, [place.report(form) for _ in range(5000)])
    worker = threading.Thread(target=devices.run)
    worker.start()
    while len(devices.answers) < 200:
        time.sleep(0.01)
    assert process.stop() == 0
    worker.join()
    assert set(devices.statuses) <= {201, 503, 0}
    assert process.event("stopped")
    found = stored(place, form)
    assert set(devices.accepted) <= set(found)
    assert len(found) == len(set(found))


def test_what_is_said_and_logged(place, start, until):
    """No header tells the software; no line of the log has an address, an id, a payload, or is about one report."""
    form = place.task(users=3, maximum=5)
    process = start()
    name = form.task_id.hex()
    reports = [place.report(form) for _ in range(5)]
    agent = "a-very-special-device"
    for body in [*reports, reports[0], b"a payload of mine", place.report(form)[:-1]]:
        status, headers, _ = process.request(
            "POST", f"/v1/tasks/{name}/reports?query-of-mine", body, {"User-Agent": agent}
        )
        assert "server" not in {key.lower() for key in headers}, status
    with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
        connection.sendall(b"no http of mine\r\n\r\n")
        assert b"problem+json" in connection.recv(4096)
        port = connection.getsockname()[1]
    until(lambda: process.event("delivered", task=name))
    assert process.stop() == 0
    told = "".join(process.lines)
    assert [each["event"] for each in process.events if each["event"] != "library"] == [
        "task", "store-created", "listening", "closed", "shuffled", "delivered", "stopped",
    ]  # fmt: skip
    for line in process.lines:
        json.loads(line)
    hidden = [agent, "of mine", str(port), "query", *(form.report_id(each).hex() for each in reports)]
    assert not [each for each in hidden if each in told]
    assert "." not in "".join(each["time"] for each in process.events)  # whole seconds


def test_the_process_cannot_open_messages(place, start, until):
    """After a whole round, neither the code that opens messages nor a key for it is in the process."""
    form = place.task(users=3, maximum=5)
    look = """
import atexit, gc, json
def look():
    from shuffledp.collection.wire.keys import SealingKey
    held = [each for each in gc.get_objects() if isinstance(each, SealingKey)]
    print(json.dumps({"modules": sorted(sys.modules), "keys": len(held)}))
atexit.register(look)
main.main()
"""
    process = start(code=look, apart=True)
    for _ in range(5):
        assert process.post(form, place.report(form)) == 201
    until(lambda: process.event("delivered"))
    assert process.stop() == 0
    found = json.loads(process.process.stdout.read())
    assert "shuffledp.collection.shuffler.app" in found["modules"]
    assert not [each for each in found["modules"] if each.startswith("shuffledp.collection.wire.opening")]
    assert not [each for each in found["modules"] if each.startswith("shuffledp.collection.analyzer")]
    assert found["keys"] == 0


def test_over_tls(place, start, tmp_path):
    certificate, key = make_certificate(tmp_path)
    form = place.task()
    process = start(tls_certificate=certificate, tls_key=key)
    context = ssl.create_default_context(cafile=str(certificate))
    import http.client

    connection = http.client.HTTPSConnection("localhost", process.port, context=context, timeout=20)
    connection.request("POST", f"/v1/tasks/{form.task_id.hex()}/reports", place.report(form), BINARY)
    assert connection.getresponse().status == 201
    assert connection.sock.version() == "TLSv1.3"
    assert not connection.sock.session.has_ticket  # it would tell which reports are of one device
    connection.close()
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # with which a server remembers sessions by itself
    with pytest.raises(ssl.SSLError), socket.create_connection(("localhost", process.port)) as plain:
        context.wrap_socket(plain, server_hostname="localhost")
    assert process.stop() == 0


def make_certificate(folder):
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    (folder / "tls.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.key").touch(mode=0o600)
    (folder / "tls.key").write_bytes(pem)
    return folder / "tls.pem", folder / "tls.key"


def test_slow_and_silent_and_too_many_connections(place, start):
    form = place.task()
    process = start(request_seconds=0.3, connections=5)
    address = ("127.0.0.1", process.port)
    path = f"/v1/tasks/{form.task_id.hex()}/reports"
    head = f"POST {path} HTTP/1.1\r\nContent-Type: application/octet-stream\r\nContent-Length: {form.size}\r\n"
    for begun in (b"", b"POST /v1", head.encode(), head.encode() + b"\r\nSDPR"):
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(begun)
            assert receive_all(connection).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(head.encode())
        send_for_long(connection, b"X-More: " + b"x" * 1000 + b"\r\n")
        assert receive_all(connection).startswith(b"HTTP/1.1 431 ")
    held = [socket.create_connection(address, timeout=10) for _ in range(5)]
    with socket.create_connection(address, timeout=10) as connection:
        assert receive_all(connection).startswith(b"HTTP/1.1 503 ")
    for each in held:
        each.close()
    body = place.report(form)
    assert process.post(form, body) == 201
    assert process.stop() == 0


def send_for_long(connection, piece: bytes) -> None:
    for _ in range(10_000):
        connection.sendall(piece)


def receive_all(connection) -> bytes:
    received = b""
    while piece := connection.recv(4096):
        received += piece
    return received


def test_a_port_in_use(place):
    import subprocess
    import sys

    place.task()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = place.config(port=taken.getsockname()[1], store_folder=place.folder / "other")
        done = subprocess.run(
            [sys.executable, "-m", "shuffledp", "serve", "shuffler", "--config", str(config)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: Cannot listen on 127.0.0.1 port")
    assert not (place.folder / "other").exists()
