"""What a plan costs in a collection: padded and sealed reports, and the influence of one device; plans ranked by it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from shuffledp.collection.task.task import best_carriers, padded_protocol
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.sealing import LAYER_SIZE, sealed_size
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.planning import Plan, Question
from shuffledp.protocols.protocol import Protocol

MAXIMUM_PER_MINIMUM = 10
"""By default, the maximum number of users of a task is this many times the minimum."""
_SEAL_SECONDS = 80e-6  # that one core takes for a message, about
EQUAL_ERRORS = 1.1
"""Errors that differ by less than this factor are treated as equal when plans are ranked by their cost."""


@dataclass(frozen=True)
class CarrierCost:
    """The reports of carriers, who add the noise of all."""

    probability: float
    """The probability of being a carrier."""
    messages: int
    report_bytes: int
    minimum: int
    """Minimum number of carriers in a round."""

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "probability": self.probability,
            "messages_per_report": self.messages,
            "bytes_per_report": self.report_bytes,
            "minimum": self.minimum,
        }


@dataclass(frozen=True)
class CollectionCost:
    """What a plan costs in a collection, and what one dishonest device can do to it."""

    messages: int
    """Messages of every report, dummies included; if there are carriers, of the reports of the others."""
    report_bytes: int
    """Bytes of such a report, sealed."""
    moved: float
    """The largest difference that one report can make to an estimate; infinite if it is unbounded."""
    dummies: float = 0.0
    """Expected number of dummies that an augmented shuffler seals in every round."""
    carriers: CarrierCost | None = None
    """The longer reports of carriers, if there are any."""

    @property
    def messages_per_user(self) -> float:
        """Messages of a report on average."""
        return self._average(self.messages, self.carriers.messages if self.carriers else 0)

    @property
    def bytes_per_user(self) -> float:
        """Bytes of a report on average."""
        return self._average(self.report_bytes, self.carriers.report_bytes if self.carriers else 0)

    def _average(self, usual: int, of_carriers: int) -> float:
        return usual + self.carriers.probability * (of_carriers - usual) if self.carriers else usual

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; an infinite influence becomes null."""
        return {
            "messages_per_report": self.messages,
            "bytes_per_report": self.report_bytes,
            "moved_by_one_report": self.moved if math.isfinite(self.moved) else None,
            "dummies_per_round": self.dummies,
            "messages_per_user": self.messages_per_user,
            "bytes_per_user": self.bytes_per_user,
            "carriers": None if self.carriers is None else self.carriers.to_json(),
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
    users = MAXIMUM_PER_MINIMUM * question.users if maximum_users is None else maximum_users
    settings = _settings(plan, question, honest_fraction)
    try:
        padded, messages = padded_protocol(
            type(protocol), settings, epsilon=protocol.target.epsilon, delta=delta, maximum_users=users
        )
        moved = padded.moved_by_report(messages)
    except (ParameterError, InfeasibleError, ConditionError) as error:
        return str(error)
    moved = moved / question.users if question.name == "mean" else moved
    roles = padded.carrier_roles
    is_outer = padded.trust == "augmented" or roles is not None  # then tasks have wire version 2
    if roles is None:
        return CollectionCost(messages, _report_bytes(padded, messages, is_outer), moved, padded.mean_dummies)
    carriers = CarrierCost(
        float(roles.carrier_probability),
        messages,
        _report_bytes(padded, messages, is_outer),
        roles.minimum(padded.target.users, padded.target.honest_users),
    )
    usual = padded.min_messages_per_user
    return CollectionCost(usual, _report_bytes(padded, usual, is_outer), moved, carriers=carriers)


def with_carriers(
    plan: Plan,
    question: Question,
    *,
    delta: float,
    honest_fraction: float = 1.0,
    maximum_users: int | None = None,
) -> Plan | None:
    """The plan with carriers whose reports have the fewest messages on average; None if carriers save nothing.

    Its error is that of the expected number of carriers. Plans of several releases have none: their noise is calibrated
    for the composition of the form without carriers.
    """
    protocol, settings = plan.protocol, _settings(plan, question, honest_fraction)
    users = MAXIMUM_PER_MINIMUM * question.users if maximum_users is None else maximum_users
    if plan.releases > 1 or protocol.needs_trusted_party or protocol.carrier_roles is not None:
        return None
    try:
        probability = best_carriers(
            type(protocol), settings, epsilon=protocol.target.epsilon, delta=delta, maximum_users=users
        )
        if probability is None:
            return None
        carried = type(protocol).calibrate(
            epsilon=protocol.target.epsilon, delta=delta, carriers=probability, **settings
        )
    except (ParameterError, InfeasibleError, ConditionError):
        return None
    return replace(
        plan,
        protocol=carried,
        expected=carried.expected_error(confidence=plan.expected.confidence),
        setting={**plan.setting, "carriers": probability},
        why="a few users, chosen by coins, add the noise of all",
    )


def _settings(plan: Plan, question: Question, honest_fraction: float) -> dict[str, Any]:
    return {
        **question.settings(),
        "honest_fraction": honest_fraction,
        "calibration": plan.calibration,
        **plan.setting,
    }


def _report_bytes(protocol: Protocol, messages: int, is_outer: bool) -> int:
    size = ReportFormat(bytes(32), messages, sealed_size(int(protocol.message_format.size))).size
    return size + LAYER_SIZE if is_outer else size


def ranked_by_cost(costs: Iterable[tuple[Plan, CollectionCost]]) -> list[tuple[Plan, CollectionCost]]:
    """The plans, best first: by error, and where errors are equal within ten per cent by bytes, then by influence.

    Plans in which the influence of one report is unbounded come last.
    """
    listed = list(costs)
    least = min((plan.expected.rmse for plan, _ in listed), default=0.0)

    def key(entry: tuple[Plan, CollectionCost]) -> tuple[bool, int, float, float, float]:
        plan, cost = entry
        error = plan.expected.rmse
        times = math.floor(math.log(error / least) / math.log(EQUAL_ERRORS) + 1e-9) if least > 0 else int(error > 0)
        return math.isinf(cost.moved), times, cost.bytes_per_user, cost.moved, error

    return sorted(listed, key=key)
