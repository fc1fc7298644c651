"""Calibration of clustered pairs: the clusters with the fewest messages that meet a target at a given error.

``least_clusters`` keeps the geometric noise and uses clusters of equally likely sizes s..t. It finds the least rate for
given s and t by the secant method, and the best s and t by local search. ``fewest_messages`` divides the same variance
between geometric noise and singles, and finds a rate for each size by sequential quadratic programming with the exact
gradient of delta. The accountant checks every result at exactly its parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError
from shuffledp.privacy.clusters import (
    MAX_CLUSTER_RATE,
    MAX_PAIRS_PER_CLUSTER,
    ClusterCurve,
    PairClusters,
    table_with_singles,
)
from shuffledp.privacy.correlated_noise import (
    NegativeBinomialPairs,
    View,
    check_split,
    least_flooding,
    staying_ratio,
)
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.randomness import Dyadic
from shuffledp.search import Bracket, narrow

Floats = NDArray[np.float64]

LEAST_EPSILON_OF_A_TABLE = 0.5
"""Below it the tables of ``fewest_messages`` take too long; clusters of equally likely sizes are used instead."""
_LEAST_SEARCHED, _LEAST_SEARCHED_EXACTLY = 0.2, 0.5
"""Below the first epsilon, sizes are scaled up from the best ones there; between the two, from those of one nearby."""
_RATE_STEPS = 1000  # rates are multiples of 1/1000
_WEIGHT_STEPS = 1000
_NEARLY_LEAST = 1.004  # up to this factor, more pairs are accepted for smaller clusters, hence shorter reports
_SMALLEST, _LARGEST = 0.8, 1.8
"""The search starts from clusters of these sizes, divided by the part of epsilon that hides the messages."""
_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1))
_LEAST_OPTIMIZED, _LEAST_DELTA_OPTIMIZED = 1.0, 1e-8
"""For a smaller epsilon or delta, ``fewest_messages`` uses the weights that are best at these values."""
_WIDEST = 6  # the largest size over the smallest one
_SHARE_OF_SINGLES = 0.15  # of the variance, at the start of the optimization


def least_noise(
    epsilon: float, delta: float, split: float, view: View
) -> tuple[Dyadic, PairClusters | NegativeBinomialPairs]:
    """``least_clusters``, or negative binomial pairs if epsilon or delta is too small to compute clusters."""
    try:
        return least_clusters(epsilon, delta, split, view)
    except InfeasibleError:
        ratio, shape, flood_ratio = least_flooding(epsilon, delta, split, view)
        return ratio, NegativeBinomialPairs(shape, flood_ratio)


@lru_cache(maxsize=512)
def least_clusters(epsilon: float, delta: float, split: float, view: View) -> tuple[Dyadic, PairClusters]:
    """The ratio of the noise that remains, which gets the share ``split`` of epsilon, and the clusters of fewest pairs.

    The target is checked at exactly these parameters. Delta decreases with the rate, because a larger rate adds
    independent noise.
    """
    check_split(epsilon, delta, split, view)
    ratio = staying_ratio(epsilon, split, view)
    near = epsilon if epsilon >= _LEAST_SEARCHED_EXACTLY else max(_near(epsilon), _LEAST_SEARCHED)
    smallest, largest, guess = _best_sizes(near, delta, split, view)
    scale = near / epsilon  # sizes grow as 1 / epsilon
    if round(scale * largest) > MAX_PAIRS_PER_CLUSTER:
        raise InfeasibleError(f"epsilon = {epsilon:g} needs clusters of too many pairs.", epsilon=epsilon)
    clusters = PairClusters.uniform(round(scale * smallest), round(scale * largest), Fraction(1))
    rate = _least_rate(ratio, clusters, view, (epsilon, delta), guess=guess, precision=1e-5)
    return ratio, _certified(ratio, clusters, rate, view, epsilon, delta)


def _near(epsilon: float) -> float:
    """The nearest power of the fourth root of 2, so that searches at similar epsilons share their sizes."""
    return float(2.0 ** (round(4 * math.log2(epsilon)) / 4))


@lru_cache(maxsize=512)
def _best_sizes(epsilon: float, delta: float, split: float, view: View) -> tuple[int, int, float]:
    """The smallest and largest size, and the rate at which they meet the target."""
    search = _UniformSearch(staying_ratio(epsilon, split, view), view, epsilon, delta)
    hiding = (1 - split) * epsilon * (1 if view == "histogram" else 2)
    smallest = max(1, round(_SMALLEST / hiding))
    return search.best(smallest, max(smallest, round(_LARGEST / hiding)))


@lru_cache(maxsize=64)
def fewest_messages(epsilon: float, delta: float, split: float) -> tuple[Dyadic, PairClusters | NegativeBinomialPairs]:
    """Noise for a histogram with the variance of ``least_clusters``, with fewer messages if optimization finds such."""
    ratio, uniform = least_noise(epsilon, delta, split, "histogram")
    if epsilon < LEAST_EPSILON_OF_A_TABLE or isinstance(uniform, NegativeBinomialPairs):
        return ratio, uniform
    try:
        found, clusters = _weighted_clusters(epsilon, delta, split)
    except InfeasibleError:
        return ratio, uniform
    return (found, clusters) if _messages(found, clusters) < _messages(ratio, uniform) else (ratio, uniform)


def _weighted_clusters(epsilon: float, delta: float, split: float) -> tuple[Dyadic, PairClusters]:
    """Weighted sizes and singles, in proportions that are best for an easier target, at the rate for this target."""
    easier = max(epsilon, _LEAST_OPTIMIZED), max(delta, _LEAST_DELTA_OPTIMIZED)
    singles, sizes, rates = _optimized(*easier, split)
    scale = max(1.0, _LEAST_OPTIMIZED / epsilon)  # sizes grow as 1 / epsilon, variances as its square
    variance = DiscreteLaplace(staying_ratio(epsilon, split, "histogram")).variance
    share = min(singles / DiscreteLaplace(staying_ratio(easier[0], split, "histogram")).variance, 0.99)
    rounded = Fraction(math.floor(share * variance * _RATE_STEPS), _RATE_STEPS)
    ratio = Dyadic.at_least(_ratio_of_variance(variance - float(rounded)))
    clusters = PairClusters(Fraction(1), _weighted(sizes, rates, scale), rounded)
    rate = _least_rate(ratio, clusters, "histogram", (epsilon, delta), guess=float(rates.sum()), precision=1e-4)
    return ratio, _certified(ratio, clusters, rate, "histogram", epsilon, delta)


def _messages(ratio: Dyadic, clusters: PairClusters) -> float:
    """Expected number of messages of the noise of one category."""
    return 2 * float(ratio) / float(ratio.complement) + 2 * clusters.mean_pairs + float(clusters.singles)


def _certified(
    ratio: Dyadic, clusters: PairClusters, rate: float, view: View, epsilon: float, delta: float
) -> PairClusters:
    """The clusters at this rate, rounded up until the accountant confirms the target."""
    for margin in (0.0, 1e-5, 1e-4, 1e-2) if math.isfinite(rate) else ():
        rounded = Fraction(math.ceil(rate * (1 + margin) * _RATE_STEPS), _RATE_STEPS)
        if rounded > MAX_CLUSTER_RATE:
            break
        found = clusters.with_rate(rounded)
        if ClusterCurve(ratio, found, view).delta_at(epsilon) <= delta:
            return found
    raise InfeasibleError(f"No clusters were found for epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon)


def _least_rate(
    ratio: Dyadic, clusters: PairClusters, view: View, target: tuple[float, float], *, guess: float, precision: float
) -> float:
    """The rate at which delta meets the target; infinite if there is none that can be computed."""
    epsilon, delta = target

    def excess(rate: float) -> float:
        curve = ClusterCurve(ratio, clusters.with_rate(Fraction(rate)), view)
        return math.log(max(curve.delta_with_cut(epsilon, 1e-6 * delta), 1e-300) / delta)

    # delta is about e^-rate: without any cluster, only the geometric noise hides the user's "+1"
    low = high = min(max(guess, 1e-3), float(MAX_CLUSTER_RATE))
    y_low = y_high = excess(high)
    step = 1.02
    while y_low <= 0:
        high, y_high = low, y_low
        low /= step
        if low < 1e-9:
            return high
        y_low, step = excess(low), step**2
    step = 1.02
    while y_high > 0:
        low, y_low = high, y_high
        if high >= MAX_CLUSTER_RATE:
            return math.inf
        high = min(high * step, float(MAX_CLUSTER_RATE))
        y_high, step = excess(high), step**2
    return narrow(
        excess,
        Bracket(low, y_low, high, y_high),
        next_point=lambda ends: ends.secant_from_high(0.02, 0.02),
        enough=lambda ends: ends.width <= precision * ends.high or ends.excess_high >= -10 * precision,
    )


@dataclass
class _UniformSearch:
    """The search for the smallest and largest size of equally likely clusters."""

    ratio: Dyadic
    view: View
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self.rates: dict[tuple[int, int], float] = {}

    def best(self, smallest: int, largest: int) -> tuple[int, int, float]:
        """The sizes with nearly the fewest pairs, among these the ones with the least maximum, and their rate."""
        here = smallest, largest
        step = max(1, (largest - smallest) // 3)
        while True:
            near = [(here[0] + i * step, here[1] + j * step) for i, j in _DIRECTIONS]
            possible = [sizes for sizes in near if 1 <= sizes[0] <= sizes[1] <= _WIDEST * sizes[0]]
            better = min(possible, key=lambda sizes: self._pairs(*sizes), default=here)
            if self._pairs(*better) < self._pairs(*here):
                here = better
            elif step == 1 or step < here[0] / 24:
                break
            else:
                step = max(1, step // 2)
        least = self._pairs(*here)
        if not math.isfinite(least):
            raise InfeasibleError(
                f"No clusters were found for epsilon = {self.epsilon:g} and delta = {self.delta:g}.",
                epsilon=self.epsilon,
            )
        s, t = min(
            (sizes for sizes in self.rates if self._pairs(*sizes) <= _NEARLY_LEAST * least),
            key=lambda sizes: (sizes[1], self._pairs(*sizes)),
        )
        return s, t, self.rates[s, t]

    def _pairs(self, smallest: int, largest: int) -> float:
        if (smallest, largest) not in self.rates:
            self.rates[smallest, largest] = self._rate(smallest, largest)
        return self.rates[smallest, largest] * (smallest + largest) / 2

    def _rate(self, smallest: int, largest: int) -> float:
        known = [rate for rate in self.rates.values() if math.isfinite(rate)]
        guess = known[-1] if known else 1.15 * -math.log(self.delta)
        clusters = PairClusters.uniform(smallest, largest, Fraction(1))
        try:
            return _least_rate(self.ratio, clusters, self.view, (self.epsilon, self.delta), guess=guess, precision=3e-4)
        except InfeasibleError:  # too many outcomes
            return math.inf


def _optimized(epsilon: float, delta: float, split: float) -> tuple[float, NDArray[np.int64], Floats]:
    """Singles, sizes and their rates with the fewest messages, at the variance of geometric noise for this split."""
    from scipy.optimize import minimize

    ratio, uniform = least_clusters(epsilon, delta, split, "histogram")
    variance = DiscreteLaplace(ratio).variance
    smallest, largest, _ = uniform.clusters[0]
    sizes = np.arange(max(1, (smallest + 1) // 2), largest + 2)
    problem = _Problem(epsilon, delta, variance, sizes)
    rate = float(uniform.cluster_rate) / (largest - smallest + 1)
    start = np.concatenate(
        (
            [_ratio_of_variance(variance * (1 - _SHARE_OF_SINGLES)), variance * _SHARE_OF_SINGLES],
            np.where((sizes >= smallest) & (sizes <= largest), rate, 0.1 * rate),
        )
    )
    result = minimize(
        problem.messages,
        start,
        jac=problem.messages_gradient,
        method="SLSQP",
        bounds=[(1e-3, 1 - 1e-3), (0.0, variance), *[(0.0, float(MAX_CLUSTER_RATE))] * len(sizes)],
        constraints=[
            {"type": "ineq", "fun": problem.privacy, "jac": problem.privacy_gradient},
            {"type": "ineq", "fun": problem.accuracy, "jac": problem.accuracy_gradient},
        ],
        options={"maxiter": 60, "ftol": 1e-2},
    )
    rates = np.maximum(result.x[2:], 0.0)
    if not np.isfinite(result.x).all() or rates.sum() <= 0:
        raise InfeasibleError("No table of clusters was found.")
    return abs(float(result.x[1])), sizes, rates


def _weighted(sizes: NDArray[np.int64], rates: Floats, scale: float) -> tuple[tuple[int, int, int], ...]:
    """Ranges of sizes with integer weights in proportion to the rates; a scale above 1 turns sizes into ranges."""
    ends = np.round((np.arange(sizes[0], sizes[-1] + 2) - 0.5) * scale + 0.5).astype(np.int64)
    weights = np.round(_WEIGHT_STEPS * rates / rates.sum()).astype(np.int64)
    entries = zip(ends[:-1].tolist(), (ends[1:] - 1).tolist(), weights.tolist(), strict=True)
    return tuple((max(1, first), last, weight) for first, last, weight in entries if weight > 0)


def _ratio_of_variance(variance: float) -> float:
    """The ratio a of geometric noise with 2 a / (1 - a)^2 equal to the variance."""
    middle = 1 + 1 / variance
    return middle - math.sqrt(middle * middle - 1)


class _Problem:
    """Messages, privacy and error as functions of the ratio, the rate of singles, and the rate of every size."""

    def __init__(self, epsilon: float, delta: float, variance: float, sizes: NDArray[np.int64]) -> None:
        self.epsilon, self.delta, self.variance, self.sizes = epsilon, delta, variance, sizes
        self._last: tuple[bytes, float, Floats] | None = None

    def messages(self, x: Floats) -> float:
        """Expected number of messages of the noise of one category."""
        return float(2 * x[0] / (1 - x[0]) + x[1] + 2 * self.sizes @ x[2:])

    def messages_gradient(self, x: Floats) -> Floats:
        """Derivatives of ``messages``."""
        return np.concatenate(([2 / (1 - x[0]) ** 2, 1.0], 2.0 * self.sizes))

    def accuracy(self, x: Floats) -> float:
        """At least 0 if the variance is not exceeded."""
        return float(1 - (2 * x[0] / (1 - x[0]) ** 2 + x[1]) / self.variance)

    def accuracy_gradient(self, x: Floats) -> Floats:
        """Derivatives of ``accuracy``."""
        of_ratio = 2 * (1 + x[0]) / (1 - x[0]) ** 3
        return -np.concatenate(([of_ratio, 1.0], np.zeros(len(self.sizes)))) / self.variance

    def privacy(self, x: Floats) -> float:
        """The logarithm of the allowed delta over the actual one: at least 0 if the target is met."""
        return -self._log_delta(x)[0]

    def privacy_gradient(self, x: Floats) -> Floats:
        """Derivatives of ``privacy``."""
        return -self._log_delta(x)[1]

    def _log_delta(self, x: Floats) -> tuple[float, Floats]:
        key = x.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = (key, *self._evaluate(x))
        return self._last[1:]

    def _evaluate(self, x: Floats) -> tuple[float, Floats]:
        rates = np.maximum(x[2:], 1e-9)
        weights = np.maximum(1, np.round(2.0**31 * rates / rates.sum())).astype(np.int64).tolist()
        clusters = tuple((size, size, weight) for size, weight in zip(self.sizes.tolist(), weights, strict=True))
        flood = PairClusters(Fraction(float(rates.sum())), clusters, Fraction(max(float(x[1]), 1e-9)))
        curve = ClusterCurve(Dyadic.of(float(min(max(x[0], 1e-3), 1 - 1e-3))), flood, "histogram")
        table, _ = table_with_singles(curve, 1e-3 * self.delta)
        delta, slope = _delta_and_slope(table, self.epsilon)
        a, mean = float(curve.ratio), float((table * slope).sum())
        # one more cluster shifts the table; a geometric number has clusters of all sizes k at the rates a^k / k
        shifted = [float((table * _shifted(slope, size, size)).sum()) - mean for size in self.sizes.tolist()]
        single = float((table * _shifted(slope, 1, 0)).sum()) - mean
        geometric = sum(float((table * _discounted(slope, a, axis)).sum()) for axis in (0, 1)) - 2 * mean / (1 - a)
        return math.log(max(delta, 1e-300) / self.delta), np.array([geometric, single, *shifted]) / max(delta, 1e-300)


def _shifted(values: Floats, rows: int, columns: int) -> Floats:
    result = np.zeros_like(values)
    result[: len(values) - rows, : values.shape[1] - columns] = values[rows:, columns:]
    return result


def _discounted(values: Floats, a: float, axis: int) -> Floats:
    """The sum over k >= 1 of a^(k - 1) times the values k steps further along the axis."""
    from scipy.signal import lfilter

    result: Floats = np.flip(lfilter([0.0, 1.0], [1.0, -a], np.flip(values, axis), axis=axis), axis)
    return result


def _delta_and_slope(table: Floats, epsilon: float) -> tuple[float, Floats]:
    """Delta of a histogram, without rounding, and its derivative with respect to every entry of the table."""
    with_message = np.zeros((len(table) + 1, table.shape[1]))
    with_message[1:] = table
    without = np.zeros_like(with_message)
    without[:-1] = table
    p, q = with_message.ravel(), without.ravel()
    used = np.flatnonzero((p > 0) & (q > 0) | (p > 1e-30) | (q > 1e-30))
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
    return delta, slope_p.reshape(with_message.shape)[1:] + slope_q.reshape(with_message.shape)[:-1]
