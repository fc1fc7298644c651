"""Benchmark of durable ingestion of reports against a server without a store or with a commit per report."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.finding import Finding, at_least, at_most, report
from benchmarks.finding import seconds as duration
from benchmarks.measuring import in_fresh_process

__all__ = ["measure"]

_CONNECTIONS, _MANY_CONNECTIONS = 64, 512
_MESSAGES = 20  # of 50 bytes: a report of about 1 KB
_FEW_WAITING = 32
_PAUSE = 0.1  # seconds before a rejected device retries: far less than the server's Retry-After
_ID = slice(37, 53)  # the report id
_MODES = ("no store", "durable", "one commit each")
_START_SECONDS = 60.0
_FLUSHES = 200
_PATIENCES = (1.0, 0.02)  # the default, and one with which many are rejected


def measure(quick: bool) -> Iterator[Finding]:
    """Rates at 64 connections, the latency, and the behaviour under overload."""
    repetitions, seconds = (5, 1.0) if quick else (15, 1.0)  # short and interleaved: other load affects all equally
    with TemporaryDirectory() as name:
        setup = Setup(Path(name))
        loads: dict[str, list[dict[str, Any]]] = {mode: [] for mode in _MODES}
        with setup.server(_MODES[0]) as first, setup.server(_MODES[1]) as second, setup.server(_MODES[2]) as third:
            servers = dict(zip(_MODES, (first, second, third), strict=True))
            for repetition in range(-1, repetitions):
                for mode in _MODES if repetition % 2 == 0 else reversed(_MODES):
                    load = servers[mode].load(_CONNECTIONS, seconds)
                    if repetition >= 0:
                        loads[mode].append(load)
        rates = {mode: [each["rate"] for each in loads[mode]] for mode in _MODES}
        shown = {mode: f"{median(rates[mode]):,.0f}" for mode in _MODES}
        processor = {mode: f"{median(each['processor'] for each in loads[mode]) * 1e6:.0f}" for mode in _MODES}
        yield at_least(
            f"durable reports of {setup.size:,} bytes at {_CONNECTIONS} connections against no store",
            _ratio(rates["durable"], rates["no store"]),
            0.6,
            f"{shown['durable']} against {shown['no store']} a second; {processor['durable']} against "
            f"{processor['no store']} us of processor each",
        )
        yield at_least(
            "the same against one commit each",
            _ratio(rates["durable"], rates["one commit each"]),
            3.0,
            f"{shown['durable']} against {shown['one commit each']} a second",
        )
        yield at_most(
            "time until a durable report is answered, 99 of 100",
            median(each["p99"] for each in loads["durable"]) * 1e3,
            100.0,
            "ms",
            f"median {median(each['p50'] for each in loads['durable']) * 1e3:.1f} ms, "
            f"longest {max(each['longest'] for each in loads['durable']) * 1e3:.0f} ms",
        )
        flushes = sorted(_flush_seconds(setup.directory / "flushed", _CONNECTIONS * setup.size))
        yield report(
            f"the disk alone: append {_CONNECTIONS} reports to a file and flush it",
            duration(median(flushes)),
            f"mean {duration(sum(flushes) / len(flushes))}; no store that is durable takes less for a group",
        )
        for patience in _PATIENCES:
            yield from _overload(setup, patience, repetitions)


def _overload(setup: Setup, patience: float, repetitions: int) -> Iterator[Finding]:
    """Overload: more connections than the queue allows, so that some must retry; then the server is killed."""
    usual, rates, statuses = [], [], Counter[str]()
    broken, p99 = 0, 0.0
    with (
        setup.server("durable") as calm,
        setup.server("durable", waiting_reports=_FEW_WAITING, waiting_seconds=patience) as server,
    ):
        for _ in range(repetitions):
            usual.append(calm.load(_CONNECTIONS, 1.0)["rate"])
            load = server.load(_MANY_CONNECTIONS, 1.0)
            rates.append(load["rate"])
            statuses.update(load["statuses"])
            broken, p99 = broken + load["broken"], max(p99, load["p99"])
        server.process.kill()
        server.process.wait()
        stored = setup.stored(server)
    lost = max(0, statuses["201"] - stored)
    others = sum(count for status, count in statuses.items() if status not in ("201", "429", "503"))
    what = (
        f"{_MANY_CONNECTIONS} connections, of which {_FEW_WAITING} may wait and others are patient for {patience:g} s"
    )
    yield Finding(
        f"reports lost or answered otherwise than 201, 429, 503 at {what}; then killed",
        f"{lost + others + broken:,}",
        f"{statuses['201']:,} acknowledged, {stored:,} stored, {statuses['503']:,} sent away",
        "0",
        0.0 if lost + others + broken else 1.0,
    )
    ratio = median(rates) / median(usual)
    detail = f"{median(rates):,.0f} against {median(usual):,.0f} a second, 99 of 100 within {p99 * 1e3:.0f} ms"
    if patience < _PATIENCES[0]:
        yield report("durable reports under that overload against the usual", f"{ratio:.2f}x", detail)
    else:
        yield at_least("durable reports under that overload against the usual", ratio, 0.5, detail)


def _flush_seconds(file: Path, size: int) -> Iterator[float]:
    with file.open("wb", buffering=0) as target:
        for _ in range(_FLUSHES):
            content = os.urandom(size)
            start = time.perf_counter()
            target.write(content)
            os.fsync(target.fileno())
            yield time.perf_counter() - start


def _ratio(first: list[float], second: list[float]) -> float:
    return median(first) / median(second)


class Setup:
    """A signed task of a wire version, a report of it, and the keys that servers need."""

    def __init__(self, directory: Path, version: int = 1) -> None:
        from shuffledp.collection.task.task import Task
        from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
        from shuffledp.collection.wire.formats import ReportFormat
        from shuffledp.collection.wire.keys import SealingKey, SigningKey
        from shuffledp.protocols.registry import find

        self.directory, self.version = directory, version
        directory.mkdir(exist_ok=True)
        author, key = SigningKey.create(), SigningKey.create()
        author.public.save(directory / "author.pub")
        key.save(directory / "shuffler.key")
        (directory / "round-keys").mkdir()
        wire = None
        if version == 2:
            round_key = SealingKey.create()
            round_key.save(directory / "round-keys" / f"{round_key.public.id}.key")
            wire = WireVersion2((ShufflerKeys(key.public, round_key.public),))
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=find("histogram", "cheu"),
            settings={"users": 5, "domain_size": _MESSAGES},
            epsilon=2.0,
            delta=0.3,
            maximum_users=100_000_000,
            name="benchmark",
            description="",
            population="nobody",
            opens=now - timedelta(hours=1),
            closes=now + timedelta(hours=1),
            analyzer=SealingKey.create().public,
            shuffler=key.public,
            wire=wire,
        )
        (directory / "tasks").mkdir()
        (directory / "tasks" / "task.json").write_bytes(task.signed(author).to_bytes())
        form = ReportFormat.of(task)
        self.task_id, self.size = task.id, form.size
        sealed = [os.urandom(form.sealed_size) for _ in range(form.messages)]
        (directory / "report").write_bytes(form.build(bytes(16), sealed))  # the id is replaced: nobody opens it
        self._servers = 0

    @contextmanager
    def server(self, mode: str, *, waiting_reports: int = 4096, waiting_seconds: float = 1.0) -> Iterator[_Server]:
        """A shuffler in a separate process, which is stopped at the end of the block."""
        self._servers += 1
        directory = self.directory / str(self._servers)
        (directory / "work").mkdir(parents=True)
        config = directory / "shuffler.toml"
        config.write_text(
            f"""[shuffler]
