"""Sample size of a share: the fewest users with whom the mean of a population's bits is known within a given error.

Users are a random sample of a population, and each holds a bit. The estimate has to lie within ``within`` of the
population's mean with a given probability, whatever the mean is. Sampling and the protocol both err.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, InfeasibleError, MissingPackageError, ParameterError
from shuffledp.planning.planner import Limits
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import PROTOCOLS

_SPLITS = (0.02, 0.1, 0.3)
"""The shares of the failure probability that the protocol's own error gets."""
_MAX_USERS = 10**9


@dataclass(frozen=True)
class ShareSampleSize:
    """The fewest users for a share, and the calibrated protocol that needs them."""

    users: int
    protocol: Protocol
    radius: float
    """The proven error of the share: at most ``within``."""

    def to_json(self) -> dict[str, Any]:
        """The numbers and the name of the protocol."""
        return {
            "users": self.users,
            "protocol": self.protocol.name,
            "model": self.protocol.trust,
            "radius": self.radius,
        }


def users_for_share(
    *, within: float, probability: float, epsilon: float, delta: float, trust: str = "shuffled"
) -> ShareSampleSize:
    """The fewest users (to 0.1 per cent) with whom a population's share is known within ``within``.

    The error is proven to stay below ``within`` with at least the given probability, for every share. The protocol is
    the one of the trust model that needs the fewest.
    """
    check_target(epsilon, delta)
    limits = Limits(trust)
    if not (0 < within < 0.5 and 0 < probability < 1):
        raise ParameterError(
            f"within must lie in (0, 1/2) and the probability in (0, 1); got {within} and {probability}.",
            within=within,
            probability=probability,
        )
    best: ShareSampleSize | None = None
    for kind in PROTOCOLS["count"].values():
        if kind.trust != limits.trust:
            continue
        most = _MAX_USERS if best is None else best.users - 1
        size = _fewest(kind, within, 1 - probability, (epsilon, delta), most)
        best = size or best
    if best is None:
        raise InfeasibleError(
            f"No protocol of the {trust} model estimates a share within {within:g} with probability {probability:g} "
            f"at epsilon = {epsilon:g} and delta = {delta:g} with {_MAX_USERS:,} users or fewer.",
            within=within,
        )
    return best


def share_radius(protocol: Protocol, failure: float) -> float:
    """The error of the population's share that is exceeded with probability at most ``failure``, whatever the share.

    Hoeffding's inequality for the sample, plus the largest error of the protocol at the remaining probability. If
    every user sends one bit, the messages themselves are independent, and Hoeffding's inequality covers both at once.
    """
    users = protocol.users
    radii = [
        _hoeffding(users, (1 - split) * failure)
        + protocol.expected_error(confidence=1 - split * failure).max_error / users
        for split in _SPLITS
    ]
    if protocol.trust != "central" and protocol.cost.max_messages == 1 and protocol.message_format.bits == 1:
        slope = float(protocol.analysis(users).slope)
        radii.append(_hoeffding(users, failure) / slope)
    return min(radii)


def _hoeffding(users: int, failure: float) -> float:
    return math.sqrt(math.log(2 / failure) / (2 * users))


def _fewest(
    kind: type[Protocol], within: float, failure: float, target: tuple[float, float], most: int
) -> ShareSampleSize | None:
    """The fewest users of one protocol, up to ``most``; None if they are not enough."""
    epsilon, delta = target
    sizes: dict[int, ShareSampleSize] = {}

    def enough(users: int) -> bool:
        try:
            protocol = kind.calibrate(users=users, epsilon=epsilon, delta=delta)
        except (InfeasibleError, ConditionError, MissingPackageError):
            return False
        radius = share_radius(protocol, failure)
        if radius <= within:
            sizes[users] = ShareSampleSize(users, protocol, radius)
        return radius <= within

    # no protocol has a smaller proven radius than a sample without privacy
    low = max(2, math.floor(math.log(2 / failure) / (2 * within**2)))
    if low > most:
        return None
    high = low
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return sizes[high]
