"""SAGeo of Murakami, Sei and Eriguchi (2025) without sampling: a histogram with dummies that the shuffler adds.

Users send their category, sealed. The shuffler adds z dummies to each category, Pr[z = k] proportional to
ratio^|k - shift| for k >= 0: truncated discrete Laplace noise, with nearly the error of the central model. The privacy
does not depend on other users, and a malicious user moves a count by 1.

Accounting: ``shuffledp.privacy.shuffler_noise``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.shuffler_noise import (
    ShufflerLaplaceCurve,
    SummedLaplace,
    TruncatedLaplace,
    least_shift,
    most_geometric,
)
from shuffledp.protocols.histogram.protocol import PROJECTED_ESTIMATORS, HistogramProtocol
from shuffledp.protocols.parts.augmented import AugmentedProtocol, check_dummies
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.thresholded import independent_release_pmf
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, RandomSource, discrete_laplace

_OMITTED_MASS = 1e-14
_LARGEST_LISTED = 100_000


@dataclass(frozen=True)
class ShufflerLaplaceHistogram(AugmentedProtocol, HistogramProtocol):
    """A histogram with truncated Laplace dummies of the shuffler (Murakami and others 2025); augmented."""

    name: ClassVar[str] = "shuffler-laplace"
    estimators: ClassVar[tuple[str, ...]] = PROJECTED_ESTIMATORS
    exchangeable_noise: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """The number k of dummies of a category has a probability proportional to ratio^|k - shift|."""
    shift: int
    """The most likely number of dummies of a category (nu in the paper)."""
    domain_size: int
    categories: Categories | None = None
    shufflers: int = field(default=1, init=False, repr=False)
    """The number of shufflers, each of which adds all dummies; not part of documents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dummies(self.mean_dummies, self.domain_size)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The fewest dummies with which both changed categories together are (epsilon, delta)-private."""
        size, named = cls.domain_fields(domain)
        return cls(target, *least_shift(target.epsilon, target.delta), size, named)

    @property
    def noise(self) -> TruncatedLaplace:
        """The number of dummies of a category."""
        return TruncatedLaplace(self.ratio, self.shift)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy with respect to everyone except the shuffler."""
        curve = ShufflerLaplaceCurve(self.ratio, self.shift)
        theorem = "exact divergence of the dummies of both changed categories"
        return self.target.guarantee(curve, theorem=theorem, trust="augmented")

    @property
    def mean_dummies(self) -> float:
        """Expected number of dummies per round."""
        return self.domain_size * self.noise.mean

    @property
    def most_dummies(self) -> int:
        """A number of dummies that one draw exceeds with a probability of at most 2^-80."""
        return self.domain_size * self.shift + most_geometric(self.ratio, self.domain_size)

    def draw_dummy_counts(self, source: RandomSource) -> NDArray[np.int64]:
        """Discrete Laplace numbers around the shift; those below 0 are drawn again."""
        return truncated_laplace(self.ratio, self.shift, self.domain_size, source)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Every count plus independent dummies, except for a small tail."""
        last = 1
        while self.noise.upper_tail(last + 1) > _OMITTED_MASS / self.domain_size:
            last += 1
        if (last + 1) ** self.domain_size > _LARGEST_LISTED:
            raise ParameterError("The release has too many outcomes to list; use a smaller domain or fewer dummies.")
        masses = self.noise.masses(last).tolist()
        return independent_release_pmf(
            [{count + dummies: mass for dummies, mass in enumerate(masses)} for count in tally.counts.tolist()]
        )

    def analysis(self, users: int) -> LinearAnalysis:
        """The count of a category minus the mean number of its dummies."""
        noise = self.noise if self.shufflers == 1 else SummedLaplace(self.noise, self.shufflers)
        return LinearAnalysis(
            offset=noise.mean, slope=1.0, error=FixedNoise(noise), largest=users, numbers=self.domain_size
        )


def truncated_laplace(ratio: Dyadic, shift: int, size: int, source: RandomSource) -> NDArray[np.int64]:
    """Independent numbers k >= 0 with a probability proportional to ratio^|k - shift|, exactly."""
    drawn = discrete_laplace(ratio, size, source) + shift
    while len(again := np.flatnonzero(drawn < 0)):
        drawn[again] = discrete_laplace(ratio, len(again), source) + shift
    return drawn
