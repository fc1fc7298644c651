"""The fewest messages of infinitely divisible noise at each error: free optimization over the rates of all clusters.

Noise that users add to a category in independent shares is compound Poisson: clusters of i messages "+1" and j messages
"-1" at rates lambda_ij. It has sum lambda_ij (i + j) messages and the variance sum lambda_ij (i - j)^2. ``optimize``
minimizes messages + kappa variance under the exact joint delta of a histogram, with Fourier transforms for the table of
outcomes and for the derivatives by all rates. The problem is not convex, so a result is the best that was found, not
a proven optimum. ``certified_delta`` is independent of it: an upper bound on delta from positive terms only.

``free_clusters.json`` has the best rates that these functions found from several starts, rounded to four digits, each
certified again by the study. ``python -m shuffledp.lab.free_clusters`` optimizes every point again, which takes about
ten minutes and finds similar points.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.cluster_calibration import least_clusters
from shuffledp.privacy.cluster_weights import delta_and_slopes
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.search import bisect

Floats = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-6
_FILE = "free_clusters.json"
_NEAR_DIAGONAL = 3
"""Clusters of both signs with a larger difference are left out where clusters are large. There, clusters of one sign
have the rates a^k / k of geometric noise, and a is optimized: from freely chosen ones the search does not return."""
_FULL_GRID = 12
_RARE = 1e-12
_OUTER_ITERATIONS, _FEW_ITERATIONS = 14, 5
_RUNS = (
    (1.5, 10, 128, 0.5),
    (3, 10, 128, 0.5),
    (5, 12, 160, 0.655),
    (10, 12, 192, 0.82),
    (25, 16, 256, 0.82),
    (60, 20, 384, 0.88),
    (100, 24, 448, 0.9),
)
"""Kappa, the largest number of messages of one sign in a cluster, the length of the transforms, and the start."""


@dataclass(frozen=True)
class FreeClusters:
    """Rates of clusters "i plus, j minus" in one category."""

    rates: tuple[tuple[int, int, float], ...]

    @cached_property
    def messages(self) -> float:
        """Expected number of messages of the noise."""
        return math.fsum(rate * (i + j) for i, j, rate in self.rates)

    @cached_property
    def variance(self) -> float:
        """Variance of the number of "+1" minus the number of "-1"."""
        return math.fsum(rate * (i - j) ** 2 for i, j, rate in self.rates)

    def table(self, length: int) -> Floats:
        """Pr[U+ = u, U- = v] for u, v < length, by positive terms only.

        u Pr[u, v] is the sum over clusters of i rate(i, j) Pr[u - i, v - j] (Panjer 1981); the first row likewise in v.
        """
        table = np.zeros((length, length))
        table[0, 0] = math.exp(-math.fsum(rate for _, _, rate in self.rates))
        minus = [(j, rate) for i, j, rate in self.rates if i == 0]
        for v in range(1, length):
            table[0, v] = math.fsum(j * rate * table[0, v - j] for j, rate in minus if j <= v) / v
        plus = [(i, j, rate) for i, j, rate in self.rates if i > 0]
        for u in range(1, length):
            row = np.zeros(length)
            for i, j, rate in plus:
                if i <= u:
                    row[j:] += i * rate * table[u - i, : length - j]
            table[u] = row / u
        return table

    def certified_delta(self, epsilon: float, length: int) -> float:
        """Upper bound on delta of a histogram; the mass outside of the table is added in full."""
        table = self.table(length)
        none = np.zeros((1, length))
        with_message, without = np.concatenate((none, table)), np.concatenate((table, none))
        left_out = max(0.0, 1 - math.fsum(table.sum(axis=1).tolist())) + 1e-12
        return DiscretePair(with_message.ravel(), without.ravel(), left_out).delta_with_reversed_twin(epsilon)


def found_optima() -> list[FreeClusters]:
    """The stored results for epsilon 1 and delta 1e-6, by increasing number of messages."""
    stored = json.loads(resources.files(__package__).joinpath(_FILE).read_text())
    points = [FreeClusters(tuple((int(i), int(j), float(rate)) for i, j, rate in rates)) for rates in stored["points"]]
    return sorted(points, key=lambda point: point.messages)


class _Problem:
    """Messages + kappa variance, and delta with its derivatives by all variables.

    The variables are square roots of rates; where clusters are large, the last is the logit of the ratio of geometric
    noise, and otherwise there is none.
    """

    def __init__(self, target: tuple[float, float], kappa: float, largest: int, length: int) -> None:
        self.epsilon, self.delta = target
        self.kappa, self.length = kappa, length
        i, j = (index.ravel()[1:] for index in np.indices((largest + 1, largest + 1)))
        self.geometric = largest > _FULL_GRID
        allowed = (np.minimum(i, j) > 0) & (np.abs(i - j) <= _NEAR_DIAGONAL) if self.geometric else i >= 0
        self.i, self.j = i[allowed], j[allowed]

    def clusters(self, variables: Floats) -> tuple[Floats, float]:
        """The table of all rates, and the ratio of the geometric part, 0 if there is none."""
        placed = np.zeros((self.length, self.length))
        placed[self.i, self.j] = variables[: len(self.i)] ** 2
        if not self.geometric:
            return placed, 0.0
        ratio = 1 / (1 + math.exp(-variables[-1]))
        sizes = np.arange(1, self.length)
        placed[1:, 0] = placed[0, 1:] = ratio**sizes / sizes
        return placed, ratio

    def cost(self, variables: Floats) -> tuple[float, Floats]:
        """Messages + kappa variance, and the derivatives."""
        costs = self.i + self.j + self.kappa * (self.i - self.j) ** 2.0
        roots = variables[: len(self.i)]
        value, slopes = float(costs @ roots**2), 2 * costs * roots
        if not self.geometric:
            return value, slopes
        _, a = self.clusters(variables)
        value += 2 * a / (1 - a) + self.kappa * 2 * a / (1 - a) ** 2
        slope = 2 / (1 - a) ** 2 + self.kappa * 2 * (1 + a) / (1 - a) ** 3
        return value, np.append(slopes, slope * a * (1 - a))

    def log_delta(self, variables: Floats) -> tuple[float, Floats]:
        """ln(delta / target) and its derivatives; one more cluster shifts the table."""
        from scipy import fft

        placed, a = self.clusters(variables)
        shape = self.length, self.length
        table = np.maximum(fft.irfft2(np.exp(fft.rfft2(placed) - placed.sum()), shape), 0.0)
        none = np.zeros((1, self.length))
        delta, slope_p, slope_q = delta_and_slopes(
            np.concatenate((none, table)), np.concatenate((table, none)), self.epsilon, _RARE * self.delta
        )
        slope = slope_p[1:] + slope_q[:-1]
        shifted = fft.irfft2(np.conj(fft.rfft2(table)) * fft.rfft2(slope), shape)
        shifted -= shifted[0, 0]
        slopes = shifted[self.i, self.j] * 2 * variables[: len(self.i)]
        if self.geometric:
            of_ratio = float((shifted[1:, 0] + shifted[0, 1:]) @ a ** np.arange(self.length - 1.0))
            slopes = np.append(slopes, of_ratio * a * (1 - a))
        return math.log(delta / self.delta), slopes / delta


def optimize(
    target: tuple[float, float], kappa: float, largest: int, length: int, start_split: float, *, iterations: int = 150
) -> FreeClusters:
    """The best rates found from the clusters of ``least_clusters``, rounded, and scaled until they are certified.

    Augmented Lagrangian with L-BFGS.
    """
    from scipy.optimize import minimize

    problem = _Problem(target, kappa, largest, length)
    variables = _start(problem, target, start_split)
    scale = 20 / problem.cost(variables)[0]
    multiplier, penalty = 15.0, 60.0
    jitter = np.random.default_rng(1)
    for _ in range(_OUTER_ITERATIONS):

        def lagrangian(variables: Floats, multiplier: float = multiplier) -> tuple[float, Floats]:
            cost, cost_slopes = problem.cost(variables)
            excess, slopes = problem.log_delta(variables)
            pressure = max(0.0, multiplier + penalty * excess)
            return scale * cost + pressure**2 / (2 * penalty), scale * cost_slopes + pressure * slopes

        options: Any = {"maxiter": iterations, "maxcor": 40, "maxfun": 3 * iterations}
        result = minimize(lagrangian, variables, jac=True, method="L-BFGS-B", options=options)
        variables = result.x
        excess, _ = problem.log_delta(variables)
        multiplier = max(0.0, multiplier + penalty * excess)
        if abs(excess) < 1e-4 and _FEW_ITERATIONS <= result.nit < iterations:
            break
        if result.nit < _FEW_ITERATIONS:  # delta has kinks, where the line search fails
            variables = variables * jitter.uniform(0.97, 1.03, len(variables))
    return _certified(problem, variables)


def _start(problem: _Problem, target: tuple[float, float], split: float) -> Floats:
    ratio, flood = least_clusters(*target, split, "histogram")
    rates = np.full(len(problem.i), 1e-3)
    for k in range(1, int(problem.i.max()) + 1):
        alone = np.minimum(problem.i, problem.j) == 0
        rates[alone & (problem.i + problem.j == k)] += float(ratio) ** k / k
    for size, rate in flood.rates:
        rates[(problem.i == size) & (problem.j == size)] += float(rate)
    roots = np.sqrt(rates)
    return np.append(roots, math.log(float(ratio) / float(ratio.complement))) if problem.geometric else roots


def _certified(problem: _Problem, variables: Floats) -> FreeClusters:
    """Rates of four digits, all scaled by the least factor at which the independent bound confirms the target."""
    placed, _ = problem.clusters(variables)

    def scaled(factor: float) -> FreeClusters:
        rounded = np.round(placed * factor, 4)
        listed = zip(*(part.tolist() for part in np.nonzero(rounded)), rounded[rounded > 0].tolist(), strict=True)
        return FreeClusters(tuple((i, j, rate) for i, j, rate in listed))

    def holds(factor: float) -> bool:
        return scaled(factor).certified_delta(problem.epsilon, problem.length) <= problem.delta

    return scaled(bisect(holds, 0.9, 1.1, absolute=1e-4))


def regenerate(path: Path) -> None:
    """Optimize every point and write them all."""
    points = []
    for kappa, largest, length, split in _RUNS:
        found = optimize((EPSILON, DELTA), kappa, largest, length, split)
        print(kappa, found.messages, math.sqrt(found.variance), flush=True)  # noqa: T201 - a tool
        points.append([list(entry) for entry in found.rates])
    path.write_text(json.dumps({"epsilon": EPSILON, "delta": DELTA, "points": points}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    regenerate(Path(__file__).with_name(_FILE))
