"""A shuffler with everything it needs: keys, tasks, folders; as an object, or as a process of its own."""

import http.client
import json
import multiprocessing
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn

import shuffledp as sdp
from shuffledp.collection.server.connections import guarded_connections
from shuffledp.collection.server.running import listen
from shuffledp.collection.shuffler.app import create_app
from shuffledp.collection.shuffler.server import Shuffler
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import SealingKey, SigningKey

RUN = """
import sys
from shuffledp.cli import main
"""
WAIT_SECONDS = 60.0
BINARY = {"Content-Type": "application/octet-stream"}


@pytest.fixture(name="until")
def _until():
    return until


def until(condition, seconds: float = WAIT_SECONDS):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)
    return result


class FakeAnalyzer:
    """Receives batches as the analyzer's contract says; can be told to fail."""

    def __init__(self):
        self.manifests: dict[str, bytes] = {}
        self.chunks: dict[str, dict[int, bytes]] = {}
        self.finished: set[str] = set()
        self.refuse: dict[str, int] = {}
        """Statuses to answer instead, by method."""
        self.requests: list[tuple[str, str]] = []
        self.before_answer = lambda method, path: None
        analyzer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _answer(self, status: int, document: dict) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                analyzer.requests.append((self.command, self.path))
                analyzer.before_answer(self.command, self.path)
                if self.command in analyzer.refuse:
                    self._answer(analyzer.refuse[self.command], {"type": "urn:shuffledp:problem:made-up"})
                    return
                self._answer(*analyzer.handle(self.command, self.path, body))

            do_GET = do_PUT = _do  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # senders are killed here
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def handle(self, method: str, path: str, body: bytes):
        version, _, task, *rest = path.removeprefix("/").split("/")
        if method == "PUT" and not rest:
            assert version == f"v{json.loads(body)['batch']['version']}"
            before = self.manifests.setdefault(task, body)
            if before != body:
                return 409, {"type": "urn:shuffledp:problem:another-manifest"}
            return 201, self.told(task)
        if task not in self.manifests:
            return 404, {}
        if method == "PUT":
            index = int(rest[1])
            assert digest(body) == self.manifest(task).chunks[index]
            self.chunks.setdefault(task, {})[index] = body
            return 201, {}
        return 200, self.told(task)

    def told(self, task: str) -> dict[str, object]:
        state, missing = self.state(task)
        return {"state": state, "manifest": digest(self.manifests[task]).hex(), "missing": missing[:1000]}

    def manifest(self, task: str) -> Manifest:
        return Manifest.from_document(json.loads(self.manifests[task])["batch"])

    def state(self, task: str):
        have = self.chunks.get(task, {})
        missing = [index for index in range(len(self.manifest(task).chunks)) if index not in have]
        return ("receiving" if missing else "complete"), missing

    def messages(self, task: str) -> list[bytes]:
        """All messages of a batch that is complete, in their order."""
        size = self.manifest(task).record_size
        content = b"".join(self.chunks[task][index] for index in sorted(self.chunks[task]))
        return [content[at : at + size] for at in range(0, len(content), size)]

    def has(self, task: str) -> bool:
        return task in self.manifests and self.state(task)[0] == "complete"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def analyzer():
    fake = FakeAnalyzer()
    yield fake
    fake.close()


