"""Correlated noise in shares: every user adds a share, and the sum of all shares has the planned distribution.

All planned users together add to each bin a geometric number of "+1", a geometric number of "-1", and pairs of both,
which cancel: a negative binomial number, or Poisson clusters of pairs with a Poisson number of single "+1". A user's
share has the shapes and rates divided by the number of planned users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.privacy.capping import PoissonGroups, Share, chance_of_more
from shuffledp.privacy.clusters import ClusterCurve, DifferenceWithSingles, PairClusters, poisson_masses
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve, NegativeBinomialPairs, View
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.privacy.negative_binomial import NegativeBinomial, NegativeBinomialDifference
from shuffledp.protocols.parts.linear import NoiseDistribution
from shuffledp.randomness import (
    Dyadic,
    RandomSource,
    clusters_in_bins,
    negative_binomial,
    poisson,
    scattered_clusters,
    scattered_negative_binomial,
)

Signs = dict[tuple[int, int], float]
Flood = NegativeBinomialPairs | PairClusters
"""The pairs that cancel."""


_KEYS = tuple(tuple(field.name for field in dataclasses.fields(kind)) for kind in (NegativeBinomialPairs, PairClusters))


def flat_flood(fields: dict[str, Any]) -> dict[str, Any]:
    """Encoded fields in which ``flood`` is replaced by the fields of the flood, as in signed documents."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= value if name == "flood" else {name: value}
    return flat


