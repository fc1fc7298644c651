"""Tens of thousands of inputs to every endpoint of both servers: no fault, no hang, no growth, no effect."""

import http.client
import json
import os
import random
import re
import socket
from collections import Counter
from pathlib import Path

import pytest

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.wire.formats import Manifest, digest
from shuffledp.collection.wire.keys import SigningKey, to_base64

FEW, MANY = 500, 25_000
MAX_GROWTH = 24 << 20  # bytes, of a process with all its threads and buffers
PATIENCE = 20.0  # seconds for an answer
KNOWN = {100, 200, 201, 400, 401, 403, 404, 405, 408, 409, 410, 411, 413, 414, 415, 422, 426, 431, 501, 505}
REFUSED = {403, 409, 413, 422}
METHODS = ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "", "get", "X" * 300]
HEADERS = [
    b"Content-Length: 5", b"Content-Length: -5", b"Content-Length: 99999999999999999999", b"Content-Length: x",
    b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue",
    b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"Host: \x01", b"Host:",
    b"Authorization: Bearer \xff\xfe", b"Authorization: Bearer " + b"t" * 40, b"X: " + b"x" * 5000, b"Accept: */*",
    b"Content-Type: text/html", b"Content-Encoding: gzip", b"Range: bytes=0-", b"no header at all", b" folded", b"\x00",
    b"Origin: null",
]  # fmt: skip
SHUFFLER_PATHS = ["/v1/tasks/{}", "/v1/tasks/{}/reports", "/healthz", "/readyz", "/metrics"]
ANALYZER_PATHS = [
    "/v1/batches/{}", "/v1/batches/{}/chunks/{}", "/v1/releases/{}", "/v1/releases/{}.csv", "/v1/releases/{}/page",
    "/healthz", "/readyz", "/metrics",
]  # fmt: skip
ODD = [None, True, -1, 0, 1, 2**53 - 1, 2**70, 1.5, "", "0" * 64, "g" * 64, [], {}, [[]], ["0" * 64] * 3, "\x00", "é"]


class Fuzzer:
    """Makes inputs from what a true round would send."""

    def __init__(self, here):
        self.here = here
        self.shuffler = SigningKey.load(here.directory / "shuffler.key")
        messages = [message for sealed in here.sealed[: here.users] for message in sealed]
        random.shuffle(messages)
        self.chunks = [b"".join(messages[at : at + 100]) for at in range(0, len(messages), 100)]
        hashes = tuple(digest(chunk) for chunk in self.chunks)
        size = here.form.sealed_size
        self.manifest = Manifest(here.form.task_id, here.users, len(messages), size, 100, hashes).signed(self.shuffler)

    def path(self, paths: list[str]) -> bytes:
        name = self.here.name
        ids = [name, name, name, name, name.upper(), "0" * 64, "", "..", "%00", "%ff", "a" * 3000, "\x7f", "é"]
        places = [*map(str, range(9)), "-1", "9" * 12, "x", "", "0x1", "\u0661"]
        path = random.choice(paths).format(random.choice(ids), random.choice(places))
        kind = random.randrange(12)
        path += ["?", "?a=b&c", "/", "/..", "//", "%", "#x", "\\"][kind] if kind < 8 else ""
        return path.encode()

    def body(self) -> bytes:
        made = [self.report, self.odd_manifest, self.chunk, lambda: os.urandom(random.randrange(3000)), lambda: b""]
        return random.choice(made)()

    def report(self) -> bytes:
        """A report that is none: cut, lengthened, or with another header."""
        body = bytearray(random.choice(self.here.reports))
        kind = random.randrange(3)
        if kind == 0:
            return bytes(body[: random.randrange(len(body))])
        if kind == 1:
            return bytes(body) + os.urandom(random.choice([1, 50, 100_000]))
        body[random.randrange(37)] ^= random.randrange(1, 256)
        return bytes(body)

    def chunk(self) -> bytes:
        """A chunk that is not quite one of the batch."""
        body = bytearray(random.choice(self.chunks))
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        return bytes(body[: random.choice([len(body), random.randrange(len(body))])])

    def odd_manifest(self) -> bytes:
        """Odd bytes, or odd values, which may be signed by a stranger or by the shuffler itself."""
        content = bytearray(self.manifest)
        if random.random() < 0.3:
            content[random.randrange(len(content))] ^= random.randrange(1, 256)
            return bytes(content)
        inner = json.loads(content)["batch"]
        if random.random() < 0.2:
            inner.pop(random.choice(list(inner)))
        elif random.random() < 0.2:
            inner["chunks"][random.randrange(len(inner["chunks"]))] = random.choice(ODD)
        else:
            inner[random.choice(["more", *inner])] = random.choice(ODD)
        if inner == json.loads(self.manifest)["batch"]:
            return b""
        try:
            signed = b"shuffledp batch v1\n" + canonical(inner)
        except Exception:  # what has no canonical form is sent without a signature
            signed = b""
        key = random.choice([self.shuffler, SigningKey.create()])
        document = {"batch": inner, "signature": to_base64(key.sign(signed)) if signed else random.choice(ODD)}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    def aimed(self, role: str) -> bytes:
        """A request in order but for its body, sent to where such bodies are taken."""
        if role == "shuffler":
            return self.put(f"/v1/tasks/{self.here.name}/reports", self.report(), b"POST")
        if random.random() < 0.5:
            return self.put(f"/v1/batches/{self.here.name}", self.odd_manifest())
        return self.put(f"/v1/batches/{self.here.name}/chunks/{random.randrange(len(self.chunks))}", self.chunk())

    @staticmethod
    def put(path: str, body: bytes, method: bytes = b"PUT") -> bytes:
        kind = b"application/json" if method == b"PUT" and "/chunks/" not in path else b"application/octet-stream"
        head = b"%b %b HTTP/1.1\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        return head % (method, path.encode(), kind, len(body)) + body

    def request(self, paths: list[str]) -> tuple[bytes, bool]:
        """A request of which something is odd, mostly; and whether it is whole, so that an answer is due."""
        body, odd = self.body(), random.random() < 0.3
        method = random.choice(METHODS) if random.random() < 0.2 else random.choice(["POST", "PUT", "GET"])
        headers = [b"Host: x", b"Connection: close", *(random.sample(HEADERS, random.randint(1, 3)) if odd else ())]
        headers.append(b"Content-Type: " + random.choice([b"application/octet-stream", b"application/json"]))
        if random.random() < 0.1:
            headers.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        elif random.random() < 0.95:
            headers.append(b"Content-Length: %d" % len(body))
        else:
            odd = True
        version = random.choice([b"1.0", b"9", b""]) if odd and random.random() < 0.1 else b"1.1"
        head = b"%b %b HTTP/%b\r\n" % (method.encode(), self.path(paths), version)
        request = bytearray(head + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body)
        kind = random.randrange(100)
        if kind < 8:
            request[random.randrange(min(200, len(request)))] ^= 1 << random.randrange(8)
        elif kind < 12:
            del request[random.randrange(len(request)) :]
        elif kind < 14:
            request = bytearray(os.urandom(random.randrange(500)))
        return bytes(request), not odd and kind >= 14


