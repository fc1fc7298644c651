"""Calibration of clustered pairs with a rate for each size, and singles: fewer messages at the same error.

``fewest_messages`` divides the variance of ``least_clusters`` between geometric noise and singles, and finds a rate for
each size by a fixed number of multiplicative steps: where one more cluster of a size decreases delta by more per
message than the average, its rate grows. There is no line search and no stopping rule, and the averaged rates are
rounded, so rounding errors of other machines do not lead to other parameters. The accountant checks the result at
exactly its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError
from shuffledp.privacy.cluster_calibration import certified, least_clusters, least_noise, least_rate
from shuffledp.privacy.clusters import MAX_CLUSTER_RATE, MAX_RANGES, ClusterCurve, PairClusters, table_with_singles
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs, staying_ratio
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]
Slopes = tuple[float, float, float, Floats]
"""ln(delta / target), and its derivatives with respect to the ratio, the rate of singles and the rate of each size."""

LEAST_EPSILON_OF_A_TABLE = 0.5
"""Below it singles take too long; clusters of equally likely sizes are used instead."""
_LEAST_OPTIMIZED, _LEAST_DELTA_OPTIMIZED = 1.0, 1e-30
"""For a smaller epsilon or delta, the weights that are best at these values are used."""
_LEAST_DELTA_WITH_SINGLES, _LARGEST_WITH_SINGLES = 1e-9, 10
"""If delta is smaller, or clusters have more pairs, singles save less than 2 % of the messages and take long."""
_MAX_OUTCOMES = 2e4
"""About the number of outcomes, ln(delta)^2 / ((1 - split) epsilon), beyond which weights take long and save little."""
_STEPS, _AVERAGED = 24, 8
_WEIGHT_STEPS = 200
_SINGLES_STEPS = 100
_SHARE_OF_SINGLES = 0.15  # of the variance, at the start
_LARGEST_SHARE = 0.9
_MAX_MOVE = 0.7  # of logarithms of rates, in one step
_RARE = 1e-12  # share of delta below which masses are left out


@lru_cache(maxsize=64)
def fewest_messages(epsilon: float, delta: float, split: float) -> tuple[Dyadic, PairClusters | NegativeBinomialPairs]:
    """Noise for a histogram with the variance of ``least_clusters``, with fewer messages if optimization finds such."""
    ratio, uniform = least_noise(epsilon, delta, split, "histogram")
    many = math.log(delta) ** 2 > _MAX_OUTCOMES * (1 - split) * epsilon
    if epsilon < LEAST_EPSILON_OF_A_TABLE or many or isinstance(uniform, NegativeBinomialPairs):
        return ratio, uniform
    try:
        other_ratio, clusters = _weighted_clusters(epsilon, delta, split)
    except InfeasibleError:
        return ratio, uniform
    better = _messages(other_ratio, clusters) < _messages(ratio, uniform)
    return (other_ratio, clusters) if better else (ratio, uniform)


def _weighted_clusters(epsilon: float, delta: float, split: float) -> tuple[Dyadic, PairClusters]:
    """Weighted sizes and singles, in proportions that are best for an easier target, at the rate for this target."""
    easier = max(epsilon, _LEAST_OPTIMIZED), max(delta, _LEAST_DELTA_OPTIMIZED)
    share, sizes, rates = _proportions(*easier, split)
    scale = max(1.0, _LEAST_OPTIMIZED / epsilon)  # sizes grow as 1 / epsilon, variances as its square
    variance = DiscreteLaplace(staying_ratio(epsilon, split, "histogram")).variance
    singles = Fraction(math.floor(share * variance * _SINGLES_STEPS), _SINGLES_STEPS)
    ratio = Dyadic.at_least(_ratio_of_variance(variance - float(singles)))
    clusters = PairClusters(Fraction(1), _ranges(sizes, rates, scale), singles)
    guess = float(rates.sum()) * math.log(delta) / math.log(easier[1])
    rate = least_rate(ratio, clusters, "histogram", (epsilon, delta), guess=guess, precision=1e-4)
    return ratio, certified(ratio, clusters, rate, "histogram", epsilon, delta)


def _messages(ratio: Dyadic, clusters: PairClusters) -> float:
    """Expected number of messages of the noise of one category."""
    return 2 * float(ratio) / float(ratio.complement) + 2 * clusters.mean_pairs + float(clusters.singles)


def _ratio_of_variance(variance: float) -> float:
    """The ratio a of geometric noise with 2 a / (1 - a)^2 equal to the variance."""
    middle = 1 + 1 / variance
    return middle - math.sqrt(middle * middle - 1)


def _ranges(sizes: Sizes, rates: Floats, scale: float) -> tuple[tuple[int, int, int], ...]:
    """Ranges of sizes with integer weights in proportion to the rates; a scale above 1 turns sizes into ranges."""
    ends = np.round((np.arange(sizes[0], sizes[-1] + 2) - 0.5) * scale + 0.5).astype(np.int64)
    weights = np.round(_WEIGHT_STEPS * rates / rates.sum()).astype(np.int64)
    entries = zip(ends[:-1].tolist(), (ends[1:] - 1).tolist(), weights.tolist(), strict=True)
    return tuple((max(1, first), last, weight) for first, last, weight in entries if weight > 0)


def _proportions(epsilon: float, delta: float, split: float) -> tuple[float, Sizes, Floats]:
    """The singles' share of the variance, and sizes with their rates: averages over the last steps."""
    ratio, uniform = least_clusters(epsilon, delta, split, "histogram")
    variance = DiscreteLaplace(ratio).variance
    smallest, largest, _ = uniform.clusters[0]
    sizes = np.arange(max(1, (smallest + 1) // 2), largest + 2)
    if len(sizes) > MAX_RANGES:
        raise InfeasibleError(f"Clusters of {len(sizes):,} sizes are too many for a weight each.", sizes=len(sizes))
    rate = float(uniform.cluster_rate) / (largest - smallest + 1)
    rates = np.where((sizes >= smallest) & (sizes <= largest), rate, 0.3 * rate)
    with_singles = largest <= _LARGEST_WITH_SINGLES and delta >= _LEAST_DELTA_WITH_SINGLES
    singles = _SHARE_OF_SINGLES * variance if with_singles else 0.0
    slopes_at = _slopes_with_singles if with_singles else _slopes_without_singles
    visited: list[tuple[float, Floats]] = []
    for step in range(_STEPS):
        rates, singles = _moved(slopes_at, (epsilon, delta), sizes, rates, singles, variance, step)
        visited.append((singles, rates))
    last = visited[-_AVERAGED:]
    return sum(s for s, _ in last) / (len(last) * variance), sizes, np.mean([r for _, r in last], axis=0)


def _moved(
    slopes_at: Callable[[tuple[float, float], float, float, Sizes, Floats], Slopes],
    target: tuple[float, float],
    sizes: Sizes,
    rates: Floats,
    singles: float,
    variance: float,
    step: int,
) -> tuple[Floats, float]:
    """One step: rates towards sizes that hide more per message, all rates towards the target, singles likewise."""
    a = _ratio_of_variance(variance - singles)
    excess, of_ratio, of_singles, of_sizes = slopes_at(target, a, singles, sizes, rates)
    gains, costs = np.maximum(-of_sizes, 1e-12), 2.0 * sizes
    average = float(gains @ rates) / float(costs @ rates)
    level = min(max(excess / float(gains @ rates), -_MAX_MOVE), _MAX_MOVE)
    moved = rates * np.clip(gains / costs / average, 0.1, 10) * math.exp(level)
    if singles == 0:
        return moved, 0.0
    # singles replace geometric noise of the same variance, 2 a / (1 - a)^2, which has 2 a / (1 - a) messages
    gain = -(of_singles - of_ratio * (1 - a) ** 3 / (2 * (1 + a)))
    worth = math.log(max(gain / (1 - (1 - a) / (1 + a)) / average, 1e-9))
    move = min(max(worth, -_MAX_MOVE), _MAX_MOVE) / (1 + 0.35 * step)
    return moved, min(singles * math.exp(move), _LARGEST_SHARE * variance)


def _slopes_with_singles(target: tuple[float, float], a: float, singles: float, sizes: Sizes, rates: Floats) -> Slopes:
    """From the table of both signs: one more cluster shifts it."""
    epsilon, delta = target
    table, _ = table_with_singles(
        ClusterCurve(Dyadic.of(a), _clusters(sizes, rates, singles), "histogram"), _cut(delta)
    )
    actual, slope_p, slope_q = delta_and_slopes(
        np.concatenate((np.zeros((1, table.shape[1])), table)),
        np.concatenate((table, np.zeros((1, table.shape[1])))),
        epsilon,
        _RARE * delta,
    )
    slope = slope_p[1:] + slope_q[:-1]
    mean = float((table * slope).sum())
    of_sizes = [float((table[:-k, :-k] * slope[k:, k:]).sum()) - mean for k in sizes.tolist()]
    single = float((table[:-1] * slope[1:]).sum()) - mean
    # a geometric number has clusters of all sizes k at the rates a^k / k
    of_ratio = sum(float((table * _discounted(slope, a, axis)).sum()) for axis in (0, 1)) - 2 * mean / (1 - a)
    return math.log(actual / delta), of_ratio / actual, single / actual, np.array(of_sizes) / actual


def _slopes_without_singles(
    target: tuple[float, float], a: float, singles: float, sizes: Sizes, rates: Floats
) -> Slopes:
    """From the sums W of ``shuffledp.privacy.correlated_noise``; the derivatives by ratio and singles are not used."""
    epsilon, delta = target
    clusters = _clusters(sizes, rates, singles)
    masses = clusters.masses(clusters.pairs_beyond(_cut(delta)))
    more = math.ceil(math.log(_cut(delta)) / math.log(a * a))
    sums = np.flip(_discounted(np.flip(np.concatenate((masses, np.zeros(more + 1)))), a * a, 0, first=0))
    p = (1 - a) * a * np.concatenate(([0.0], sums))
    q = (1 - a) * np.concatenate((sums, [0.0]))
    actual, slope_p, slope_q = delta_and_slopes(
        np.append(p, 1 / (1 + a)), np.append(q, a / (1 + a)), epsilon, _RARE * delta
    )
    of_sums = (1 - a) * (a * slope_p[1:-1] + slope_q[:-2])
    slope = _discounted(of_sums, a * a, 0, first=0)
    padded = np.concatenate((slope, np.full(int(sizes[-1]), slope[-1])))
    mean = float(masses @ slope[: len(masses)])
    of_sizes = [float(masses @ padded[k : k + len(masses)]) - mean for k in sizes.tolist()]
    return math.log(actual / delta), 0.0, 0.0, np.array(of_sizes) / actual


def _clusters(sizes: Sizes, rates: Floats, singles: float) -> PairClusters:
    weights = np.maximum(1, np.round(2.0**31 * rates / rates.sum())).astype(np.int64).tolist()
    entries = tuple((size, size, weight) for size, weight in zip(sizes.tolist(), weights, strict=True))
    return PairClusters(Fraction(min(float(rates.sum()), float(MAX_CLUSTER_RATE))), entries, Fraction(singles))


def _cut(delta: float) -> float:
    return 1e-3 * delta


def _discounted(values: Floats, a: float, axis: int, first: int = 1) -> Floats:
    """The sum over k >= ``first`` of a^(k - first) times the values k steps further along the axis."""
    # one number, or one row of a table, after the other: lfilter of SciPy does the same, but takes long to import
    slices = values.tolist() if values.ndim == 1 else np.moveaxis(values, axis, 0)
    sums = np.array(list(accumulate(reversed(slices), lambda total, more: more + a * total)))[::-1]
    if first == 1:
        sums = np.concatenate((sums[1:], np.zeros_like(sums[:1])))
    return np.moveaxis(sums, 0, axis)


def delta_and_slopes(
    with_message: Floats, without: Floats, epsilon: float, rare: float
) -> tuple[float, Floats, Floats]:
    """Delta of a histogram, without rounding, and its derivatives with respect to the masses of one category.

    They are given for the distributions with and without the message, in the shape of the tables. Masses below
    ``rare`` are left out.
    """
    p, q = with_message.ravel(), without.ravel()
    used = np.flatnonzero((p > rare) | (q > rare))
    with np.errstate(divide="ignore"):
        loss = np.log(p[used]) - np.log(q[used])
    order = np.argsort(loss)
    used, loss = used[order], loss[order]
    p, q = p[used], q[used]
    sums_p, sums_q = np.append(0.0, np.cumsum(p)), np.append(0.0, np.cumsum(q))
    growth = math.exp(epsilon)
    below = np.searchsorted(loss, loss - epsilon, side="left")  # outcomes of the other category that contribute
    above = np.searchsorted(loss, loss + epsilon, side="right")
    delta = float((p * sums_q[below] - growth * q * sums_p[below]).sum())
    slope_p, slope_q = np.zeros(with_message.size), np.zeros(with_message.size)
    slope_p[used] = sums_q[below] - growth * (sums_q[-1] - sums_q[above])
    slope_q[used] = -growth * sums_p[below] + (sums_p[-1] - sums_p[above])
    return max(delta, 1e-300), slope_p.reshape(with_message.shape), slope_q.reshape(with_message.shape)
