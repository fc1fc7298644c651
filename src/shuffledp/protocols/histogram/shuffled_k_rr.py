"""Shuffled k-ary randomized response: one category per user, the true one with high probability.

Balle, Bell, Gascon and Nissim (2019), Theorem 3.1. With probability ``blanket`` a user sends a uniform category, else
their own; the uniform categories hide the true ones. With many users a much smaller blanket suffices than without a
shuffler.

Accounting: ``shuffledp.privacy.amplification.randomized_response``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Categories, Numbered
from shuffledp.errors import ConditionError
from shuffledp.privacy.amplification import RandomizedResponseCurve, least_blanket
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.answers import AnswerHistogram
from shuffledp.protocols.parts.response import response_epsilon
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class ShuffledKRandomizedResponse(AnswerHistogram):
    """A histogram by randomized response, one message per user (Balle and others 2019); shuffled."""

    name: ClassVar[str] = "shuffled-k-rr"

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The least blanket that meets the target, or that of Theorem 3.1."""
        size, named = cls.domain_fields(domain)
        if size <= 1:
            return cls(target, Dyadic(0), size, named)  # a single category reveals nothing
        if target.calibration == "tight":
            return cls(target, least_blanket(target.honest_users, size, target.epsilon, target.delta), size, named)
        share = size * theorem_31_mean(target.epsilon, target.delta) / (target.honest_users - 1)
        if share >= 1:
            raise ConditionError(
                f"Theorem 3.1 needs more than k max(14 ln(2/delta)/epsilon^2, 27/epsilon) = "
                f"{share * (target.honest_users - 1):,.0f} honest users for k = {size:,} values; "
                f"given {target.honest_users:,}. The tight calibration needs fewer.",
                users=target.honest_users,
                values=size,
            )
        return cls(target, Dyadic.at_least(share), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The minimum of all proved bounds, at the probability that is sampled."""
        curve = RandomizedResponseCurve(self.target.honest_users, self.blanket, self.domain_size)
        local = response_epsilon(self.domain_size, self.blanket) if self.domain_size > 1 else 0.0
        return self.target.guarantee(curve, theorem=curve.theorem, local_epsilon=local)


def theorem_31_mean(epsilon: float, delta: float) -> float:
    """The number of uniform reports that each value needs by Balle et al. (2019), Theorem 3.1; for epsilon <= 1."""
    if epsilon > 1:
        raise ConditionError(
            f"Theorem 3.1 needs epsilon <= 1, not {epsilon:g}; the tight calibration has no such limit.",
            epsilon=epsilon,
        )
    return max(14 * math.log(2 / delta) / epsilon**2, 27 / epsilon)
