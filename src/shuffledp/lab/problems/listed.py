"""Identification of a support by the h largest estimates of any protocol, over an enumerated domain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.lab.problems.exact_zeros import holder_window
from shuffledp.lab.problems.largest import top_items
from shuffledp.lab.problems.problem import Instance, Problem
from shuffledp.protocols.questions import HistogramProtocol
from shuffledp.randomness import RandomSource, uniform_counts

Ints = NDArray[np.int64]

_ESTIMATED_WELL = 0.995  # Claim 14 assigns half of its failure probability to the estimates, half to the samples
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ListedDomain:
    """A calibrated protocol that runs over the whole domain."""

    route: ClassVar[str] = "listed"

    protocol: HistogramProtocol
    problem: Problem

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """The items with the h largest estimates of one round; ``counts`` are the holders of each item of the support.

        Ties are broken in favour of items outside the support.
        """
        held = np.array([self.problem.index(item) for item in instance.support])
        order = np.concatenate((np.setdiff1d(np.arange(self.protocol.domain_size), held), held))
        top = order[top_items(self._estimates(held, counts, source)[order], len(held))]
        support = dict(zip(held.tolist(), instance.support, strict=True))
        return tuple(support[index] if index in support else self.problem.item(index) for index in top.tolist())

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:  # noqa: ARG002
        """The number of successful rounds among ``rounds`` simulated ones, each with a new instance."""
        size, total = self.problem.support_size, 0
        for _ in range(rounds):
            instance = self.problem.instance(source)
            held = np.array([self.problem.index(item) for item in instance.support])
            estimates = self._estimates(held, uniform_counts(self.protocol.users, size, source), source)
            least = estimates[held].min()
            estimates[held] = -np.inf
            total += bool(least > estimates.max())
        return total

    @cached_property
    def success_at_least(self) -> float:
        """As in Claim 14: no estimate is off by more than t, and every item of the support has more than 2t holders."""
        radius = self.protocol.expected_error(confidence=_ESTIMATED_WELL).max_error
        size, too_few = self.problem.support_size, math.floor(2 * radius)
        counts, masses, outside = holder_window(self.protocol.users, size)
        rare = float(masses[counts <= too_few].sum()) + outside
        return max(0.0, _ESTIMATED_WELL - size * rare * (1 + _ROUNDING))

    def _estimates(self, held: NDArray[Any], counts: Ints, source: RandomSource) -> NDArray[np.float64]:
        all_counts = np.zeros(self.protocol.domain_size, dtype=np.int64)
        all_counts[held] = counts
        tally = self.protocol.sample_tally(all_counts, source=source)
        estimator = "unbiased" if "unbiased" in self.protocol.estimators else self.protocol.estimators[0]
        return np.array(self.protocol.estimate(tally, estimator=estimator).counts, dtype=np.float64)