port = 0
tasks = {json.dumps(str(self.directory / "tasks"))}
authors = [{json.dumps(str(self.directory / "author.pub"))}]
signing_key = {json.dumps(str(self.directory / "shuffler.key"))}
round_keys = {json.dumps(str(self.directory / "round-keys"))}
analyzer = "http://127.0.0.1:9"
work = {json.dumps(str(directory / "work"))}
store_folder = {json.dumps(str(directory / "store"))}
waiting_reports = {waiting_reports}
waiting_seconds = {waiting_seconds}
""",
            encoding="utf-8",
        )
        arguments = ["-m", "benchmarks.fresh", __name__, "serve", json.dumps([mode, str(config)])]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, stderr=log
            )
        try:
            yield _Server(process, directory, _port(process, directory / "log"), self)
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(directory)

    def stored(self, server: _Server) -> int:
        """The number of reports in the store of a stopped server."""
        from shuffledp.collection.shuffler.store.sqlite import SqliteStore

        store = SqliteStore(server.directory / "store")
        try:
            return store.count(self.task_id)
        finally:
            store.close()


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes]
    directory: Path
    port: int
    setup: Setup

    def load(self, connections: int, seconds: float) -> dict[str, Any]:
        """Send from a fresh process as fast as the server answers; adds the server's processor time per report."""
        before = self._processor_seconds()
        file, path = self.setup.directory / "report", f"/v{self.setup.version}/tasks/{self.setup.task_id.hex()}/reports"
        load: dict[str, Any] = in_fresh_process(send, self.port, path, str(file), connections, seconds).returned
        load["processor"] = (self._processor_seconds() - before) / max(1, sum(load["statuses"].values()))
        return load

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"listening"' in line and line.endswith("}"):
                return int(json.loads(line)["port"])
        time.sleep(0.05)
    raise RuntimeError(f"The server did not start: {log.read_text(encoding='utf-8')[-1000:]}")


