"""The median or minimum over the rows of a sketch: its distribution and bounds on its error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.incomplete_beta import betainc
from shuffledp.randomness import Dyadic
from shuffledp.search import bisect_integers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_OMITTED_MASS = 1e-14


@dataclass(frozen=True)
class RowStatistic:
    """The ``order``-th smallest of ``rows`` rows with independent noise and with collisions."""

    noise: Binomial
    rows: int
    order: int
    categories: int
    collision: float

    @cached_property
    def squared_error_alone(self) -> float:
        """The mean squared error of a category without collisions."""
        return self.squared_error(np.zeros(self.rows, dtype=np.int64))

    def squared_error(self, extra: Integers, *, least: float = -math.inf) -> float:
        """The mean squared error if ``extra`` other users share the cell of each row; errors are at least ``least``."""
        values, masses = self._pmf(extra)
        errors = np.maximum(values - self.noise.mean, least)
        return float(masses @ errors**2)

    def _pmf(self, extra: Integers) -> tuple[Integers, Floats]:
        """The distribution of the order statistic of noise + extra; the number of rows <= v is Poisson binomial."""
        first, distribution = self._noise_table
        distinct = np.unique(extra)
        steps = np.arange(first, first + len(distribution))
        values = np.unique(distinct[:, None] + steps)
        at_most = np.zeros((self.order + 1, len(values)))  # Pr[i rows are <= v]; the last entry: i or more
        at_most[0] = 1.0
        padded = np.concatenate(([0.0], distribution, [1.0]))
        for shift in extra.tolist():
            probability = padded[np.clip(values - shift - first + 1, 0, len(padded) - 1)]
            moved = at_most[:-1] * probability
            at_most[:-1] -= moved
            at_most[1:] += moved
        return values, np.diff(at_most[-1], prepend=0.0)

    @cached_property
    def _noise_table(self) -> tuple[int, Floats]:
        """The first k of non-negligible mass, and Pr[N <= k] from there on."""
        first = self.noise.least_with_lower_tail(_OMITTED_MASS)
        last = self.noise.trials - self.noise.mirrored.least_with_lower_tail(_OMITTED_MASS)
        masses = self.noise.pmf(np.arange(first, last + 1, dtype=np.int64))
        return first, np.minimum(np.cumsum(masses), 1.0)

    def overestimate_bound(self, risk: float) -> float:
        """A bound on the overestimate that is exceeded with a probability of at most ``risk``, for every data set.

        If it is exceeded, all but order - 1 rows are too large, by noise or by collisions. More than ``others``
        other users share a cell with probability at most n c / (others + 1), and at most c times the number of other
        categories, where c is the probability that two categories collide.
        """
        best, others = float(self.noise.trials), 0
        while others < best:
            k = self._least_sufficient(self._seldom_above(self._sharing_probability(others), risk), self.noise)
            if k is not None:
                best = min(best, others + max(0.0, k - self.noise.mean))
            others = max(1, 2 * others)
        return best

    def intervals(self, estimates: Floats, confidence: float) -> Floats:
        """Intervals about estimated counts with at least this coverage for every data set."""
        risk = (1 - confidence) / 2
        above, below = self.overestimate_bound(risk), self.underestimate_bound(risk)
        ends = np.column_stack((estimates - above, estimates + below))
        return np.clip(ends, 0.0, self.noise.trials)

    def _seldom_above(self, sharing: float, risk: float) -> Callable[[int], bool]:
        """Whether the statistic exceeds k with probability at most ``risk``; rows with shared cells count as larger."""
        rows = self.rows - self.order + 1
        return lambda k: self._rows_beyond(sharing + float(self.noise.upper_tail(k + 1)), rows) <= risk

    def underestimate_bound(self, risk: float) -> float:
        """A bound on the underestimate that is exceeded with a probability of at most ``risk``; collisions only add."""
        mirrored = self.noise.mirrored

        def enough(k: int) -> bool:
            return self._rows_beyond(float(mirrored.upper_tail(k + 1)), self.order) <= risk

        k = self._least_sufficient(enough, mirrored)
        return max(0.0, (self.noise.trials if k is None else k) - mirrored.mean)

    def _sharing_probability(self, others: int) -> float:
        """Upper bound on the probability that more than ``others`` other users share a cell."""
        users = self.noise.trials
        return min(1.0, min(self.categories - 1, users) * self.collision, users * self.collision / (others + 1))

    def _rows_beyond(self, probability: float, rows: int) -> float:
        """Pr[Bin(self.rows, probability) >= rows]."""
        return float(betainc(rows, self.rows - rows + 1, min(1.0, probability)))

    @staticmethod
    def _least_sufficient(enough: Callable[[int], bool], noise: Binomial) -> int | None:
        """The least k above the mean of the noise that is large enough; None if not even the maximum is."""
        low, high = math.ceil(noise.mean) - 1, noise.trials
        if not enough(high):
            return None
        step = max(1, int(noise.deviation))
        while low + step < high and not enough(low + step):
            low, step = low + step, 2 * step
        return bisect_integers(enough, low, min(high, low + step))


@lru_cache(maxsize=16)
def row_statistic(users: int, gamma: Dyadic, rows: int, order: int, categories: int, collision: float) -> RowStatistic:
    """A cached statistic for the noise of ``users`` users."""
    return RowStatistic(Binomial(users, gamma), rows, order, categories, collision)
