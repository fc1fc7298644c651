"""A complete collection on one machine, for demos and tests: keys, a signed task, both servers on loopback."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.directory import initialize
from shuffledp.collection.task.task import SignedTask, Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.keys import RoundKey, SealingKey, SigningKey, VerifyingKey
from shuffledp.errors import UnreachableError
from shuffledp.protocols.protocol import Protocol

_HOST = "127.0.0.1"
_LEAST_PORT = 10_000
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POPULATION = "rehearsal"
ROUND_KEYS = "round-keys"
"""The directory of the shuffler's round keys."""
_MAX_RELEASE_BYTES = 1 << 30


@dataclass
class Rehearsal:
    """The files of all parties of one round in one directory, and their servers."""

    directory: Path
    task: SignedTask
    author: VerifyingKey
    shuffler_port: int
    analyzer_port: int
    later_ports: tuple[int, ...] = ()
    """Of the second and third shuffler, in a chain."""

    @classmethod
    def prepare(
        cls,
        directory: Path,
        *,
        kind: type[Protocol],
        settings: dict[str, Any],
        epsilon: float,
        delta: float,
        name: str = "Rehearsal",
        description: str = "",
        origins: Sequence[str] = (),
        version: int = 1,
        hops: int = 1,
        traps: int = 0,
        round_key: type[RoundKey] = SealingKey,
    ) -> Rehearsal:
        """Create keys, a signed task for at most the planned number of users, and the settings of all servers.

        Web pages of the ``origins`` may report. A chain of several shufflers (``hops``) needs version 2;
        each later one sends ``traps``. The kind of ``round_key`` chooses the suite of the outer seals.
        """
        author, analyzer = SigningKey.create(), SealingKey.create()
        for key, role in ((author, "author"), (analyzer, "analyzer")):
            key.save(directory / f"{role}.key")
        author.public.save(directory / "author.pub")
        for part in ("tasks", "analyzer"):
            (directory / part).mkdir(mode=0o700)
        shufflers = tuple(_new_shuffler(directory, hop, version, round_key.create()) for hop in range(hops))
        wire = WireVersion2(shufflers, traps=traps) if version == 2 else None
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=kind,
            settings=settings,
            epsilon=epsilon,
            delta=delta,
            maximum_users=settings["users"] + traps * (hops - 1),
            name=name,
            description=description,
            population=_POPULATION,
            opens=now - timedelta(minutes=1),
            closes=now + timedelta(hours=1),
            analyzer=analyzer.public,
            shuffler=shufflers[-1].signing,
            wire=wire,
        ).signed(author)
        initialize(directory / "analyzer")
        (directory / "tasks" / "task.json").write_bytes(task.to_bytes())
        shuffler_port, analyzer_port, *later = free_ports(1 + hops)
        for hop, port in enumerate((shuffler_port, *later)):
            following = later[hop] if hop < len(later) else None
            file = directory / ("servers.toml" if hop == 0 else f"{shuffler_name(hop)}.toml")
            content = _settings(directory, hop, port, following, analyzer_port, origins)
            if hop > 0:
                content += f'first_shuffler = "http://{_HOST}:{shuffler_port}"\n'
            file.write_text(content, encoding="utf-8")
        (directory / "budgets.toml").write_text(f"[{_POPULATION}]\nepsilon = {epsilon!r}\ndelta = {delta!r}\n")
        return cls(directory, task, author.public, shuffler_port, analyzer_port, tuple(later))

    @property
    def shuffler_url(self) -> str:
        """The URL for reports of devices."""
        return f"http://{_HOST}:{self.shuffler_port}"

    @property
    def analyzer_url(self) -> str:
        """The URL at which the release is published."""
        return f"http://{_HOST}:{self.analyzer_port}"

    @contextmanager
    def servers(self) -> Iterator[None]:
        """Run all servers, each in its own process, until the block ends."""
        later = [shuffler_name(hop) for hop in range(1, 1 + len(self.later_ports))]
        processes = [self.start(role) for role in ("analyzer", "shuffler", *later)]
        ports = (self.analyzer_port, self.shuffler_port, *self.later_ports)
        try:
            for process, port in zip(processes, ports, strict=True):
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
        """Start one server, which logs to a file in the directory."""
        own = self.directory / f"{role}.toml"
        config = own if own.exists() else self.directory / "servers.toml"
        kind = role.partition("-")[0]
        command = [sys.executable, "-m", "shuffledp", "serve", kind, "--config", str(config)]
        with (self.directory / f"{role}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603

    def release(self, *, seconds: float = 120.0) -> dict[str, Any]:
        """Wait for the release, and return its JSON document."""
        document: dict[str, Any] = json.loads(self.published("", seconds=seconds))
        return document

    def published(self, form: str, *, seconds: float = 120.0) -> bytes:
        """Wait for a form of the release: JSON (``""``), ``".csv"`` or ``"/page"``."""
        path = f"/v1/releases/{self.task.task.id.hex()}{form}"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status, content = _get(self.analyzer_port, path)
            if status == 200:
                return content
            time.sleep(0.2)
        raise UnreachableError(f"Nothing was released within {seconds:.0f} s; see the logs in {self.directory}.")


def shuffler_name(hop: int) -> str:
    """The name of a shuffler's files: ``shuffler``, and ``shuffler-2`` for the second."""
    return "shuffler" if hop == 0 else f"shuffler-{hop + 1}"


def _suffix(hop: int) -> str:
    return "" if hop == 0 else f"-{hop + 1}"


def _new_shuffler(directory: Path, hop: int, version: int, round_key: RoundKey) -> ShufflerKeys:
    """The directories and new keys of a shuffler; version 1 does not use its round key."""
    signing = SigningKey.create()
    signing.save(directory / f"{shuffler_name(hop)}.key")
    for part in (shuffler_name(hop), f"reports{_suffix(hop)}", f"{ROUND_KEYS}{_suffix(hop)}"):
        (directory / part).mkdir(mode=0o700)
    if version == 2:
        round_key.save(directory / f"{ROUND_KEYS}{_suffix(hop)}" / f"{round_key.public.id}.key")
    return ShufflerKeys(signing.public, round_key.public)


def _settings(
    directory: Path, hop: int, port: int, next_port: int | None, analyzer_port: int, origins: Sequence[str]
) -> str:
    """The settings of a shuffler; with those of the analyzer for the first."""

    def quoted(*parts: str) -> str:
        return json.dumps(str(directory.joinpath(*parts)))

    lines = [
        "[shuffler]",
        f"port = {port}",
        f"tasks = {quoted('tasks')}",
        f"authors = [{quoted('author.pub')}]",
        f"signing_key = {quoted(f'{shuffler_name(hop)}.key')}",
        f"round_keys = {quoted(f'{ROUND_KEYS}{_suffix(hop)}')}",
        f'analyzer = "http://{_HOST}:{analyzer_port}"',
        f"work = {quoted(shuffler_name(hop))}",
        f"store_folder = {quoted(f'reports{_suffix(hop)}')}",
        f"origins = {json.dumps(list(origins))}",
    ]
    if next_port is not None:
        lines.append(f'next_shuffler = "http://{_HOST}:{next_port}"')
    if hop == 0:
        lines += [
            "[analyzer]",
            f"port = {analyzer_port}",
            f"tasks = {quoted('tasks')}",
            f"authors = [{quoted('author.pub')}]",
            f"sealing_keys = [{quoted('analyzer.key')}]",
            f"budgets = {quoted('budgets.toml')}",
            f"work = {quoted('analyzer')}",
        ]
    return "\n".join([*lines, ""])


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, outside the range from which the system takes ports for outgoing connections.

    So the port of a server that is stopped and started again is not taken by a connection in between.
    """
    candidates = list(range(_LEAST_PORT, _first_outgoing_port()))
    random.SystemRandom().shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        with suppress(OSError):
            socket.create_server((_HOST, port)).close()
            ports.append(port)
        if len(ports) == count:
            return ports
    raise UnreachableError(f"Not even {count} ports from {_LEAST_PORT} on are free.")


def _first_outgoing_port() -> int:
    """The least port that the system takes for outgoing connections; 32,768 if it does not say."""
    try:
        return max(int(_OUTGOING_PORTS.read_text().split()[0]), _LEAST_PORT + 1000)
    except (OSError, ValueError, IndexError):
        return 32_768


def _get(port: int, path: str) -> tuple[int, bytes]:
    """Status and content; status 0 if there is no response."""
    try:
        with Connection(f"http://{_HOST}:{port}", timeout=10) as connection:
            answer, content = connection.download(path, max_bytes=_MAX_RELEASE_BYTES)
    except (OSError, http.client.HTTPException):
        return 0, b""
    return answer.status, content


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnreachableError("A server did not start; see its log in the directory of the rehearsal.")
        time.sleep(0.05)
