"""Estimation from counted messages, even if some users did not follow the protocol.

Honest messages are always counted. Missing and rejected messages come from dishonest users, who could have sent any
valid message instead, so leaving these out gives them no additional influence. The estimate is over the largest number
of users from whom the counted messages can come: an empty report counts like one that was never sent. Therefore nobody
can prevent a release by sending a broken report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.task.task import Task
from shuffledp.domain import Strings
from shuffledp.errors import BelowMinimumError, ParameterError, ShuffledpError
from shuffledp.estimate import Estimate, Floats, Intervals, StringsEstimate
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.strings.protocol import StringsProtocol

SHUFFLER_LEARNS = (
    "The shuffler added dummies and knows how many: from this publication it learns the counts without that noise, but "
    "not who holds which value."
)
"""The caveat of every release of an augmented protocol with one shuffler."""
SHUFFLERS_LEARN = (
    "Each of the shufflers added dummies and knows how many: from this publication it learns the counts with the noise "
    "of the others only."
)
"""The same with a chain of shufflers."""


class NotReleasedError(ShuffledpError):
    """The round cannot be released, for the reason in the message."""


@dataclass(frozen=True)
class Result:
    """The estimate of a round, and the counts behind it."""

    task: Task
    reports: int
    counted: Counted
    estimate: Estimate

    @property
    def users(self) -> int:
        """The number of users that the estimate is over."""
        return int(self.estimate.users)

    def at(self, confidence: float) -> Result:
        """The result with its intervals computed once; NotReleasedError if any number is not finite.

        Call it before the budget is spent: a release must be representable in its published forms.
        """
        intervals = self.estimate.intervals(confidence)
        published = self.estimate.to_document(confidence).values()
        numbers = (intervals, *(value for value in published if isinstance(value, float | np.ndarray)))
        if not all(np.isfinite(number).all() for number in numbers):
            raise NotReleasedError("The estimate is too large for a floating-point number; retrying cannot help.")
        computed_once = partial(_intervals_at, {confidence: intervals}, self.estimate.intervals)
        return replace(self, estimate=replace(self.estimate, intervals=computed_once))

    def without(self, blocked: Collection[str]) -> Result:
        """The result without found strings that are on a public block list, normalized as devices do."""
        domain = self.task.protocol.domain
        if not blocked or not isinstance(self.estimate, StringsEstimate) or not isinstance(domain, Strings):
            return self
        return replace(self, estimate=self.estimate.without({domain.normalized(text) for text in blocked}))


def _intervals_at(computed: Mapping[float, Floats], intervals: Intervals, confidence: float) -> Floats:
    return computed[confidence] if confidence in computed else intervals(confidence)


def estimate_round(
    task: Task, counted: Counted, reports: int, *, carriers: int = 0, proceed: Callable[[], None] = lambda: None
) -> Result:
    """The estimate of a round with ``reports`` reports; NotReleasedError if none is possible.

    ``carriers`` of them are those of carriers, who determine how much noise there is, if the task has carriers.
    ``proceed`` is called from time to time during a long search for strings; an exception of it ends the search.
    """
    protocol = task.protocol.with_shufflers(task.hops)
    users = _users_of_augmented(counted, reports) if protocol.trust == "augmented" else _users(task, counted, reports)
    if users < task.minimum_users:
        raise NotReleasedError(
            f"The messages that could be counted come from at most {users:,} of {reports:,} users; the guarantee "
            f"requires {task.minimum_users:,}."
        )
    if task.carriers is not None:
        carriers -= counted.total_rejected // task.max_messages_per_report
        if carriers < task.carriers.minimum:
            raise NotReleasedError(
                f"The messages that could be counted come from at most {carriers:,} carriers; the guarantee requires "
                f"{task.carriers.minimum:,}."
            )
        protocol = protocol.given_carriers(carriers)
    if counted.messages < reports * task.messages_per_report and protocol.fragile:
        raise NotReleasedError(
            f"{reports * task.messages_per_report - counted.messages:,} messages are missing or invalid, and "
            f"{protocol.name} has no estimate unless all messages are counted."
        )
    try:
        estimate = _estimate(protocol, _completed(protocol, counted, users), proceed)
    except (ParameterError, BelowMinimumError) as error:
        raise NotReleasedError(f"There is no estimate for these messages. {error}") from None
    caveats = (*estimate.caveats, *_caveats(counted, reports, users))
    if protocol.trust == "augmented":
        caveats = (*caveats, SHUFFLER_LEARNS if task.hops == 1 else SHUFFLERS_LEARN)
    return Result(task, reports, counted, replace(estimate, guarantee=task.guarantee, caveats=caveats))


def _estimate(protocol: Protocol, tally: Tally, proceed: Callable[[], None]) -> Estimate:
    if isinstance(protocol, StringsProtocol):
        return protocol.find_strings(tally, progress=lambda _: proceed())
    estimate: Estimate = protocol.estimate(tally)
    return estimate


def _users(task: Task, counted: Counted, reports: int) -> int:
    """The largest number of users from whom the counted messages can come."""
    bound = task.protocol.most_users(counted.tally, counted.messages)
    if task.protocol.constant_messages is None:
        reports -= counted.total_rejected // task.max_messages_per_report  # reports rejected as a whole
    return reports if bound is None else min(reports, bound)


def _users_of_augmented(counted: Counted, reports: int) -> int:
    """The number of users whose messages were counted or left out of the shuffler's sample.

    Every report has one message. The shuffler's own are valid, so each rejected or empty message is one user's.
    """
    return reports - counted.total_rejected - counted.dummies


def _completed(protocol: Protocol, counted: Counted, users: int) -> Tally:
    """The tally as one of ``users`` users: incomplete reports are filled with zeros, categories capped at ``users``."""
    if protocol.trust == "augmented":
        return Tally(counted.tally.counts, users, released=True)
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
            f"The missing messages amount to {reports - users:,} of {reports:,} reports, which are left out."
        )
    if counted.total_rejected:
        caveats.append(f"{counted.total_rejected:,} messages were rejected; messages of honest users never are.")
    return caveats
