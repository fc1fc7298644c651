"""Search for the noise of fewest messages among all clusters, by sequential linear programming.

``search`` minimizes messages + kappa variance over the rates of clusters of messages, subject to the joint delta of a
histogram. Delta comes from Fourier transforms of a table, and so do its derivatives by all rates, since one more
cluster shifts the table. Delta has kinks: noise close to the geometric one has many outcomes with the same privacy
loss. So each step solves a linear program with the derivatives at several recent points, in a neighbourhood that
shrinks or grows with the success of the step. The problem is not convex, so a result is the best that was found, not a
proven optimum.

``python -m shuffledp.lab.cluster_search`` searches every point of ``free_clusters.json`` again, which can take
an hour, and stores those that are better than the known ones.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shuffledp.lab.free_clusters import DELTA, EPSILON, FILE, FreeClusters, found_optima
from shuffledp.privacy.cluster_calibration import least_clusters
from shuffledp.privacy.cluster_weights import delta_and_slopes
from shuffledp.search import bisect

Floats = NDArray[np.float64]

_DIFFERENCES = 96
"""Differences of "+1" and "-1" in the table, modulo this number."""
_RARE = 1e-12
_RATE_DIGITS = 5
_LEAST_RATE = 1e-9
_RATIO, _SHAPE = 0, 1
"""Places of the first two variables."""
_LEAST_OFFSET = 0.95  # offsets take away at most this part of a rate
_RECENT = 40  # points whose derivatives are used
_ACCEPTED, _GOOD = 0.05, 0.6  # actual over predicted decrease
_GROW, _SHRINK, _LARGEST_STEP, _SMALLEST_STEP = 1.6, 0.6, 0.5, 2e-5
_CHECKED_EVERY = 100


@dataclass(frozen=True)
class Family:
    """The clusters that a search may use, beside singles: those of one sign."""

    pairs: int
    """Largest number of pairs in a cluster of as many "+1" as "-1"."""
    unequal: int
    """Largest number of messages of one sign in other clusters of both signs."""
    difference: int
    """Largest difference of "+1" and "-1" in clusters of both signs."""
    singles: int
    """Clusters of one sign up to this size have free rates, larger ones those of geometric noise."""
    length: int
    """Number of "-1" in the table of outcomes, modulo this number."""

    @property
    def clusters(self) -> list[tuple[int, int]]:
        """The numbers of "+1" and "-1" in clusters of both signs."""
        sizes = range(1, max(self.pairs, self.unequal) + 1)
        return [
            (i, j)
            for i in sizes
            for j in sizes
            if (i == j <= self.pairs) or (0 < abs(i - j) <= self.difference and max(i, j) <= self.unequal)
        ]


RUNS = (
    (1.5, 0.5, Family(10, 10, 10, 14, 128)),
    (3.0, 0.5, Family(10, 10, 10, 14, 160)),
    (5.0, 0.655, Family(12, 12, 8, 20, 192)),
    (10.0, 0.82, Family(14, 12, 5, 24, 256)),
    (16.0, 0.82, Family(18, 12, 4, 26, 300)),
    (25.0, 0.82, Family(20, 12, 3, 28, 320)),
    (40.0, 0.85, Family(22, 10, 2, 28, 380)),
    (60.0, 0.88, Family(22, 10, 2, 28, 420)),
    (100.0, 0.88, Family(26, 10, 2, 28, 512)),
    (130.0, 0.9, Family(30, 10, 2, 28, 600)),
    (200.0, 0.9, Family(36, 10, 2, 28, 680)),
    (270.0, 0.92, Family(40, 10, 2, 28, 760)),
    (350.0, 0.92, Family(40, 10, 2, 28, 800)),
    (450.0, 0.93, Family(46, 10, 2, 28, 900)),
    (600.0, 0.94, Family(52, 10, 2, 28, 1000)),
    (900.0, 0.95, Family(60, 10, 2, 28, 1200)),
)
"""Kappa, the split of the equally likely sizes from which the search starts, and the family."""
_GROWTH_OF_SIZES = 0.45  # sizes grow about as this power of kappa


class Problem:
    """Messages + kappa variance, and ln(delta / target), with their derivatives by all variables.

    The variables are a ratio a, a shape r, the rates of clusters of both signs, and an offset for each of the smaller
    clusters of one sign: k messages of one sign have the rate r a^k / k, which is negative binomial noise, and their
    offset. Free rates alone would make the search slow, because these rates must decrease nearly geometrically.
    """

    def __init__(self, target: tuple[float, float], kappa: float, family: Family) -> None:
        self.epsilon, self.delta = target
        self.family = family
        sizes = np.arange(1, _DIFFERENCES // 2)
        both = np.array(family.clusters, dtype=np.int64).reshape(-1, 2)
        self.i = np.concatenate((both[:, 0], sizes, 0 * sizes))
        self.j = np.concatenate((both[:, 1], 0 * sizes, sizes))
        self.costs = self.i + self.j + kappa * (self.i - self.j) ** 2.0
        self._sizes = np.concatenate((sizes, sizes)).astype(np.float64)
        self._free = np.concatenate((np.arange(family.singles), len(sizes) + np.arange(family.singles)))
        self.both = slice(2, 2 + len(both))
        self.offsets = slice(2 + len(both), None)

    def start(self, split: float) -> Floats:
        """The clusters of ``least_clusters``."""
        ratio, flood = least_clusters(self.epsilon, self.delta, split, "histogram")
        rates = dict(flood.rates)
        both = [float(rates.get(i, 0)) if i == j else 0.0 for i, j in self.family.clusters]
        return np.concatenate(([float(ratio), 1.0], both, np.zeros(len(self._free))))

    def start_from(self, found: FreeClusters, stretch: float = 1.0) -> Floats:
        """Rates that were found, with clusters of as many "+1" as "-1" larger by a factor."""
        rates = {(i, j): rate for i, j, rate in found.rates}
        pairs = [rates.get((k, k), 0.0) for k in range(self.family.pairs + 1)]
        sizes = np.arange(self.family.pairs + 1) / stretch
        stretched = np.interp(sizes, np.arange(len(pairs)), pairs) / stretch
        both = [float(stretched[i]) if i == j else rates.get((i, j), 0.0) for i, j in self.family.clusters]
        ratio = _ratio_of_tail(rates)
        smooth = np.concatenate(([ratio, 1.0], both, np.zeros(len(self._free))))
        clusters = zip(self.i.tolist(), self.j.tolist(), strict=True)
        placed = np.array([rates.get(cluster, 0.0) for cluster in clusters])[-len(self._sizes) :]
        smooth[self.offsets] = (placed - self._smooth(smooth))[self._free]
        return np.maximum(smooth, self.lowest(smooth))

    def _smooth(self, variables: Floats) -> Floats:
        singles: Floats = variables[_SHAPE] * variables[_RATIO] ** self._sizes / self._sizes
        return singles

    def rates(self, variables: Floats) -> Floats:
        """The rates of the clusters ``i``, ``j``."""
        singles = self._smooth(variables)
        singles[self._free] += variables[self.offsets]
        return np.concatenate((variables[self.both], np.maximum(singles, 0.0)))

    def cost(self, variables: Floats) -> tuple[float, Floats]:
        """Messages + kappa variance, and the derivatives."""
        return float(self.costs @ self.rates(variables)), self._by_variables(variables, self.costs)

    def log_delta(self, variables: Floats) -> tuple[float, Floats]:
        """ln(delta / target), and the derivatives."""
        value, slopes = self._delta_of_rates(self.rates(variables))
        return value, self._by_variables(variables, slopes)

    def lowest(self, variables: Floats) -> Floats:
        """Lower limits of the variables."""
        low = np.zeros(len(variables))
        low[_RATIO] = low[_SHAPE] = 0.2
        low[self.offsets] = -_LEAST_OFFSET * self._smooth(variables)[self._free]
        return low

    def scales(self, variables: Floats) -> Floats:
        """The step of each variable that is about as large as those of the others."""
        singles = 0.1 * self._smooth(variables)[self._free] + 0.1 * np.abs(variables[self.offsets])
        return np.concatenate(([0.02, 0.3], variables[self.both] + 0.02, singles))

    def _by_variables(self, variables: Floats, slopes: Floats) -> Floats:
        singles = slopes[len(self.i) - len(self._sizes) :]
        of_ratio = variables[_SHAPE] * float(singles @ variables[_RATIO] ** (self._sizes - 1))
        of_shape = float(singles @ (variables[_RATIO] ** self._sizes / self._sizes))
        rest = slopes[: len(self.i) - len(self._sizes)]
        return np.concatenate(([of_ratio, of_shape], rest, singles[self._free]))

    def _delta_of_rates(self, rates: Floats) -> tuple[float, Floats]:
        """With a table of the differences of "+1" and "-1", and the numbers of "-1"."""
        from scipy import fft

        shape = _DIFFERENCES, self.family.length
        placed = np.zeros(shape)
        placed[(self.i - self.j) % _DIFFERENCES, self.j] = rates
        table = np.maximum(fft.irfft2(np.exp(fft.rfft2(placed) - placed.sum()), shape), 0.0)
        middle = _DIFFERENCES // 2 - round(float(rates @ (self.i - self.j)))
        ordered, none = np.roll(table, middle, axis=0), np.zeros((1, self.family.length))
        delta, slope_p, slope_q = delta_and_slopes(
            np.concatenate((none, ordered)), np.concatenate((ordered, none)), self.epsilon, _RARE * self.delta
        )
        slope = np.roll(slope_p[1:] + slope_q[:-1], -middle, axis=0)
        shifted = fft.irfft2(np.conj(fft.rfft2(table)) * fft.rfft2(slope), shape)
        slopes = shifted[(self.i - self.j) % _DIFFERENCES, self.j] - shifted[0, 0]
        return math.log(delta / self.delta), slopes / delta


def _ratio_of_tail(rates: dict[tuple[int, int], float]) -> float:
    """The ratio of geometric noise with rates for large clusters of one sign that decrease as fast as these."""
    sizes = [k for k in range(1, _DIFFERENCES) if rates.get((k, 0), 0.0) > 0 and rates.get((0, k), 0.0) > 0]
    if len(sizes) < 2:
        return 0.5
    first, last = sizes[(len(sizes) - 1) // 2], sizes[-1]
    ends = [k * math.sqrt(rates[k, 0] * rates[0, k]) for k in (first, last)]
    return min(max(math.pow(ends[1] / ends[0], 1 / (last - first)), 0.3), 0.8)


@dataclass(frozen=True)
class _Point:
    variables: Floats
    cost: float
    cost_slopes: Floats
    excess: float
    excess_slopes: Floats

    @classmethod
    def of(cls, problem: Problem, variables: Floats) -> _Point:
        return cls(variables, *problem.cost(variables), *problem.log_delta(variables))

    def merit(self, weight: float) -> float:
        """The cost, with a penalty if the target is missed."""
        return self.cost + weight * max(0.0, self.excess)


def descend(problem: Problem, variables: Floats, *, iterations: int, tolerance: float) -> Floats:
    """The variables after steps towards less cost; ends when many steps decrease it by less than the tolerance."""
    here = _Point.of(problem, variables)
    weight = here.cost / 7  # messages grow about as ln(1/delta), so one more unit of it costs less
    recent, step, before = [here], 0.1, here.merit(weight)
    for iteration in range(1, iterations + 1):
        moved, expected = _best_step(problem, here, recent, step, weight)
        there = _Point.of(problem, moved)
        success = (here.merit(weight) - there.merit(weight)) / max(expected, 1e-300)
        recent = [*recent[1 - _RECENT :], there]
        if success > _ACCEPTED:
            here = there
            step = min(step * _GROW, _LARGEST_STEP) if success > _GOOD else step
        else:
            step *= _SHRINK
            recent = recent if any(point is here for point in recent) else [*recent, here]
        if step < _SMALLEST_STEP:
            step, recent = 1e-3, [here]
        if iteration % _CHECKED_EVERY == 0:
            if before - here.merit(weight) < tolerance:
                break
            before = here.merit(weight)
    return here.variables


def _best_step(
    problem: Problem, here: _Point, recent: list[_Point], step: float, weight: float
) -> tuple[Floats, float]:
    """The best point nearby by the derivatives at recent points, and the decrease of the merit that they predict."""
    from scipy.optimize import linprog

    scales = step * problem.scales(here.variables)
    low = np.clip((problem.lowest(here.variables) - here.variables) / scales, -1.0, 0.0)
    slopes = np.array([point.excess_slopes * scales for point in recent])
    # delta is not convex in the rates: at the present point no line may exceed it
    values = [
        min(point.excess + float(point.excess_slopes @ (here.variables - point.variables)), here.excess)
        for point in recent
    ]
    solution = linprog(
        np.append(here.cost_slopes * scales, weight),
        A_ub=np.hstack((slopes, -np.ones((len(recent), 1)))),
        b_ub=-np.array(values),
        bounds=[*((float(bound), 1.0) for bound in low), (0.0, None)],
        method="highs",
    )
    if solution.x is None:
        return here.variables, 0.0
    change = solution.x[:-1] * scales
    expected = -float(here.cost_slopes @ change) + weight * (max(0.0, here.excess) - float(solution.x[-1]))
    moved = here.variables + change
    return np.maximum(moved, problem.lowest(moved)), expected


def search(problem: Problem, start: Floats, *, iterations: int = 1000, tolerance: float = 0.01) -> FreeClusters:
    """The best rates found from a start, rounded, and scaled until they are certified."""
    return certified(problem, descend(problem, start, iterations=iterations, tolerance=tolerance))


def certified(problem: Problem, variables: Floats) -> FreeClusters:
    """Rounded rates, all scaled by about the least factor at which the independent bound confirms the target."""
    rates = problem.rates(variables)

    def scaled(factor: float) -> FreeClusters:
        listed = zip(problem.i.tolist(), problem.j.tolist(), (rates * factor).tolist(), strict=True)
        return FreeClusters(
            tuple((i, j, float(f"{rate:.{_RATE_DIGITS}g}")) for i, j, rate in sorted(listed) if rate > _LEAST_RATE)
        )

    def holds(factor: float) -> bool:
        found = scaled(factor)
        return found.certified_delta(problem.epsilon, found.sufficient_length) <= problem.delta

    return scaled(bisect(holds, 0.95, 1.1, absolute=1e-5))


def regenerate(path: Path) -> None:
    """Search every point, from equally likely sizes and from the point before it, and write the best that are known."""
    points: list[FreeClusters] = []
    before, found = 0.0, None
    for kappa, split, family in RUNS:
        problem = Problem((EPSILON, DELTA), kappa, family)
        starts = [problem.start(split)]
        if found is not None:
            starts.append(problem.start_from(found, (kappa / before) ** _GROWTH_OF_SIZES))
        results = [*(search(problem, start) for start in starts), *found_optima()]
        found = min(results, key=lambda point: point.messages + kappa * point.variance)
        before = kappa
        print(kappa, found.messages, math.sqrt(found.variance), flush=True)  # noqa: T201 - a tool
        points.append(found)
    write(path, points)


def write(path: Path, points: list[FreeClusters]) -> None:
    """Store points as JSON, a line for each."""
    listed = ",\n".join(json.dumps(point.rates) for point in points)
    path.write_text(f'{{"epsilon": {EPSILON}, "delta": {DELTA}, "points": [\n{listed}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    regenerate(Path(__file__).with_name(FILE))
