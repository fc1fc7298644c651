"""Privacy accounting of clustered pairs: ``correlated-noise`` whose flooding comes in clusters of bounded size.

Every infinitely divisible distribution on the nonnegative integers is compound Poisson, so the flooding that users can
add in independent shares is a Poisson number of clusters of pairs. The negative binomial distribution has clusters of
every size; clusters of similar size hide a message with fewer pairs, and bound the length of a report. Here the rate of
clusters of k pairs is ``cluster_rate`` times the weight of k, divided by the sum of all weights; rates are per
category, for all honest users together. ``singles`` is the rate of further messages "+1" that come alone: where a
larger error is acceptable, a few of them replace many pairs.

After the pairs cancel, a geometric number of messages of each sign remains, as with other flooding, and a Poisson
number of singles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.correlated_noise import VIEWS, View, pair_of_geometric_noise
from shuffledp.privacy.discrete_laplace import check_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.negative_binomial import NegativeBinomial
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

MAX_CLUSTER_RATE = 700
"""The probability of no cluster, e^-rate, must be a normal double."""
MAX_RANGES = 64
MAX_PAIRS_PER_CLUSTER = 1 << 14
MAX_WEIGHT = 1 << 32
MAX_SINGLES = 10**6
_LEAST_RATE = Fraction(1, 1 << 64)
_CUTS = (1e-30, 1e-60, 1e-120, 1e-290)
_CUTS_OF_TABLES = (1e-16, *_CUTS)
_MAX_OUTCOMES = 1 << 20
_MAX_BLOCKS = 1 << 16
_MAX_TERMS = 1 << 28
_MAX_TABLE = 1 << 22
_MAX_ROUNDING = 1e-10
_TAIL_CUT = 1e-24
_ROUNDED_UP = 1 + 1e-12  # larger than the rounding error of a sum of masses
_TILTS = np.geomspace(1e-3, 60, 80)
"""Values of t to try in Chernoff's bound, each divided by the number of pairs in the largest cluster."""


