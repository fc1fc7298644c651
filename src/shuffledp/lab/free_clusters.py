"""The fewest messages of infinitely divisible noise at each error: the best noise that was found, and its exact delta.

Noise that users add to a category in independent shares is compound Poisson: clusters of i messages "+1" and j messages
"-1" at rates lambda_ij. It has sum lambda_ij (i + j) messages and the variance sum lambda_ij (i - j)^2.
``certified_delta`` is an upper bound on the joint delta of a histogram from positive terms only, independent of the
search that found the rates.

``free_clusters.json`` has the best rates that ``shuffledp.lab.cluster_search`` found, rounded to five digits. They are
not proven optimal. The study ``frontier`` certifies each again.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.divergence import DiscretePair

Floats = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-6
FILE = "free_clusters.json"
_LEFT_OUT = 1e-10


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

    def certified_delta(self, epsilon: float, length: int | None = None) -> float:
        """Upper bound on delta of a histogram; the mass outside of the table is added in full.

        ``length`` is that of the table; without it, the table is large enough that this mass is negligible.
        """
        length = self.sufficient_length if length is None else length
        # every mass has a relative error of at most this, so that the reduced masses are lower bounds on the true ones
        rounding = (len(self.rates) + 8) * length * float(np.finfo(np.float64).eps)
        table = self.table(length) * (1 - 2 * rounding)
        none = np.zeros((1, length))
        with_message, without = np.concatenate((none, table)), np.concatenate((table, none))
        left_out = max(0.0, 1 - math.fsum(table.sum(axis=1).tolist())) + rounding
        return DiscretePair(with_message.ravel(), without.ravel(), left_out).delta_with_reversed_twin(epsilon)

    @cached_property
    def sufficient_length(self) -> int:
        """A length such that more messages of one sign have a probability below 1e-10, by Chernoff's bound."""
        lengths = []
        for sizes in ([i for i, _, _ in self.rates], [j for _, j, _ in self.rates]):
            size, rate = np.array(sizes, dtype=np.float64), np.array([rate for _, _, rate in self.rates])
            tilts = np.linspace(0.01, 4.0, 400) / max(1.0, float(size.max()))
            exponents = np.expm1(tilts[:, None] * size) @ rate
            lengths.append(math.ceil(float(((exponents - math.log(_LEFT_OUT)) / tilts).min())))
        return max(lengths) + 1


def found_optima() -> list[FreeClusters]:
    """The stored results for epsilon 1 and delta 1e-6, by increasing number of messages."""
    stored = json.loads(resources.files(__package__).joinpath(FILE).read_text())
    points = [FreeClusters(tuple((int(i), int(j), float(rate)) for i, j, rate in rates)) for rates in stored["points"]]
    return sorted(points, key=lambda point: point.messages)
