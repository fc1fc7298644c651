"""k-ary randomized response: tell the truth, or with some probability name any category at random.

Kairouz, Bonawitz and Ramage (2016); the local model's simplest histogram. With probability ``blanket`` a
user sends a uniform category, else their own, so that the likelihood ratio of any two is
1 + k (1 - blanket) / blanket.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, check_counts, check_index, check_indices
from shuffledp.model import Cost, Law, MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.kinds import HistogramProtocol, one_message_each
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

__all__ = ["KRandomizedResponse"]


@dataclass(frozen=True)
class KRandomizedResponse(HistogramProtocol):
    """The protocol with its public parameters."""

    name: ClassVar[str] = "k-rr"
    model: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    terms: Terms
    blanket: Dyadic
    """The probability of sending a uniform category whatever one's own is."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def calibrate(
        cls,
        *,
        users: int,
        epsilon: float,
        delta: float,
        domain_size: int | None = None,
        categories: Categories | Iterable[str] | None = None,
        calibration: str = "tight",
        honest_fraction: float = 1.0,
    ) -> Self:
        """Epsilon-private for each user alone; delta is not needed, and the paper's constants are the least ones."""
        size, named = cls.sizes(domain_size, categories)
        terms = Terms.of(
            users=users, epsilon=epsilon, delta=delta, honest_fraction=honest_fraction, calibration=calibration
        )
        return cls(terms.pure(), blanket_for(size, epsilon), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, from the probability that is really sampled."""
        return self.terms.local_guarantee(response_epsilon(self.domain_size, self.blanket), theorem="exact ratio")

    @property
    def cost(self) -> Cost:
        """One category."""
        return Cost(1.0, 1, self.message_format.bits)

    @property
    def message_format(self) -> MessageFormat:
        """A category's index."""
        return MessageFormat((self.domain_size,))

    def report_law(self, value: int) -> Law:
        """One message: the own category, or any."""
        return response_law(check_index(value, self.domain_size), self.domain_size, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        answers = respond(owned, self.domain_size, self.blanket, source)
        return one_message_each(answers.astype(self.message_format.dtype), source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """Everybody's answer at once, without an order."""
        return sample_responses(check_counts(counts, self.domain_size), self.blanket, source)

    def analysis(self, users: int) -> LinearAnalysis:
        """A category is sent by its holders with probability p, by others with q."""
        return response_analysis(users, self.domain_size, self.blanket)