@dataclass(frozen=True)
class PairClusters:
    """Poisson clusters of cancelling pairs, and singles: the rates per category, of all honest users together."""

    cluster_rate: Fraction
    """Expected number of clusters."""
    clusters: tuple[tuple[int, int, int], ...]
    """Increasing ranges of sizes: the first and the last number of pairs, and the weight of each size in the range."""
    singles: Fraction = Fraction(0)
    """Expected number of messages "+1" that come alone."""

    def __post_init__(self) -> None:
        if not _LEAST_RATE <= self.cluster_rate <= MAX_CLUSTER_RATE:
            raise ParameterError(
                f"cluster_rate must lie between 2^-64 and {MAX_CLUSTER_RATE}, not {_shown(self.cluster_rate)}."
            )
        if not (self.singles == 0 or _LEAST_RATE <= self.singles <= MAX_SINGLES):
            raise ParameterError(
                f"singles must be 0 or lie between 2^-64 and {MAX_SINGLES:,}, not {_shown(self.singles)}."
            )
        if not 1 <= len(self.clusters) <= MAX_RANGES:
            raise ParameterError(
                f"clusters must list from 1 to {MAX_RANGES:,} ranges of sizes, not {len(self.clusters):,}."
            )
        before = 0
        for first, last, weight in self.clusters:
            if not (before < first <= last <= MAX_PAIRS_PER_CLUSTER and 1 <= weight <= MAX_WEIGHT):
                raise ParameterError(
                    f"Ranges of clusters must increase, from 1 to at most {MAX_PAIRS_PER_CLUSTER:,} pairs, and weights "
                    f"lie between 1 and 2^32; got {first} to {last} with weight {weight}, after {before}."
                )
            before = last

    @classmethod
    def uniform(cls, first: int, last: int, rate: Fraction) -> PairClusters:
        """Clusters of ``first`` to ``last`` pairs, all equally likely."""
        return cls(rate, ((first, last, 1),))

    @cached_property
    def total_weight(self) -> int:
        """The sum of the weights of all sizes."""
        return sum((last - first + 1) * weight for first, last, weight in self.clusters)

    @cached_property
    def rates(self) -> tuple[tuple[int, Fraction], ...]:
        """Pairs in a cluster and the expected number of such clusters."""
        unit = self.cluster_rate / self.total_weight
        return tuple((size, unit * weight) for first, last, weight in self.clusters for size in range(first, last + 1))

    @cached_property
    def mean_pairs(self) -> float:
        """Expected number of pairs."""
        pairs = sum((last - first + 1) * (first + last) * weight for first, last, weight in self.clusters)
        return float(self.cluster_rate * pairs / (2 * self.total_weight))

    def with_rate(self, rate: Fraction) -> PairClusters:
        """Clusters of the same sizes at another rate."""
        return PairClusters(rate, self.clusters, self.singles)

    def pairs_beyond(self, risk: float, ratio: float = 0.0) -> int:
        """A number n: the pairs plus a geometric number with this ratio are at least n with probability <= ``risk``.

        Chernoff's bound: Pr[F >= n] <= E[e^(t F)] e^(-t n) for every t > 0.
        """
        sizes, rates = self._arrays
        if ratio == 1:
            raise InfeasibleError(
                "Noise of a ratio near 1 has too many likely outcomes; use a smaller ratio.", ratio=ratio
            )
        tilts = _TILTS / sizes[-1]
        if ratio > 0:  # e^t ratio must be below 1
            limit = -math.log(ratio)
            nearer = limit * (1 - np.geomspace(1e-3, 0.5, 24))
            tilts = np.concatenate((tilts[tilts < 0.99 * limit], nearer[nearer * sizes[-1] <= _TILTS[-1]]))
        growth = np.expm1(tilts[:, None] * sizes) @ rates
        if ratio > 0:
            growth += math.log1p(-ratio) - np.log(-np.expm1(math.log(ratio) + tilts))
        reach = float(np.min((growth - math.log(risk)) / tilts)) * (1 + 1e-12) + 1
        if not reach < _MAX_OUTCOMES:
            raise InfeasibleError(
                f"Clusters with {self.mean_pairs:.3g} pairs on average have about {reach:.3g} likely outcomes; at "
                f"most {_MAX_OUTCOMES:,} can be computed. Use a larger epsilon.",
                mean=self.mean_pairs,
            )
        return math.ceil(reach)

    def masses(self, length: int) -> Floats:
        """Pr[F = n] of the number F of pairs, for n below ``length``, by positive terms only.

        n Pr[F = n] is the sum over sizes k of k rate(k) Pr[F = n - k] (Panjer 1981). If s is the smallest size, each
        block of s masses follows from the masses before it. The relative error is at most the number of blocks times
        the number of sizes, plus a few, in units of the last place.
        """
        sizes, rates = self._arrays
        step, largest = int(sizes[0]), int(sizes[-1])
        blocks = -(-length // step)
        rounding = blocks * (len(sizes) + 4) * 2.0**-53
        if blocks > _MAX_BLOCKS or length * (largest - step + 1) > _MAX_TERMS or rounding > _MAX_ROUNDING:
            raise InfeasibleError(
                f"Clusters of {len(sizes):,} sizes, with up to {length:,} pairs in total, take too long to compute; "
                "use fewer sizes or a larger epsilon.",
                sizes=len(sizes),
                length=length,
            )
        kernel = np.zeros(largest - step + 1)
        kernel[sizes.astype(np.int64) - step] = sizes * rates
        padded = np.zeros(largest + blocks * step + 1)
        padded[largest] = math.exp(-float(self.cluster_rate))
        for start in range(1, length, step):
            sums = np.convolve(padded[start : start + largest], kernel, mode="valid")
            padded[largest + start : largest + start + step] = sums / np.arange(start, start + step)
        return padded[largest : largest + length]

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats]:
        """The sizes of clusters and their rates."""
        ranges = [np.arange(first, last + 1, dtype=np.float64) for first, last, _ in self.clusters]
        unit = float(self.cluster_rate / self.total_weight)
        rates = [np.full(len(sizes), unit * entry[2]) for sizes, entry in zip(ranges, self.clusters, strict=True)]
        return np.concatenate(ranges), np.concatenate(rates)


@dataclass(frozen=True)
class ClusterCurve:
    """The privacy curve of "+1" and "-1" hidden by geometric noise, singles and clusters of pairs.

    The views are those of ``CorrelatedNoiseCurve``; singles belong to a ``histogram`` only.
    """

    ratio: Dyadic
    flood: PairClusters
    view: View

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if self.view not in VIEWS:
            raise ParameterError(f"The view must be one of {', '.join(VIEWS)}, not {self.view!r}.", view=self.view)
        if self.flood.singles and self.view != "histogram":
            raise ConditionError("Singles are possible in a histogram only; a count must have none.", view=self.view)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the messages are (epsilon, delta)-private."""
        delta = 0.0
        for cut in _CUTS_OF_TABLES if self.flood.singles else _CUTS:
            delta = self.delta_with_cut(epsilon, cut)
            if delta > 1e6 * cut:
                break
        return delta

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """For each direction of the replacement, the pairs of distributions of the messages, which are independent."""
        pair = self._pair(cut)
        if self.view == "histogram":
            return ((pair, pair.reversed),)  # the other direction is its mirror image
        return ((pair,),) if self.view == "signed" else ((pair,), (pair.reversed,))

    def delta_with_cut(self, epsilon: float, cut: float) -> float:
        """``delta_at`` without outcomes of a total mass of about ``cut``; that mass is added to delta in full."""
        pair = self._pair(cut)
        if self.view == "histogram":
            return pair.delta_with_reversed_twin(epsilon)
        return pair.delta(epsilon) if self.view == "signed" else max(pair.delta(epsilon), pair.reversed.delta(epsilon))

    def _pair(self, cut: float) -> DiscretePair:
        return _pair_with_singles(self, cut) if self.flood.singles else _pair_without_singles(self, cut)


@lru_cache(maxsize=4)
def _pair_without_singles(curve: ClusterCurve, cut: float) -> DiscretePair:
    masses = curve.flood.masses(curve.flood.pairs_beyond(cut / 4))
    return pair_of_geometric_noise(curve.ratio, masses, cut / 4, curve.view, cut)


@lru_cache(maxsize=4)
def _pair_with_singles(curve: ClusterCurve, cut: float) -> DiscretePair:
    """The distributions of (U+, U-) in one category, with and without the user's "+1"."""
    table, left_out = table_with_singles(curve, cut)
    none = np.zeros((1, table.shape[1]))
    with_message, without = np.concatenate((none, table)), np.concatenate((table, none))
    return DiscretePair(with_message.ravel(), without.ravel(), left_out).sorted_by_loss()


