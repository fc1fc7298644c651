"""The whole system on one machine: keys, a signed task, both servers on loopback; for demos and tests."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.directory import initialize
from shuffledp.collection.task.task import SignedTask, Task
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.keys import SealingKey, SigningKey, VerifyingKey
from shuffledp.errors import UnreachableError
from shuffledp.protocols.protocol import Protocol

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POPULATION = "rehearsal"
_MAX_RELEASE_BYTES = 1 << 30


@dataclass
class Rehearsal:
    """A directory with everything that the parties of one round own, and their servers."""

    folder: Path
    task: SignedTask
    author: VerifyingKey
    shuffler_port: int
    analyzer_port: int

    @classmethod
    def prepare(
        cls,
        folder: Path,
        *,
        kind: type[Protocol],
        settings: dict[str, Any],
        epsilon: float,
        delta: float,
        name: str = "Rehearsal",
        description: str = "",
    ) -> Rehearsal:
        """Make keys, sign a task of one round that is full with the planned users, and write the settings."""
        author, shuffler, analyzer = SigningKey.create(), SigningKey.create(), SealingKey.create()
        for key, role in ((author, "author"), (shuffler, "shuffler"), (analyzer, "analyzer")):
            key.save(folder / f"{role}.key")
        author.public.save(folder / "author.pub")
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=kind,
            settings=settings,
            epsilon=epsilon,
            delta=delta,
            maximum_users=settings["users"],
            name=name,
            description=description,
            population=_POPULATION,
            opens=now - timedelta(minutes=1),
            closes=now + timedelta(hours=1),
            analyzer=analyzer.public,
            shuffler=shuffler.public,
        ).signed(author)
        for part in ("tasks", "shuffler", "reports", "analyzer"):
            (folder / part).mkdir(mode=0o700)
        initialize(folder / "analyzer")
        (folder / "tasks" / "task.json").write_bytes(task.to_bytes())
        ports = _free_ports(2)
        (folder / "servers.toml").write_text(_settings(folder, *ports), encoding="utf-8")
        (folder / "budgets.toml").write_text(f"[{_POPULATION}]\nepsilon = {epsilon!r}\ndelta = {delta!r}\n")
        return cls(folder, task, author.public, *ports)

    @property
    def shuffler_url(self) -> str:
        """Where devices report."""
        return f"http://{_HOST}:{self.shuffler_port}"

    @contextmanager
    def servers(self) -> Iterator[None]:
        """Both servers, each a process of its own, until the block ends."""
        processes = [self.start(role) for role in ("analyzer", "shuffler")]
        try:
            for process, port in zip(processes, (self.analyzer_port, self.shuffler_port), strict=True):
                _wait_until(lambda port=port: _get(port, "/readyz")[0] == 200, process)  # type: ignore[misc]
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def start(self, role: str) -> subprocess.Popen[bytes]:
        """One server; its log goes to a file of the directory."""
        command = [sys.executable, "-m", "shuffledp", "serve", role, "--config", str(self.folder / "servers.toml")]
        with (self.folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603

    def release(self, *, seconds: float = 120.0) -> dict[str, Any]:
        """What the analyzer publishes, once it has."""
        found: dict[str, Any] = json.loads(self.published("", seconds=seconds))
        return found

    def published(self, form: str, *, seconds: float = 120.0) -> bytes:
        """A form of the release: JSON (``""``), ``".csv"`` or ``"/page"``."""
        path = f"/v1/releases/{self.task.task.id.hex()}{form}"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status, content = _get(self.analyzer_port, path)
            if status == 200:
                return content
            time.sleep(0.2)
        raise UnreachableError(f"Nothing was released within {seconds:.0f} s; see the logs in {self.folder}.")


def _settings(folder: Path, shuffler_port: int, analyzer_port: int) -> str:
    def quoted(*parts: str) -> str:
        return json.dumps(str(folder.joinpath(*parts)))

    return "\n".join(
        [
            "[shuffler]",
            f"port = {shuffler_port}",
            f"tasks = {quoted('tasks')}",
            f"authors = [{quoted('author.pub')}]",
            f"signing_key = {quoted('shuffler.key')}",
            f'analyzer = "http://{_HOST}:{analyzer_port}"',
            f"work = {quoted('shuffler')}",
            f"store_folder = {quoted('reports')}",
            "[analyzer]",
            f"port = {analyzer_port}",
            f"tasks = {quoted('tasks')}",
            f"authors = [{quoted('author.pub')}]",
            f"sealing_keys = [{quoted('analyzer.key')}]",
            f"budgets = {quoted('budgets.toml')}",
            f"work = {quoted('analyzer')}",
            "",
        ]
    )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((_HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _get(port: int, path: str) -> tuple[int, bytes]:
    """Status and content; 0 if nobody answers."""
    try:
        with Connection(f"http://{_HOST}:{port}", timeout=10) as connection:
            answer, content = connection.download(path, most=_MAX_RELEASE_BYTES)
    except (OSError, http.client.HTTPException):
        return 0, b""
    return answer.status, content


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnreachableError("A server did not start; see the logs of the rehearsal.")
        time.sleep(0.05)
