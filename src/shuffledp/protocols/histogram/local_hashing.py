"""Local hashing: randomized response on the hash of the category, with a new hash function per user.

Wang, Blocki, Li and Jha (2017). Each user draws a public hash function, hashes their category to one of a few buckets,
and sends the function with a randomized bucket. A report supports every category that hashes to its bucket. The
optimised number of buckets, e^epsilon + 1, minimizes the error of rare categories. In the affine family two categories
collide with a probability close, but not equal, to 1/buckets; the analyzer uses the exact probability.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.hashed_reports import HashedHistogram
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.response import blanket_for, respond, response_epsilon
from shuffledp.protocols.parts.single_message import (
    SingleMessageProtocol,
    check_listed,
    one_message_each,
    single_message_pmf,
)
from shuffledp.protocols.parts.supports import check_supports, support_analysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource


@dataclass(frozen=True)
class LocalHashing(SingleMessageProtocol, HashedHistogram):
    """A histogram by randomized response on a hash (Wang and others 2017, OLH); local, delta 0.

    Options of ``calibrate``:

    - ``buckets``: the range of the hash functions; by default the one with the least error.
    """

    name: ClassVar[str] = "local-hashing"
    trust: ClassVar[str] = "local"

    blanket: Dyadic
    """The probability of sending a uniform bucket instead of the true one."""
    hashes: AffineHashes
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hashes.prime < self.domain_size:
            raise ParameterError(
                f"{self.domain_size:,} categories need a prime of at least that size, not {self.hashes.prime:,}.",
                prime=self.hashes.prime,
            )

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, buckets: int | None = None) -> Self:
        """Locally epsilon-private; delta is not needed. By default with the number of buckets of least error."""
        size, named = cls.domain_fields(domain)
        hashes = AffineHashes.for_domain(size, _best_buckets(target.epsilon, size) if buckets is None else buckets)
        return cls(target.pure(), blanket_for(hashes.buckets, target.epsilon), hashes, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy: the function is independent of the value, and the bucket is randomized response."""
        return self.target.local_guarantee(response_epsilon(self.hashes.buckets, self.blanket), theorem="exact ratio")

    def report_pmf(self, value: int) -> Pmf:
        """A uniform function with the value's bucket, or any bucket."""
        index = check_index(value, self.domain_size)
        check_listed(self.message_format.codes)
        factor, shift, sent = self.message_format.message(np.arange(self.message_format.codes)).T
        true = self.hashes.apply(factor, shift, np.array([index])) == sent
        functions = math.prod(self.hashes.bounds)
        other = self.blanket.fraction / self.hashes.buckets
        own = other + self.blanket.complement.fraction
        return single_message_pmf([Fraction(own if is_own else other) / functions for is_own in true.tolist()])

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        factor, shift = self.hashes.draw(len(owned), source)
        hashed = self.hashes.apply(factor, shift, owned).astype(np.int64)
        messages = self.message_format.empty(len(owned))
        messages[:, 0], messages[:, 1] = factor, shift
        messages[:, 2] = respond(hashed, self.hashes.buckets, self.blanket, source)
        return one_message_each(messages, source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: at most one report per user supports a category."""
        check_supports(tally, self.domain_size)

    def analysis(self, users: int) -> LinearAnalysis:
        """A category is supported by its holders, by holders of colliding categories, and by random buckets."""
        uniform = self.blanket.fraction / self.hashes.buckets
        own = uniform + self.blanket.complement.fraction
        other = uniform + self.blanket.complement.fraction * self.hashes.collision
        return support_analysis(users, self.domain_size, float(own), float(other))


def _best_buckets(epsilon: float, domain_size: int) -> int:
    """e^epsilon + 1, rounded as in the paper, but at most the number of categories."""
    return max(2, min(round(math.exp(min(epsilon, 30.0))) + 1, domain_size))
