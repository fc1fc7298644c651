"""A collection in a folder: keys, tasks, sealed batches, and an analyzer over them."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import uvicorn

from shuffledp.collection.analyzer.app import create_app
from shuffledp.collection.analyzer.directory import initialize
from shuffledp.collection.analyzer.server import Analyzer
from shuffledp.collection.analyzer.settings import AnalyzerSettings
from shuffledp.collection.rehearsal import free_ports
from shuffledp.collection.server.connections import guarded_connections
from shuffledp.collection.server.running import listen
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import Manifest, digest
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.sealing import SUITE, Sealer, sealing_info
from shuffledp.protocols.registry import find_qualified

EPSILON, DELTA = 1.0, 1e-6


@dataclass(frozen=True)
class SealedBatch:
    task: Task
    manifest: Manifest
    signed: bytes
    chunks: list[bytes]


@dataclass
class Collection:
    """Everybody's keys, and a folder for the analyzer."""

    folder: Path
    author: SigningKey = field(default_factory=SigningKey.create)
    shuffler: SigningKey = field(default_factory=SigningKey.create)
    analyzer: SealingKey = field(default_factory=SealingKey.create)

    def __post_init__(self) -> None:
        for name in ("tasks", "work"):
            (self.folder / name).mkdir(parents=True)
        initialize(self.folder / "work")
        self.author.public.save(self.folder / "author.pub")
        self.analyzer.save(self.folder / "analyzer.key")
        self.budgets(people=(10.0, 1e-5))

    def budgets(self, **each: tuple[float, float]) -> None:
        lines = [f"[{name}]\nepsilon = {epsilon!r}\ndelta = {delta!r}\n" for name, (epsilon, delta) in each.items()]
        (self.folder / "budgets.toml").write_text("".join(lines))

    def task(self, protocol: str = "histogram/uniform-blanket", /, *, publish: bool = True, **changes: Any) -> Task:
        kind = find_qualified(protocol)
        settings: dict[str, Any] = {"users": changes.pop("users", 200)}
        if kind.question == "histogram":
            settings["categories"] = changes.pop("categories", ["bus", "bike", "car", "<b>&walk"])
        settings |= changes.pop("settings", {})
        given: dict[str, Any] = {
            "name": f"commute {secrets.token_hex(4)}",
            "description": "How do you get to work?",
            "population": "people",
            "epsilon": EPSILON,
            "delta": DELTA,
            "maximum_users": 10 * settings["users"],
            "opens": datetime(2026, 1, 1, tzinfo=UTC),
            "closes": datetime(2026, 1, 2, tzinfo=UTC),
            "analyzer": self.analyzer.public,
            "shuffler": self.shuffler.public,
        }
        task = Task.create(kind=kind, settings=settings, **given | changes)
        if publish:
            (self.folder / "tasks" / f"{task.id.hex()}.json").write_bytes(task.signed(self.author).to_bytes())
        return task

    def sealed(self, task: Task, values: Any) -> list[bytes]:
        """The sealed messages of all users."""
        form = task.protocol.message_format
        sealer = Sealer(task.analyzer, task.id, task.message_size)
        messages = task.protocol.randomize_all(np.asarray(values))
        packed = form.pack(messages.values)
        sealed = []
        for start, end in zip(messages.offsets[:-1], messages.offsets[1:], strict=True):
            sealed += sealer.seal([row.tobytes() for row in packed[start:end]], task.messages_per_report)
        return sealed

    def seal_raw(self, task: Task, content: bytes) -> bytes:
        """Any content, sealed well."""
        return SUITE.encrypt(content, task.analyzer.public, info=sealing_info(task.id))

    def batch(self, task: Task, sealed: list[bytes], *, chunk_records: int = 150) -> SealedBatch:
        order = np.random.default_rng().permutation(len(sealed))
        mixed = [sealed[place] for place in order]
        chunks = [b"".join(mixed[at : at + chunk_records]) for at in range(0, len(mixed), chunk_records)]
        manifest = Manifest(
            task.id,
            len(sealed) // task.messages_per_report,
            len(sealed),
            task.sealed_size,
            chunk_records,
            tuple(digest(chunk) for chunk in chunks),
        )
        return SealedBatch(task, manifest, manifest.signed(self.shuffler), chunks)

    def settings(self, **changes: Any) -> AnalyzerSettings:
        given: dict[str, Any] = {
            "tasks": self.folder / "tasks",
            "authors": (self.folder / "author.pub",),
            "sealing_keys": (self.folder / "analyzer.key",),
            "budgets": self.folder / "budgets.toml",
            "work": self.folder / "work",
            "port": 0,
        }
        return AnalyzerSettings(**given | changes)

    def config(self) -> Path:
        """The same as a file of settings."""
        file = self.folder / "analyzer.toml"
        file.write_text(
            '[analyzer]\ntasks = "tasks"\nauthors = ["author.pub"]\nsealing_keys = ["analyzer.key"]\n'
            'budgets = "budgets.toml"\nwork = "work"\nport = 0\n'
        )
        return file

    def open(self, **changes: Any) -> Analyzer:
        return Analyzer(self.settings(**changes), tick=0.02)


