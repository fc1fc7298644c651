"""Padding: dummies make the number of messages the same in every report of a task, so that it reveals nothing.

If the number of messages is unbounded, a cap is chosen that is rarely exceeded; a report that would exceed it
is drawn again, and the privacy cost of that is added to delta.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shuffledp.errors import ParameterError
from shuffledp.privacy.capping import CappedCurve
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.protocol import Protocol
from shuffledp.search import least_integer

DELTA_FOR_CAP = 0.01
"""The part of delta that is reserved for reports that exceed a cap."""
LARGEST_CAP = 1 << 16
"""Maximum messages of a report, including dummies; a task with more is refused."""


def is_unbounded(protocol: Protocol) -> bool:
    """Whether the number of messages of a report has no bound."""
    return protocol.cost.max_messages_per_user is None


def least_cap(protocol: Protocol, *, users: int, epsilon: float, delta: float) -> int:
    """The number of messages of every report: the maximum, or the least cap that costs at most ``delta``."""
    maximum = protocol.cost.max_messages_per_user
    if maximum is not None:
        return int(maximum)
    allowed = delta / ((1 + math.exp(epsilon)) * users)
    cap = least_integer(lambda messages: protocol.chance_of_more_messages(messages) <= allowed, limit=LARGEST_CAP)
    if cap is None:
        raise ParameterError(
            f"A report of {protocol.name} would have to be padded to more than {LARGEST_CAP:,} messages to hide "
            "their number; choose a protocol with a bounded number of messages."
        )
    return cap


def capped_guarantee(protocol: Protocol, *, cap: int, users: int, epsilon: float, delta: float) -> Guarantee:
    """The guarantee of a round of at most ``users`` reports of ``cap`` messages, recomputed from the parameters.

    Raises ParameterError if (epsilon, delta) does not hold.
    """
    guarantee: Guarantee = protocol.guarantee
    maximum = protocol.cost.max_messages_per_user
    if maximum is not None and cap != maximum:
        raise ParameterError(f"A report of this protocol has {maximum:,} messages, not {cap:,}.", reason="inconsistent")
    curve = (
        guarantee.curve
        if maximum is not None
        else CappedCurve(guarantee.curve, users, protocol.chance_of_more_messages(cap))
    )
    achieved = curve.delta_at(epsilon)
    if not achieved <= delta:
        raise ParameterError(
            f"The parameters give delta = {achieved:.4g} at epsilon = {epsilon:g}, more than the claimed {delta:g}.",
            achieved=achieved,
            claimed=delta,
            reason="bad-guarantee",
        )
    return replace(guarantee, epsilon=epsilon, delta=delta, curve=curve)