def table_with_singles(curve: ClusterCurve, cut: float) -> tuple[Floats, float]:
    """Pr[U+ = u, U- = v] without the user's message, and a bound on the mass outside of the table, about ``cut``.

    Without singles the probability is (1 - a)^2 a^|u - v| W(min(u, v)), see ``shuffledp.privacy.correlated_noise``;
    singles shift U+ by a Poisson number.
    """
    flood, a = curve.flood, float(curve.ratio)
    length = flood.pairs_beyond(cut / 4, a)
    shifts = poisson_masses(float(flood.singles), cut / 4)
    if (length + len(shifts)) * length > _MAX_TABLE:
        raise InfeasibleError(
            f"Noise with {flood.mean_pairs:.3g} pairs and {float(flood.singles):.3g} singles on average has too many "
            f"outcomes to compute, more than {_MAX_TABLE:,}. Use a larger epsilon.",
            mean=flood.mean_pairs,
        )
    sums = flood.masses(length)
    for m in range(1, length):
        sums[m] += a * a * sums[m - 1]
    index = np.arange(length)
    distance = np.abs(index[:, None] - index)
    powers = float(curve.ratio.complement) ** 2 * a ** index.astype(np.float64)
    table = powers[distance] * sums[np.minimum(index[:, None], index)]
    shifted = np.zeros((length + len(shifts) - 1, length))
    for shift, mass in enumerate(shifts.tolist()):
        shifted[shift : shift + length] += mass * table
    return shifted, 3 * cut / 4  # a quarter each for U+ without singles, U-, and the singles


@dataclass(frozen=True)
class DifferenceWithSingles:
    """The distribution of G1 + S - G2: G1 and G2 are negative binomial, and S is the Poisson number of singles."""

    term: NegativeBinomial
    singles: Fraction

    @property
    def mean(self) -> float:
        """The expected value."""
        return float(self.singles)

    @property
    def variance(self) -> float:
        """The variance."""
        return 2 * self.term.variance + float(self.singles)

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[G1 + S - G2 >= k]."""
        lowest, masses, left_out = self._tables
        return as_delta(float(masses[max(0, k - lowest) :].sum()) * _ROUNDED_UP + left_out)

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[G1 + S - G2 <= k]."""
        lowest, masses, left_out = self._tables
        return as_delta(float(masses[: max(0, k - lowest + 1)].sum()) * _ROUNDED_UP + left_out)

    @cached_property
    def _tables(self) -> tuple[int, Floats, float]:
        """The first number, the masses from there on, and a bound on the mass outside."""
        _, term, left_out = self.term.window(_TAIL_CUT)  # the offset of the window cancels in the difference
        masses = np.convolve(np.convolve(term, term[::-1]), poisson_masses(float(self.singles), _TAIL_CUT))
        return 1 - len(term), masses, 2 * left_out + _TAIL_CUT


def poisson_masses(rate: float, risk: float) -> Floats:
    """The Poisson masses of 0, 1, ...; the tail that is left out has a mass of at most ``risk``.

    By Chernoff's bound Pr[N >= n] <= e^-rate (e rate / n)^n for n above the rate.
    """
    length = max(1, math.ceil(rate))
    while length * (1 + math.log(rate / length)) - rate > math.log(risk):
        length += 1
        if length > _MAX_OUTCOMES:
            raise InfeasibleError(f"A rate of {rate:.3g} singles is too large to compute.", rate=rate)
    logs = np.concatenate(([0.0], np.log(rate / np.arange(1.0, length))))
    return np.exp(np.cumsum(logs, dtype=np.longdouble).astype(np.float64) - rate)


def _shown(number: Fraction) -> str:
    """A fraction of any size for an error message."""
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return "a huge number"
