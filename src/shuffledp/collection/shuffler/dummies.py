"""The part of an augmented shuffler: it keeps a sample of the opened reports, and adds sealed dummies to the batch.

Dummies are drawn while a round is mixed and never before, exactly as the task's protocol says, and sealed like the
messages of users: with the same key, context, form and length. Their numbers are in memory only, until the batch is
written. A killed process loses its draw together with its unrecorded batch, and the next one draws anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from shuffledp.collection.server.processes import available_cores, mapped, processes_with
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingPublicKey
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.randomness import SYSTEM, Dyadic, bernoulli

_AT_ONCE = 1 << 12  # dummies that are sealed in one piece of work
_MIN_DUMMIES_FOR_PROCESSES = 20_000  # fewer are sealed in less time than processes take to start
_COINS = 1 << 12


def kept_reports(task: Task) -> Iterator[bool]:
    """For one opened report after the other, whether the shuffler keeps it; without end."""
    keep = task.protocol.shuffler_keeps
    return repeat(True) if keep.fraction == 1 else _coins(keep)


def _coins(keep: Dyadic) -> Iterator[bool]:
    while True:
        yield from bernoulli(keep, _COINS, SYSTEM).astype(bool).tolist()


def sealed_dummies(task: Task) -> Iterator[bytes]:
    """The sealed dummies of one round in blocks, from a fresh draw; nothing unless the protocol is augmented."""
    if task.protocol.trust != "augmented":
        return
    packed = task.protocol.message_format.pack(task.protocol.draw_dummies(source=SYSTEM))
    parts = (packed[start : start + _AT_ONCE].tobytes() for start in range(0, len(packed), _AT_ONCE))
    arguments = (task.analyzer.raw, task.id, task.message_size, task.version)
    if len(packed) < _MIN_DUMMIES_FOR_PROCESSES:
        sealer = _sealer(*arguments)
        yield from (_sealed(sealer, part) for part in parts)
        return
    count = available_cores()
    with processes_with(_begin, *arguments, count=count) as pool:
        yield from mapped(pool, _seal_in_process, parts, count)


def _sealer(key: bytes, task_id: bytes, message_size: int, version: int) -> Sealer:
    return Sealer(SealingPublicKey(key), task_id, message_size, version)


def _sealed(sealer: Sealer, part: bytes) -> bytes:
    """The sealed messages of concatenated packed ones."""
    size = sealer.message_size
    packed = [part[start : start + size] for start in range(0, len(part), size)]
    return b"".join(sealer.seal(packed, len(packed)))


_process_sealer: list[Sealer] = []


def _begin(*arguments: object) -> None:
    _process_sealer.append(_sealer(*arguments))  # type: ignore[arg-type]


def _seal_in_process(part: bytes) -> bytes:
    return _sealed(_process_sealer[0], part)
