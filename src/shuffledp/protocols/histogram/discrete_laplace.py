"""A histogram in the central model: a trusted party adds discrete Laplace noise of total 0 to the counts.

Ghosh, Roughgarden and Sundararajan (2009) show that this noise is optimal for a single count. Replacing one user
changes two counts by one, so each has noise for half of epsilon. The number of users is public, so the noise is
conditioned on a total of 0: the privacy is the same, and the error smaller, above all for few categories. Other
protocols are compared with this one.

Accounting: ``shuffledp.privacy.conditioned_laplace``; of independent noise ``shuffledp.privacy.discrete_laplace``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.conditioned_laplace import ConditionedLaplace, ConditionedLaplaceCurve
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, check_ratio, decay_of, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import check_categories
from shuffledp.protocols.parts.category_noise import LaplaceNoise
from shuffledp.protocols.parts.clear import ClearHistogram
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.thresholded import check_unreleased
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, conditioned_laplace, discrete_laplace
from shuffledp.randomness.conditioned import LARGEST_VARIANCE, variance_of_total

_OMITTED_MASS = 1e-14
_LARGEST_LISTED = 100_000


@dataclass(frozen=True)
class DiscreteLaplaceHistogram(ClearHistogram):
    """A histogram with discrete Laplace noise of total 0 (Ghosh and others 2009); central, delta 0.

    Options of ``calibrate``:

    - ``conditioned``: whether the noise has a total of 0, which uses that the number of users is public. False for
      independent noise; without it, True unless the domain is so large that both have the same error.
    """

    name: ClassVar[str] = "discrete-laplace"
    independent_categories: ClassVar[bool] = True
    independent_options: ClassVar[Mapping[str, Any]] = {"conditioned": False}
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|, the product over all categories."""
    domain_size: int
    categories: Categories | None = None
    conditioned: bool = False
    """Whether the noise has a total of 0; else it is independent. Documents omit it if it is False."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.ratio)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, conditioned: bool | None = None) -> Self:
        """The least noise that is epsilon-private; delta is not needed."""
        size, named = cls.domain_fields(domain)
        ratio = least_ratio(target.epsilon, coordinates=2)
        if conditioned is None:
            conditioned = variance_of_total(ratio, size) <= LARGEST_VARIANCE
        return cls(target.pure(), ratio, size, named, conditioned)

    @classmethod
    def document_of(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields without ``conditioned`` if the noise is independent, as in documents of earlier versions."""
        return {name: value for name, value in fields.items() if name != "conditioned" or value}

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inverse of ``document_of``."""
        if document.get("conditioned", True) is not True:
            raise ParameterError("The parameter conditioned of discrete-laplace is true or left out.")
        return {"conditioned": False} | dict(document)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy with respect to everyone except the collecting party."""
        curve = (
            ConditionedLaplaceCurve(self.ratio, self.domain_size)
            if self.conditioned
            else DiscreteLaplaceCurve(self.ratio, coordinates=2)
        )
        return self.target.guarantee(curve, theorem="exact divergence of the noise", trust="central")

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """Add noise to every count, including zeros."""
        check_unreleased(tally, self.domain_size)
        draw = conditioned_laplace if self.conditioned else discrete_laplace
        noise = draw(self.ratio, self.domain_size, source)
        return Tally(tally.counts + noise, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Every count plus noise."""
        if self.conditioned:
            return conditioned_noise_pmf(self.ratio, tally.counts)
        return independent_noise_pmf(self.ratio, tally.counts)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts with noise."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: a count per category, and all users if the noise has a total of 0."""
        check_categories(tally, self.domain_size)
        if self.conditioned and int(tally.counts.sum()) != tally.users:
            raise ParameterError(
                f"The released counts sum to {int(tally.counts.sum()):,}, not to the {tally.users:,} users; noise of "
                "total 0 does not change the sum."
            )

    @property
    def category_noise(self) -> LaplaceNoise | None:
        """The distribution of a released count; None if the noise is not independent."""
        return None if self.conditioned else LaplaceNoise(self.ratio)

    def analysis(self, users: int) -> LinearAnalysis:
        """The released counts have noise with mean 0."""
        noise = ConditionedLaplace(self.ratio, self.domain_size) if self.conditioned else DiscreteLaplace(self.ratio)
        return LinearAnalysis(offset=0.0, slope=1.0, error=FixedNoise(noise), largest=users, numbers=self.domain_size)


def conditioned_noise_pmf(ratio: Dyadic, counts: NDArray[np.int64]) -> Pmf:
    """The distribution of these counts with noise of total 0, except for a small tail; for few outcomes only."""
    reach = likely_noise(ratio, _OMITTED_MASS / len(counts))
    if (2 * reach + 1) ** (len(counts) - 1) > _LARGEST_LISTED:
        raise ParameterError("The release has too many outcomes to list; use a smaller domain or less noise.")
    true = counts.tolist()
    weights = {}
    for drawn in product(range(-reach, reach + 1), repeat=len(true) - 1):
        noise = (*drawn, -sum(drawn))
        outcome = tuple(count + added for count, added in zip(true, noise, strict=True))
        weights[outcome] = math.exp(-decay_of(ratio) * sum(map(abs, noise)))
    total = math.fsum(weights.values())
    return {outcome: weight / total for outcome, weight in weights.items()}


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
