"""FE0 of Luo, Wang and Yi (2022): the true value, hidden by uniform values that users add.

Each user sends their value, ``whole`` uniform values, and one more with probability ``rest``. The total number of added
values is public, so the noise of a count is exactly binomial.

Accounting: ``shuffledp.privacy.amplification.uniform_blanket`` and ``shuffledp.privacy.amplification.clones``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.amplification import Slots, least_slots
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.guarantee import Guarantee, PrivacyCurve
from shuffledp.privacy.incomplete_beta import betainc, betaincc
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.blanket import (
    BLANKET_THEOREM,
    BlanketProtocol,
    blanket_offsets,
    blanket_report_pmf,
    paper_blanket_mean,
    slots_of,
)
from shuffledp.protocols.parts.linear import ErrorDistribution, FixedNoise, IndependentTerms, LinearAnalysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, binomial, integers, uniform_counts
from shuffledp.search import bisect

Floats = NDArray[np.float64]

_BLOCKS = 128


@dataclass(frozen=True)
class UniformBlanketHistogram(BlanketProtocol, HistogramProtocol):
    """A histogram of values in clear among uniform ones (Luo, Wang and Yi 2022, FE0); shuffled."""

    name: ClassVar[str] = "uniform-blanket"
    grows_with_domain: ClassVar[bool] = True

    blanket: Slots
    """Number of uniform values that each user adds."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The fewest uniform values that meet the target, or the number of the paper's theorem."""
        size, named = cls.domain_fields(domain)
        if size <= 1:
            slots = Slots(0, Dyadic(0))  # a single category reveals nothing
        elif target.calibration == "tight":
            slots = least_slots(target.honest_users, size, target.epsilon, target.delta)
        else:
            slots = slots_of(paper_blanket_mean(target.epsilon, target.delta) * size / target.honest_users)
        return cls(target, slots, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """From the uniform messages of the honest users; without the shuffler there is no guarantee."""
        curve: PrivacyCurve = PureCurve(0.0)
        if self.domain_size > 1:
            curve = self.blanket.curve(self.target.honest_users, self.domain_size)
        local = math.inf if self.domain_size > 1 else 0.0
        return self.target.guarantee(curve, theorem=BLANKET_THEOREM, local_epsilon=local)

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A category's index."""
        return MessageFormat((self.domain_size,))

    def report_pmf(self, value: int) -> Pmf:
        """The true value and every multiset of uniform ones."""
        owned = check_index(value, self.domain_size)
        return blanket_report_pmf({owned: Fraction(1)}, self.domain_size, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the number of messages does not depend on the values."""
        owned = check_indices(values, self.domain_size)
        offsets = blanket_offsets(len(owned), self.blanket, source)
        sent = integers(self.domain_size, int(offsets[-1]), source).astype(self.message_format.dtype)
        sent[offsets[:-1]] = owned
        return Messages(sent, len(owned), offsets, source.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts and all uniform values at once."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        added = users * self.blanket.whole + int(binomial(users, self.blanket.rest, 1, source)[0])
        return Tally(true + uniform_counts(added, self.domain_size, source), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: every user adds ``whole`` messages or one more."""
        added = int(tally.counts.sum()) - tally.users
        fewest = tally.users * self.blanket.whole
        largest = fewest + tally.users * (self.blanket.rest.numerator > 0)
        if not fewest <= added <= largest or len(tally.counts) != self.domain_size:
            raise ParameterError(
                f"{tally.users:,} users of this protocol send {fewest + tally.users:,} to {largest + tally.users:,} "
                f"messages about {self.domain_size:,} categories, not {added + tally.users:,} about "
                f"{len(tally.counts):,}.",
                messages=added + tally.users,
            )

    def analysis(self, users: int) -> LinearAnalysis:
        """The analysis before the total number of added values is observed."""
        return LinearAnalysis(
            offset=users * self.blanket.mean / self.domain_size,
            slope=1.0,
            error=_CentredNoise(users, self.blanket, self.domain_size),
            largest=users,
            numbers=self.domain_size,
        )

    def _checked(self, tally: Tally, estimator: str) -> LinearAnalysis:
        """The analysis given the number of added values, with which the noise of each count is binomial."""
        super()._checked(tally, estimator)
        added = int(tally.counts.sum()) - tally.users
        error: ErrorDistribution = IndependentTerms(0.0, 0.0, 0.0)
        if added and self.domain_size > 1:
            error = FixedNoise(Binomial(added, Dyadic.at_least(Fraction(1, self.domain_size), bits=160)))
        return LinearAnalysis(
            offset=added / self.domain_size,
            slope=1.0,
            error=error,
            largest=tally.users,
            numbers=self.domain_size,
        )


@dataclass(frozen=True)
class _CentredNoise:
    """The distribution of N - T/cells: T = users whole + Bin(users, rest) uniform messages, N of them in one cell."""

    users: int
    blanket: Slots
    cells: int

    def variance(self, truth: Floats) -> Floats:
        """The variance: given T, the error has mean 0 and the variance of Bin(T, 1/cells)."""
        variance = self.users * self.blanket.mean * (1 - 1 / self.cells) / self.cells
        return np.full(np.shape(truth), variance)

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """The noise does not depend on the truth."""
        width = self.radius(risk, 0.0)
        return estimate - width, estimate + width

    def radius(self, risk: float, largest_truth: float) -> float:  # noqa: ARG002
        """The least distance that the error exceeds with a probability of at most the risk."""
        if self.cells == 1 or self.blanket.mean == 0:
            return 0.0
        lowest, highest, mass, omitted_mass = self._blocks(risk)
        high = 1.0
        while self._risk_of(high, lowest, highest, mass) + omitted_mass > risk:
            high *= 2
        return bisect(
            lambda distance: self._risk_of(distance, lowest, highest, mass) + omitted_mass <= risk,
            0.0,
            high,
            relative=1e-6,
            absolute=1e-6,
        )

    def _blocks(self, risk: float) -> tuple[Floats, Floats, Floats, float]:
        """The values of T in blocks: the least and the largest of each, their masses, and the mass left out."""
        fixed = float(self.users * self.blanket.whole)
        if self.blanket.rest.is_certain:
            total = np.array([fixed + self.users * float(self.blanket.rest)])
            return total, total, np.ones(1), 0.0
        distribution = Binomial(self.users, self.blanket.rest)
        omitted_mass = max(1e-9 * risk, 1e-300)
        first = distribution.least_with_lower_tail(omitted_mass)
        last = self.users - distribution.mirrored.least_with_lower_tail(omitted_mass)
        step = -(-(last - first + 1) // _BLOCKS)
        starts = np.arange(first, last + 1, step, dtype=np.int64)
        ends = np.minimum(starts + step - 1, last)
        mass = np.maximum(distribution.lower_tail(ends) - distribution.lower_tail(starts - 1), 0.0)
        return starts.astype(np.float64) + fixed, ends.astype(np.float64) + fixed, mass, 2 * omitted_mass

    def _risk_of(
        self,
        distance: float,
        lowest: Floats,
        highest: Floats,
        mass: Floats,
    ) -> float:
        """Upper bound on the probability of an error beyond the distance, on either side."""
        above = _upper_tail(highest, 1 / self.cells, np.floor(lowest / self.cells + distance) + 1)
        below = _lower_tail(lowest, 1 / self.cells, np.ceil(highest / self.cells - distance))
        return float(mass @ (above + below))


def _upper_tail(trials: Floats, rate: float, k: Floats) -> Floats:
    """Pr[Bin(trials, rate) >= k], entry by entry."""
    inner = np.clip(k, 1, np.maximum(trials, 1))
    tail = betainc(inner, np.maximum(trials, 1) - inner + 1, rate)
    return np.where(k <= 0, 1.0, np.where(k > trials, 0.0, tail))


def _lower_tail(trials: Floats, rate: float, k: Floats) -> Floats:
    """Pr[Bin(trials, rate) < k], entry by entry."""
    inner = np.clip(k, 1, np.maximum(trials, 1))
    tail = betaincc(inner, np.maximum(trials, 1) - inner + 1, rate)
    return np.where(k <= 0, 0.0, np.where(k > trials, 1.0, tail))
