"""Sampling the largest of very many independent numbers by their order statistics.

Of N independent numbers with upper tail T(k) = Pr[X >= k], the i-th largest is the largest k with T(k) > V_i, where
V_1 < V_2 < ... are the order statistics of N uniform numbers. With independent standard exponentials E_j,
-ln(1 - V_i) is E_1 / N + E_2 / (N - 1) + ... (Renyi 1953). All computations are in logarithms, so that N may be given
by its logarithm, for example ln N = 10^7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.binomial import Binomial, deviance, stirling_error
from shuffledp.privacy.discrete_laplace import decay_of
from shuffledp.randomness import Dyadic, RandomSource, draw_words
from shuffledp.search import bisect_integers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOTHING = -(1 << 62)
"""The score that stands for "no item"; it is below any other."""

_UNDERFLOW = 1e-280
_NEGLIGIBLE = 45.0  # a term that is e^-45 of a sum is below its rounding error
_SMALL = -36.0  # for ln y below this, ln(1 - e^-y) equals ln y in floating point
_COUNTABLE = 1 << 53
_FEW_TRIALS = 1 << 12


class TailDistribution(Protocol):
    """A distribution on the integers, given by the logarithm of its upper tail."""

    def log_upper_tail(self, k: int) -> float:
        """ln Pr[X >= k]."""

    def quantile(self, log_tails: Floats) -> Ints:
        """For each entry the largest k with ln Pr[X >= k] above it."""


@dataclass(frozen=True)
class BinomialTail:
    """Tails of Bin(trials, probability), also where they underflow as floats."""

    distribution: Binomial

    def log_upper_tail(self, k: int) -> float:
        """ln Pr[X >= k], by summing probabilities in logarithms where the tail underflows."""
        if k > self.distribution.trials:
            return -math.inf
        tail = float(self.distribution.upper_tail(k))
        return math.log(tail) if tail > _UNDERFLOW else float(self._far_table(k, k)[0])

    def quantile(self, log_tails: Floats) -> Ints:
        """By lookup in a table over the range of all requested quantiles."""
        if self.distribution.trials <= _FEW_TRIALS:
            first, table = 0, self._whole_table
        else:
            first, last = (self._last_above(float(level)) for level in (np.max(log_tails), np.min(log_tails)))
            table = self._table(first, last + 1)  # decreases with k
        positions = np.searchsorted(-table, -np.asarray(log_tails), side="left")
        quantiles: Ints = first - 1 + positions
        return quantiles

    @cached_property
    def _whole_table(self) -> Floats:
        return self._table(0, self.distribution.trials + 1)

    def _last_above(self, level: float) -> int:
        """The largest k with ln Pr[X >= k] > level; 0 if there is none."""
        return bisect_integers(lambda k: not self.log_upper_tail(k) > level, 0, self.distribution.trials + 1) - 1

    def _table(self, first: int, last: int) -> Floats:
        """ln Pr[X >= k] for k = first .. last."""
        points = np.arange(first, last + 1)
        tails = self.distribution.upper_tail(points)
        near = tails > _UNDERFLOW
        table = np.full(len(points), -np.inf)
        table[near] = np.log(tails[near])
        far = np.flatnonzero(~near & (points <= self.distribution.trials))
        if len(far):
            table[far] = self._far_table(int(points[far[0]]), int(points[far[-1]]))
        return table

    def _far_table(self, first: int, last: int) -> Floats:
        """``_table`` far above the mean: summed from the far tail, where probabilities decrease geometrically."""
        log_decrease = (
            math.log((last + 1) / (self.distribution.trials - last)) if last < self.distribution.trials else math.inf
        )
        log_decrease += math.log(float(self.distribution.probability.complement)) - math.log(
            float(self.distribution.probability)
        )
        beyond = min(self.distribution.trials, last + math.ceil(_NEGLIGIBLE / max(log_decrease, 1e-9)) + 1)
        masses = self.log_mass(np.arange(first, beyond + 1))
        sums: Floats = np.logaddexp.accumulate(masses[::-1])[::-1][: last - first + 1]
        return sums

    def log_mass(self, k: Ints) -> Floats:
        """ln Pr[X = k] for 0 <= k <= trials, by the saddle point of Loader (2000)."""
        trials, mean = self.distribution.trials, self.distribution.mean
        others = trials - k
        excess = k - mean
        mass: Floats = stirling_error(trials) - stirling_error(k) - stirling_error(others)
        mass -= deviance(k, np.full(k.shape, mean), excess)
        mass -= deviance(others, np.full(k.shape, self.distribution.mirrored.mean), -excess)
        inside = (k > 0) & (others > 0)
        product = np.maximum(k, 1) * (np.maximum(others, 1) / trials)
        return mass - 0.5 * np.log(2 * math.pi * product) * inside


@dataclass(frozen=True)
class LaplaceTail:
    """Tails of discrete Laplace noise, Pr[X = x] proportional to ratio^|x|, in closed form."""

    ratio: Dyadic

    def log_upper_tail(self, k: int) -> float:
        """ln(ratio^k / (1 + ratio)) above 0, and by symmetry below."""
        decay, log_one_plus_ratio = decay_of(self.ratio), math.log1p(float(self.ratio))
        if k >= 1:
            return -k * decay - log_one_plus_ratio
        return math.log1p(-math.exp((k - 1) * decay - log_one_plus_ratio))

    def quantile(self, log_tails: Floats) -> Ints:
        """By inverting the closed form on either side of 0."""
        decay, log_one_plus_ratio = decay_of(self.ratio), math.log1p(float(self.ratio))
        levels = np.asarray(log_tails, dtype=np.float64)
        above = np.ceil(-(levels + log_one_plus_ratio) / decay) - 1
        log_below = np.log(np.maximum(-np.expm1(np.minimum(levels, 0.0)), 1e-300))  # ln Pr[X < k] must lie below this
        below = np.ceil(1 + (log_below + log_one_plus_ratio) / decay) - 1
        quantiles: Ints = np.where(above >= 1, above, np.minimum(below, 0.0)).astype(np.int64)
        return quantiles


@dataclass(frozen=True)
class EmptyItems:
    """Items that nobody holds, with independent scores of one distribution."""

    distribution: TailDistribution
    log_number: float
    """The natural logarithm of their number; minus infinity if there are none."""

    def largest(self, rounds: int, top: int, source: RandomSource) -> Ints:
        """The ``top`` largest scores of each round in decreasing order; ``NOTHING`` where there are fewer items."""
        scores = np.full((rounds, top), NOTHING, dtype=np.int64)
        number = round(math.exp(self.log_number)) if self.log_number < math.log(_COUNTABLE) else None
        columns = top if number is None else min(top, number)
        if columns and rounds:
            waits = _exponentials((rounds, columns), source)
            if number is not None:
                waits *= number / (number - np.arange(columns))
            scores[:, :columns] = self.distribution.quantile(self._log_least_uniforms(np.cumsum(waits, axis=1)))
        return scores

    def log_any_at_least(self, k: int) -> float:
        """Upper bound on ln Pr[some item has a score of at least k], by the union bound."""
        return (
            min(0.0, self.log_number + self.distribution.log_upper_tail(k))
            if self.log_number > -math.inf
            else -math.inf
        )

    def _log_least_uniforms(self, sums: Floats) -> Floats:
        """ln(1 - e^(-sum / N))."""
        log_ratio = np.log(sums) - self.log_number
        ratio = np.exp(np.maximum(log_ratio, _SMALL))
        logs: Floats = np.where(log_ratio < _SMALL, log_ratio, np.log(-np.expm1(-ratio)))
        return logs


def _exponentials(shape: tuple[int, ...], source: RandomSource) -> Floats:
    """Independent standard exponentials, to the precision of floats."""
    words: NDArray[Any] = draw_words(math.prod(shape), np.uint64, source)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-64
    drawn: Floats = np.maximum(-np.log(uniform), 1e-20).reshape(shape)
    return drawn