def exchange(port: int, content: bytes, *, whole: bool = True) -> bytes:
    """Send bytes; everything that comes back. TimeoutError if the server hangs.

    Who has not sent everything says that there is nothing more, or the server would wait for it, and rightly.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(content)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:
            pass
    return received


def memory(process) -> int:
    """Bytes that a process holds."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) << 10


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize("inputs", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_any_input(new_round, until, role, inputs):
    """Known answers to everything; then a true round takes its course as if nothing had been."""
    here = new_round()
    fuzzer = Fuzzer(here)
    processes = {each: here.start(each) for each in ("shuffler", "analyzer")}
    port = {"shuffler": here.shuffler_port, "analyzer": here.analyzer_port}
    try:
        for each in port.values():
            until(lambda each=each: get(each, "/readyz") == 200)
        if role == "analyzer":  # so that there are chunks to send
            assert b" 201 " in exchange(port[role], fuzzer.put(f"/v1/batches/{here.name}", fuzzer.manifest))[:20]
        paths = SHUFFLER_PATHS if role == "shuffler" else ANALYZER_PATHS
        answers: Counter = Counter()
        before = 0
        for number in range(inputs):
            if number == inputs // 5:
                before = memory(processes[role])  # everything was used once
            request, whole = fuzzer.request(paths) if number % 2 else (fuzzer.aimed(role), True)
            received = exchange(port[role], request, whole=whole)
            statuses = {int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)}
            assert statuses <= (KNOWN if number % 2 else REFUSED), (request, received)
            answers.update(statuses or {0})
            assert statuses or not whole or b"CONNECT " in request[:8], request
        growth = memory(processes[role]) - before
        print(f"{inputs} inputs to the {role}: grown by {growth >> 10} kB, {dict(sorted(answers.items()))}")
        assert growth < MAX_GROWTH
        assert get(port[role], "/healthz") == get(port[role], "/readyz") == 200
        if role == "shuffler":
            here.send(range(here.users))
            assert len(here.acknowledged) == here.users
        else:
            for place, chunk in enumerate(fuzzer.chunks):
                put = fuzzer.put(f"/v1/batches/{here.name}/chunks/{place}", chunk)
                assert b" 201 " in exchange(port[role], put)[:20]
        document = here.release()
        assert set(list(here.counted(document).values())[: here.users]) == {here.times}
        assert document["rejected"] == {}
    finally:
        for process in processes.values():
            process.terminate()
            process.join(60)
    assert [process.exitcode for process in processes.values()] == [0, 0]
    told = [event for event in here.events(role) if event.get("level") == "error"]
    assert not told
