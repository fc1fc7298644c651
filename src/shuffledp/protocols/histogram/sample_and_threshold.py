"""Sample and threshold, Bharadwaj and Cormode (2022): privacy from taking part at random, without any noise.

Every user sends their category with probability ps, else a dummy, and the shuffler passes on only
categories that occurred often enough. That is more than shuffling: the raw messages are **not**
private, and the shuffler must remove dummies and small counts before anyone sees them. In return
no category is ever shown that nobody holds.
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

from shuffledp.domain import Categories, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.model import Cost, Law, MessageFormat, Messages, Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.thresholding import (
    SampleAndThreshold,
    best_sampling,
    least_threshold,
    paper_sampling,
    sampled_error,
)
from shuffledp.protocols.kinds import HistogramProtocol, one_message_each
from shuffledp.protocols.parts.linear import IndependentTerms
from shuffledp.protocols.parts.thresholded import (
    THRESHOLD_ESTIMATORS,
    ThresholdAnalysis,
    check_released,
    check_unreleased,
)
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials

__all__ = ["SampleAndThresholdHistogram"]


@dataclass(frozen=True)
class SampleAndThresholdHistogram(HistogramProtocol):
    """The protocol with its public parameters."""

    name: ClassVar[str] = "sample-and-threshold"
    estimators: ClassVar[tuple[str, ...]] = THRESHOLD_ESTIMATORS
    trusts_shuffler: ClassVar[bool] = True

    terms: Terms
    sampling: Dyadic
    """The probability of taking part."""
    threshold: int
    """The least count that is released."""
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
        sampling: float | Dyadic | None = None,
    ) -> Self:
        """The least threshold for ``sampling``; without it, the best for a category of average size.

        An average too small to be shown is no guide; then the best for a count of 10 ln(1/delta) / (1 - e^-epsilon).
        """
        size, named = cls.sizes(domain_size, categories)
        terms = Terms.of(
            users=users, epsilon=epsilon, delta=delta, honest_fraction=honest_fraction, calibration=calibration
        )
        if sampling is not None:
            taken = Dyadic.of(sampling)
            return cls(terms, taken, least_threshold(taken, epsilon, delta), size, named)
        if calibration == "paper":
            law = paper_sampling(epsilon, delta)
        else:
            shown = math.ceil(-10 * math.log(delta) / -math.expm1(-epsilon))
            law = best_sampling(epsilon, delta, max(users // max(size, 1), shown))
        return cls(terms, law.sampling, law.threshold, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of what the shuffler passes on; it does not rest on what other users do."""
        return self.terms.guarantee(
            SampleAndThreshold(self.sampling, self.threshold),
            theorem="certified numerically: divergence of sampled counts above a threshold; "
            "the shuffler must remove small counts before anyone sees them",
        )

    @property
    def cost(self) -> Cost:
        """One category or the dummy."""
        return Cost(1.0, 1, self.message_format.bits)

    @property
    def message_format(self) -> MessageFormat:
        """A category's index, or one more as the dummy."""
        return MessageFormat((self.domain_size + 1,))

    def report_law(self, value: int) -> Law:
        """The category or the dummy."""
        owned = check_index(value, self.domain_size)
        taken = self.sampling.fraction
        law: dict[tuple[int, ...], Fraction] = {}
        for sent, share in ((owned, taken), (self.domain_size, 1 - taken)):
            law[tuple(int(place == sent) for place in range(self.domain_size + 1))] = share
        return law

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        sent = np.where(bernoulli(self.sampling, len(owned), source), owned, self.domain_size)
        return one_message_each(sent.astype(self.message_format.dtype), source)

    def tally(self, messages: Messages) -> Tally:
        """How often each category was sent; dummies are dropped."""
        counted = super().tally(messages)
        return Tally(counted.counts[:-1], counted.users, counted.secure)

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:  # noqa: ARG002
        """What the shuffler passes on: counts from the threshold on, 0 for the rest."""
        check_unreleased(tally, self.domain_size)
        shown = np.where(tally.counts >= self.threshold, tally.counts, 0)
        return Tally(shown, tally.users, tally.secure, released=True)

    def release_law(self, tally: Tally) -> Law:
        """Nothing random is left."""
        return {tuple(self.release(tally).counts.tolist()): Fraction(1)}

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """Those of each category who take part, released."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(binomials(true, self.sampling, source), int(true.sum()), source.secure))

    def check_tally(self, tally: Tally) -> None:
        """Nothing below the threshold was let through, and nobody was counted twice."""
        check_released(tally, self.domain_size, self.threshold)
        if int(tally.counts.sum()) > tally.users:
            raise ParameterError(f"{int(tally.counts.sum()):,} messages cannot come from {tally.users:,} users.")

    def analysis(self, users: int) -> ThresholdAnalysis:
        """C / ps where the category is shown; each holder adds 1/ps - 1 or -1 to the error."""
        taken = float(self.sampling)
        return ThresholdAnalysis(
            offset=0.0,
            slope=taken,
            error=IndependentTerms(0.0, (1 - taken) / taken, max(1.0, 1 / taken - 1)),
            largest=users,
            numbers=self.domain_size,
            withholding=_SampledThreshold(self.sampling, self.threshold),
        )


@dataclass(frozen=True)
class _SampledThreshold:
    """A count c is shown as Bin(c, ps) / ps if that many reach the threshold."""

    sampling: Dyadic
    threshold: int

    def withheld(self, count: int) -> float:
        """Pr[Bin(c, ps) < threshold]."""
        if count < self.threshold:
            return 1.0
        return float(Binomial(count, self.sampling).lower_tail(self.threshold - 1))

    def squared_errors(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """By the law of each count."""
        return np.array([sampled_error(self.sampling, self.threshold, count) ** 2 for count in counts.tolist()])
