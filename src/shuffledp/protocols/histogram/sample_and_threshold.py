"""Sample and threshold, Bharadwaj and Cormode (2022): a histogram made private by random sampling, without noise.

Users send their true category. The counting party samples each message with probability ps and releases only categories
whose sampled count reaches a threshold. That is more than shuffling: the messages are **not** private, and this party
sees all of them. In return, a category that nobody holds is never released.

In the paper users toss the coins. That fails if some users are dishonest: if threshold - 1 users always send a
category, a single user's coin decides whether it is released, so delta is ps. If the counting party tosses all coins,
dishonest users are ordinary data, and the guarantee is a maximum over all data sets.

Accounting: ``shuffledp.privacy.sample_and_threshold``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.incomplete_beta import betainc
from shuffledp.privacy.sample_and_threshold import (
    SampleAndThreshold,
    best_sampling,
    least_threshold,
    paper_sampling,
    sampled_error,
)
from shuffledp.protocols.parts.clear import ClearHistogram
from shuffledp.protocols.parts.linear import IndependentTerms
from shuffledp.protocols.parts.thresholded import (
    THRESHOLD_ESTIMATORS,
    ThresholdAnalysis,
    check_released,
    check_unreleased,
    independent_release_pmf,
)
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, binomials

_LARGEST_LISTED = 100_000


@dataclass(frozen=True)
class SampleAndThresholdHistogram(ClearHistogram):
    """A histogram by sampling and a threshold (Bharadwaj and Cormode 2022); the shuffler counts in clear.

    Options of ``calibrate``:

    - ``sampling``: probability that a message is sampled; chosen for a category of average size unless given.
    """

    name: ClassVar[str] = "sample-and-threshold"
    trust: ClassVar[str] = "shuffled"
    estimators: ClassVar[tuple[str, ...]] = THRESHOLD_ESTIMATORS
    trusts_shuffler: ClassVar[bool] = True
    exact_zeros: ClassVar[bool] = True

    sampling: Dyadic
    """The probability that the counting party samples a message."""
    threshold: int
    """The least count that is released."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def for_target(
        cls, target: Target, domain: Categories | Numbered, *, sampling: float | Dyadic | None = None
    ) -> Self:
        """The least threshold for ``sampling``; without it, the best for a category of average size.

        If the average is too small to be released, a count of 10 ln(1/delta) / (1 - e^-epsilon) is used instead.
        """
        size, named = cls.domain_fields(domain)
        if sampling is not None:
            probability = Dyadic.of(sampling)
            return cls(target, probability, least_threshold(probability, target.epsilon, target.delta), size, named)
        if target.calibration == "paper":
            curve = paper_sampling(target.epsilon, target.delta)
        else:
            least_count = math.ceil(-10 * math.log(target.delta) / -math.expm1(-target.epsilon))
            curve = best_sampling(target.epsilon, target.delta, max(target.users // max(size, 1), least_count))
        return cls(target, curve.sampling, curve.threshold, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy with respect to everyone except the counting party, for all messages of other users."""
        return self.target.guarantee(
            SampleAndThreshold(self.sampling, self.threshold),
            theorem="certified numerically: divergence of sampled counts above a threshold, the worst of all data; "
            "the shuffler must sample the messages and remove small counts before anyone sees them",
            trust="central",
        )

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """Sample each message with the sampling probability; counts below the threshold become 0."""
        check_unreleased(tally, self.domain_size)
        sampled = binomials(tally.counts, self.sampling, source)
        released = np.where(sampled >= self.threshold, sampled, 0)
        return Tally(released, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Independent binomial counts, replaced by 0 if below the threshold."""
        counts = tally.counts.tolist()
        if math.prod(max(0, count - self.threshold + 1) + 1 for count in counts) > _LARGEST_LISTED:
            raise ParameterError("The release has too many outcomes to list; use fewer users or a smaller domain.")
        return independent_release_pmf([self._released_pmf(count) for count in counts])

    def _released_pmf(self, count: int) -> dict[int, Fraction]:
        """The exact distribution of the released count of a category that ``count`` users sent."""
        sampled, dropped = self.sampling.fraction, self.sampling.complement.fraction
        released = {
            number: math.comb(count, number) * sampled**number * dropped ** (count - number)
            for number in range(self.threshold, count + 1)
        }
        return {0: 1 - sum(released.values(), Fraction(0))} | released

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts, released."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: no count below the threshold, and no more messages than users."""
        check_released(tally, self.domain_size, self.threshold)
        if int(tally.counts.sum()) > tally.users:
            raise ParameterError(f"{int(tally.counts.sum()):,} messages cannot come from {tally.users:,} users.")

    def chance_shown(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that at least ``threshold`` of c messages are sampled."""
        spare = np.maximum(counts - self.threshold + 1, 1)
        chances: NDArray[np.float64] = np.where(
            counts >= self.threshold, betainc(self.threshold, spare, float(self.sampling)), 0.0
        )
        return chances

    def analysis(self, users: int) -> ThresholdAnalysis:
        """C / ps for released categories; each holder contributes 1/ps - 1 or -1 to the error."""
        sampling = float(self.sampling)
        return ThresholdAnalysis(
            offset=0.0,
            slope=sampling,
            error=IndependentTerms(0.0, (1 - sampling) / sampling, max(1.0, 1 / sampling - 1)),
            largest=users,
            numbers=self.domain_size,
            withholding=_SampledThreshold(self.sampling, self.threshold),
        )


@dataclass(frozen=True)
class _SampledThreshold:
    """A count c is estimated as Bin(c, ps) / ps if the sampled count reaches the threshold."""

    sampling: Dyadic
    threshold: int

    def withheld(self, count: int) -> float:
        """Pr[Bin(c, ps) < threshold]."""
        if count < self.threshold:
            return 1.0
        return float(Binomial(count, self.sampling).lower_tail(self.threshold - 1))

    def squared_errors(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean squared error at each count, from its exact distribution."""
        return np.array([sampled_error(self.sampling, self.threshold, count) ** 2 for count in counts.tolist()])
