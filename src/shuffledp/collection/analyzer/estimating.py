"""From what was counted to the estimate, also where some who took part did not follow the protocol.

Honest messages are always counted. What is missing or rejected comes from others, who could have sent any valid
message instead, so leaving it out gives them no more power than they have. The estimate is over as many users as the
counted messages can have come from: a report that says nothing counts like one that was never sent. So nobody can
stop by a broken report what would have been released without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shuffledp.collection.analyzer.tallying import Counted
from shuffledp.collection.task.task import Task
from shuffledp.errors import BelowMinimumError, ParameterError, ShuffledpError
from shuffledp.messages import Messages
from shuffledp.model import Tally

__all__ = ["NotReleasedError", "Result", "estimate_round"]


class NotReleasedError(ShuffledpError):
    """The round cannot be released; the text says why."""


@dataclass(frozen=True)
class Result:
    """The estimate of a round and what it was made from."""

    task: Task
    reports: int
    counted: Counted
    estimate: Any

    @property
    def users(self) -> int:
        """Over how many users the estimate is."""
        return int(self.estimate.users)

    def at(self, confidence: float) -> Result:
        """The same with its intervals found, once; NotReleasedError if anything in it is no number.

        To be asked before the budget is spent: what cannot be written down is not released.
        """
        found = self.estimate.intervals(confidence)
        told = self.estimate.to_document(confidence).values()
        numbers = (found, *(each for each in told if isinstance(each, float | np.ndarray)))
        if not all(np.isfinite(each).all() for each in numbers):
            raise NotReleasedError("The estimate is too large for a floating-point number; no other attempt can help.")
        return replace(self, estimate=replace(self.estimate, intervals=lambda _: found))


def estimate_round(task: Task, counted: Counted, reports: int) -> Result:
    """The estimate of a round of so many reports; NotReleasedError if there can be none."""
    protocol = task.protocol
    users = _users(task, counted, reports)
    if users < task.minimum_users:
        raise NotReleasedError(
            f"The messages that could be counted come from at most {users:,} of {reports:,} users; the guarantee rests "
            f"on {task.minimum_users:,}."
        )
    if counted.messages < reports * task.messages_per_report and protocol.fragile:
        raise NotReleasedError(
            f"{reports * task.messages_per_report - counted.messages:,} messages are missing or wrong, and a sum of "
            f"{protocol.name} says nothing unless all are there."
        )
    try:
        estimate = protocol.estimate(_completed(protocol, counted, users))
    except (ParameterError, BelowMinimumError) as error:
        raise NotReleasedError(f"There is no estimate for these messages. {error}") from None
    caveats = (*estimate.caveats, *_caveats(counted, reports, users))
    return Result(task, reports, counted, replace(estimate, guarantee=task.guarantee, caveats=caveats))


def _users(task: Task, counted: Counted, reports: int) -> int:
    """The most users that the counted messages can have come from, none of them twice."""
    protocol, each = task.protocol, _constant(task.protocol)
    if each is not None:
        return min(reports, -(-counted.messages // each))
    whole_reports_rejected = counted.refused // task.messages_per_report
    return min(reports - whole_reports_rejected, _MOST_USERS.get(_name(protocol), _any_number)(protocol, counted))


def _completed(protocol: Any, counted: Counted, users: int) -> Tally:
    """The tally as one of so many users: the last report completed with zeros, no category above all users."""
    tally = counted.tally
    each = _constant(protocol)
    missing = 0 if each is None else users * each - counted.messages
    if missing > 0:
        zeros = protocol.message_format.empty(missing)
        zeros[...] = 0
        tally = tally + protocol.tally(Messages(zeros, 0))
    counts = np.minimum(tally.counts, users) if _name(protocol) in _ONE_FROM_EACH else tally.counts
    return Tally(counts, users)


def _caveats(counted: Counted, reports: int, users: int) -> list[str]:
    caveats = []
    if users < reports:
        caveats.append(
            f"As many messages are missing as {reports - users:,} of {reports:,} reports hold; these are left out."
        )
    if counted.refused:
        caveats.append(f"{counted.refused:,} messages were rejected; honest ones never are.")
    return caveats


def _constant(protocol: Any) -> int | None:
    """The number of messages of every report, where it does not vary."""
    cost = protocol.cost
    return int(cost.max_messages_per_user) if cost.messages_per_user == cost.max_messages_per_user else None


def _name(protocol: Any) -> str:
    return f"{protocol.question}/{protocol.name}"


def _any_number(protocol: Any, counted: Counted) -> int:  # noqa: ARG001
    return 1 << 62


def _one_message(protocol: Any, counted: Counted) -> int:  # noqa: ARG001
    """Everybody sends at least one."""
    return counted.messages


def _blanket(protocol: Any, counted: Counted) -> int:
    """Everybody sends the own message and at least the whole ones of the blanket."""
    return counted.messages // (1 + int(protocol.blanket.whole))


def _own_signs(protocol: Any, counted: Counted) -> int:  # noqa: ARG001
    """Everybody sends a "+1"; the signs take turns in the tally."""
    return int(counted.tally.counts[::2].sum())


def _rows(protocol: Any, counted: Counted) -> int:
    """Everybody sends a cell of each row."""
    return int(counted.tally.counts.reshape(protocol.rows, -1).sum(axis=1).min())


def _signed(protocol: Any, counted: Counted) -> int:
    return counted.messages if protocol.encoding == "signed" else _any_number(protocol, counted)


_MOST_USERS: dict[str, Callable[[Any, Counted], int]] = {
    "count/correlated-noise": _signed,
    "histogram/balcer-cheu": _one_message,
    "histogram/uniform-blanket": _blanket,
    "histogram/hashed-blanket": _blanket,
    "histogram/hadamard-blanket": _blanket,
    "histogram/correlated-noise": _own_signs,
    "histogram/count-min": _rows,
    "sum/almost-central": _one_message,
}
"""From how many users messages can come at most, where their number varies."""

_ONE_FROM_EACH = ("histogram/cheu",)
"""No user sends a category twice, so that more than there are users is somebody's who sent one often."""
