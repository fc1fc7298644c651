"""Calibration of clustered pairs: the clusters with the fewest messages that meet a target at a given error.

``least_clusters`` keeps the geometric noise and uses clusters of equally likely sizes s..t. It finds the least rate for
given s and t by the secant method, and the best s and t by local search. The accountant checks every result at exactly
its parameters. ``shuffledp.privacy.cluster_weights`` gives sizes different rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shuffledp.errors import InfeasibleError
from shuffledp.privacy.clusters import (
    MAX_CLUSTER_RATE,
    MAX_PAIRS_PER_CLUSTER,
    ClusterCurve,
    PairClusters,
)
from shuffledp.privacy.correlated_noise import (
    NegativeBinomialPairs,
    View,
    check_split,
    least_flooding,
    staying_ratio,
)
from shuffledp.randomness import Dyadic
from shuffledp.search import Bracket, narrow

_LEAST_SEARCHED, _LEAST_SEARCHED_EXACTLY = 0.2, 0.5
"""Below the first epsilon, sizes are scaled up from the best ones there; between the two, from those of one nearby."""
_MAX_SEARCHED = 3e5
"""Maximum number of outcomes, roughly, of a target at which sizes are searched."""
RATE_STEPS = 1000  # rates are multiples of 1/1000
_NEARLY_LEAST = 1.004  # up to this factor, more pairs are accepted for smaller clusters, hence shorter reports
_SMALLEST, _LARGEST = 0.8, 1.8
"""The search starts from clusters of these sizes, divided by the part of epsilon that hides the messages."""
_TINY_DELTA, _SMALLEST_FOR_TINY_DELTA = 1e-40, 1.4
_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1), (1, 1), (-1, -1))
_WIDEST = 6  # the largest size over the smallest one


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
    near, near_split = _searched(epsilon, delta, split)
    smallest, largest, guess = _best_sizes(near, delta, near_split, view)
    scale = (1 - near_split) * near / ((1 - split) * epsilon)  # sizes grow as 1 / epsilon
    if round(scale * largest) > MAX_PAIRS_PER_CLUSTER:
        raise InfeasibleError(f"epsilon = {epsilon:g} needs clusters of too many pairs.", epsilon=epsilon)
    clusters = PairClusters.uniform(round(scale * smallest), round(scale * largest), Fraction(1))
    rate = least_rate(ratio, clusters, view, (epsilon, delta), guess=guess, precision=1e-5)
    return ratio, certified(ratio, clusters, rate, view, epsilon, delta)


def _searched(epsilon: float, delta: float, split: float) -> tuple[float, float]:
    """The epsilon and the split at which the best sizes are searched: the given ones, or larger and smaller ones.

    The number of outcomes is about ln(delta)^2 / ((1 - split) epsilon); where it is so large that the search would take
    long, sizes are scaled up from those of a target with fewer outcomes.
    """
    outcomes = math.log(delta) ** 2
    near = epsilon if epsilon >= _LEAST_SEARCHED_EXACTLY else max(_near(epsilon), _LEAST_SEARCHED)
    if outcomes <= _MAX_SEARCHED * (1 - split) * near:
        return near, split
    near = max(near, min(_near(outcomes / (_MAX_SEARCHED * (1 - split))), 1.0))
    return near, max(min(split, 1 - outcomes / (_MAX_SEARCHED * near)), 0.5)


def _near(epsilon: float) -> float:
    """The nearest power of the fourth root of 2, so that searches at similar epsilons share their sizes."""
    return float(2.0 ** (round(4 * math.log2(epsilon)) / 4))


@lru_cache(maxsize=512)
def _best_sizes(epsilon: float, delta: float, split: float, view: View) -> tuple[int, int, float]:
    """The smallest and largest size, and the rate at which they meet the target."""
    search = _UniformSearch(staying_ratio(epsilon, split, view), view, epsilon, delta)
    hiding, start = (1 - split) * epsilon, _SMALLEST
    if delta < _TINY_DELTA:
        start = _SMALLEST_FOR_TINY_DELTA
    elif view != "histogram":
        hiding *= 2
    smallest = max(1, round(start / hiding))
    return search.best(smallest, max(smallest, round(_LARGEST / hiding)))


def certified(
    ratio: Dyadic, clusters: PairClusters, rate: float, view: View, epsilon: float, delta: float
) -> PairClusters:
    """The clusters at this rate, rounded up until the accountant confirms the target."""
    for margin in (0.0, 1e-5, 1e-4, 1e-2) if math.isfinite(rate) else ():
        rounded = Fraction(math.ceil(rate * (1 + margin) * RATE_STEPS), RATE_STEPS)
        if rounded > MAX_CLUSTER_RATE:
            break
        found = clusters.with_rate(rounded)
        if ClusterCurve(ratio, found, view).delta_at(epsilon) <= delta:
            return found
    raise InfeasibleError(f"No clusters were found for epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon)


def least_rate(
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
            return least_rate(self.ratio, clusters, self.view, (self.epsilon, self.delta), guess=guess, precision=3e-4)
        except InfeasibleError:  # too many outcomes
            return math.inf
