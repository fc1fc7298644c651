"""The target of a calibration: users, epsilon, delta, honest fraction and how the noise is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from shuffledp.checks import MAX_USERS, check_claim, check_target, check_users
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.privacy.calibration import CALIBRATIONS, honest_count
from shuffledp.privacy.guarantee import Guarantee, PrivacyCurve, delta_to_check
from shuffledp.privacy.pure import PureCurve


@dataclass(frozen=True)
class Target:
    """What a protocol is calibrated for: ``users``, ``epsilon``, ``delta``, ``honest_fraction``, ``calibration``.

    Only the fraction of honest users adds noise. Delta is 0 if it is not needed.

    >>> target = sdp.Target(users=10_000, epsilon=1.0, delta=1e-6)
    >>> sdp.BalcerCheuHistogram.calibrate(target=target, domain=sdp.Categories(("bus", "bike", "car"))).users
    10000
    """

    users: int
    epsilon: float
    delta: float
    honest_fraction: float = 1.0
    calibration: str = "given"

    def __post_init__(self) -> None:
        if not 1 <= self.users <= MAX_USERS or not 0 < self.honest_fraction <= 1:
            raise ParameterError(
                f"users must lie between 1 and {MAX_USERS:,} and honest_fraction in (0, 1]; "
                f"got users={self.users}, honest_fraction={self.honest_fraction}."
            )
        if self.honest_users < 1:
            raise ParameterError(
                f"{self.honest_fraction:g} of {self.users:,} users leaves no honest user; at least 1 is needed.",
                honest_fraction=self.honest_fraction,
            )
        check_claim(self.epsilon, self.delta)

    @classmethod
    def of(
        cls, *, users: int, epsilon: float, delta: float, honest_fraction: float = 1.0, calibration: str = "tight"
    ) -> Self:
        """A checked target: all numbers are in range and there are at least 2 honest users."""
        check_target(epsilon, delta)
        check_users(users, honest_fraction)
        if calibration not in CALIBRATIONS:
            raise UnknownNameError(
                f"There is no calibration {calibration!r}; choose one of {', '.join(CALIBRATIONS)}.",
                calibration=calibration,
            )
        honest = honest_count(users, honest_fraction)
        if honest < 2:
            raise ParameterError(
                f"{honest_fraction:g} of {users:,} users leaves {honest} honest; at least 2 are needed.", honest=honest
            )
        return cls(users, float(epsilon), float(delta), float(honest_fraction), calibration)

    @property
    def honest_users(self) -> int:
        """Number of users whom the guarantee assumes to be honest."""
        return honest_count(self.users, self.honest_fraction)

    def pure(self) -> Target:
        """The same target with delta = 0, for noise that does not need a delta."""
        return replace(self, delta=0.0)

    def local_guarantee(self, local_epsilon: float, *, theorem: str) -> Guarantee:
        """The guarantee of locally private reports, which does not depend on other users."""
        if not local_epsilon <= self.epsilon:
            raise ParameterError(
                f"These parameters give epsilon = {local_epsilon:.6g}, more than the claimed {self.epsilon:g}.",
                achieved=local_epsilon,
                claimed=self.epsilon,
            )
        return Guarantee(
            epsilon=0.0 if local_epsilon == 0 else self.epsilon,
            delta=self.delta,
            users=self.users,
            honest_users=1,
            curve=PureCurve(local_epsilon),
            theorem=theorem,
            local_epsilon=local_epsilon,
            trust="local",
        )

    def guarantee(
        self, curve: PrivacyCurve, *, theorem: str, local_epsilon: float = math.inf, trust: str = "shuffled"
    ) -> Guarantee:
        """The guarantee with this curve; ParameterError if the target does not hold.

        If reports do not depend on values at all (a local epsilon of 0), epsilon and delta are 0.
        """
        achieved = delta_to_check(curve, self.epsilon, self.delta)
        if not achieved <= self.delta:
            raise ParameterError(
                f"These parameters give delta = {achieved:.4g} at epsilon = {self.epsilon:g}, "
                f"which is more than the claimed {self.delta:g}.",
                achieved=achieved,
                claimed=self.delta,
            )
        reveals_nothing = local_epsilon == 0 and curve.delta_at(0.0) == 0
        return Guarantee(
            epsilon=0.0 if reveals_nothing else self.epsilon,
            delta=0.0 if reveals_nothing else self.delta,
            users=self.users,
            honest_users=1 if trust in ("central", "augmented") else self.honest_users,  # other users add no noise
            curve=curve,
            theorem=theorem,
            local_epsilon=local_epsilon,
            trust=trust,
        )
