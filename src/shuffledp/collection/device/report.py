"""From one value to one sealed report: randomized, padded, mixed, sealed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import REPORT_ID_SIZE, ReportFormat
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import PolicyError
from shuffledp.randomness import SYSTEM
from shuffledp.shuffling import permute

_MOST_DRAWS = 1000


def sealed_report(task: Task, value: Any) -> bytes:
    """A fresh report on a value (a category, yes or no, a number): randomized, padded, mixed and sealed.

    Call it once for one person: a second report on the same value tells more than the guarantee allows.
    """
    messages = _randomized(task, encoded(task, value))
    packed = [row.tobytes() for row in task.protocol.message_format.pack(messages)]
    sealer = Sealer(task.analyzer, task.id, task.message_size)
    sealed = sealer.seal(packed, task.messages_per_report)
    order = np.arange(len(sealed))
    permute(order)  # the places of messages and dummies say nothing
    return ReportFormat.of(task).build(os.urandom(REPORT_ID_SIZE), [sealed[place] for place in order.tolist()])


def encoded(task: Task, value: Any) -> Any:
    """The value as the randomizer takes it: an index, a bit, or a place in the interval; else a DomainError."""
    return task.protocol.domain.encode(value)


def _randomized(task: Task, value: Any) -> Any:
    """The messages of one report; drawn again while they are more than a report holds (see ``privacy.capping``)."""
    for _ in range(_MOST_DRAWS):
        messages = task.protocol.randomize(value, source=SYSTEM)
        if len(messages) <= task.messages_per_report:
            return messages
    raise PolicyError("The protocol of this task nearly always sends more messages than its reports hold.")
