"""Layers of a chain: every message is sealed once more for each shuffler after the first, the last one innermost.

A layer is an HPKE seal (RFC 9180) to the round key of its shuffler. Its context has the index of the shuffler and the
task, so that a layer opens at its own hop and round only. What is inside stays sealed to the analyzer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cryptography.exceptions import InvalidTag

from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey
from shuffledp.collection.wire.recipient import Recipient
from shuffledp.collection.wire.sealing import LAYER_SIZE, SUITE

_LABEL = b"shuffledp layer v2\x00shuffler\x00"


def layer_info(hop: int, task_id: bytes) -> bytes:
    """The context that a layer is bound to: version, recipient, index of the shuffler, task."""
    return _LABEL + bytes((hop,)) + task_id


def add_layers(
    sealed: Iterable[bytes], round_keys: Sequence[SealingPublicKey], task_id: bytes, *, after: int
) -> list[bytes]:
    """The messages under the layers of all shufflers after the one with the index ``after``.

    ``round_keys`` are those of all shufflers of the task.
    """
    messages = list(sealed)
    for hop in range(len(round_keys) - 1, after, -1):
        info, key = layer_info(hop, task_id), round_keys[hop].public
        messages = [SUITE.encrypt(message, key, info=info) for message in messages]
    return messages


class LayerOpener:
    """Opens the layers of one shuffler in one round."""

    def __init__(self, key: SealingKey, hop: int, task_id: bytes, record_size: int) -> None:
        """``record_size`` is the length of a message with its layer."""
        self._recipient = Recipient(key.secret, layer_info(hop, task_id))
        self._size = record_size

    @property
    def inner_size(self) -> int:
        """Bytes of a message without the layer."""
        return self._size - LAYER_SIZE

    def open(self, message: bytes) -> bytes | None:
        """The message without the layer; None if it was not sealed to this key, hop and task."""
        if len(message) != self._size:
            return None
        try:
            return self._recipient.open(message)
        except (InvalidTag, ValueError):
            return None
