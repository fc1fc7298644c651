"""k-ary randomized response: tell the truth, or with some probability name any category at random.

Kairouz, Bonawitz and Ramage (2016); the local model's simplest histogram. With probability ``blanket`` a
user sends a uniform category, else their own, so that the likelihood ratio of any two is
1 + k (1 - blanket) / blanket.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Categories
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.answers import AnswerHistogram
from shuffledp.protocols.parts.response import (
    blanket_for,
    response_epsilon,
)
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import Dyadic

__all__ = ["KRandomizedResponse"]


@dataclass(frozen=True)
class KRandomizedResponse(AnswerHistogram):
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
