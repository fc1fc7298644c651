"""Sample size of a share: the fewest users with whom the mean of a population's bits is known within a given error.

Users are a random sample of a population, and each holds a bit. The estimate has to lie within ``within`` of the
population's mean with a given probability, whatever the mean is. Sampling and the protocol contribute to the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, InfeasibleError, MissingPackageError, ParameterError
from shuffledp.planning.planner import Limits
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.search import bisect

_SPLITS = (0.02, 0.1, 0.3)
"""The shares of the failure probability that the protocol's own error gets."""
_MAX_USERS = 10**9
_NOISE_STEPS = 64


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
        limit = _MAX_USERS if best is None else best.users - 1
        size = _fewest(kind, within, 1 - probability, (epsilon, delta), limit)
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

    Hoeffding's inequality for the sample, plus the largest error of the protocol at the remaining probability. Where
    the protocol adds noise that does not depend on the data, the inequality is averaged over that noise. If every user
    sends one bit, the messages themselves are independent, and the inequality covers both errors at once.
    """
    users = protocol.users
    radii = [
        _hoeffding(users, (1 - split) * failure)
        + protocol.expected_error(confidence=1 - split * failure).max_error / users
        for split in _SPLITS
    ]
    analysis = protocol.analysis(users) if isinstance(protocol, CountProtocol) else None
    if isinstance(analysis, LinearAnalysis):
        cost, error = protocol.cost, analysis.error
        if not protocol.released_only and cost.max_messages_per_user == 1 and cost.bits_per_message == 1:
            radii.append(_hoeffding(users, failure) / analysis.slope)
        if isinstance(error, FixedNoise):
            radii.append(_radius_with_noise(error, users, failure, low=_hoeffding(users, failure), high=min(radii)))
    return min(radii)


def _radius_with_noise(error: FixedNoise, users: int, failure: float, *, low: float, high: float) -> float:
    noise = error.noise

    def beyond(distance: float) -> float:
        """The probability that the noise is further from its mean than ``distance`` users."""
        reach = distance / error.step
        above = float(noise.upper_tail(math.floor(noise.mean + reach) + 1))
        return above + float(noise.lower_tail(math.ceil(noise.mean - reach) - 1))

    def fails(radius: float) -> float:
        """Upper bound on the probability that sample and noise together exceed ``radius``: noise is rounded up."""
        steps = [radius * users * number / _NOISE_STEPS for number in range(_NOISE_STEPS + 1)]
        tails = [1.0, *map(beyond, steps)]
        masses = [max(0.0, first - second) for first, second in pairwise(tails)]
        left = [radius - step / users for step in steps]
        return tails[-1] + sum(
            mass * min(1.0, 2 * math.exp(-2 * users * rest**2)) for mass, rest in zip(masses, left, strict=True)
        )

    return bisect(lambda radius: fails(radius) <= failure, low, high, relative=1e-4)


def _hoeffding(users: int, failure: float) -> float:
    return math.sqrt(math.log(2 / failure) / (2 * users))


def _fewest(
    kind: type[Protocol], within: float, failure: float, target: tuple[float, float], max_users: int
) -> ShareSampleSize | None:
    """The fewest users of one protocol, up to ``max_users``; None if they are not enough."""
    epsilon, delta = target

    def size_of(users: int) -> ShareSampleSize | None:
        try:
            protocol = kind.calibrate(users=users, epsilon=epsilon, delta=delta)
        except (InfeasibleError, ConditionError, MissingPackageError):
            return None
        return ShareSampleSize(users, protocol, share_radius(protocol, failure))

    # no protocol has a smaller proven radius than a sample without privacy
    low = max(1, math.ceil(math.log(2 / failure) / (2 * within**2)) - 1)
    best: ShareSampleSize | None = None
    point = low + 1
    while low < max_users and (best is None or best.users - low > max(1, best.users // 1000)):
        size = size_of(point)
        if size is not None and size.radius <= within:
            best = size
        else:
            low = point
        # radii shrink like the square root of the users, or a little faster
        guess = 2 * point if size is None else math.ceil(1.0003 * point * (size.radius / within) ** 2)
        high = max_users + 1 if best is None else best.users
        point = guess if low < guess < high else (low + high) // 2 if best else min(2 * point, max_users)
    return best
