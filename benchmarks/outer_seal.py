"""Benchmark of wire version 2: ingest of reports under an outer seal, and opening them while mixing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.finding import Finding, at_least, at_most, report
from benchmarks.ingest import Setup

if TYPE_CHECKING:
    from shuffledp.collection.wire.keys import SealingKey, SigningKey

__all__ = ["measure"]

_CONNECTIONS = 64
_MESSAGES = 20
_REPORTS = 1000
_SEALS = 300


def measure(quick: bool) -> Iterator[Finding]:
    """Reports a second against version 1, beside a run of version 1 against itself; mixing against opening."""
    yield from _ingest(5 if quick else 15)
    yield from _mixing(3 if quick else 7)
    yield from _suites(3 if quick else 9)


def _ingest(repetitions: int) -> Iterator[Finding]:
    with TemporaryDirectory() as name:
        setups = {
            "version 1": Setup(Path(name) / "1"),
            "version 1 again": Setup(Path(name) / "1-again"),
            "version 2": Setup(Path(name) / "2", version=2),
        }
        rates: dict[str, list[float]] = {key: [] for key in setups}
        first, again, second = setups.values()
        with first.server("durable") as one, again.server("durable") as null, second.server("durable") as two:
            servers = dict(zip(setups, (one, null, two), strict=True))
            for repetition in range(-1, repetitions):  # short and interleaved: other load affects all equally
                for key in setups if repetition % 2 == 0 else reversed(setups):
                    load = servers[key].load(_CONNECTIONS, 1.0)
                    if repetition >= 0:
                        rates[key].append(load["rate"])
        middle = {key: median(values) for key, values in rates.items()}
        yield at_least(
            f"durable reports of version 2 ({second.size:,} bytes) against version 1 ({first.size:,} bytes)",
            middle["version 2"] / middle["version 1"],
            0.85,
            f"{middle['version 2']:,.0f} against {middle['version 1']:,.0f} a second",
        )
        yield report(
            "version 1 against itself",
            f"{middle['version 1 again'] / middle['version 1']:.2f}x",
            "what differs without a difference",
        )


def _mixing(repetitions: int) -> Iterator[Finding]:
    from shuffledp.collection.analyzer.counting import count_messages, pieces_of
    from shuffledp.collection.server.round_keys import RoundKeyDirectory
    from shuffledp.collection.shuffler.shuffling import RoundShuffler
    from shuffledp.collection.shuffler.store.interface import Incoming
    from shuffledp.collection.shuffler.store.sqlite import SqliteStore
    from shuffledp.collection.shuffler.tasks import load_task
    from shuffledp.collection.wire.keys import SealingKey, SigningKey
    from shuffledp.collection.wire.sealing import Sealer

    author, key, analyzer, round_key = (
        SigningKey.create(),
        SigningKey.create(),
        SealingKey.create(),
        SealingKey.create(),
    )
    with TemporaryDirectory() as name:
        directory = Path(name)
        round_key.save(directory / f"{round_key.public.id}.key")
        file = directory / "task.json"
        file.write_bytes(_signed_task(author, key, analyzer, round_key))
        served = load_task(file, [author.public], key.public)
        task = served.task
        sealer = Sealer(analyzer.public, task.id, task.message_size, task.version)
        packed = [bytes(task.message_size)] * _MESSAGES
        reports = [
            served.format.build(index.to_bytes(16, "big"), sealer.seal(packed, _MESSAGES)) for index in range(_REPORTS)
        ]
        mixing, opening = [], []
        for repetition in range(repetitions):
            work = directory / str(repetition)
            work.mkdir()
            store = SqliteStore(work / "store")
            store.open_round(served.id, maximum=_REPORTS, tokens=False)
            store.accept([Incoming(served.id, served.format.report_id(body), body) for body in reports])
            store.close_round(served.id)
            shuffler = RoundShuffler(store, key, work, 1 << 28, round_keys=RoundKeyDirectory(directory))
            start = _processor_seconds()
            shuffler.shuffle(served)
            mixing.append(_processor_seconds() - start)
            batch = shuffler.batch(served)
            if batch is None:
                raise RuntimeError("The round was not mixed.")
            pieces = list(pieces_of(task, [(batch.file, batch.file.stat().st_size)]))
            start = _processor_seconds()
            count_messages(task, analyzer, pieces)
            opening.append(_processor_seconds() - start)
            store.close()
        rate = _REPORTS / median(mixing)
        yield at_most(
            f"opening and mixing reports of {_MESSAGES} messages against the analyzer's opening, processor time",
            median(a / b for a, b in zip(mixing, opening, strict=True)),
            0.2,
            "x",
            f"{rate:,.0f} reports a second in one process; the analyzer opens {_REPORTS / median(opening):,.0f}",
        )


def _suites(repetitions: int) -> Iterator[Finding]:
    """The hybrid suite against X25519: sealing one report, opening it, and opening one layer of a chain."""
    from shuffledp.collection.wire.formats import HEADER_SIZE
    from shuffledp.collection.wire.keys import HybridKey, SealingKey
    from shuffledp.collection.wire.layers import LayerOpener, add_layers
    from shuffledp.collection.wire.outer_seal import ReportOpener, seal_report
    from shuffledp.collection.wire.outer_suites import suite_of

    header, messages = os.urandom(HEADER_SIZE), os.urandom(_MESSAGES * 50)
    seconds: dict[str, list[list[float]]] = {"sealing": [], "opening": [], "opening a layer": []}
    keys, task_id = (SealingKey.create(), HybridKey.create()), os.urandom(32)
    for _ in range(repetitions):
        for times in seconds.values():
            times.append([])
        for key in keys:  # interleaved
            start = time.process_time()
            reports = [seal_report(header, messages, key.public) for _ in range(_SEALS)]
            seconds["sealing"][-1].append(time.process_time() - start)
            opener = ReportOpener(key, header_size=HEADER_SIZE, report_size=len(reports[0]))
            start = time.process_time()
            if any(opener.open(each) != messages for each in reports):
                raise RuntimeError("A report did not open.")
            seconds["opening"][-1].append(time.process_time() - start)
            layered = add_layers([messages[:50]] * _SEALS, [key.public, key.public], task_id, after=0)
            layer = LayerOpener(key, 1, task_id, 50 + suite_of(key).seal_size)
            start = time.process_time()
            if any(layer.open(each) != messages[:50] for each in layered):
                raise RuntimeError("A layer did not open.")
            seconds["opening a layer"][-1].append(time.process_time() - start)
    for what, times in seconds.items():
        ratio = median(hybrid / usual for usual, hybrid in times)
        each = median(hybrid for _, hybrid in times) / _SEALS
        yield report(f"hybrid suite against X25519, {what}", f"{ratio:.2f}x", f"{1e6 * each:,.0f} us of processor time")


def _processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _signed_task(author: SigningKey, key: SigningKey, analyzer: SealingKey, round_key: SealingKey) -> bytes:
    from shuffledp.collection.task.task import Task
    from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
    from shuffledp.protocols.registry import find

    now = datetime.now(UTC).replace(microsecond=0)
    task = Task.create(
        kind=find("histogram", "cheu"),
        settings={"users": 5, "domain_size": _MESSAGES},
        epsilon=2.0,
        delta=0.3,
        maximum_users=_REPORTS,
        name="benchmark",
        description="",
        population="nobody",
        opens=now - timedelta(hours=1),
        closes=now + timedelta(hours=1),
        analyzer=analyzer.public,
        shuffler=key.public,
        wire=WireVersion2((ShufflerKeys(key.public, round_key.public),)),
    )
    return task.signed(author).to_bytes()
