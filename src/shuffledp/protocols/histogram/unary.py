"""Unary encoding: one bit per category, each flipped at random.

In the symmetric variant (basic RAPPOR: Erlingsson, Pihur and Korolova 2014) every bit has the same flip probability. In
the optimised variant (Wang, Blocki, Li and Jha 2017) the bit of the user's category is a fair coin, so that the other
bits need less noise. Replacing a value changes two bits, so the likelihood ratio is at most (p / q) ((1 - q) / (1 -
p)), where a 1 is sent with probability p for the user's category and q for others.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.messages import Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.protocols.parts.bit_rows import BitRowHistogram
from shuffledp.protocols.parts.category_noise import Responses
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.single_message import (
    SingleMessageProtocol,
    check_listed,
    one_message_each,
    single_message_pmf,
)
from shuffledp.protocols.parts.supports import check_supports, support_analysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials

VARIANTS = ("optimised", "symmetric")


@dataclass(frozen=True)
class UnaryEncoding(SingleMessageProtocol, BitRowHistogram):
    """A histogram from one flipped bit per category (Wang and others 2017; RAPPOR); local, delta 0.

    Options of ``calibrate``:

    - ``variant``: ``optimised``, or ``symmetric`` as in basic RAPPOR.
    """

    name: ClassVar[str] = "unary"
    trust: ClassVar[str] = "local"
    independent_categories: ClassVar[bool] = True
    grows_with_domain: ClassVar[bool] = True

    own_one: Dyadic
    """The probability of sending a 1 for the user's category."""
    other_one: Dyadic
    """The probability of sending a 1 for any other category."""
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.other_one.fraction < self.own_one.fraction < 1:
            raise ParameterError(
                f"The probabilities of a 1 must satisfy 0 < other_one < own_one < 1; got own_one={self.own_one} and "
                f"other_one={self.other_one}.",
                own_one=self.own_one,
                other_one=self.other_one,
            )

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """The symmetric variant, which is more accurate for few categories with many users each."""
        size, _ = cls.sizes(settings.get("domain_size"), settings.get("categories"))
        root = math.exp(min(settings["epsilon"] / 2, 100.0))
        return ({"variant": "symmetric"},) if size < (root + 1) ** 2 / root else ()

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, variant: str = "optimised") -> Self:
        """Locally epsilon-private; delta is not needed, and the paper's constants are optimal."""
        size, named = cls.domain_fields(domain)
        return cls(target.pure(), *_least_noise(target.epsilon, variant), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, computed from the probabilities that are sampled."""
        return self.target.local_guarantee(_ratio_epsilon(self.own_one, self.other_one), theorem="exact ratio")

    def report_pmf(self, value: int) -> Pmf:
        """Every row of bits with the product of their probabilities."""
        index = check_index(value, self.domain_size)
        check_listed(self.message_format.codes)
        rows = self.message_format.message(np.arange(self.message_format.codes)).reshape(-1, self.domain_size)
        ones = [self.other_one.fraction] * self.domain_size
        ones[index] = self.own_one.fraction
        return single_message_pmf([_probability(row, ones) for row in rows.tolist()])

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        bits = bernoulli(self.other_one, len(owned) * self.domain_size, source)
        bits[np.arange(len(owned)) * self.domain_size + owned] = bernoulli(self.own_one, len(owned), source)
        rows = bits.view(np.uint8)
        return one_message_each(rows if self.domain_size == 1 else rows.reshape(-1, self.domain_size), source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """Independent binomial numbers of ones from the holders of each category and from the others."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        ones = binomials(true, self.own_one, source) + binomials(users - true, self.other_one, source)
        return Tally(ones, users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: at most one 1 per user and category."""
        check_supports(tally, self.domain_size)

    @property
    def category_noise(self) -> Responses:
        """The distribution of the number of ones of a category."""
        return Responses(self.own_one, self.other_one)

    def analysis(self, users: int) -> LinearAnalysis:
        """Holders send a 1 for a category with probability p, others with q."""
        return support_analysis(users, self.domain_size, float(self.own_one), float(self.other_one))


def _least_noise(epsilon: float, variant: str) -> tuple[Dyadic, Dyadic]:
    """The probabilities of a 1 for the own category and for others, rounded towards privacy."""
    if variant not in VARIANTS:
        raise UnknownNameError(f"There is no variant {variant!r}; choose one of {', '.join(VARIANTS)}.")
    exponent = epsilon if variant == "optimised" else epsilon / 2
    other = Dyadic.at_least(1 / (1 + math.exp(min(exponent, 100.0))))
    while True:
        own = Dyadic(1, 1) if variant == "optimised" else other.complement
        if own.fraction <= other.fraction:
            raise ParameterError(f"epsilon = {epsilon:g} is too small: the bits would be uniform.", epsilon=epsilon)
        if _ratio_epsilon(own, other) <= epsilon:
            return own, other
        other = Dyadic.at_least(other.fraction * (1 + Fraction(1, 1 << 48)))


def _ratio_epsilon(own: Dyadic, other: Dyadic) -> float:
    """ln(p (1 - q) / (q (1 - p))), rounded up."""
    likelier = own.numerator * other.complement.numerator
    return log_ratio_above(likelier, other.numerator * own.complement.numerator)


def _probability(row: list[int], ones: list[Fraction]) -> Fraction:
    """The probability of a row of independent bits."""
    return math.prod((one if bit else 1 - one for bit, one in zip(row, ones, strict=True)), start=Fraction(1))
