"""A sum from one bit per user in the local model: Duchi, Jordan and Wainwright (2013, 2018).

A number at position t of its interval becomes a bit that is 1 with probability 1/2 + (2 t - 1) (1/2 - f), where f is
the least probability of a bit.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval, check_positions
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.response import blanket_for, response_epsilon
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, round_randomly


@dataclass(frozen=True)
class DuchiSum(SingleMessageProtocol, SumProtocol):
    """A sum from one randomized bit per user (Duchi, Jordan and Wainwright 2018); local, delta 0."""

    name: ClassVar[str] = "duchi"
    trust: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    blanket: Dyadic
    """The probability of sending a fair coin; otherwise the number is rounded at random to an end of its interval."""
    domain: Interval

    @classmethod
    def for_target(cls, target: Target, domain: Interval) -> Self:
        """Locally epsilon-private; delta is not needed."""
        return cls(target.pure(), blanket_for(2, target.epsilon), domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy; the two ends of the interval are the worst case."""
        return self.target.local_guarantee(response_epsilon(2, self.blanket), theorem="exact ratio")

    @property
    def message_format(self) -> MessageFormat:
        """A bit."""
        return MessageFormat((2,))

    def report_pmf(self, value: float) -> Pmf:
        """One bit, which is 1 with probability blanket / 2 + (1 - blanket) t."""
        one = self.blanket.fraction / 2 + self.blanket.complement.fraction * Fraction(value)
        return {(1, 0): 1 - one, (0, 1): one}

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        bits = round_randomly(check_positions(values), source)
        uniform = np.flatnonzero(bernoulli(self.blanket, len(bits), source))
        bits[uniform] = bernoulli(Dyadic(1, 1), len(uniform), source)
        return one_message_each(bits.astype(np.uint8), source)

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the number of ones; the variance is largest in the middle of the interval."""
        slope = float(self.blanket.complement)
        return LinearAnalysis(
            offset=users * float(self.blanket) / 2,
            slope=slope,
            error=IndependentTerms(users / 4 / slope**2, 0.0, 1 / slope),
            largest=users,
        )

    def variance(self, values: NDArray[np.float64]) -> float:
        """The variance of the bits."""
        slope = float(self.blanket.complement)
        one = float(self.blanket) / 2 + slope * values
        return float(np.sum(one * (1 - one))) / slope**2
