"""Whatever is sent, the answer is one of those that are documented: no fault, no hang, no effect."""

import asyncio
import json
import os
import random

import numpy as np
import pytest

from shuffledp.collection.analyzer.app import create_app
from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.wire.keys import SigningKey, to_base64
from shuffledp.errors import ParameterError

KNOWN = {200, 201, 400, 403, 404, 405, 409, 413, 415, 422}
MANIFESTS, REQUESTS = 6000, 3000


@pytest.fixture(scope="module")
def batch(shared_collection):
    task = shared_collection.task("histogram/k-rr")
    return shared_collection.batch(task, shared_collection.sealed(task, np.arange(220) % 4), chunk_records=50)


def odd_value() -> object:
    return random.choice(
        [None, True, -1, 0, 1, 2**53 - 1, "", "0" * 64, "g" * 64, " " * 64, [], {}, [[]], ["0" * 64] * 3, "\x00", "é"]
    )


def mutated(batch) -> bytes:
    """A manifest that is nearly right: some signed well, with odd values; some with odd bytes."""
    kind = random.randrange(4)
    if kind == 0:
        content = bytearray(batch.signed)
        for _ in range(random.randrange(1, 4)):
            content[random.randrange(len(content))] = random.randrange(256)
        return bytes(content)
    if kind == 1:
        return batch.signed[: random.randrange(len(batch.signed))] + os.urandom(random.randrange(20))
    document = json.loads(batch.signed)
    inner = document["batch"]
    if random.random() < 0.3:
        inner.pop(random.choice(list(inner)))
    else:
        inner[random.choice([*inner, "more"])] = odd_value()
    if kind == 2:
        signature = SigningKey.create().sign(b"shuffledp batch v1\n" + canonical(inner))
        return canonical({"batch": inner, "signature": to_base64(signature)})
    document[random.choice(["batch", "signature", "more"])] = odd_value()
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def well_signed(collection, batch) -> bytes:
    """Odd values that the shuffler itself signed."""
    inner = json.loads(batch.signed)["batch"]
    inner[random.choice(list(inner))] = odd_value()
    signature = collection.shuffler.sign(b"shuffledp batch v1\n" + canonical(inner))
    return canonical({"batch": inner, "signature": to_base64(signature)})


def test_manifests_are_read_or_refused_and_nothing_else(shared_collection, batch):
    read = 0
    for number in range(MANIFESTS):
        content = mutated(batch) if number % 2 else well_signed(shared_collection, batch)
        try:
            manifest = ExpectedBatch.of_last(batch.task).read(content)
        except ParameterError:
            continue
        assert manifest is None or manifest == batch.manifest
        read += 1
    assert read < MANIFESTS / 2


async def ask(app, method: str, path: str, body: list[bytes], length: bytes | None) -> tuple[int, bytes]:
    """One request to the application itself; the sender may go away in the middle."""
    pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in body]
    if random.random() < 0.9 and pieces:
        pieces[-1]["more_body"] = False
    elif not pieces:
        pieces = [{"type": "http.request", "body": b"", "more_body": False}]
    sent: list[dict] = []

    async def receive():
        return pieces.pop(0) if pieces else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [] if length is None else [(b"content-length", length)]
    kind = b"application/octet-stream" if "/chunks/" in path else b"application/json"
    headers += [(b"content-type", kind)] if random.random() < 0.9 else []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": os.urandom(3) if random.random() < 0.1 else b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": None,
        "root_path": "",
    }
    await asyncio.wait_for(app(scope, receive, send), 10)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_requests_of_every_kind(collection, shared_collection, batch):
    """Nothing is answered with a fault, and in the end the true batch is released as if nothing had been."""
    task = batch.task.id.hex()
    (collection.folder / "tasks" / "it.json").write_bytes(batch.task.signed(collection.author).to_bytes())
    shared_collection.analyzer.save(collection.folder / "shared.key")
    analyzer = collection.open(sealing_keys=(collection.folder / "shared.key",))
    app = create_app(analyzer)
    paths = [
        "/v1/batches/{}",
        "/v1/batches/{}/chunks/{}",
        "/v1/releases/{}",
        "/v1/releases/{}.csv",
        "/v1/releases/{}/page",
        "/healthz",
        "/readyz",
        "/{}",
    ]

    def odd_path() -> str:
        ids = [task, task, task, task.upper(), "0" * 64, "", "..", "%", "\x00", "a" * 3000]
        places = [*map(str, range(6)), "-1", "9" * 12, "x", ""]
        return random.choice(paths).format(random.choice(ids), random.choice(places))

    def odd_body() -> list[bytes]:
        kind = random.randrange(5)
        if kind == 0:
            return [mutated(batch)]
        if kind == 1:
            return [os.urandom(random.randrange(5000))]
        if kind == 2:
            chunk = bytearray(random.choice(batch.chunks))
            chunk[random.randrange(len(chunk))] ^= 1 << random.randrange(8)
            return [bytes(chunk[:1000]), bytes(chunk[1000:])]
        if kind == 3:
            return [os.urandom(1 << 16)] * random.randrange(8)
        return []

    async def run() -> None:
        for number in range(REQUESTS):
            if number == REQUESTS // 2:
                assert (await ask(app, "PUT", f"/v1/batches/{task}", [batch.signed], None))[0] in (201, 400, 415)
            method = random.choice(["GET", "PUT", "PUT", "PUT", "POST", "HEAD", "DELETE", "PATCH"])
            body = odd_body()
            length = random.choice([None, None, b"%d" % sum(map(len, body)), b"x", b"-1", b"9" * 30])
            status, content = await ask(app, method, odd_path(), body, length)
            assert status in KNOWN, (method, status, content)

    asyncio.run(run())
    assert not analyzer.batches.all() or len(analyzer.batches.missing(batch.task.id, 10)) == len(batch.chunks)
    analyzer.batches.put_manifest(batch.manifest, batch.signed)
    for place, chunk in enumerate(batch.chunks):
        analyzer.batches.put_chunk(batch.task.id, place, chunk)
    analyzer.releaser.release(batch.task.id)
    assert json.loads(analyzer.releases.file(batch.task.id, "json").read_bytes())["reports"] == 220
    analyzer.close()
