"""k-ary randomized response: send the true category, or with some probability a uniform one.

Kairouz, Bonawitz and Ramage (2016); the simplest histogram of the local model. With probability ``blanket`` a user
sends a uniform category, else their own, so that the largest likelihood ratio is 1 + k (1 - blanket) / blanket.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Categories, Numbered
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.answers import AnswerHistogram
from shuffledp.protocols.parts.response import blanket_for, response_epsilon
from shuffledp.protocols.target import Target


@dataclass(frozen=True)
class KRandomizedResponse(AnswerHistogram):
    """A histogram by randomized response on all categories (Kairouz and others 2016); local, delta 0."""

    name: ClassVar[str] = "k-rr"
    trust: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """Locally epsilon-private; delta is not needed, and the paper's constants are optimal."""
        size, named = cls.domain_fields(domain)
        return cls(target.pure(), blanket_for(size, target.epsilon), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, computed from the probability that is sampled."""
        return self.target.local_guarantee(response_epsilon(self.domain_size, self.blanket), theorem="exact ratio")
