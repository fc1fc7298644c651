"""Warner's randomized response (1965): tell the truth with probability 1/2 + gamma, else the opposite.

Here a user sends a fair coin with probability ``blanket`` = 1 - 2 gamma, and the truth otherwise. It is private
for each user alone, epsilon = ln((1/2 + gamma) / (1/2 - gamma)), at the price of an error that grows with
the square root of the users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts, check_index, check_indices
from shuffledp.model import Cost, Law, MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.kinds import CountProtocol, one_message_each
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.response import (
    blanket_for,
    respond,
    response_analysis,
    response_epsilon,
    response_law,
    sample_responses,
)
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

__all__ = ["RandomizedResponse"]


@dataclass(frozen=True)
class RandomizedResponse(CountProtocol):
    """The protocol with its public parameters."""

    name: ClassVar[str] = "randomized-response"
    model: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    terms: Terms
    blanket: Dyadic
    """The probability of sending a fair coin."""

    @classmethod
    def calibrate(
        cls, *, users: int, epsilon: float, delta: float, calibration: str = "tight", honest_fraction: float = 1.0
    ) -> Self:
        """Epsilon-private for each user alone, with gamma = tanh(epsilon / 2) / 2; delta is not needed."""
        terms = Terms.of(
            users=users, epsilon=epsilon, delta=delta, honest_fraction=honest_fraction, calibration=calibration
        )
        return cls(terms.pure(), blanket_for(2, epsilon))

    @property
    def gamma(self) -> float:
        """How much likelier than a fair coin the truth is."""
        return float(self.blanket.complement) / 2

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, from the probability that is really sampled."""
        return self.terms.local_guarantee(response_epsilon(2, self.blanket), theorem="exact ratio")

    @property
    def cost(self) -> Cost:
        """One bit."""
        return Cost(1.0, 1, 1)

    @property
    def message_format(self) -> MessageFormat:
        """A bit."""
        return MessageFormat((2,))

    def report_law(self, value: int) -> Law:
        """One bit: the truth, or a fair coin."""
        return response_law(check_index(value, 2), 2, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        bits = respond(check_indices(values, 2), 2, self.blanket, source)
        return one_message_each(bits.astype(np.uint8), source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """Everybody's answer at once, without an order."""
        return sample_responses(check_counts(counts, 2), self.blanket, source)

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the number of ones; the variance is the same for every true count."""
        return response_analysis(users, 2, self.blanket, numbers=1)
