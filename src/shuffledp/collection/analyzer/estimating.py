"""From what was counted to the estimate, also where some who took part did not follow the protocol.

Honest messages are always counted. What is missing or rejected comes from others, who could have sent any valid
message instead, so leaving it out gives them no more power than they have. The estimate is over as many users as the
counted messages can have come from: a report that says nothing counts like one that was never sent. So nobody can
stop by a broken report what would have been released without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.task.task import Task
from shuffledp.errors import BelowMinimumError, ParameterError, ShuffledpError
from shuffledp.estimate import Estimate
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import Protocol


class NotReleasedError(ShuffledpError):
    """The round cannot be released; the text says why."""


@dataclass(frozen=True)
class Result:
    """The estimate of a round and what it was made from."""

    task: Task
    reports: int
    counted: Counted
    estimate: Estimate

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
    bound = task.protocol.most_users(counted.tally, counted.messages)
    if task.protocol.constant_messages is None:
        reports -= counted.refused // task.messages_per_report  # reports rejected as a whole
    return reports if bound is None else min(reports, bound)


def _completed(protocol: Protocol, counted: Counted, users: int) -> Tally:
    """The tally as one of so many users: the last report completed with zeros, no category above all users."""
    tally, constant = counted.tally, protocol.constant_messages
    missing = 0 if constant is None else users * constant - counted.messages
    if missing > 0:
        zeros = protocol.message_format.empty(missing)
        zeros[...] = 0
        tally = tally + protocol.tally(Messages(zeros, 0))
    return protocol.without_excess(Tally(tally.counts, users))


def _caveats(counted: Counted, reports: int, users: int) -> list[str]:
    caveats = []
    if users < reports:
        caveats.append(
            f"As many messages are missing as {reports - users:,} of {reports:,} reports hold; these are left out."
        )
    if counted.refused:
        caveats.append(f"{counted.refused:,} messages were rejected; honest ones never are.")
    return caveats
