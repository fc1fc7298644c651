"""Sealing: each message is encrypted separately to the analyzer with HPKE (RFC 9180), so that no other party reads it.

A sealed message is the encapsulated key (32 bytes), the encrypted content and the tag (16 bytes). The content is one
byte that tells a message (1) from a dummy (0), then the packed message, zeros for a dummy. All sealed messages of a
task have one length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from shuffledp.collection.wire.keys import KEY_SIZE, SealingPublicKey
from shuffledp.errors import ParameterError

SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
SUITE_NAME = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
DUMMY, MESSAGE = b"\x00", b"\x01"
_TAG_SIZE = 16
LAYER_SIZE = KEY_SIZE + _TAG_SIZE
"""Bytes that a seal adds: the encapsulated key and the tag."""
_LABELS = {1: b"shuffledp message v1", 2: b"shuffledp message v2"}


def sealing_info(task_id: bytes, version: int = 1) -> bytes:
    """The context that a sealed message is bound to: the version of the format, the task, and the recipient."""
    if len(task_id) != 32:
        raise ParameterError(f"A task id has 32 bytes, not {len(task_id)}.")
    return _LABELS[version] + b"\x00analyzer\x00" + task_id


def sealed_size(message_size: int) -> int:
    """Bytes of a sealed message whose packed form has ``message_size`` bytes."""
    return KEY_SIZE + len(MESSAGE) + message_size + _TAG_SIZE


@dataclass(frozen=True)
class Sealer:
    """Seals the messages of one task."""

    key: SealingPublicKey
    task_id: bytes
    message_size: int
    version: int = 1
    """The version of the task."""

    def seal(self, packed: Iterable[bytes], count: int) -> list[bytes]:
        """Seal the messages and dummies up to ``count``, each separately."""
        contents = [MESSAGE + message for message in packed]
        if len(contents) > count:
            raise ParameterError(f"A report has at most {count:,} messages, not {len(contents):,}.")
        if any(len(content) != 1 + self.message_size for content in contents):
            raise ParameterError(f"Every packed message of this task has {self.message_size} bytes.")
        contents += [DUMMY + bytes(self.message_size)] * (count - len(contents))
        info, public = sealing_info(self.task_id, self.version), self.key.public
        return [SUITE.encrypt(content, public, info=info) for content in contents]