@pytest.fixture(scope="module")
def shared_collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """One for all tests of a file: they add tasks to it, no batches."""
    return Collection(tmp_path_factory.mktemp("shared") / "collection")


@pytest.fixture
def collection() -> Iterator[Collection]:
    """In memory, where a folder can be there: these tests sync thousands of times, and none is about the disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Collection(Path(folder) / "collection")


class Reply:
    """What came back over HTTP."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.content = answer.status, answer.read()
        self.headers = {key.lower(): value for key, value in answer.getheaders()}

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode()


class Client:
    """Speaks to an analyzer on this machine, each time over a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    def request(self, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None) -> Reply:
        kind = "application/octet-stream" if "/chunks/" in path else "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, content, {"Content-Type": kind} | (headers or {}))
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def put(self, path: str, content: Any) -> Reply:
        return self.request("PUT", path, content)

    def deliver(self, batch: SealedBatch) -> None:
        """The manifest, then what is missing, as a shuffler does."""
        path = f"/v1/batches/{batch.task.id.hex()}"
        self.put(path, batch.signed)
        while missing := self.get(path).json()["missing"]:
            for place in missing:
                self.put(f"{path}/chunks/{place}", batch.chunks[place])

    def wait(self, batch: SealedBatch, state: str = "released") -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while (told := self.get(f"/v1/batches/{batch.task.id.hex()}").json())["state"] != state:
            assert told["state"] in ("receiving", "complete"), told
            assert time.monotonic() < deadline, told
            time.sleep(0.02)
        return told


class Served(Client):
    """An analyzer that is served by a thread of this process."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._socket = listen("127.0.0.1", 0)
        super().__init__(self._socket.getsockname()[1])
        connections = guarded_connections(max_connections=100, request_seconds=30)
        config = uvicorn.Config(create_app(analyzer), http=connections, ws="none", lifespan="on", log_config=None)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.005)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._socket.close()


@pytest.fixture
def serve(collection: Collection) -> Any:
    """Serve the collection with some settings, once its tasks are there."""
    opened: list[Served] = []

    def run(**changes: Any) -> Served:
        opened.append(Served(collection.open(**changes)))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


@pytest.fixture
def new_client() -> Any:
    return Client


@pytest.fixture
def free_port() -> Any:
    """A port that nobody listens on."""
    return lambda: free_ports(1)[0]


@pytest.fixture(name="deliver")
def _deliver() -> Any:
    return deliver


def deliver(analyzer: Analyzer, batch: SealedBatch) -> None:
    """The whole batch, without HTTP."""
    analyzer.batches.put_manifest(batch.manifest, batch.signed)
    for place, chunk in enumerate(batch.chunks):
        analyzer.batches.put_chunk(batch.task.id, place, chunk)
