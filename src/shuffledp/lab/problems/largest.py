"""Identification of a support by the h largest scores, for protocols whose items have independent scores.

The size h of the support is public (Definition 13), so the h items with the largest scores are reported; ties are
broken in favour of items outside the support. Of the items that nobody holds only the largest scores matter, which are
drawn by their order statistics: the domain may be given by the logarithm of its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.lab.problems.exact_zeros import holder_window
from shuffledp.lab.problems.extremes import NOTHING, BinomialTail, EmptyItems, LaplaceTail, TailDistribution
from shuffledp.lab.problems.problem import Instance, Problem, log_empty_items
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.category_noise import LaplaceNoise, MissingTokens, Responses
from shuffledp.randomness import Dyadic, RandomSource
from shuffledp.search import bisect_integers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS_AT_A_TIME = 1 << 21
_ROUNDING = 1e-9


class ScoreDistribution(Protocol):
    """The distribution of the score (the raw count) of one item."""

    @property
    def empty(self) -> TailDistribution:
        """The distribution for an item that nobody holds."""

    @property
    def largest(self) -> int:
        """A score that a held item exceeds with negligible probability."""

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """One draw for each entry of ``counts``, the number of users who hold the item."""

    def at_most(self, score: int, support_size: int) -> float:
        """The probability of a score of at most ``score`` if each user holds the item with probability 1/h."""


@dataclass(frozen=True)
class ResponseScores:
    """The number of users who answer yes, with a larger probability for the item they hold than for any other."""

    users: int
    own: Dyadic
    other: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """Binomial: all users answer yes with the smaller probability."""
        return BinomialTail(Binomial(self.users, self.other))

    @property
    def largest(self) -> int:
        """All users answer yes."""
        return self.users

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """The sum of the yes answers of holders and of the other users."""
        own, other = float(self.own), float(self.other)
        drawn: Ints = generator.binomial(counts, own) + generator.binomial(self.users - counts, other)
        return drawn

    def at_most(self, score: int, support_size: int) -> float:
        """Users are independent, and each answers yes with the mean of both probabilities."""
        yes = self.own.fraction / support_size + self.other.fraction * Fraction(support_size - 1, support_size)
        return float(Binomial(self.users, Dyadic.at_least(yes, bits=160)).lower_tail(score))


@dataclass(frozen=True)
class TokenScores:
    """The number of holders plus one token per user, which each user omits with a small probability."""

    users: int
    absence: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """The number of tokens that are not omitted."""
        return BinomialTail(Binomial(self.users, self.absence.complement))

    @property
    def largest(self) -> int:
        """All users hold the item, and no token is omitted."""
        return 2 * self.users

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """The number of holders, plus the users who do not omit their token."""
        drawn: Ints = counts + self.users - generator.binomial(self.users, float(self.absence), counts.shape)
        return drawn

    def at_most(self, score: int, support_size: int) -> float:
        """Summed over the number of holders."""
        counts, masses, outside = holder_window(self.users, support_size)
        left_out = Binomial(self.users, self.absence)
        return float(np.sum(masses * left_out.upper_tail(counts + self.users - score))) + outside


@dataclass(frozen=True)
class LaplaceScores:
    """The number of holders plus discrete Laplace noise."""

    users: int
    ratio: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """The noise alone."""
        return LaplaceTail(self.ratio)

    @property
    def largest(self) -> int:
        """All users hold the item, and the noise is at an extreme quantile."""
        return self.users + DiscreteLaplace(self.ratio).radius(1e-15)

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """The number of holders plus the difference of two geometric numbers."""
        rest = float(self.ratio.complement)
        drawn: Ints = counts + generator.geometric(rest, counts.shape) - generator.geometric(rest, counts.shape)
        return drawn

    def at_most(self, score: int, support_size: int) -> float:
        """Summed over the number of holders."""
        counts, masses, outside = holder_window(self.users, support_size)
        tails = DiscreteLaplace(self.ratio).upper_tails(counts - score)  # X <= score - c, mirrored
        return float(np.sum(masses * tails)) + outside


@dataclass(frozen=True)
class LargestScores:
    """A calibrated protocol whose items have independent scores."""

    route: ClassVar[str] = "order statistics"

    protocol: HistogramProtocol
    problem: Problem
    scores: ScoreDistribution

    @property
    def simulated_items(self) -> int:
        """The items of the support; of the others the largest scores are drawn."""
        return self.problem.support_size

    @cached_property
    def empties(self) -> EmptyItems:
        """The items outside the support."""
        return EmptyItems(self.scores.empty, log_empty_items(self.problem))

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """The items with the h largest scores of one round; ``counts`` are the holders of each item of the support."""
        tally = self.protocol.sample_tally(counts, source=source)
        observed = self.protocol.observed(tally)
        empty_scores = self.empties.largest(1, self.problem.support_size, source)[0]
        empty_scores = empty_scores[empty_scores > NOTHING]
        top = top_items(np.concatenate((empty_scores, observed)), len(observed))
        held = top - len(empty_scores)
        reported = [instance.support[index] for index in held[held >= 0]]
        while len(reported) < len(top):
            reported.append(_random_item_outside(self.problem, {*instance.support, *reported}, source))
        return tuple(reported)

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:
        """The number of simulated rounds, out of ``rounds``, in which the support has the h largest scores."""
        size, total = self.problem.support_size, 0
        step = max(1, _CELLS_AT_A_TIME // size)
        for start in range(0, rounds, step):
            now = min(step, rounds - start)
            counts = generator.multinomial(self.protocol.users, np.full(size, 1 / size), now)
            least = self.scores.draw(counts, generator).min(axis=1)
            total += int(np.count_nonzero(least > self.empties.largest(now, 1, source)[:, 0]))
        return total

    @cached_property
    def success_at_least(self) -> float:
        """Union bound: all held items score above t and all others at most t, for the best t."""
        size, empties = self.problem.support_size, self.empties

        def risks(score: int) -> tuple[float, float]:
            return size * self.scores.at_most(score, size), math.exp(empties.log_any_at_least(score + 1))

        def is_held_risk_larger(score: int) -> bool:
            held, others = risks(score)
            return held >= others

        crossing = bisect_integers(is_held_risk_larger, -1, self.scores.largest)
        failure = min(sum(risks(score)) for score in (crossing - 1, crossing))
        return max(0.0, 1 - failure * (1 + _ROUNDING))


def largest_scores(protocol: HistogramProtocol, problem: Problem) -> LargestScores:
    """The identifier of a protocol with independent scores."""
    return LargestScores(protocol, problem, _scores(protocol))


def _scores(protocol: HistogramProtocol) -> ScoreDistribution:
    match protocol.category_noise:
        case Responses(own, other):
            return ResponseScores(protocol.users, own, other)
        case MissingTokens(absence):
            return TokenScores(protocol.users, absence)
        case LaplaceNoise(ratio):
            return LaplaceScores(protocol.users, ratio)
    raise ParameterError(f"The categories of {protocol.name} are not independent; its domain must be listed.")


def top_items(scores: NDArray[Any], number: int) -> NDArray[np.intp]:
    """The indices of the largest scores; among equal ones the first."""
    return np.argsort(-scores, kind="stable")[:number]


def _random_item_outside(problem: Problem, excluded: set[Any], source: RandomSource) -> Any:
    """A uniform item that is not excluded."""
    while True:
        item = problem.random_item(source)
        if item not in excluded:
            return item
