"""What a plan costs in a collection: padded and sealed reports, and the influence of one device; plans ranked by it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shuffledp.collection.task.task import padded_protocol
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.outer_seal import OUTER_SIZE
from shuffledp.collection.wire.sealing import sealed_size
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.planning import Plan, Question

MAXIMUM_PER_MINIMUM = 10
"""By default, the maximum number of users of a task is this many times the minimum."""
_SEAL_SECONDS = 80e-6  # that one core takes for a message, about
EQUAL_ERRORS = 1.1
"""Errors that differ by less than this factor are treated as equal when plans are ranked by their cost."""


@dataclass(frozen=True)
class CollectionCost:
    """What a plan costs in a collection, and what one dishonest device can do to it."""

    messages: int
    """Messages of every report, dummies included."""
    report_bytes: int
    """Bytes of every report, sealed."""
    moved: float
    """The largest difference that one report can make to an estimate; infinite if it is unbounded."""
    dummies: float = 0.0
    """Expected number of dummies that an augmented shuffler seals in every round."""

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; an infinite influence becomes null."""
        return {
            "messages_per_report": self.messages,
            "bytes_per_report": self.report_bytes,
            "moved_by_one_report": self.moved if math.isfinite(self.moved) else None,
            "dummies_per_round": self.dummies,
        }


def sealing_time(dummies: float) -> str:
    """About how long one core takes to seal the dummies of a shuffler, in words."""
    seconds = dummies * _SEAL_SECONDS
    return "less than a second" if seconds < 1 else f"about {seconds:,.0f} s"


def collection_cost(
    plan: Plan,
    question: Question,
    *,
    delta: float,
    honest_fraction: float = 1.0,
    maximum_users: int | None = None,
) -> CollectionCost | str:
    """The cost of the plan as a task with this delta; or why there is no such task, in a sentence.

    Every report is padded to the same number of messages for a round of at most ``maximum_users`` users.
    """
    protocol = plan.protocol
    if protocol.needs_trusted_party:
        return "It needs a trusted party, so it cannot be collected."
    settings = {
        **question.settings(),
        "honest_fraction": honest_fraction,
        "calibration": plan.calibration,
        **plan.setting,
    }
    try:
        padded, messages = padded_protocol(
            type(protocol),
            settings,
            epsilon=protocol.target.epsilon,
            delta=delta,
            maximum_users=MAXIMUM_PER_MINIMUM * question.users if maximum_users is None else maximum_users,
        )
        moved = padded.moved_by_report(messages)
    except (ParameterError, InfeasibleError, ConditionError) as error:
        return str(error)
    size = ReportFormat(bytes(32), messages, sealed_size(int(padded.message_format.size))).size
    if padded.trust == "augmented":
        size += OUTER_SIZE  # its tasks have wire version 2
    moved = moved / question.users if question.name == "mean" else moved
    return CollectionCost(messages, size, moved, padded.mean_dummies)


def ranked_by_cost(costs: Iterable[tuple[Plan, CollectionCost]]) -> list[tuple[Plan, CollectionCost]]:
    """The plans, best first: by error, and where errors are equal within ten per cent by bytes, then by influence.

    Plans in which the influence of one report is unbounded come last.
    """
    listed = list(costs)
    least = min((plan.expected.rmse for plan, _ in listed), default=0.0)

    def key(entry: tuple[Plan, CollectionCost]) -> tuple[bool, int, int, float, float]:
        plan, cost = entry
        error = plan.expected.rmse
        times = math.floor(math.log(error / least) / math.log(EQUAL_ERRORS) + 1e-9) if least > 0 else int(error > 0)
        return math.isinf(cost.moved), times, cost.report_bytes, cost.moved, error

    return sorted(listed, key=key)