class Place:
    """The folders and keys of one shuffler."""

    def __init__(self, folder: Path, analyzer: FakeAnalyzer):
        self.folder, self.analyzer = folder, analyzer
        for name in ("tasks", "work", "enrolment"):
            (folder / name).mkdir()
        self.author, self.key, self.sealing = SigningKey.create(), SigningKey.create(), SealingKey.create()
        self.author.public.save(folder / "author.pub")
        self.key.save(folder / "shuffler.key")

    def values(self, **changes) -> dict:
        return {
            "port": 0,
            "tasks": self.folder / "tasks",
            "authors": (self.folder / "author.pub",),
            "signing_key": self.folder / "shuffler.key",
            "analyzer": self.analyzer.url,
            "work": self.folder / "work",
            "store_folder": self.folder / "store",
            **changes,
        }

    def settings(self, **changes) -> ShufflerSettings:
        return ShufflerSettings(**self.values(**changes))

    def config(self, **changes) -> Path:
        lines = ["[shuffler]"]
        for key, value in self.values(**changes).items():
            if value is None:
                continue
            shown = [str(each) for each in value] if isinstance(value, tuple) else value
            lines.append(f"{key} = {json.dumps(str(shown) if isinstance(shown, Path) else shown)}")
        path = self.folder / "shuffler.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def shuffler(self, *, tick: float = 0.02, clock=None, store=None, **changes) -> Shuffler:
        return Shuffler(self.settings(**changes), tick=tick, clock=clock, store=store)

    def task(
        self,
        *,
        users: int = 5,
        maximum: int = 100,
        size: int = 4,
        opens: float = -3600,
        closes: float = 3600,
        author: SigningKey | None = None,
        shuffler: SigningKey | None = None,
        name: str = "",
        file: str = "",
        round_key: SealingKey | None = None,
        carriers: float | None = None,
    ) -> ReportFormat:
        """Put a signed task into the folder; its reports have ``size`` messages of 50 bytes.

        With a round key it is of wire version 2. With carriers reports have one message or, of carriers, many.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=sdp.find("histogram", "cheu" if carriers is None else "correlated-noise"),
            settings={"users": users, "domain_size": size} | ({} if carriers is None else {"carriers": carriers}),
            epsilon=2.0,
            delta=0.3,
            maximum_users=maximum,
            name=name or secrets.token_hex(8),
            description="",
            population="tests",
            opens=now + timedelta(seconds=opens),
            closes=now + timedelta(seconds=closes),
            analyzer=self.sealing.public,
            shuffler=(shuffler or self.key).public,
            wire=round_key and WireVersion2((ShufflerKeys((shuffler or self.key).public, round_key.public),)),
        )
        path = self.folder / "tasks" / (file or f"{task.id.hex()[:8]}.json")
        temporary = path.with_suffix(".new")
        temporary.write_bytes(task.signed(author or self.author).to_bytes())
        temporary.rename(path)
        return ReportFormat.of(task)

    @staticmethod
    def report(form: ReportFormat, report_id: bytes | None = None) -> bytes:
        """A report of random messages, each of which occurs nowhere else."""
        messages = [secrets.token_bytes(form.sealed_size) for _ in range(form.messages)]
        return form.build(report_id or secrets.token_bytes(16), messages)

    @staticmethod
    def messages_of(form: ReportFormat, reports) -> list[bytes]:
        size = form.sealed_size
        contents = [bytes(form.records(each)) for each in reports]
        return [content[at : at + size] for content in contents for at in range(0, len(content), size)]

    def files(self) -> set[str]:
        """Everything in the work folder, and the stores of rounds."""
        kept = (".lock", ".clock", ".received", ".traps", "operator.sock")
        return {each.name for each in (self.folder / "work").iterdir() if each.name not in kept} | {
            each.name for each in (self.folder / "store").glob("round-*")
        }


@pytest.fixture
def place(tmp_path, analyzer) -> Place:
    return Place(tmp_path, analyzer)


class Reply:
    """What came back over HTTP."""

    def __init__(self, answer: http.client.HTTPResponse):
        self.status_code, self.content = answer.status, answer.read()
        self.headers = {key.lower(): value for key, value in answer.getheaders()}

    def json(self):
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode()


@pytest.fixture
def exchange():
    """Send bytes to a port; everything that comes back."""

    def run(port: int, content: bytes) -> bytes:
        received = b""
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
            connection.sendall(content)
            while piece := connection.recv(1 << 16):
                received += piece
        return received

    return run


class Served:
    """A shuffler that is served by a thread of this process."""

    def __init__(self, shuffler: Shuffler):
        self.shuffler = shuffler
        self._socket = listen("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        connections = guarded_connections(max_connections=100, request_seconds=30, refused=shuffler.metrics.refused)
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(shuffler), http=connections, ws="none", lifespan="on", log_config=None, server_header=False
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        until(lambda: self._server.started)

    def request(self, method: str, path: str, content=None, headers=None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            connection.request(method, path, content, BINARY | (headers or {}))
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def post(self, form: ReportFormat, body, **options) -> Reply:
        return self.request("POST", f"/v{form.version}/tasks/{form.task_id.hex()}/reports", body, **options)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        self._socket.close()


@pytest.fixture
def serve(place):
    """Serve the place with some settings, once its tasks are there."""
    opened: list[Served] = []

    def run(**changes) -> Served:
        opened.append(Served(place.shuffler(**changes)))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


LOADED = [
    "shuffledp.cli.serve",
    "shuffledp.collection.server.running",
    "shuffledp.collection.shuffler.app",
    "shuffledp.collection.shuffler.store.postgres",
    "shuffledp.collection.shuffler.store.sqlite",
    "shuffledp.protocols.histogram.cheu",
    "uvicorn.main",
    "uvloop",
]
"""What one process of the test session has loaded; shufflers are forked from it, and start in a tenth of the time."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(LOADED)
REDIRECT = """
import os, sys
for number, pipe in ((1, out), (2, err)):
    os.dup2(pipe.fileno(), number)
    pipe.close()
os.environ.clear()
os.environ.update(environment)
sys.argv = ["shuffledp", *arguments]
"""


