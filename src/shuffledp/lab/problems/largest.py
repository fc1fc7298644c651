"""Identification by the h largest estimates, where every item has an independent score of a known distribution.

The support has h items, and h is public (Definition 13), so that the h largest estimates are taken; ties are decided
against the support. Of the items that nobody holds only the few with the largest scores matter, and these are drawn by
their order statistics: the domain may be known by the logarithm of its size alone.
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
from shuffledp.protocols.parts.category_noise import LaplaceNoise, MissingTokens, Responses
from shuffledp.protocols.questions import HistogramProtocol
from shuffledp.randomness import Dyadic, RandomSource

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CELLS_AT_A_TIME = 1 << 21
_ROUNDING = 1e-9


class ScoreDistribution(Protocol):
    """What is counted of one item."""

    @property
    def empty(self) -> TailDistribution:
        """If nobody holds it."""

    @property
    def largest(self) -> int:
        """No held item is likely to score more."""

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """If so many users hold it, one draw for each entry."""

    def at_most(self, score: int, support_size: int) -> float:
        """The probability that it scores no more, where each user holds it with probability 1/h."""


@dataclass(frozen=True)
class ResponseScores:
    """Each user says yes for the own item with one probability, and for any other with a smaller one."""

    users: int
    own: Dyadic
    other: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """Binomial."""
        return BinomialTail(Binomial(self.users, self.other))

    @property
    def largest(self) -> int:
        """Everybody says yes."""
        return self.users

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """So many of its holders, and so many of the others."""
        own, other = float(self.own), float(self.other)
        drawn: Ints = generator.binomial(counts, own) + generator.binomial(self.users - counts, other)
        return drawn

    def at_most(self, score: int, support_size: int) -> float:
        """Users are independent, and each says yes with the mean of both probabilities."""
        yes = self.own.fraction / support_size + self.other.fraction * Fraction(support_size - 1, support_size)
        return float(Binomial(self.users, Dyadic.at_least(yes, bits=160)).lower_tail(score))


@dataclass(frozen=True)
class TokenScores:
    """The number of holders, and one token of every user except that each leaves it out with a small probability."""

    users: int
    absence: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """The tokens that are left."""
        return BinomialTail(Binomial(self.users, self.absence.complement))

    @property
    def largest(self) -> int:
        """Everybody holds it, and nobody leaves a token out."""
        return 2 * self.users

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """Independent of the number of holders."""
        drawn: Ints = counts + self.users - generator.binomial(self.users, float(self.absence), counts.shape)
        return drawn

    def at_most(self, score: int, support_size: int) -> float:
        """Summed over the number of holders."""
        counts, masses, outside = holder_window(self.users, support_size)
        left_out = Binomial(self.users, self.absence)
        return float(np.sum(masses * left_out.upper_tail(counts + self.users - score))) + outside


@dataclass(frozen=True)
class LaplaceScores:
    """The number of holders, and discrete Laplace noise."""

    users: int
    ratio: Dyadic

    @property
    def empty(self) -> TailDistribution:
        """The noise alone."""
        return LaplaceTail(self.ratio)

    @property
    def largest(self) -> int:
        """Everybody holds it, and the noise is far out."""
        return self.users + DiscreteLaplace(self.ratio).radius(1e-15)

    def draw(self, counts: Ints, generator: np.random.Generator) -> Ints:
        """The difference of two geometric numbers."""
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

    @cached_property
    def empties(self) -> EmptyItems:
        """The items outside the support."""
        return EmptyItems(self.scores.empty, log_empty_items(self.problem))

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """One round over users of whom so many hold each item of the support: the items with the h largest scores."""
        tally = self.protocol.sample_tally(counts, source=source)
        observed = self.protocol.observed(tally)
        strangers = self.empties.largest(1, self.problem.support_size, source)[0]
        places = top_items(np.concatenate((strangers[strangers > NOTHING], observed)), len(observed))
        held = places - np.count_nonzero(strangers > NOTHING)
        reported = [instance.support[place] for place in held[held >= 0]]
        while len(reported) < len(places):
            reported.append(_another(self.problem, {*instance.support, *reported}, source))
        return tuple(reported)

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:
        """In how many of so many independent rounds the support has the h largest scores."""
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
        """All held items score above t and all others at most t, for the best t; the sum over all items."""
        size, empties = self.problem.support_size, self.empties

        def risks(score: int) -> tuple[float, float]:
            return size * self.scores.at_most(score, size), math.exp(empties.log_any_at_least(score + 1))

        low, high = -1, self.scores.largest  # at the first the others' risk is the larger one, at the second it is not
        while high - low > 1:
            middle = (low + high) // 2
            held, others = risks(middle)
            low, high = (low, middle) if held >= others else (middle, high)
        failure = min(sum(risks(score)) for score in (low, high))
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
    """The places of the largest scores; among equal ones those that come first."""
    return np.argsort(-scores, kind="stable")[:number]


def _another(problem: Problem, known: set[Any], source: RandomSource) -> Any:
    """A uniform item that is not known."""
    while True:
        item = problem.random_item(source)
        if item not in known:
            return item
