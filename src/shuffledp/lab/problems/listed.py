"""Identification by any protocol, over a domain that is small enough to be listed: the h largest estimates."""

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

_ESTIMATED_WELL = 0.995  # Claim 14 gives half of its risk to the estimates, and half to the samples
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ListedDomain:
    """A calibrated protocol over the whole domain."""

    route: ClassVar[str] = "listed"

    protocol: HistogramProtocol
    problem: Problem

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """One round over users of whom so many hold each item of the support: the items with the h largest estimates.

        Ties are decided against the support.
        """
        held = np.array([self.problem.index(item) for item in instance.support])
        order = np.concatenate((np.setdiff1d(np.arange(self.protocol.domain_size), held), held))
        top = order[top_items(self._estimates(held, counts, source)[order], len(held))]
        known = dict(zip(held.tolist(), instance.support, strict=True))
        return tuple(known[place] if place in known else self.problem.item(place) for place in top.tolist())

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:  # noqa: ARG002
        """In how many of so many independent rounds, each with a new instance, the support is identified."""
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
        size, most = self.problem.support_size, math.floor(2 * radius)
        counts, masses, outside = holder_window(self.protocol.users, size)
        rare = float(masses[counts <= most].sum()) + outside
        return max(0.0, _ESTIMATED_WELL - size * rare * (1 + _ROUNDING))

    def _estimates(self, held: NDArray[Any], counts: Ints, source: RandomSource) -> NDArray[np.float64]:
        everybody = np.zeros(self.protocol.domain_size, dtype=np.int64)
        everybody[held] = counts
        tally = self.protocol.sample_tally(everybody, source=source)
        estimator = "unbiased" if "unbiased" in self.protocol.estimators else self.protocol.estimators[0]
        return np.array(self.protocol.estimate(tally, estimator=estimator).counts, dtype=np.float64)
