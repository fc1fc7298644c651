"""Exact confidence intervals for counts that are sampled, and to which geometric dummies are added.

The observation is X = Bin(c, keep) + G with Pr[G = k] = (1 - ratio) ratio^k. It increases stochastically with the true
count c, so the interval [low, high] of all c with Pr[X >= x | c] > risk/2 and Pr[X <= x | c] > risk/2 is the exact
inversion of both tails: it misses any c with a probability of at most ``risk``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.binomial import binomial_masses
from shuffledp.privacy.incomplete_beta import betainc, betaincc
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_ROUNDING = 1e-9  # relative error of a tail, with a margin; tails are rounded up, which widens intervals
_OMITTED = 1e-30  # probability of numbers of dummies that are not added up
_LARGEST_RATIO = 0.9  # with more dummies too many numbers of them would be added up; calibrated ratios are below 1/2
_LARGEST_COUNT = 1 << 40  # beyond, the error of the incomplete beta function is not measured
_LEAST_MASS = 1e-290


@dataclass(frozen=True)
class SampledCounts:
    """The number X of kept reports and dummies of a category."""

    keep: Dyadic
    ratio: Dyadic

    @property
    def _shares(self) -> tuple[float, float]:
        return float(self.keep), float(self.keep.complement)

    def upper_tail(self, x: Integers, count: Integers) -> Floats:
        """Upper bound on Pr[X >= x] if ``count`` users hold the category."""
        keep, dropped = self._shares
        inner = np.clip(x, 1, np.maximum(count, 1))
        if keep <= dropped:
            kept = betainc(inner, np.maximum(count - inner, 0) + 1, keep)
        else:
            kept = betaincc(np.maximum(count - inner, 0) + 1, inner, dropped)
        kept = np.where(x <= 0, 1.0, np.where(x > count, 0.0, kept))
        tail: Floats = np.minimum((kept + self._with_dummies(x - 1, count, _LEAST_MASS)) * (1 + _ROUNDING), 1.0)
        return np.where(x <= 0, 1.0, tail + _OMITTED)

    def lower_tail(self, x: Integers, count: Integers) -> Floats:
        """Upper bound on Pr[X <= x] if ``count`` users hold the category: few reports are kept, and few dummies."""
        keep, dropped = self._shares
        inner = np.clip(x, 0, np.maximum(count - 1, 0))
        if dropped <= keep:
            kept = betainc(np.maximum(count - inner, 1), inner + 1, dropped)
        else:
            kept = betaincc(inner + 1, np.maximum(count - inner, 1), keep)
        kept = np.where(x < 0, 0.0, np.where(x >= count, 1.0, kept))
        tail: Floats = kept * (1 + _ROUNDING) - self._with_dummies(x, count, 0.0) * (1 - _ROUNDING)
        return np.where(x < 0, 0.0, np.clip(tail, 0.0, 1.0) + _OMITTED)

    def _with_dummies(self, most: Integers, count: Integers, least_mass: float) -> Floats:
        """The sum over j <= most of Pr[Bin(count, keep) = j] ratio^(most + 1 - j).

        That is Pr[at most ``most`` reports are kept, and with the dummies there are more]. Masses that underflow
        become ``least_mass``.
        """
        keep, dropped = self._shares
        ratio = float(self.ratio)
        first = np.minimum(most, count)
        j = np.maximum(first, 0)
        masses = np.maximum(binomial_masses(j, count, keep), least_mass)
        weights = np.exp(math.log(ratio) * (most + 1.0 - j))
        sums = np.zeros(np.shape(masses))
        for _ in range(math.ceil(math.log(_OMITTED) / math.log(ratio)) + 1):
            sums += masses * weights
            masses = np.minimum(masses * (j * dropped) / ((count - j + 1.0) * keep), 1.0)
            weights = weights * ratio
            j = np.maximum(j - 1, 0)
        return np.where(first < 0, 0.0, sums)

    def interval(self, observed: Integers, risk: float, largest: int) -> tuple[Floats, Floats]:
        """The least and the largest count up to ``largest`` that neither tail rejects at level ``risk / 2``."""
        keep, dropped = self._shares
        mean = float(self.ratio) / float(self.ratio.complement)
        variance = mean / float(self.ratio.complement)
        deviations = -NormalDist().inv_cdf(max(risk / 2, 1e-300))
        centre = np.maximum(observed - mean, 0.0) / keep
        around = deviations * np.sqrt(centre * dropped / keep + variance / keep**2 + (deviations * dropped / keep) ** 2)
        shift = deviations**2 * dropped / (2 * keep)
        step = np.maximum(0.02 * around, 1.0)

        def low_is_likely(count: Integers) -> NDArray[np.bool_]:
            return self.upper_tail(observed, count) > risk / 2

        def high_is_unlikely(count: Integers) -> NDArray[np.bool_]:
            return ~(self.lower_tail(observed, count) > risk / 2)

        low = _least(low_is_likely, centre + shift - around, step, largest)
        high = _least(high_is_unlikely, centre + shift + around, step, largest) - 1
        return np.minimum(low, largest).astype(np.float64), np.maximum(high, 0).astype(np.float64)


def _least(holds: Callable[[Integers], NDArray[np.bool_]], guess: Floats, step: Floats, largest: int) -> Integers:
    """Per entry, the least number from 0 to ``largest`` at which the condition holds; ``largest + 1`` if none."""
    point = np.clip(guess, 0, largest).astype(np.int64)
    low, high = np.full_like(point, -1), np.full_like(point, largest + 1)
    stride = np.ceil(step).astype(np.int64)
    while np.any(high - low > 1):
        true = holds(point)
        open_ = high - low > 1
        high, low = np.where(true & open_, point, high), np.where(~true & open_, point, low)
        away = np.where(true, point - stride, point + stride)
        both = (low >= 0) & (high <= largest)
        point = np.where(both, (low + high) // 2, np.clip(away, low + 1, np.maximum(high - 1, low + 1)))
        point = np.clip(point, 0, largest)
        stride = np.minimum(stride * 4, largest + 1)
    return high


@dataclass(frozen=True)
class SampledAnalysis(LinearAnalysis):
    """Linear estimates of sampled counts with dummies, with exact intervals."""

    counts: SampledCounts | None = None

    def _intervals_at(self, observed: NDArray[Any], confidence: float) -> Floats:
        counts, largest = self.counts, int(self.largest)
        if counts is None or float(counts.ratio) > _LARGEST_RATIO or largest > _LARGEST_COUNT:
            return super()._intervals_at(observed, confidence)
        distinct, inverse = np.unique(np.asarray(observed, dtype=np.int64), return_inverse=True)
        ends = np.stack(counts.interval(distinct, 1 - confidence, largest), axis=-1)
        return ends[inverse]

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], Floats]:
        """From a confidence to intervals [low, high] with at least this coverage for every true number."""
        return partial(self._intervals_at, observed)
