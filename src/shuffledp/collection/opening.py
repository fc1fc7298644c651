"""Opening sealed messages: only the analyzer holds the key, and only the analyzer imports this file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shuffledp.collection.keys import SealingKey
from shuffledp.collection.sealing import DUMMY, MESSAGE, SUITE, sealed_size, sealing_info

__all__ = ["Opened", "Opener"]


@dataclass(frozen=True)
class Opened:
    """What was in sealed messages: the packed messages, how many dummies, and what was refused and why."""

    messages: list[bytes]
    dummies: int
    rejected: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Opener:
    """Opens the messages of one task."""

    key: SealingKey
    task_id: bytes
    message_size: int

    def open(self, sealed: Iterable[bytes]) -> Opened:
        """Open each on its own; what cannot be opened or is malformed is counted by its reason."""
        private = X25519PrivateKey.from_private_bytes(self.key.secret)
        info = sealing_info(self.task_id)
        length, blank = sealed_size(self.message_size), bytes(self.message_size)
        messages: list[bytes] = []
        rejected: Counter[str] = Counter()
        dummies = 0
        for each in sealed:
            if len(each) != length:
                rejected["wrong-size"] += 1
                continue
            try:
                content = SUITE.decrypt(each, private, info=info)
            except (InvalidTag, ValueError):
                rejected["cannot-be-opened"] += 1
                continue
            if content[:1] == MESSAGE:
                messages.append(content[1:])
            elif content[:1] == DUMMY and content[1:] == blank:
                dummies += 1
            else:
                rejected["malformed"] += 1
        return Opened(messages, dummies, rejected)
