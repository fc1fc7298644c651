"""Layers of a chain: every message is sealed once more for each shuffler after the first, the last one innermost.

A layer is an HPKE seal (RFC 9180) to the round key of its shuffler. Its context has the index of the shuffler and the
task, so that a layer opens at its own hop and round only. What is inside stays sealed to the analyzer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cryptography.exceptions import InvalidTag

from shuffledp.collection.wire.keys import HybridKey, RoundKey, RoundPublicKey
from shuffledp.collection.wire.outer_suites import suite_of
from shuffledp.collection.wire.recipient import Recipient

_LABEL = b"shuffledp layer v2\x00shuffler\x00"


def layer_info(hop: int, task_id: bytes) -> bytes:
    """The context that a layer is bound to: version, recipient, index of the shuffler, task."""
    return _LABEL + bytes((hop,)) + task_id


def add_layers(
    sealed: Iterable[bytes], round_keys: Sequence[RoundPublicKey], task_id: bytes, *, after: int
) -> list[bytes]:
    """The messages under the layers of all shufflers after the one with the index ``after``.

    ``round_keys`` are those of all shufflers of the task.
    """
    messages = list(sealed)
    for hop in range(len(round_keys) - 1, after, -1):
        info, key, suite = layer_info(hop, task_id), round_keys[hop].public, suite_of(round_keys[hop]).hpke
        messages = [suite.encrypt(message, key, info=info) for message in messages]
    return messages


class LayerOpener:
    """Opens the layers of one shuffler in one round."""

    def __init__(self, key: RoundKey, hop: int, task_id: bytes, record_size: int) -> None:
        """``record_size`` is the length of a message with its layer."""
        self._open = _opening(key, layer_info(hop, task_id))
        self._size, self._seal_size = record_size, suite_of(key).seal_size

    @property
    def inner_size(self) -> int:
        """Bytes of a message without the layer."""
        return self._size - self._seal_size

    def open(self, message: bytes) -> bytes | None:
        """The message without the layer; None if it was not sealed to this key, hop and task."""
        if len(message) != self._size:
            return None
        try:
            return self._open(message)
        except (InvalidTag, ValueError):
            return None


def _opening(key: RoundKey, info: bytes) -> Callable[[bytes], bytes]:
    """What opens a message that was sealed to a key with this info; InvalidTag or ValueError if it was not."""
    if isinstance(key, HybridKey):
        private, suite = key.private, suite_of(key).hpke
        return lambda message: suite.decrypt(message, private, info=info)
    return Recipient(key.secret, info).open
