"""Estimates of a histogram projected onto the public number of users, with the exact distribution of their errors.

The counts of all categories sum to the number of users n, which is public. If the errors e of the unbiased estimates
are independent and identically distributed, the projection f_i - (sum of f - n) / d has the error
((d - 1) e_i - sum of the others) / d: its variance is smaller by the factor 1 - 1/d. It depends on the estimates and on
n alone, so the privacy is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis, NoiseDistribution

Floats = NDArray[np.float64]

PROJECTED = "projected"
"""The name of the estimator."""
MAX_PROJECTED = 4096
"""With more categories, estimates are not projected: their variance would decrease by less than 0.03 %."""
_OMITTED_MASS = 1e-18
_DEVIATIONS = 14
_SLACK = 1e-12  # more than the rounding error of the transforms
_MAX_NODES = 1 << 20


@dataclass(frozen=True)
class ProjectedAnalysis(LinearAnalysis):
    """Linear estimates of all counts of ``total`` users, projected onto that total."""

    total: int = 0

    def estimate(self, observed: NDArray[Any], estimator: str) -> Floats:
        """The unbiased estimates, moved by the same amount so that they sum to the total."""
        unbiased: Floats = (observed - self.offset) / self.slope
        projected = unbiased - (math.fsum(unbiased.tolist()) - self.total) / self.numbers
        return np.clip(projected, 0.0, self.largest) if estimator == "clipped" else projected


def projected_analysis(analysis: LinearAnalysis, users: int) -> LinearAnalysis:
    """The analysis with projected estimates; unchanged for very many categories, where nothing would be gained."""
    error = analysis.error
    if not isinstance(error, FixedNoise) or analysis.numbers > MAX_PROJECTED:
        return analysis
    noise = ProjectedNoise(error.noise, analysis.numbers)
    if noise.nodes > _MAX_NODES:
        return analysis
    return ProjectedAnalysis(
        offset=analysis.offset,
        slope=analysis.slope,
        error=replace(error, noise=noise, step=error.step / analysis.numbers),
        largest=analysis.largest,
        numbers=analysis.numbers,
        total=users,
    )


@dataclass(frozen=True)
class Negated:
    """The distribution of -N."""

    noise: NoiseDistribution

    @property
    def mean(self) -> float:
        """The expected value."""
        return -self.noise.mean

    @property
    def variance(self) -> float:
        """The variance."""
        return self.noise.variance

    def upper_tail(self, k: int) -> float:
        """Pr[-N >= k]."""
        return float(self.noise.lower_tail(-k))

    def lower_tail(self, k: int) -> float:
        """Pr[-N <= k]."""
        return float(self.noise.upper_tail(-k))


@dataclass(frozen=True)
class ProjectedNoise:
    """(numbers - 1) N minus the sum of numbers - 1 further draws of N: ``numbers`` times the error of an estimate."""

    noise: NoiseDistribution
    numbers: int

    @property
    def mean(self) -> float:
        """The expected value, which is 0."""
        return 0.0

    @property
    def variance(self) -> float:
        """The variance."""
        return self.numbers * (self.numbers - 1) * self.noise.variance

    @property
    def nodes(self) -> int:
        """The length of the transforms."""
        _, masses = _window(self.noise)
        spread = _DEVIATIONS * math.sqrt(self.numbers * self.noise.variance) + len(masses)
        return 1 << math.ceil(math.log2(2 * spread + 2))

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[X >= k], exact except for rounding."""
        if self.numbers == 1:
            return float(k <= 0)
        first, masses, tails, cumulative, least = _tables(self.noise, self.numbers, self.nodes)
        others = self.numbers - 1
        # X >= k depends on the sum of the others for N from start to end; it is false below, and true above
        start = min(max(-(-(k + least) // others) - first, 0), len(masses))
        end = min(max((k + least + len(cumulative) - 1) // others + 1 - first, start), len(masses))
        indices = others * np.arange(first + start, first + end) - k - least
        tail = float(masses[start:end] @ cumulative[indices]) + float(tails[end]) + _SLACK
        if k > 0:
            tail = min(tail, self.variance / k**2)  # Chebyshev, which tends to 0 unlike the slack
        return min(1.0, tail)

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[X <= k]."""
        return ProjectedNoise(Negated(self.noise), self.numbers).upper_tail(-k)


@lru_cache(maxsize=64)
def _window(noise: NoiseDistribution) -> tuple[int, Floats]:
    """The first likely value relative to the rounded mean, and the probabilities from there on."""
    centre = round(noise.mean)
    reach = 1
    while float(noise.upper_tail(centre + reach)) > _OMITTED_MASS and reach < _MAX_NODES:
        reach *= 2
    low = 1
    while float(noise.lower_tail(centre - low)) > _OMITTED_MASS and low < _MAX_NODES:
        low *= 2
    if isinstance(noise, DiscreteLaplace):
        above = noise.upper_tails(np.arange(1, reach + 2))
        below = noise.upper_tails(np.arange(low + 1, -1, -1))
    else:
        below = np.array([float(noise.lower_tail(centre + k)) for k in range(-low - 1, 1)])
        above = np.array([float(noise.upper_tail(centre + k)) for k in range(1, reach + 2)])
    masses = np.concatenate((np.diff(below), -np.diff(above)))  # each from the side whose tail is smaller
    return -low, np.maximum(masses, 0.0) / masses.sum()


@lru_cache(maxsize=16)
def _tables(noise: NoiseDistribution, numbers: int, nodes: int) -> tuple[int, Floats, Floats, Floats, int]:
    """The first likely value of N, the masses and upper tails from there on, the distribution function of the sum of
    the others, and the first value of that.

    Both are relative to the mean of N, rounded, which cancels in the difference.
    """
    first, masses = _window(noise)
    values = np.arange(first, first + len(masses))
    placed = np.zeros(nodes)
    placed[values % nodes] = masses
    total = np.fft.irfft(np.fft.rfft(placed) ** (numbers - 1), nodes)
    centre = round((numbers - 1) * float(values @ masses))
    least = centre - nodes // 2
    cumulative = np.cumsum(np.maximum(np.roll(total, -least % nodes), 0.0))
    tails = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    return first, masses, tails, np.minimum(cumulative, 1.0), least
