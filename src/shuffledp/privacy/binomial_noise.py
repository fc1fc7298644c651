"""Exact privacy accounting of binomial noise on counts.

The analyzer sees s + n - N instead of the count s, with N ~ Bin(n, q): each of n users adds one token, but leaves it
out with probability q. Replacing one user changes one count by one (a binary sum), or two counts in opposite
directions (a histogram).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.divergence import DiscretePair, as_delta

Floats = NDArray[np.float64]

_POINTS_EXACT = 1 << 15  # up to this many outcomes are listed one by one
_NODES_PER_DEVIATION = 500
_TINY_CUT = 1e-305
_USUAL_CUT = 1e-30
_UNDERFLOW = 1e-305  # added, so that underflow does not turn a positive delta into 0


@dataclass(frozen=True)
class BinomialCount:
    """One count with binomial noise: the privacy curve of a binary sum."""

    noise: Binomial

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the count is (epsilon, delta)-private."""
        return count_delta(self.noise, epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per direction of the replacement, the pair of distributions of the observed count."""
        pair = shift_pair(self.noise, cut=cut)
        return (pair,), (pair.reversed,)


@dataclass(frozen=True)
class BinomialHistogram:
    """Two counts with independent binomial noise that change in opposite directions."""

    noise: Binomial

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the histogram is (epsilon, delta)-private."""
        check_epsilon(epsilon)
        for cut in (_USUAL_CUT, _TINY_CUT):
            delta = _cached_pair(self.noise, cut).delta_with_reversed_twin(epsilon)
            if delta > 1e6 * cut:
                break
        rounding = 2 * float(self.noise.tail_error(round(self.noise.mean + 40 * self.noise.deviation)))
        return as_delta(delta * (1 + rounding))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """One direction as two independent pairs; the other direction is its mirror image."""
        pair = shift_pair(self.noise, cut=cut)
        return ((pair, pair.reversed),)


def count_delta(noise: Binomial, epsilon: float) -> float:
    """Upper bound on the least delta for which a count with this noise is (epsilon, delta)-private.

    It covers both directions of replacing one user, does not depend on the count, and is exact except for the stated
    rounding error, which is added. With j* the last outcome whose likelihood ratio exceeds e^epsilon, the divergence
    is Pr[N = j*] - (e^epsilon - 1) Pr[N > j*], and that of the mirrored noise for the other direction. This form does
    not subtract nearly equal tails.
    """
    check_epsilon(epsilon)
    epsilon = min(epsilon, LARGEST_EPSILON)
    worst = max(_one_sided_delta(noise, epsilon), _one_sided_delta(noise.mirrored, epsilon))
    return as_delta(worst + _UNDERFLOW)


def _one_sided_delta(noise: Binomial, epsilon: float) -> float:
    """max over j of Pr[N >= j] - e^epsilon Pr[N >= j + 1], over several j around the best one because of rounding."""
    # exact rationals: near the upper end a float is too coarse to identify the outcome
    shrinkage = Fraction(math.exp(-epsilon)) * noise.probability.complement.fraction / noise.probability.fraction
    turning = math.floor((noise.trials - shrinkage) / (1 + shrinkage))
    around = np.clip(turning + np.arange(-2, 4), 0, noise.trials)
    error = noise.tail_error(around)
    here = noise.pmf(around) * (1 + error)
    beyond = math.expm1(epsilon) * noise.upper_tail(around + 1) * (1 - error)
    return as_delta(float(np.max(here - beyond)))


def shift_pair(noise: Binomial, *, cut: float = _TINY_CUT) -> DiscretePair:
    """The distributions of s + 1 - N and of s - N as a pair, in the order of their ratio.

    Outcomes with a total mass of at most ``cut`` under the first distribution are left out; ``cut`` is added to every
    divergence. If there are few outcomes, they are listed one by one. Otherwise they are grouped into blocks, and the
    mass of a block is moved to the two ratios at its ends such that its mass under both distributions is preserved.
    That spreads the ratio, so every divergence becomes an upper bound (Doroshenko et al. 2022).
    """
    first = noise.least_with_lower_tail(cut / 4)
    last = noise.trials - noise.mirrored.least_with_lower_tail(cut / 4)
    left_out = cut if first > 0 or last < noise.trials else 0.0
    if last - first <= _POINTS_EXACT:
        return _exact_pair(noise, first, last, left_out)
    return _spread_pair(noise, first, last, left_out)


def _exact_pair(noise: Binomial, first: int, last: int, cut: float) -> DiscretePair:
    # outcome k is N = k - 1 with the user's token and N = k without it
    points = np.arange(first, last + 2, dtype=np.int64)
    with_user = noise.pmf(points - 1)
    without_user = with_user * _ratio(noise, np.maximum(points, 1))
    if first == 0:
        without_user[0] = noise.pmf(0)
    if last == noise.trials:
        without_user[-1] = 0.0
    return DiscretePair(with_user, without_user, cut)


def _spread_pair(noise: Binomial, first: int, last: int, cut: float) -> DiscretePair:
    step = 4 * max(1, int(noise.deviation / _NODES_PER_DEVIATION / 4))
    nodes = np.arange(max(first, 1), last + step, step, dtype=np.int64)  # a block is (node, next node]
    quarters = noise.pmf(nodes[:-1, None] + np.arange(5) * (step // 4))
    slope = (noise.pmf(nodes + 1) - noise.pmf(nodes - 1)) / 2
    mass = quarters @ (np.array([7, 32, 12, 32, 7]) * step / 90)  # Boole's rule, then the Euler-Maclaurin formula
    mass += (quarters[:, 0] - quarters[:, 4]) / 2 + (slope[1:] - slope[:-1]) / 12  # for N = node .. next - 1
    ratio = _ratio_less_one(noise, nodes)
    mean_ratio = (quarters[:, 4] - quarters[:, 0]) / mass
    to_next = np.clip((ratio[:-1] - mean_ratio) / (ratio[:-1] - ratio[1:]), 0.0, 1.0)
    mass *= 1 + ((last - first) / noise.variance) ** 4 / 720  # at least as large as the next term of the expansion
    with_user = np.zeros(len(nodes))
    with_user[1:] += mass * to_next
    with_user[:-1] += mass * (1 - to_next)
    return DiscretePair(with_user, with_user * _ratio(noise, nodes), cut)


def _ratio_less_one(noise: Binomial, k: NDArray[np.int64]) -> Floats:
    """Pr[N = k] / Pr[N = k - 1] - 1, which is ((n + 1) q - k) / (k (1 - q)); it falls with k."""
    centre = noise.exact_mean + noise.probability.fraction
    integer, remainder = divmod(centre.numerator, centre.denominator)
    distance = (integer - k) + remainder / centre.denominator
    result: Floats = distance / (k * float(noise.probability.complement))
    return result


def _ratio(noise: Binomial, k: NDArray[np.int64]) -> Floats:
    """Pr[N = k] / Pr[N = k - 1], which is (n + 1 - k) q / (k (1 - q)), accurate near 1 and near 0."""
    less_one = _ratio_less_one(noise, k)
    odds = float(noise.probability) / float(noise.probability.complement)
    small = np.maximum(noise.trials + 1 - k, 0) * (odds / k)
    result: Floats = np.where(less_one > -0.5, 1 + less_one, small)
    return result


@lru_cache(maxsize=4)
def _cached_pair(noise: Binomial, cut: float) -> DiscretePair:
    return shift_pair(noise, cut=cut).sorted_by_loss()
