"""Correlated noise in shares: every user adds a share, and the sum of all shares has the planned distribution.

All planned users together add to each bin a geometric number of "+1", a geometric number of "-1", and a negative
binomial number of pairs of both, which cancel. A user's share of each is negative binomial, with the shape divided by
the number of planned users.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.capping import Share, chance_of_more
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.privacy.negative_binomial import NegativeBinomial, NegativeBinomialDifference
from shuffledp.protocols.parts.linear import NoiseDistribution
from shuffledp.randomness import Dyadic, RandomSource, negative_binomial, scattered_negative_binomial

Signs = dict[tuple[int, int], float]


@dataclass(frozen=True)
class NoiseShares:
    """The noise of all planned users together, and their number."""

    ratio: Dyadic
    flood_shape: Fraction
    flood_ratio: Dyadic
    planned: int

    @property
    def mean_messages(self) -> float:
        """Expected number of messages that a user adds to one bin."""
        remaining = self.ratio.fraction / self.ratio.complement.fraction
        flooding = self.flood_shape * self.flood_ratio.fraction / self.flood_ratio.complement.fraction
        return float(2 * (remaining + flooding) / self.planned)

    def chance_of_more(self, messages: int, bins: int) -> float:
        """Upper bound on the probability that a user adds more than ``messages`` messages to all bins together."""
        share = bins / self.planned
        remaining = Share(2 * share, float(self.ratio))
        flooding = Share(float(self.flood_shape) * share, float(self.flood_ratio), 2)
        return chance_of_more([remaining, flooding], messages)

    def pmf(self, omitted_mass: float) -> Signs:
        """The distribution of a user's numbers of "+1" and "-1" in one bin.

        The least likely outcomes are left out, of a total probability of at most ``omitted_mass``.
        """
        remaining = _masses(NegativeBinomial(Fraction(1, self.planned), self.ratio), omitted_mass / 100)
        flooding = _masses(NegativeBinomial(self.flood_shape / self.planned, self.flood_ratio), omitted_mass / 100)
        table = np.zeros((len(remaining) + len(flooding) - 1,) * 2)
        alone = np.outer(remaining, remaining)
        for pairs, mass in enumerate(flooding):
            table[pairs : pairs + len(remaining), pairs : pairs + len(remaining)] += mass * alone
        likeliest = np.argsort(-table, axis=None)
        listed = likeliest[: int(np.searchsorted(np.cumsum(table.ravel()[likeliest]), 1 - omitted_mass / 2)) + 1]
        plus, minus = np.unravel_index(listed, table.shape)
        return dict(zip(zip(plus.tolist(), minus.tolist(), strict=True), table[plus, minus].tolist(), strict=True))

    def draw(self, cells: int, source: RandomSource) -> NDArray[np.int64]:
        """One share per cell (a bin of a user): each "+1" is returned as 2 * cell, each "-1" as 2 * cell + 1."""
        sent = []
        for sign in (0, 1):
            cell, copies = scattered_negative_binomial(Fraction(1, self.planned), self.ratio, cells, source)
            sent.append(np.repeat(2 * cell + sign, copies))
        cell, copies = scattered_negative_binomial(self.flood_shape / self.planned, self.flood_ratio, cells, source)
        pairs = np.repeat(2 * cell, copies)
        return np.concatenate((*sent, pairs, pairs + 1))

    def totals(self, users: int, bins: int, source: RandomSource) -> tuple[NDArray[Any], NDArray[Any]]:
        """The numbers of "+1" and "-1" that ``users`` users add to each bin; sums of shares are negative binomial."""
        share = Fraction(users, self.planned)
        pairs = negative_binomial(share * self.flood_shape, self.flood_ratio, bins, source)
        plus = negative_binomial(share, self.ratio, bins, source)
        return pairs + plus, pairs + negative_binomial(share, self.ratio, bins, source)

    def remaining(self, users: int) -> NoiseDistribution:
        """The noise of ``users`` users after pairs cancel: discrete Laplace if ``users`` are as many as planned."""
        share = Fraction(users, self.planned)
        if share == 1:
            return DiscreteLaplace(self.ratio)
        return NegativeBinomialDifference(NegativeBinomial(share, self.ratio))


def _masses(distribution: NegativeBinomial, omitted_mass: float) -> NDArray[np.float64]:
    """The probabilities of 0, 1, ... up to a tail of at most ``omitted_mass``."""
    first, masses, _ = distribution.window(omitted_mass)
    return np.concatenate((np.zeros(first), masses))
