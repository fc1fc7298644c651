"""Opening and counting sealed messages against bare X25519 exchanges, on the same cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.finding import Finding, at_least, report
from benchmarks.measuring import side_by_side

if TYPE_CHECKING:
    from shuffledp.collection.keys import SealingKey

__all__ = ["measure"]

_DIFFERENT = 20_000
_FEW = 1 << 14  # so few are opened without further processes
_PIECE = 1 << 12
_BOUND = 0.6


def measure(quick: bool) -> Iterator[Finding]:
    """Messages opened and counted for each bare exchange in the same time, in one process and on all cores."""
    from shuffledp.collection.analyzer.tallying import count_messages, pieces_of
    from shuffledp.collection.keys import SealingKey, SigningKey
    from shuffledp.collection.sealing import Sealer
    from shuffledp.collection.task import Task
    from shuffledp.protocols.registry import find

    key = SealingKey.create()
    task = Task.create(
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
    form = task.protocol.message_format
    packed = form.pack((np.arange(_DIFFERENT) % 100).astype(form.dtype))
    sealed = Sealer(key.public, task.id, task.message_size).seal([row.tobytes() for row in packed], _DIFFERENT)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "messages"
        file.write_bytes(b"".join(sealed[:_FEW]))
        times = side_by_side(
            {
                "open": partial(count_messages, task, key, list(pieces_of(task, [(file, file.stat().st_size)]))),
                "exchange": partial(_exchange_some, _FEW),
                "decrypt": partial(_decrypt, sealed[:_FEW], key, task.id),
            },
            repetitions=5 if quick else 15,
        )
        each = {name: times.processor_seconds(name) / _FEW * 1e6 for name in ("open", "exchange")}
        yield at_least(
            "open and count messages in one process against bare exchanges, processor time",
            times.processor_ratio("exchange", "open"),
            _BOUND,
            f"{each['open']:.1f} against {each['exchange']:.1f} us each",
        )
        yield report(
            "the same against decrypting alone, processor time",
            f"{times.processor_ratio('decrypt', 'open'):.2f}x",
            "what is below 1 is spent on reading, unpacking and counting",
        )
        cores = len(os.sched_getaffinity(0))
        messages = _DIFFERENT * cores * (2 if quick else 8)
        file.write_bytes(b"".join(sealed) * (messages // _DIFFERENT))
        pieces = list(pieces_of(task, [(file, file.stat().st_size)]))
        times = side_by_side(
            {
                "open": partial(count_messages, task, key, pieces),
                "exchange": partial(_exchange, messages, cores),
            },
            repetitions=3 if quick else 5,
            warm_up=False,
        )
        rates = {name: messages / times.seconds(name) for name in ("open", "exchange")}
        yield at_least(
            f"open and count {messages:,} messages on {cores} cores against bare exchanges on them",
            times.ratio("exchange", "open"),
            _BOUND,
            f"{rates['open']:,.0f} against {rates['exchange']:,.0f} a second, with starting the processes; "
            f"processor time {times.processor_ratio('exchange', 'open'):.2f}x",
        )


def _decrypt(sealed: list[bytes], key: SealingKey, task_id: bytes) -> None:
    """Nothing but the library's own opening of each message."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from shuffledp.collection.sealing import SUITE, sealing_info

    private, info = X25519PrivateKey.from_private_bytes(key.secret), sealing_info(task_id)
    for message in sealed:
        SUITE.decrypt(message, private, info=info)


def _exchange(number: int, processes: int) -> None:
    """So many exchanges with one private key, in fresh processes like those that open messages."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_load) as pool:
        list(pool.map(_exchange_some, [_PIECE] * (number // _PIECE)))


def _load() -> None:
    import shuffledp.collection.analyzer.tallying  # noqa: F401  (what the others load too)


def _exchange_some(number: int) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    for _ in range(number):
        private.exchange(public)
