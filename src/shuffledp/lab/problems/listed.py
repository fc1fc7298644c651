"""Identification of a support by any protocol over an enumerated domain, from tallies or from real messages.

Items that nobody holds are simulated like all others. A tally is drawn from its distribution (route ``listed``), or
every message is made by the randomizer, permuted with all others and counted (route ``messages``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError
from shuffledp.lab.problems.exact_zeros import ExactZeros, exact_zeros, holder_window
from shuffledp.lab.problems.largest import largest_scores, top_items
from shuffledp.lab.problems.problem import Instance, Problem
from shuffledp.messages import Tally
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.randomness import RandomSource, uniform_counts
from shuffledp.shuffling import permute

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ESTIMATES_CONFIDENCE = 0.995  # Claim 14 assigns half of its failure probability to the estimates, half to the samples
_ROUNDING = 1e-9
_MAX_NUMBERS = 200_000_000


@dataclass(frozen=True)
class ListedDomain:
    """A calibrated protocol that runs over the whole domain."""

    protocol: HistogramProtocol
    problem: Problem
    rule: str = "largest"
    messages: bool = False
    """Whether every message is made; otherwise the tally is drawn from its distribution."""

    def __post_init__(self) -> None:
        sent = self.protocol.users * self.protocol.cost.messages_per_user
        if self.messages and sent * self.protocol.message_format.columns > _MAX_NUMBERS:
            raise InfeasibleError(
                f"{self.protocol.users:,} users would send {sent:,.0f} messages, too many for the route 'messages'. "
                "Use a smaller domain, or the route 'listed', which draws their tally.",
                messages=sent,
            )

    @property
    def route(self) -> str:
        """``messages`` or ``listed``."""
        return "messages" if self.messages else "listed"

    @property
    def simulated_items(self) -> int:
        """All items of the domain."""
        return self.protocol.domain_size

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """The items that one round reports; ``counts`` are the holders of each item of the support.

        Ties between the largest estimates are broken in favour of items outside the support.
        """
        held = np.array([self.problem.index(item) for item in instance.support])
        estimates = self._estimates(held, counts, source)
        if self._thresholded is None:
            order = np.concatenate((np.setdiff1d(np.arange(self.protocol.domain_size), held), held))
            reported = order[top_items(estimates[order], len(held))]
        else:
            reported = np.flatnonzero((estimates > 0) & (estimates >= self._thresholded.least_estimate))
        support = dict(zip(held.tolist(), instance.support, strict=True))
        return tuple(support[index] if index in support else self.problem.item(index) for index in reported.tolist())

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:  # noqa: ARG002
        """The number of successful rounds among ``rounds`` simulated ones, each with a new instance."""
        total = 0
        for _ in range(rounds):
            instance = self.problem.instance(source)
            counts = uniform_counts(self.protocol.users, self.problem.support_size, source)
            reported = set(self.identify(instance, counts, source))
            total += set(instance.support[: self.problem.needed]) <= reported <= set(instance.support)
        return total

    @cached_property
    def success_at_least(self) -> float:
        """Lower bound on the probability of success.

        It is computed from exact zeros or from independent scores if the protocol has them, else by Claim 14 of Balcer
        and Cheu (2020): no estimate is off by more than t, and every item of the support has more than 2t holders.
        """
        if self._thresholded is not None:
            return self._thresholded.success_at_least
        if self.protocol.independent_categories:
            return largest_scores(self.protocol, self.problem).success_at_least
        radius = self.protocol.expected_error(confidence=_ESTIMATES_CONFIDENCE).max_error
        size, too_few = self.problem.support_size, math.floor(2 * radius)
        counts, masses, outside = holder_window(self.protocol.users, size)
        rare = float(masses[counts <= too_few].sum()) + outside
        return max(0.0, _ESTIMATES_CONFIDENCE - size * rare * (1 + _ROUNDING))

    @cached_property
    def _thresholded(self) -> ExactZeros | None:
        """The rule that reports what is estimated above 0; None if the largest estimates are reported."""
        return None if self.rule == "largest" else exact_zeros(self.protocol, self.problem, self.rule)

    def _estimates(self, held: NDArray[Any], counts: Ints, source: RandomSource) -> Floats:
        tally = self._tally(held, counts, source)
        estimator = self.protocol.estimators[0]
        if self.rule == "largest" and "unbiased" in self.protocol.estimators:
            estimator = "unbiased"
        return np.array(self.protocol.estimate(tally, estimator=estimator).counts, dtype=np.float64)

    def _tally(self, held: NDArray[Any], counts: Ints, source: RandomSource) -> Tally:
        if self.messages:
            sent = self.protocol.randomize_all(np.repeat(held, counts), source=source)
            shuffled = sent.shuffled(partial(permute, source=source))
            return self.protocol.release(self.protocol.tally(shuffled), source=source)
        all_counts = np.zeros(self.protocol.domain_size, dtype=np.int64)
        all_counts[held] = counts
        return self.protocol.sample_tally(all_counts, source=source)
