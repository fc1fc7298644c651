"""The part of an augmented shuffler: it keeps a sample of the opened reports, and adds sealed dummies to the batch.

Dummies are drawn while a round is mixed and never before, exactly as the task's protocol says, and sealed like the
messages of users: with the same key, context, form and length. Their numbers are in memory only, until the batch is
written. A killed process loses its draw together with its unrecorded batch, and the next one draws anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from shuffledp.collection.server.processes import available_cores, mapped, processes_with
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import RoundPublicKey, SealingPublicKey
from shuffledp.collection.wire.layers import add_layers
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


def sealed_dummies(task: Task, hop: int = 0) -> Iterator[bytes]:
    """The sealed dummies of one round in blocks, from a fresh draw; nothing unless the protocol is augmented.

    ``hop`` is the index of this shuffler; dummies get the layers of those that follow.
    """
    if task.protocol.trust != "augmented":
        return
    packed = task.protocol.message_format.pack(task.protocol.draw_dummies(source=SYSTEM))
    parts = (packed[start : start + _AT_ONCE].tobytes() for start in range(0, len(packed), _AT_ONCE))
    following = () if task.wire is None else task.wire.round_keys
    arguments = (task.analyzer, task.id, task.message_size, task.version, following, hop)
    if len(packed) < _MIN_DUMMIES_FOR_PROCESSES:
        sealer = _DummySealer(*arguments)
        yield from map(sealer.sealed, parts)
        return
    count = available_cores()
    with processes_with(_begin, *arguments, count=count) as pool:
        yield from mapped(pool, _seal_in_process, parts, count)


class _DummySealer:
    """Seals the dummies of one round for everybody whom they pass."""

    def __init__(
        self,
        key: SealingPublicKey,
        task_id: bytes,
        message_size: int,
        version: int,
        round_keys: tuple[RoundPublicKey, ...],
        hop: int,
    ) -> None:
        self._sealer = Sealer(key, task_id, message_size, version)
        self._round_keys, self._hop = round_keys, hop

    def sealed(self, part: bytes) -> bytes:
        """The sealed messages of concatenated packed ones."""
        size = self._sealer.message_size
        packed = [part[start : start + size] for start in range(0, len(part), size)]
        sealed = self._sealer.seal(packed, len(packed))
        return b"".join(add_layers(sealed, self._round_keys, self._sealer.task_id, after=self._hop))


_process_sealer: list[_DummySealer] = []


def _begin(*arguments: Any) -> None:
    _process_sealer.append(_DummySealer(*arguments))


def _seal_in_process(part: bytes) -> bytes:
    return _process_sealer[0].sealed(part)
