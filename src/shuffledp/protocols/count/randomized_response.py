"""Warner's randomized response (1965): send the true bit with probability 1/2 + gamma, else the opposite.

Equivalently, a user sends a fair coin with probability ``blanket`` = 1 - 2 gamma, and the true bit otherwise. It is
locally private with epsilon = ln((1/2 + gamma) / (1/2 - gamma)); its error grows with the square root of the number of
users.

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
        """Locally epsilon-private, with gamma = tanh(epsilon / 2) / 2; delta is not needed."""
        return cls(target.pure(), blanket_for(2, target.epsilon))

    @property
    def gamma(self) -> float:
        """The probability of the true bit, minus 1/2."""
        return float(self.blanket.complement) / 2

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, computed from the probability that is sampled."""
        return self.target.local_guarantee(response_epsilon(2, self.blanket), theorem="exact ratio")
