"""The difference of two independent negative binomial numbers: noise that is left when pairs cancel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.correlated_noise import NegativeBinomial

__all__ = ["NegativeBinomialDifference"]

_TAIL_CUT = 1e-18


@dataclass(frozen=True)
class NegativeBinomialDifference:
    """The law of G1 - G2 with G1 and G2 independent and of the same law."""

    each: NegativeBinomial

    @property
    def mean(self) -> float:
        """The expected value, which is 0."""
        return 0.0

    @property
    def variance(self) -> float:
        """Of both together."""
        return 2 * self.each.variance

    def upper_tail(self, k: int) -> float:
        """Pr[G1 >= G2 + k], from above."""
        if k <= 0:
            return 1.0 - self.upper_tail(1 - k)
        masses, tails, left_out = self._tables
        return float(masses[: max(0, len(tails) - k)] @ tails[k:]) + left_out

    def lower_tail(self, k: int) -> float:
        """Pr[G1 <= G2 + k], from above."""
        return self.upper_tail(-k)

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        _, masses, left_out = self.each.window(_TAIL_CUT)  # where it begins cancels in the difference
        return masses, np.cumsum(masses[::-1])[::-1], 2 * left_out
