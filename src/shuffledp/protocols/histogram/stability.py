"""The stability-based histogram of Bun, Nissim and Stemmer (2016), in the central model.

A trusted party adds discrete Laplace noise to every non-empty category and releases the counts that reach a threshold;
all others are released as 0. So the error does not grow with the domain, but small counts are lost and there is a
delta: a category with one user is released with at most that probability.

Accounting: ``shuffledp.privacy.stability``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts
from shuffledp.messages import Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, decay_of, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.stability import StabilityCurve, least_threshold_for
from shuffledp.protocols.histogram.discrete_laplace import likely_noise, noise_mass
from shuffledp.protocols.parts.clear import ClearHistogram
from shuffledp.protocols.parts.linear import FixedNoise
from shuffledp.protocols.parts.thresholded import (
    THRESHOLD_ESTIMATORS,
    ThresholdAnalysis,
    check_released,
    check_unreleased,
    independent_release_pmf,
)
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace

_OMITTED_MASS = 1e-14


@dataclass(frozen=True)
class StabilityHistogram(ClearHistogram):
    """A histogram with noise on non-empty categories and a threshold (Bun, Nissim and Stemmer 2016); central."""

    name: ClassVar[str] = "stability"
    estimators: ClassVar[tuple[str, ...]] = THRESHOLD_ESTIMATORS
    exact_zeros: ClassVar[bool] = True

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""
    threshold: int
    """The least count that is released."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """Half of epsilon for each of two changed categories, and the least threshold, or the paper's."""
        size, named = cls.domain_fields(domain)
        ratio = least_ratio(target.epsilon, coordinates=2)
        if target.calibration == "paper":
            threshold = math.ceil(1 + 2 / target.epsilon * math.log(2 / target.delta))
        else:
            threshold = least_threshold_for(ratio, target.epsilon, target.delta)
        return cls(target, ratio, threshold, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy with respect to everyone except the collecting party."""
        return self.target.guarantee(
            StabilityCurve(self.ratio, self.threshold),
            theorem="divergence of the noise and of the threshold together",
            trust="central",
        )

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """Add noise to every nonzero count; noisy counts below the threshold become 0."""
        check_unreleased(tally, self.domain_size)
        nonempty = np.flatnonzero(tally.counts)
        noisy = tally.counts[nonempty] + discrete_laplace(self.ratio, len(nonempty), source)
        released = np.zeros(self.domain_size, dtype=np.int64)
        released[nonempty] = np.where(noisy >= self.threshold, noisy, 0)
        return Tally(released, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Independent counts, each withheld or released with noise."""
        return independent_release_pmf([self._released_pmf(count) for count in tally.counts.tolist()])

    def _released_pmf(self, count: int) -> dict[int, float]:
        if count == 0:
            return {0: 1.0}
        reach = likely_noise(self.ratio, _OMITTED_MASS / self.domain_size)
        released = np.arange(self.threshold, max(count + reach, self.threshold) + 1)
        masses = noise_mass(self.ratio, released - count)
        return {0: self._withholding.withheld(count)} | dict(zip(released.tolist(), masses.tolist(), strict=True))

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts, released."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: no count below the threshold."""
        check_released(tally, self.domain_size, self.threshold)

    def chance_shown(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability that c > 0 users plus noise reach the threshold."""
        return DiscreteLaplace(self.ratio).upper_tails(self.threshold - counts) * (counts > 0)

    def analysis(self, users: int) -> ThresholdAnalysis:
        """Released counts have noise with mean 0, except for the effect of the threshold."""
        return ThresholdAnalysis(
            offset=0.0,
            slope=1.0,
            error=FixedNoise(DiscreteLaplace(self.ratio)),
            largest=users,
            numbers=self.domain_size,
            withholding=self._withholding,
        )

    @property
    def _withholding(self) -> _NoisyThreshold:
        return _NoisyThreshold(self.ratio, self.threshold)


@dataclass(frozen=True)
class _NoisyThreshold:
    """A count c > 0 is released as c + X if that is at least the threshold."""

    ratio: Dyadic
    threshold: int

    def withheld(self, count: int) -> float:
        """Pr[c + X < threshold]."""
        return 1.0 if count == 0 else 1.0 - DiscreteLaplace(self.ratio).upper_tail(self.threshold - count)

    def squared_errors(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """c^2 if it is withheld, else X^2."""
        withheld = np.array([self.withheld(count) for count in counts.tolist()])
        released = np.array([self._squared_noise_from(self.threshold - count) for count in counts.tolist()])
        return np.where(counts == 0, 0.0, withheld * counts.astype(np.float64) ** 2 + released)

    def _squared_noise_from(self, least: int) -> float:
        """E[X^2; X >= least]; X is symmetric."""
        if least <= 0:
            return DiscreteLaplace(self.ratio).variance - self._squared_noise_from(1 - least)
        ratio, complement = float(self.ratio), float(self.ratio.complement)
        tail = math.exp(-least * decay_of(self.ratio)) / (1 + ratio)
        return tail * (least**2 + 2 * least * ratio / complement + ratio * (1 + ratio) / complement**2)
