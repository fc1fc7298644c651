"""Warner's randomized response (1965): tell the truth with probability 1/2 + gamma, else the opposite.

Here a user sends a fair coin with probability ``blanket`` = 1 - 2 gamma, and the truth otherwise. It is private
for each user alone, epsilon = ln((1/2 + gamma) / (1/2 - gamma)), at the price of an error that grows with
the square root of the users.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.answers import AnswerCount
from shuffledp.protocols.parts.response import (
    blanket_for,
    response_epsilon,
)
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class RandomizedResponse(AnswerCount):
    """A count by randomized response, one bit per user (Warner 1965); local, delta 0."""

    name: ClassVar[str] = "randomized-response"
    trust: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    blanket: Dyadic
    """The probability of sending a fair coin."""

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """Epsilon-private for each user alone, with gamma = tanh(epsilon / 2) / 2; delta is not needed."""
        return cls(target.pure(), blanket_for(2, target.epsilon))

    @property
    def gamma(self) -> float:
        """How much likelier than a fair coin the truth is."""
        return float(self.blanket.complement) / 2

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, from the probability that is really sampled."""
        return self.target.local_guarantee(response_epsilon(2, self.blanket), theorem="exact ratio")