class Forked:
    """A process that runs code with arguments; what is used here of ``subprocess.Popen``."""

    def __init__(self, code: str, arguments: list[str], environment: dict[str, str]):
        (out, to_out), (err, to_err) = FORKS.Pipe(duplex=False), FORKS.Pipe(duplex=False)
        given = {"out": to_out, "err": to_err, "environment": environment, "arguments": arguments}
        self._asking = threading.Lock()
        self._process = FORKS.Process(target=exec, args=(REDIRECT + code, given))
        self._process.start()
        self.stdout, self.stderr = (os.fdopen(os.dup(each.fileno())) for each in (out, err))
        for each in (out, to_out, err, to_err):
            each.close()

    @property
    def returncode(self) -> int | None:
        with self._asking:  # of two threads that ask at once, one would find the exit status read already
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, how: int) -> None:
        if self.poll() is None:
            os.kill(self._process.pid, how)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        until(lambda: self.returncode is not None, seconds)
        return self.returncode


class Process:
    """A shuffler in a process of its own: forked from one that has loaded it, or started apart."""

    def __init__(
        self,
        config: Path,
        *,
        code: str = "main.main()",
        environment=None,
        running: list | None = None,
        apart: bool = False,
    ):
        self.events: list[dict] = []
        self.lines: list[str] = []
        arguments = ["serve", "shuffler", "--config", str(config)]
        surroundings = {**os.environ, **(environment or {})}
        if apart:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN + code, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=surroundings,
            )
        else:
            self.process = Forked(RUN + code, arguments, surroundings)
        if running is not None:  # for those who want to kill it before it listens
            running.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = until(lambda: self.event("listening") or self.process.poll() is not None) and self._port()

    def _port(self) -> int:
        told = self.event("listening")
        assert told, (self.process.returncode, self.lines)
        return told["port"]

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def event(self, name: str, **fields):
        """The first event of that name and fields so far."""
        wanted = {"event": name, **fields}
        return next((each for each in list(self.events) if wanted.items() <= each.items()), None)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)

    def request(self, method: str, path: str, body: bytes | None = None, headers=None):
        connection = self.connection()
        try:
            connection.request(method, path, body, BINARY | (headers or {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def post(self, form: ReportFormat, body: bytes, **headers) -> int:
        return self.request("POST", f"/v{form.version}/tasks/{form.task_id.hex()}/reports", body, headers)[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return status


@pytest.fixture
def start(place):
    """Start a shuffler process; all that still run are killed in the end."""
    started: list[Process] = []

    def run(*, code="main.main()", environment=None, running: list | None = None, apart=False, **changes) -> Process:
        process = Process(place.config(**changes), code=code, environment=environment, running=running, apart=apart)
        started.append(process)
        return process

    yield run
    for each in started:
        if each.process.poll() is None:
            each.kill()
        each._reader.join(WAIT_SECONDS)
        each.process.stdout.close()
        each.process.stderr.close()
