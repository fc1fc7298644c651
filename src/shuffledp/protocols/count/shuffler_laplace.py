"""A count with dummies of an augmented shuffler: a histogram of two categories whose dummies have a fixed total.

Murakami, Sei and Eriguchi (2025), SAGeo, for two categories. The number of users is public, so the number of zeros
follows from that of ones if the dummies have a fixed total of 2 shift: z of them are ones, with Pr[z = k] proportional
to ratio^|k - shift| for 0 <= k <= 2 shift. Only one number changes with a user, so the ratio is that of a central
count.

Accounting: ``shuffledp.privacy.shuffler_noise``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.shuffler_noise import ShufflerLaplaceCurve, SummedLaplace, TruncatedLaplace, least_shift
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.histogram.shuffler_laplace import truncated_laplace
from shuffledp.protocols.parts.augmented import AugmentedProtocol, check_dummies
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, RandomSource


@dataclass(frozen=True)
class ShufflerLaplaceCount(AugmentedProtocol, CountProtocol):
    """A count with truncated Laplace dummies of the shuffler (Murakami and others 2025); augmented."""

    name: ClassVar[str] = "shuffler-laplace"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """k of the dummies are ones with a probability proportional to ratio^|k - shift|."""
    shift: int
    """Half of the number of dummies."""
    shufflers: int = field(default=1, init=False, repr=False)
    """The number of shufflers, each of which adds all dummies; not part of documents."""

    def __post_init__(self) -> None:
        check_dummies(self.mean_dummies, 2)

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """The fewest dummies that make the count (epsilon, delta)-private."""
        return cls(target, *least_shift(target.epsilon, target.delta, coordinates=1))

    @property
    def noise(self) -> TruncatedLaplace:
        """The number of dummies that are ones."""
        return TruncatedLaplace(self.ratio, self.shift, bounded=True)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy with respect to everyone except the shuffler."""
        curve = ShufflerLaplaceCurve(self.ratio, self.shift, coordinates=1)
        return self.target.guarantee(curve, theorem="exact divergence of the dummies", trust="augmented")

    @property
    def mean_dummies(self) -> float:
        """The number of dummies, which is fixed."""
        return 2.0 * self.noise.shift

    @property
    def most_dummies(self) -> int:
        """The number of dummies, which is fixed."""
        return 2 * self.shift

    def draw_dummy_counts(self, source: RandomSource) -> NDArray[np.int64]:
        """The number of zeros and of ones; ones beyond the number of dummies are drawn again."""
        total = 2 * self.shift
        while (ones := int(truncated_laplace(self.ratio, self.shift, 1, source)[0])) > total:
            pass
        return np.array([total - ones, ones], dtype=np.int64)

    def release_pmf(self, tally: Tally) -> Pmf:
        """The numbers of zeros and of ones with dummies."""
        zeros, ones = tally.counts.tolist()
        masses = self.noise.masses(2 * self.shift).tolist()
        return {(zeros + 2 * self.shift - dummies, ones + dummies): mass for dummies, mass in enumerate(masses)}

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one message of every user, and all dummies."""
        super().check_tally(tally)
        dummies = 2 * self.shift * self.shufflers
        expected = tally.users + dummies
        if int(tally.counts.sum()) != expected:
            raise ParameterError(
                f"{tally.users:,} users and {dummies:,} dummies make {expected:,} messages, not "
                f"{int(tally.counts.sum()):,}."
            )

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """The number of ones minus the mean number of dummies that are ones."""
        noise = self.noise if self.shufflers == 1 else SummedLaplace(self.noise, self.shufflers)
        return LinearAnalysis(offset=noise.mean, slope=1.0, error=FixedNoise(noise), largest=users)
