"""Unary encoding: one bit per category, each flipped at random.

In the symmetric variant (basic RAPPOR: Erlingsson, Pihur and Korolova 2014) every bit has the same flip probability. In
the optimised variant (Wang, Blocki, Li and Jha 2017) the bit of the user's category is a fair coin, so that the other
bits need less noise. Replacing a value changes two bits, so the likelihood ratio is at most (p / q) ((1 - q) / (1 -
p)), where a 1 is sent with probability p for the user's category and q for others.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.protocols.parts.category_noise import Responses
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.questions import HistogramProtocol, one_message_each
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials

VARIANTS = ("optimised", "symmetric")

_CHUNK_BITS = 1 << 22
_LARGEST_TABLE = 1 << 10


@dataclass(frozen=True)
class UnaryEncoding(HistogramProtocol):
    """A histogram from one flipped bit per category (Wang and others 2017; RAPPOR); local, delta 0.

    Options of ``calibrate``:

    - ``variant``: ``optimised``, or ``symmetric`` as in basic RAPPOR.
    """

    name: ClassVar[str] = "unary"
    trust: ClassVar[str] = "local"
    independent_categories: ClassVar[bool] = True
    grows_with_domain: ClassVar[bool] = True

    own_one: Dyadic
    """The probability of sending a 1 for one's own category."""
    other_one: Dyadic
    """The probability of sending a 1 for any other."""
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.other_one.fraction < self.own_one.fraction < 1:
            raise ParameterError(
                f"A 1 must be likelier for the own category than for others, and neither certain: "
                f"{self.own_one} and {self.other_one} are not.",
                own_one=self.own_one,
                other_one=self.other_one,
            )

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """With few categories, where many users hold each, the symmetric variant is the more accurate one."""
        size, _ = cls.sizes(settings.get("domain_size"), settings.get("categories"))
        root = math.exp(min(settings["epsilon"] / 2, 100.0))
        return ({"variant": "symmetric"},) if size < (root + 1) ** 2 / root else ()

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, variant: str = "optimised") -> Self:
        """Epsilon-private for each user alone; delta is not needed, and the paper's constants are the least ones."""
        size, named = cls.domain_fields(domain)
        return cls(target.pure(), *_least_noise(target.epsilon, variant), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy, from the probabilities that are really sampled."""
        return self.target.local_guarantee(_ratio_epsilon(self.own_one, self.other_one), theorem="exact ratio")

    @property
    def cost(self) -> Cost:
        """One message of a bit per category."""
        return Cost(1.0, 1, self.message_format.bits)

    @property
    def message_format(self) -> MessageFormat:
        """A bit per category."""
        return MessageFormat((), flags=self.domain_size)

    def report_pmf(self, value: int) -> Pmf:
        """Every row of bits with the product of their probabilities."""
        index = check_index(value, self.domain_size)
        check_table(self.message_format)
        rows = self.message_format.message(np.arange(self.message_format.codes)).reshape(-1, self.domain_size)
        ones = [self.own_one.fraction if place == index else self.other_one.fraction for place in range(rows.shape[1])]
        return single_message_pmf([_probability(row, ones) for row in rows.tolist()])

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        bits = bernoulli(self.other_one, len(owned) * self.domain_size, source)
        bits[np.arange(len(owned)) * self.domain_size + owned] = bernoulli(self.own_one, len(owned), source)
        rows = bits.view(np.uint8)
        return one_message_each(rows if self.domain_size == 1 else rows.reshape(-1, self.domain_size), source)

    def tally(self, messages: Messages) -> Tally:
        """How many ones each category got."""
        counts = np.zeros(self.domain_size, dtype=np.int64)
        step = max(1, _CHUNK_BITS // self.domain_size)
        for start in range(0, len(messages), step):
            chunk = self.message_format.check(messages.values[start : start + step])
            counts += np.count_nonzero(chunk.reshape(-1, self.domain_size), axis=0)
        return Tally(counts, messages.users, messages.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The ones of each category are independent: so many from its holders, so many from all others."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        ones = binomials(true, self.own_one, source) + binomials(users - true, self.other_one, source)
        return Tally(ones, users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Nobody sends two ones for a category."""
        check_supports(tally, self.domain_size)

    @property
    def category_noise(self) -> Responses:
        """The number of ones."""
        return Responses(self.own_one, self.other_one)

    def analysis(self, users: int) -> LinearAnalysis:
        """A category gets a 1 from its holders with probability p, from others with q."""
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
            raise ParameterError(f"epsilon = {epsilon:g} is too small for bits that tell anything.", epsilon=epsilon)
        if _ratio_epsilon(own, other) <= epsilon:
            return own, other
        other = Dyadic.at_least(other.fraction * (1 + Fraction(1, 1 << 48)))


def _ratio_epsilon(own: Dyadic, other: Dyadic) -> float:
    """ln(p (1 - q) / (q (1 - p))), rounded up."""
    likelier = own.numerator * other.complement.numerator
    return log_ratio_above(likelier, other.numerator * own.complement.numerator)


def _probability(row: list[int], ones: list[Fraction]) -> Fraction:
    """Of a row of independent bits."""
    return math.prod((one if bit else 1 - one for bit, one in zip(row, ones, strict=True)), start=Fraction(1))


def support_analysis(users: int, values: int, own: float, other: float) -> LinearAnalysis:
    """Estimates where a report supports its own value with one probability, and each other value with another."""
    slope = own - other
    return LinearAnalysis(
        offset=users * other,
        slope=slope,
        error=IndependentTerms(
            base_variance=users * other * (1 - other) / slope**2,
            variance_per_holder=(own * (1 - own) - other * (1 - other)) / slope**2,
            largest_term=1 / slope,
        ),
        largest=users,
        numbers=values,
    )


def check_supports(tally: Tally, values: int) -> None:
    """Refuse a tally in which a value has more supporters than there are users."""
    if len(tally.counts) != values or int(tally.counts.max()) > tally.users:
        raise ParameterError(f"A tally of {tally.users:,} users has {values:,} counts, each at most that number.")


def single_message_pmf(probabilities: Sequence[Fraction]) -> Pmf:
    """The distribution of a report of one message, from the probability of each code."""
    codes = range(len(probabilities))
    return {tuple(int(place == code) for place in codes): probabilities[code] for code in codes}


def check_table(form: MessageFormat) -> None:
    """Refuse to list the distributions of more messages than anybody would read."""
    if form.codes > _LARGEST_TABLE:
        raise ParameterError(
            f"A report takes more than {_LARGEST_TABLE:,} values, too many to list; use fewer categories."
        )
