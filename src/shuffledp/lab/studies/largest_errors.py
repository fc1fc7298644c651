"""The exact distribution of the largest error over very many independent categories.

Categories that nobody holds have identically distributed errors. The distribution function of the largest of m errors
is the m-th power of that of one error, so a domain of 10^40 categories takes no longer than one of 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.randomness import Dyadic, RandomSource, draw_words
from shuffledp.search import bisect

Floats = NDArray[np.float64]

_LEFT_OUT = 1e-60
_MAX_CATEGORIES = 1e50
_NEARLY = 1e-9


@dataclass(frozen=True, eq=False)
class EmptyErrors:
    """The distribution of the absolute error of one category that nobody holds."""

    radii: Floats
    """All possible absolute errors in increasing order."""
    tails: Floats
    """The probability of an error of at least each radius."""

    @classmethod
    def of_binomial(cls, noise: Binomial, slope: float = 1.0) -> EmptyErrors:
        """The error (N - E[N]) / slope for binomial noise N."""
        first = noise.least_with_lower_tail(_LEFT_OUT)
        last = noise.trials - noise.mirrored.least_with_lower_tail(_LEFT_OUT)
        points = np.arange(first, last + 1, dtype=np.int64)
        off = points - noise.mean
        above, below = points[off >= 0], points[off < 0][::-1]
        radii = np.unique(np.abs(off))
        tails = _at_or_beyond(above - noise.mean, noise.upper_tail(above), radii)
        tails += _at_or_beyond(noise.mean - below, noise.lower_tail(below), radii)
        return cls(radii / slope, np.minimum(tails, 1.0))

    @classmethod
    def of_discrete_laplace(cls, ratio: Dyadic) -> EmptyErrors:
        """The error of noise with probabilities proportional to ratio^|x|."""
        noise = DiscreteLaplace(ratio)
        radii = np.arange(noise.radius(_LEFT_OUT) + 1)
        tails = [1.0] + [2 * noise.upper_tail(radius) for radius in radii[1:].tolist()]
        return cls(radii.astype(np.float64), np.array(tails))

    def largest(self, categories: int, rounds: int, source: RandomSource) -> Floats:
        """The largest of ``categories`` independent errors, in each round.

        It is at least r with probability 1 - (1 - p)^m, where p is that of one error; this is the probability that a
        standard exponential variable is below -m ln(1 - p).
        """
        if categories > _MAX_CATEGORIES:
            raise ParameterError(f"categories must be at most 10^50, not {float(categories):g}.")
        if categories < 1:
            return np.zeros(rounds)
        words = draw_words(rounds, np.uint64, source) >> np.uint64(11)
        times = -np.log((words.astype(np.float64) + 0.5) / 2.0**53)
        with np.errstate(divide="ignore"):
            limits = -float(categories) * np.log1p(-self.tails)
        reached = np.searchsorted(-limits, -times, side="right")  # limits decrease
        largest: Floats = self.radii[np.maximum(reached, 1) - 1]
        return largest

    def quantile(self, categories: int, share: float) -> float:
        """The smallest r that the largest of ``categories`` errors exceeds with probability at most 1 - share."""
        beyond = np.append(self.tails[1:], 0.0)  # of an error above each radius
        inside = float(categories) * np.log1p(-beyond) >= math.log(share)
        return float(self.radii[int(np.argmax(inside))])


def _at_or_beyond(distances: NDArray[Any], tails: Floats, radii: Floats) -> Floats:
    """For each radius the tail at the first distance that is at least the radius."""
    positions = np.searchsorted(distances, radii - _NEARLY)
    selected: Floats = np.append(tails, 0.0)[positions]
    return selected


def hidden_share(noise: Binomial, count: int) -> float:
    """The probability that the protocol of Theorem 12 estimates a count as 0."""
    return float(noise.upper_tail(count))


def held_quantile(noise: Binomial, counts: Sequence[int], share: float) -> float:
    """The exact quantile of the largest error of the estimates of Theorem 12, for any size of the domain.

    The error of a count c is c if N >= c, and otherwise |N - E[N]|. Categories without users have no error.
    """
    return _held_quantile(noise, tuple(sorted(counts)), share)


@lru_cache(maxsize=64)
def _held_quantile(noise: Binomial, counts: tuple[int, ...], share: float) -> float:
    distinct, repeats = np.unique(np.asarray(counts, dtype=np.int64), return_counts=True)

    def is_likely_enough(radius: float) -> bool:
        inside = sum(
            int(times) * math.log(max(_within(noise, int(count), radius), 1e-300))
            for count, times in zip(distinct, repeats, strict=True)
        )
        return inside >= math.log(share)

    return bisect(is_likely_enough, -1.0, float(noise.trials), relative=_NEARLY)


def _within(noise: Binomial, count: int, radius: float) -> float:
    """Pr[the error of this count is at most the radius]."""
    first, last = math.ceil(noise.mean - radius), min(math.floor(noise.mean + radius), count - 1)
    shown: Any = noise.lower_tail(last) - noise.lower_tail(first - 1) if last >= first else 0.0
    return float(shown) + (hidden_share(noise, count) if count <= radius else 0.0)
