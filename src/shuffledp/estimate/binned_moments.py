"""Mean and variance of numbers that were counted in bins of equal width, with intervals that hold for any data.

Positions are relative: 0 is the lower bound, 1 the upper one. A number is at most half of a bin away from the middle of
its bin. So counting it as the middle changes the mean by at most half of a bin, and the standard deviation too, since
that is a norm of the deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RISK_OF_MEAN = 0.2  # the share of the risk of a variance that is spent on the mean


@dataclass(frozen=True, eq=False)
class BinnedMoments:
    """Moments from the ``counts`` of users in bins, which may have noise; ``users`` is their public number.

    ``radius_of`` maps weights of the bins and a risk to a distance: the estimate of sum(weights * counts) exceeds the
    truth by more with probability at most risk / 2, and falls below it by more with probability at most risk / 2.
    Weights are between 0 and 1.
    """

    counts: Floats
    users: int
    radius_of: Callable[[Floats, float], float]

    @property
    def half_width(self) -> float:
        """Half of the width of a bin."""
        return 0.5 / len(self.counts)

    @cached_property
    def _middles(self) -> Floats:
        middles: Floats = (np.arange(len(self.counts), dtype=np.float64) + 0.5) / len(self.counts)
        return middles

    @cached_property
    def mean(self) -> float:
        """The estimated mean of the middles of the users' bins."""
        return float(self._middles @ self.counts) / self.users

    @cached_property
    def variance(self) -> float:
        """The estimated variance of the middles of the users' bins; noise may make it negative."""
        return float((self._middles - self.mean) ** 2 @ self.counts) / self.users

    @property
    def variance_within(self) -> float:
        """The variance of a uniform position within a bin."""
        return self.half_width**2 / 3

    def mean_interval(self, risk: float) -> tuple[float, float]:
        """An interval that contains the mean of the numbers with a probability of at least 1 - risk."""
        radius = self._radius(self._middles, risk) + self.half_width
        return max(self.mean - radius, 0.0), min(self.mean + radius, 1.0)

    def deviation_interval(self, risk: float) -> tuple[float, float]:
        """An interval that contains the standard deviation of the numbers with a probability of at least 1 - risk.

        The estimated variance about a fixed centre is a weighted sum of the counts. With a centre at most
        ``mean_error`` from the true mean, and an error of the mean of at most ``mean_error`` too, it differs from the
        variance by at most three times mean_error^2. Centres lie on a grid that does not depend on the noise; all that
        may be next to the mean are tried.
        """
        mean_error = self._radius(self._middles, _RISK_OF_MEAN * risk)
        radius = max(
            self._radius((self._middles - centre) ** 2, (1 - _RISK_OF_MEAN) * risk)
            for centre in self._centres(mean_error)
        )
        lowest_variance = max(self.variance - radius - mean_error**2, 0.0)
        highest_variance = max(self.variance + radius + 3 * mean_error**2, 0.0)
        low, high = math.sqrt(lowest_variance) - self.half_width, math.sqrt(highest_variance) + self.half_width
        return max(low, 0.0), min(high, 0.5)

    def _centres(self, distance: float) -> list[float]:
        """The middles of the cells of width 2 * distance with a number at most ``distance`` from the estimated mean."""
        if distance == 0:
            return [min(max(self.mean, 0.0), 1.0)]
        width = 2 * distance
        cells = range(math.floor((self.mean - distance) / width), math.floor((self.mean + distance) / width) + 1)
        return [min(max((2 * cell + 1) * distance, 0.0), 1.0) for cell in cells]

    def _radius(self, weights: Floats, risk: float) -> float:
        return self.radius_of(weights, risk) / self.users
