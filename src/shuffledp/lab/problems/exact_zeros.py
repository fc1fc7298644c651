"""Identification by a protocol that estimates empty items to be exactly 0: what is reported is held by somebody.

Only the items of the support are ever touched. The protocol runs over these alone, and the distribution of what is
reported is that of the whole domain: every item has noise of its own, independent of all others, and an item that
nobody holds is reported with probability 0 whatever its noise is. So neither time nor memory depends on the domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.lab.problems.problem import Instance, Problem
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.questions import HistogramProtocol
from shuffledp.randomness import Dyadic, RandomSource

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shown = Callable[[Ints], Floats]

_CELLS_AT_A_TIME = 1 << 21
_MOST_USERS_EXACT = 1 << 23
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ExactZeros:
    """A calibrated protocol, and how likely an item is reported by the number of users who hold it."""

    route: ClassVar[str] = "exact zeros"

    protocol: HistogramProtocol
    problem: Problem
    shown: Shown
    least_estimate: float = 0.0
    """Items are reported if their estimate is positive and at least this."""

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """One round over users of whom so many hold each item of the support: the items that are reported."""
        estimates = self.protocol.estimate(self.protocol.sample_tally(counts, source=source)).counts
        reported = (estimates > 0) & (estimates >= self.least_estimate)
        return tuple(instance.support[place] for place in np.flatnonzero(reported))

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:  # noqa: ARG002
        """In how many of so many independent rounds everything that is needed is reported."""
        size, needed, total = self.problem.support_size, self.problem.needed, 0
        step = max(1, _CELLS_AT_A_TIME // size)
        for start in range(0, rounds, step):
            counts = generator.multinomial(self.protocol.users, np.full(size, 1 / size), min(step, rounds - start))
            counts = counts[:, :needed]
            first = int(counts.min())
            chances = self.shown(np.arange(first, int(counts.max()) + 1))[counts - first]
            total += int(np.count_nonzero((generator.random(counts.shape) < chances).all(axis=1)))
        return total

    @cached_property
    def missed(self) -> float:
        """The probability that a given item of the support is not reported."""
        counts, masses, outside = holder_window(self.protocol.users, self.problem.support_size)
        return min(1.0, float(np.sum(masses * (1 - self.shown(counts)))) + outside)

    @property
    def success_at_least(self) -> float:
        """One less the sum over all items that are needed."""
        return max(0.0, 1 - self.problem.needed * self.missed * (1 + _ROUNDING))

    @property
    def success_probability(self) -> float:
        """The exact probability, to about nine digits.

        Were the number of users Poisson, items would be independent: the generating function of the number of holders
        of an item that is reported is raised to the power of the items, and the coefficient of the true number
        of users read off.
        """
        users, size, needed = self.protocol.users, self.problem.support_size, self.problem.needed
        if users > _MOST_USERS_EXACT:
            raise ParameterError(f"The exact probability is computed for up to {_MOST_USERS_EXACT:,} users.")
        from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

        length = next_fast_len(max(2 * users, users + 200), real=True)
        mean = users / size
        reach = 12 * math.sqrt(mean) + 60
        counts = np.arange(max(0, math.floor(mean - reach)), min(length - 1, math.ceil(mean + reach)) + 1)
        reported = np.zeros(length)
        reported[counts] = self.shown(counts) * np.exp(_log_poisson(mean, counts))
        spectrum = rfft(reported) ** needed
        if needed < size:  # the others may be held by anybody, in any number
            turn = np.exp(-2j * math.pi * rfftfreq(length))
            spectrum = spectrum * np.exp((size - needed) * mean * (turn - 1))
        joint = irfft(spectrum, length)[users]
        return min(1.0, float(joint / np.exp(_log_poisson(float(users), np.array([users])))[0]))


def exact_zeros(protocol: HistogramProtocol, problem: Problem, rule: str) -> ExactZeros:
    """The identifier of a protocol that never reports an empty item, with the rule ``shown`` or ``paper``.

    A protocol that tunes itself to the average category takes it over the support: its size is public.
    """
    if rule != "paper":
        return ExactZeros(protocol, problem, protocol.chance_shown)
    if not isinstance(protocol, BalcerCheuHistogram):
        raise ParameterError(f"The rule paper is that of balcer-cheu, not of {protocol.name}; use another rule.")
    least = paper_radius(Binomial(protocol.users, protocol.absence).mean, problem.support_size) + 1
    return ExactZeros(protocol, problem, partial(protocol.chance_shown, least=least), least)


def paper_radius(noise_mean: float, support_size: int) -> float:
    """t in the proof of Claim 14: the error of each of h counts, except with probability 1/200 (Theorem 11 (ii))."""
    return noise_mean + 2 * math.sqrt(noise_mean * math.log(400 * support_size))


@lru_cache(maxsize=8)
def holder_window(users: int, support_size: int) -> tuple[Ints, Floats, float]:
    """The likely numbers of users who hold an item, their probabilities, and the probability of all others.

    Kept, since a search for the best threshold asks again and again; not to be changed.
    """
    if support_size == 1:
        return np.array([users]), np.ones(1), 0.0
    pmf = Binomial(users, Dyadic.at_least(Fraction(1, support_size), bits=160))
    reach = 9 * pmf.deviation + 60
    first, last = max(0, math.floor(pmf.mean - reach)), min(users, math.ceil(pmf.mean + reach))
    counts = np.arange(first, last + 1)
    outside = float(pmf.lower_tail(first - 1) + pmf.upper_tail(last + 1))
    return counts, pmf.pmf(counts), outside


def _log_poisson(mean: float, counts: Ints) -> Floats:
    from scipy.special import gammaln

    log_factorials: Floats = gammaln(counts.astype(np.float64) + 1)
    return counts * math.log(mean) - mean - log_factorials
