"""S1Geo of Murakami, Sei and Eriguchi (2025): the shuffler samples reports and adds geometric dummies; delta is 0.

Users send their category, sealed. The shuffler keeps each report with probability 1 - e^(-epsilon/2), and adds to each
category a geometric number of dummies with ratio 1 / (1 + e^(epsilon/2)). The privacy does not depend on other users.

Accounting: ``shuffledp.privacy.shuffler_noise``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.shuffler_noise import SampledGeometric, least_sampling, most_geometric
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.augmented import AugmentedProtocol, check_dummies
from shuffledp.protocols.parts.linear import IndependentTerms
from shuffledp.protocols.parts.sampled_counts import SampledAnalysis, SampledCounts
from shuffledp.protocols.parts.thresholded import independent_release_pmf
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, RandomSource, geometric

_OMITTED_MASS = 1e-14
_LARGEST_LISTED = 100_000


@dataclass(frozen=True)
class ShufflerGeometricHistogram(AugmentedProtocol, HistogramProtocol):
    """A histogram of sampled reports with geometric dummies (Murakami and others 2025); augmented, delta 0."""

    name: ClassVar[str] = "shuffler-geometric"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    keep: Dyadic
    """The probability that the shuffler keeps a report (beta in the paper)."""
    ratio: Dyadic
    """k dummies of a category have a probability proportional to ratio^k."""
    domain_size: int
    categories: Categories | None = None
    shufflers: int = field(default=1, init=False, repr=False)
    """The number of shufflers, each of which adds all dummies; not part of documents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dummies(self.mean_dummies, self.domain_size)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The largest ``keep`` and the fewest dummies that are epsilon-private; delta is not needed."""
        return cls(target.pure(), *least_sampling(target.epsilon), *cls.domain_fields(domain))

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy with respect to everyone except the shuffler."""
        curve = SampledGeometric(self.keep, self.ratio)
        return self.target.guarantee(
            curve, theorem="exact likelihood ratios of sampled counts with dummies", trust="augmented"
        )

    @property
    def shuffler_keeps(self) -> Dyadic:
        """The probability that the shuffler keeps a report."""
        return self.keep

    @property
    def mean_dummies(self) -> float:
        """Expected number of dummies per round."""
        return self.domain_size * self._mean

    @property
    def most_dummies(self) -> int:
        """A number of dummies that one draw exceeds with a probability of at most 2^-80."""
        return most_geometric(self.ratio, self.domain_size)

    @property
    def _mean(self) -> float:
        """Expected number of dummies per category."""
        return float(self.ratio.fraction / self.ratio.complement.fraction)

    def draw_dummy_counts(self, source: RandomSource) -> NDArray[np.int64]:
        """Independent geometric numbers."""
        return geometric(self.ratio, self.domain_size, source)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Every sampled count plus independent dummies, except for a small tail."""
        ratio, keep = float(self.ratio), float(self.keep)
        length = math.ceil(math.log(_OMITTED_MASS / self.domain_size) / math.log(ratio))
        dummies = (1 - ratio) * ratio ** np.arange(length)
        largest = int(tally.counts.max())
        if (largest + length) ** self.domain_size > _LARGEST_LISTED:
            raise ParameterError("The release has too many outcomes to list; use fewer users or a smaller domain.")
        pmfs = []
        for count in tally.counts.tolist():
            kept = [math.comb(count, k) * keep**k * (1 - keep) ** (count - k) for k in range(count + 1)]
            pmfs.append(dict(enumerate(np.convolve(kept, dummies).tolist())))
        return independent_release_pmf(pmfs)

    def analysis(self, users: int) -> SampledAnalysis:
        """(C - E[z]) / keep, with the variance (c keep (1 - keep) + ratio / (1 - ratio)^2) / keep^2 of a count c.

        Intervals invert the exact tails. The maximum error is by Bernstein's inequality: every holder is a term, and so
        are the dummies, which are unbounded; a geometric number of ratio q satisfies its condition with the constant
        (1 + q) / (2 (1 - q)).
        """
        keep, ratio = float(self.keep), float(self.ratio)
        tail = (1 + ratio) / (2 * (1 - ratio))
        return SampledAnalysis(
            offset=self._mean,
            slope=keep,
            error=IndependentTerms(
                base_variance=ratio / (1 - ratio) ** 2 / keep**2,
                variance_per_holder=(1 - keep) / keep,
                largest_term=max(1.0, _third_moment_ratio(ratio)) / keep,
                heaviest_tail=max(1 / 3, tail) / keep,
            ),
            largest=users,
            numbers=self.domain_size,
            counts=SampledCounts(self.keep, self.ratio),
        )


def _third_moment_ratio(ratio: float) -> float:
    """E|Z - E[Z]|^3 / Var[Z] of a geometric number Z, rounded up."""
    mean = ratio / (1 - ratio)
    k = np.arange(math.ceil(60 / -math.log(ratio)) + 2)
    masses = (1 - ratio) * ratio**k
    return float(np.abs(k - mean) ** 3 @ masses) / (mean / (1 - ratio)) * (1 + 1e-6)
