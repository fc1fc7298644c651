"""Opening of sealed messages; only the analyzer has the key, and only the analyzer imports this module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag

from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.recipient import Recipient
from shuffledp.collection.wire.sealing import DUMMY, MESSAGE, sealed_size, sealing_info


@dataclass(frozen=True)
class Opened:
    """The contents of sealed messages: packed messages, number of dummies, numbers of rejected ones by reason."""

    messages: list[bytes]
    dummies: int
    rejected: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Opener:
    """Opens the messages of one task."""

    key: SealingKey
    task_id: bytes
    message_size: int
    version: int = 1
    """The version of the task."""

    def open(self, sealed: Iterable[bytes]) -> Opened:
        """Open each message separately; rejected ones are counted by reason."""
        recipient = Recipient(self.key.secret, sealing_info(self.task_id, self.version))
        length, blank = sealed_size(self.message_size), bytes(self.message_size)
        messages: list[bytes] = []
        rejected: Counter[str] = Counter()
        dummies = 0
        for message in sealed:
            if len(message) != length:
                rejected["wrong-size"] += 1
                continue
            try:
                content = recipient.open(message)
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