def serve(mode: str, config: str) -> None:
    """A shuffler; without a store every report is answered at once, after all checks."""
    from shuffledp.cli.main import command_line
    from shuffledp.collection.shuffler import commit_queue
    from shuffledp.collection.shuffler.store.interface import ReportOutcome

    def answer_at_once(_: object, __: object) -> asyncio.Future[ReportOutcome]:
        future: asyncio.Future[ReportOutcome] = asyncio.get_running_loop().create_future()
        future.set_result(ReportOutcome.NEW)
        return future

    if mode == "no store":
        setattr(commit_queue.CommitQueue, "submit", answer_at_once)  # noqa: B010  (types forbid the plain form)
    elif mode == "one commit each":
        commit_queue._MAX_IN_A_GROUP = 1
    command_line("serve")(["serve", "shuffler", "--config", config], standalone_mode=False)


def send(port: int, path: str, file: str, connections: int, seconds: float) -> dict[str, Any]:
    """Send reports over several connections, each after the previous answer; returns rates, latencies and statuses."""
    import uvloop

    return uvloop.run(_send(port, path, Path(file).read_bytes(), connections, seconds))


async def _send(port: int, path: str, body: bytes, connections: int, seconds: float) -> dict[str, Any]:
    kind = "Content-Type: application/octet-stream\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {len(body)}\r\n\r\n".encode()
    sending = _Sending(head + body[: _ID.start], body[_ID.stop :], time.perf_counter() + seconds)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Device(sending), "127.0.0.1", port)
    while sending.open and time.perf_counter() < sending.end + 10:
        await asyncio.sleep(0.05)
    latencies = sorted(sending.latencies) or [0.0]
    return {
        "rate": sending.statuses["201"] / seconds,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[int(0.99 * len(latencies))],
        "longest": latencies[-1],
        "statuses": dict(sending.statuses),
        "broken": sending.broken + sending.open,
    }


@dataclass
class _Sending:
    """State shared by all devices."""

    before: bytes
    after: bytes
    end: float
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    open: int = 0
    broken: int = 0
    """Connections that were closed early."""


class _Device(asyncio.Protocol):
    """One connection: a new report after each that is accepted, or after a pause if it is rejected."""

    def __init__(self, sending: _Sending) -> None:
        self._sending = sending
        self._received = b""
        self._waiting = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._sending.open += 1
        self._send()

    def connection_lost(self, _: Exception | None) -> None:
        self._sending.open -= 1
        self._sending.broken += self._waiting

    def _send(self) -> None:
        self._started = time.perf_counter()
        if self._transport.is_closing():
            return
        if self._started > self._sending.end:
            self._transport.close()
            return
        self._waiting = True
        self._transport.write(self._sending.before + os.urandom(16) + self._sending.after)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        _, _, length = head.lower().partition(b"content-length: ")
        if len(body) < int(length.partition(b"\r\n")[0] or 0):
            return
        self._sending.statuses[head[9:12].decode()] += 1
        self._sending.latencies.append(time.perf_counter() - self._started)
        self._received, self._waiting = b"", False
        if head[9:12] == b"201":
            self._send()
        else:
            asyncio.get_running_loop().call_later(_PAUSE, self._send)