def nested_flood(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of ``flat_flood``; ParameterError unless the document has all keys of one kind of flood."""
    fields = {name: value for name, value in document.items() if not any(name in keys for keys in _KEYS)}
    flood = {name: value for name, value in document.items() if name not in fields}
    if "flood" in document or set(flood) not in map(set, _KEYS):
        needed = ", or ".join(" and ".join(keys) for keys in _KEYS)
        raise ParameterError(f"The parameters of correlated noise need {needed}; given: {', '.join(flood) or 'none'}.")
    return fields | {"flood": flood}


def curve_of(ratio: Dyadic, flood: Flood, view: View) -> CorrelatedNoiseCurve | ClusterCurve:
    """The privacy curve of the noise of all planned users."""
    if isinstance(flood, PairClusters):
        return ClusterCurve(ratio, flood, view)
    return CorrelatedNoiseCurve(ratio, flood.flood_shape, flood.flood_ratio, view)


@dataclass(frozen=True)
class NoiseShares:
    """The noise of all planned users together, and their number."""

    ratio: Dyadic
    flood: Flood
    planned: int

    @property
    def singles(self) -> Fraction:
        """Expected number of single "+1" in one bin, of all planned users."""
        return self.flood.singles if isinstance(self.flood, PairClusters) else Fraction(0)

    @property
    def mean_messages(self) -> float:
        """Expected number of messages that a user adds to one bin."""
        remaining = float(self.ratio.fraction / self.ratio.complement.fraction)
        return (2 * (remaining + self.flood.mean_pairs) + float(self.singles)) / self.planned

    def chance_of_more(self, messages: int, bins: int) -> float:
        """Upper bound on the probability that a user adds more than ``messages`` messages to all bins together."""
        share = bins / self.planned
        remaining = Share(2 * share, float(self.ratio))
        if isinstance(self.flood, NegativeBinomialPairs):
            flooding = Share(float(self.flood.flood_shape) * share, float(self.flood.flood_ratio), 2)
            return chance_of_more([remaining, flooding], messages)
        groups = [(2 * size, float(rate) * share) for size, rate in self.flood.rates]
        if self.singles:
            groups.insert(0, (1, float(self.singles) * share))
        return chance_of_more([remaining], messages, PoissonGroups(tuple(groups)))

    def pmf(self, omitted_mass: float) -> Signs:
        """The distribution of a user's numbers of "+1" and "-1" in one bin.

        The least likely outcomes are left out, of a total probability of at most ``omitted_mass``.
        """
        minus = _masses(NegativeBinomial(Fraction(1, self.planned), self.ratio), omitted_mass / 100)
        plus = minus
        if self.singles:
            plus = np.convolve(minus, poisson_masses(float(self.singles) / self.planned, omitted_mass / 100))
        flooding = self._pairs_of_share(omitted_mass / 100)
        table = np.zeros((len(plus) + len(flooding) - 1, len(minus) + len(flooding) - 1))
        alone = np.outer(plus, minus)
        for pairs, mass in enumerate(flooding):
            table[pairs : pairs + len(plus), pairs : pairs + len(minus)] += mass * alone
        likeliest = np.argsort(-table, axis=None)
        listed = likeliest[: int(np.searchsorted(np.cumsum(table.ravel()[likeliest]), 1 - omitted_mass / 2)) + 1]
        rows, columns = np.unravel_index(listed, table.shape)
        return dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), table[rows, columns].tolist(), strict=True))

    def _pairs_of_share(self, omitted_mass: float) -> NDArray[np.float64]:
        """The probabilities of 0, 1, ... pairs of a user in one bin."""
        if isinstance(self.flood, NegativeBinomialPairs):
            shape = self.flood.flood_shape / self.planned
            return _masses(NegativeBinomial(shape, self.flood.flood_ratio), omitted_mass)
        share = self.flood.with_rate(self.flood.cluster_rate / self.planned)
        return share.masses(share.pairs_beyond(omitted_mass))

    def draw(self, cells: int, source: RandomSource) -> NDArray[np.int64]:
        """One share per cell (a bin of a user): each "+1" is returned as 2 * cell, each "-1" as 2 * cell + 1."""
        sent = []
        for sign in (0, 1):
            cell, copies = scattered_negative_binomial(Fraction(1, self.planned), self.ratio, cells, source)
            sent.append(np.repeat(2 * cell + sign, copies))
        if isinstance(self.flood, NegativeBinomialPairs):
            shape = self.flood.flood_shape / self.planned
            cell, copies = scattered_negative_binomial(shape, self.flood.flood_ratio, cells, source)
        else:
            rate = self.flood.cluster_rate / self.planned
            cell, copies = scattered_clusters(rate, self.flood.clusters, cells, source)
            if self.singles:
                alone, singles = scattered_clusters(self.singles / self.planned, ((1, 1, 1),), cells, source)
                sent.append(np.repeat(2 * alone, singles))
        pairs = np.repeat(2 * cell, copies)
        return np.concatenate((*sent, pairs, pairs + 1))

    def totals(self, users: int, bins: int, source: RandomSource) -> tuple[NDArray[Any], NDArray[Any]]:
        """The numbers of "+1" and "-1" that ``users`` users add to each bin, drawn from the distribution of the sum."""
        share = Fraction(users, self.planned)
        if isinstance(self.flood, NegativeBinomialPairs):
            pairs = negative_binomial(share * self.flood.flood_shape, self.flood.flood_ratio, bins, source)
        else:
            pairs = clusters_in_bins(share * self.flood.cluster_rate, self.flood.clusters, bins, source)
        plus = negative_binomial(share, self.ratio, bins, source)
        if self.singles:
            plus += poisson(share * self.singles, bins, source)
        return pairs + plus, pairs + negative_binomial(share, self.ratio, bins, source)

    def remaining(self, users: int) -> NoiseDistribution:
        """The noise of ``users`` users after pairs cancel: discrete Laplace if ``users`` are as many as planned."""
        share = Fraction(users, self.planned)
        if self.singles:
            return DifferenceWithSingles(NegativeBinomial(share, self.ratio), share * self.singles)
        if share == 1:
            return DiscreteLaplace(self.ratio)
        return NegativeBinomialDifference(NegativeBinomial(share, self.ratio))


def _masses(distribution: NegativeBinomial, omitted_mass: float) -> NDArray[np.float64]:
    """The probabilities of 0, 1, ... up to a tail of at most ``omitted_mass``."""
    first, masses, _ = distribution.window(omitted_mass)
    return np.concatenate((np.zeros(first), masses))
