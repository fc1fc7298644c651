"""A histogram in the central model: a trusted party adds discrete Laplace noise to every count.

Ghosh, Roughgarden and Sundararajan (2009) show that this noise is optimal for a single count. Replacing one user
changes two counts by one, so each has noise for half of epsilon. Other protocols are compared with this one.

Accounting: ``shuffledp.privacy.discrete_laplace``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import check_categories
from shuffledp.protocols.parts.category_noise import LaplaceNoise
from shuffledp.protocols.parts.clear import ClearHistogram
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.thresholded import check_unreleased
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace

_OMITTED_MASS = 1e-14
_LARGEST_LISTED = 100_000


@dataclass(frozen=True)
class DiscreteLaplaceHistogram(ClearHistogram):
    """A histogram with discrete Laplace noise (Ghosh and others 2009); central, delta 0."""

    name: ClassVar[str] = "discrete-laplace"
    independent_categories: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """The least noise that is epsilon-private; delta is not needed."""
        size, named = cls.domain_fields(domain)
        return cls(target.pure(), least_ratio(target.epsilon, coordinates=2), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy with respect to everyone except the collecting party."""
        curve = DiscreteLaplaceCurve(self.ratio, coordinates=2)
        return self.target.guarantee(curve, theorem="exact divergence of the noise", trust="central")

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """Add noise to every count, including zeros."""
        check_unreleased(tally, self.domain_size)
        noise = discrete_laplace(self.ratio, self.domain_size, source)
        return Tally(tally.counts + noise, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Every count plus independent noise."""
        return independent_noise_pmf(self.ratio, tally.counts)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts with noise."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: a count per category."""
        check_categories(tally, self.domain_size)

    @property
    def category_noise(self) -> LaplaceNoise:
        """The distribution of a released count."""
        return LaplaceNoise(self.ratio)

    def analysis(self, users: int) -> LinearAnalysis:
        """The released counts have noise with mean 0."""
        return LinearAnalysis(
            offset=0.0,
            slope=1.0,
            error=FixedNoise(DiscreteLaplace(self.ratio)),
            largest=users,
            numbers=self.domain_size,
        )


def independent_noise_pmf(ratio: Dyadic, counts: NDArray[np.int64]) -> Pmf:
    """The distribution of these counts with independent noise on each, except for a small tail."""
    reach = likely_noise(ratio, _OMITTED_MASS / len(counts))
    if (2 * reach + 1) ** len(counts) > _LARGEST_LISTED:
        raise ParameterError("The release has too many outcomes to list; use a smaller domain or less noise.")
    noise = range(-reach, reach + 1)
    masses = noise_mass(ratio, np.array(noise)).tolist()
    true = counts.tolist()
    return {
        tuple(count + noise[position] for count, position in zip(true, drawn, strict=True)): math.prod(
            masses[position] for position in drawn
        )
        for drawn in product(range(len(noise)), repeat=len(counts))
    }


def likely_noise(ratio: Dyadic, risk: float) -> int:
    """A bound on the absolute value of the noise that is exceeded with at most this probability."""
    return DiscreteLaplace(ratio).radius(risk)


def noise_mass(ratio: Dyadic, noise: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pr[X = x] = (1 - ratio) / (1 + ratio) ratio^|x|."""
    masses: NDArray[np.float64] = np.exp(-decay_of(ratio) * np.abs(noise))
    return masses * (float(ratio.complement) / (1 + float(ratio)))
