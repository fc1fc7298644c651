"""From one value to one sealed report: randomized, padded, mixed, sealed."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from shuffledp.collection.sealing import Sealer
from shuffledp.collection.task import Task
from shuffledp.collection.wire import REPORT_ID_SIZE, ReportFormat
from shuffledp.domain import BIT, check_index
from shuffledp.errors import DomainError, PolicyError
from shuffledp.randomness import SYSTEM
from shuffledp.shuffling import permute

__all__ = ["encoded", "sealed_report"]

_MOST_DRAWS = 1000
_WHOLE = re.compile("0|[1-9][0-9]{0,18}")


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
    protocol = task.protocol
    if protocol.question == "sum":
        return float(protocol.domain.places([value])[0])
    if protocol.question == "count":
        return int(BIT.indices([value])[0])
    if isinstance(value, str):
        return _category(protocol, value)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise DomainError(f"A category is its name or its index, not {value!r}.")
    return check_index(int(value), protocol.domain_size)


def _category(protocol: Any, name: str) -> int:
    if protocol.categories is not None:
        return int(protocol.categories.index(name))
    if not _WHOLE.fullmatch(name):  # without names, "0", "1", ... are the names: not listed, there may be 10^9
        raise DomainError(f"{name!r} is not one of the {protocol.domain_size:,} categories, which are numbered.")
    return check_index(int(name), protocol.domain_size)


def _randomized(task: Task, value: Any) -> Any:
    """The messages of one report; drawn again while they are more than a report holds (see ``privacy.capping``)."""
    for _ in range(_MOST_DRAWS):
        messages = task.protocol.randomize(value, source=SYSTEM)
        if len(messages) <= task.messages_per_report:
            return messages
    raise PolicyError("The protocol of this task nearly always sends more messages than its reports hold.")
