"""Benchmark of opening and counting sealed messages against X25519 key exchanges alone, on the same cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.finding import Finding, at_least, report, seconds
from benchmarks.measuring import side_by_side

if TYPE_CHECKING:
    from shuffledp.collection.task.task import Task
    from shuffledp.collection.wire.keys import SealingKey

__all__ = ["measure"]

_FEW = 1 << 12  # few enough to be opened in one process
_PIECE = 1 << 12
_PIECES_PER_CORE = 4
_BOUND = 0.6


def measure(quick: bool) -> Iterator[Finding]:
    """Messages opened and counted for each bare exchange in the same time, in one process and on all cores.

    Rounds are short and take turns, so that whatever else the machine does slows both. All messages are different:
    copies would not be opened.
    """
    from shuffledp.collection.analyzer.counting import count_messages, opening_processes, pieces_of
    from shuffledp.collection.wire.keys import SealingKey
    from shuffledp.collection.wire.sealing import Sealer

    key = SealingKey.create()
    task = _task(key)
    cores = len(os.sched_getaffinity(0))
    messages = _PIECE * _PIECES_PER_CORE * cores
    form = task.protocol.message_format
    packed = form.pack((np.arange(messages) % 100).astype(form.dtype))
    sealed = Sealer(key.public, task.id, task.message_size).seal([row.tobytes() for row in packed], messages)
    with TemporaryDirectory() as directory:
        few, many = Path(directory) / "few", Path(directory) / "many"
        few.write_bytes(b"".join(sealed[:_FEW]))
        many.write_bytes(b"".join(sealed))
        times = side_by_side(
            {
                "open": partial(count_messages, task, key, list(pieces_of(task, [(few, few.stat().st_size)]))),
                "exchange": partial(_exchange_some, _FEW),
                "decrypt": partial(_decrypt, sealed[:_FEW], key, task.id),
            },
            repetitions=9 if quick else 25,
        )
        each = {name: times.processor_seconds(name) / _FEW * 1e6 for name in ("open", "exchange", "decrypt")}
        yield at_least(
            "open and count messages in one process against bare exchanges, processor time",
            each["exchange"] / each["open"],
            _BOUND,
            f"{each['open']:.1f} against {each['exchange']:.1f} us each",
        )
        yield report(
            "the same against the library's own decryption alone, processor time",
            f"{each['decrypt'] / each['open']:.2f}x",
            f"{each['decrypt']:.1f} us each",
        )
        pieces = list(pieces_of(task, [(many, many.stat().st_size)]))
        with opening_processes(task, key, cores) as pool:
            times = side_by_side(
                {
                    "open": partial(count_messages, task, key, pieces, pool=pool),
                    "exchange": partial(_exchange, messages, pool),
                },
                repetitions=7 if quick else 15,
            )
        rates = {name: messages / times.seconds(name) for name in ("open", "exchange")}
        yield at_least(
            f"open and count messages on {cores} cores against bare exchanges on them",
            rates["open"] / rates["exchange"],
            _BOUND,
            f"{rates['open']:,.0f} against {rates['exchange']:,.0f} a second",
        )
        times_with_start = side_by_side(
            {"open": partial(count_messages, task, key, pieces)}, repetitions=3, warm_up=False
        )
        yield report(
            "start the processes that open messages",
            seconds(max(0.0, times_with_start.seconds("open") - times.seconds("open"))),
            "once a round",
        )


def _task(key: SealingKey) -> Task:
    from shuffledp.collection.task.task import Task
    from shuffledp.collection.wire.keys import SigningKey
    from shuffledp.protocols.registry import find

    return Task.create(
        kind=find("histogram", "uniform-blanket"),
        settings={"users": 10_000, "domain_size": 100},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=1_000_000,
        name="benchmark",
        description="",
        population="nobody",
        opens=datetime(2026, 1, 1, tzinfo=UTC),
        closes=datetime(2026, 1, 2, tzinfo=UTC),
        analyzer=key.public,
        shuffler=SigningKey.create().public,
    )


def _decrypt(sealed: list[bytes], key: SealingKey, task_id: bytes) -> None:
    """Only the decryption of each message by the library."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from shuffledp.collection.wire.sealing import SUITE, sealing_info

    private, info = X25519PrivateKey.from_private_bytes(key.secret), sealing_info(task_id)
    for message in sealed:
        SUITE.decrypt(message, private, info=info)


def _exchange(number: int, pool: ProcessPoolExecutor) -> None:
    """So many exchanges, in the processes that open messages too."""
    list(pool.map(_exchange_some, [_PIECE] * (number // _PIECE)))


def _exchange_some(number: int) -> None:
    """So many exchanges with one private key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    for _ in range(number):
        private.exchange(public)
