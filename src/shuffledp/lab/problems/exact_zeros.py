"""Identification of a support by a protocol that estimates items which nobody holds as exactly 0.

Only the items of the support are simulated. The reported items have the same distribution as with the whole domain:
the noise of different items is independent, and an item that nobody holds is never reported, whatever its noise. So
neither time nor memory depends on the domain.
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
from shuffledp.messages import Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.randomness import Dyadic, RandomSource

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shown = Callable[[Ints], Floats]

_CELLS_AT_A_TIME = 1 << 21
_MAX_USERS_EXACT = 1 << 23
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ExactZeros:
    """A calibrated protocol, and the probability that an item is reported given the number of its holders."""

    route: ClassVar[str] = "exact zeros"

    protocol: HistogramProtocol
    problem: Problem
    shown: Shown
    least_estimate: float = 0.0
    """An item is reported if its estimate is positive and at least this."""

    @property
    def simulated_items(self) -> int:
        """The items of the support; all others are estimated as 0."""
        return self.problem.support_size

    def identify(self, instance: Instance, counts: Ints, source: RandomSource) -> tuple[Any, ...]:
        """The items that one round reports; ``counts`` are the numbers of users who hold each item of the support."""
        return self.reported(instance, self.protocol.sample_tally(counts, source=source))

    def reported(self, instance: Instance, tally: Tally) -> tuple[Any, ...]:
        """The items that are reported if this is the tally of the support."""
        estimates = self.protocol.estimate(tally).counts
        reported = (estimates > 0) & (estimates >= self.least_estimate)
        return tuple(instance.support[index] for index in np.flatnonzero(reported))

    def successes(self, rounds: int, generator: np.random.Generator, source: RandomSource) -> int:  # noqa: ARG002
        """The number of simulated rounds, out of ``rounds``, in which all needed items are reported.

        Samples and noise are drawn and compared as in the protocol, without ``shown``, on which the proof of the
        sample size rests.
        """
        size, needed, total = self.problem.support_size, self.problem.needed, 0
        step = max(1, _CELLS_AT_A_TIME // size)
        for start in range(0, rounds, step):
            counts = generator.multinomial(self.protocol.users, np.full(size, 1 / size), min(step, rounds - start))
            estimates = draw_estimates(self.protocol, counts[:, :needed], generator)
            total += int(np.count_nonzero(((estimates > 0) & (estimates >= self.least_estimate)).all(axis=1)))
        return total

    @cached_property
    def missed(self) -> float:
        """The probability that a given item of the support is not reported."""
        counts, masses, outside = holder_window(self.protocol.users, self.problem.support_size)
        return min(1.0, float(np.sum(masses * (1 - self.shown(counts)))) + outside)

    @property
    def success_at_least(self) -> float:
        """Union bound over all needed items."""
        return max(0.0, 1 - self.problem.needed * self.missed * (1 + _ROUNDING))

    @property
    def success_probability(self) -> float:
        """The exact probability, to about nine digits.

        If the number of users were Poisson, items would be independent. The generating function of the number of
        holders of a reported item is therefore raised to the power of the number of items, and its coefficient at the
        true number of users gives the probability.
        """
        users, size, needed = self.protocol.users, self.problem.support_size, self.problem.needed
        if users > _MAX_USERS_EXACT:
            raise ParameterError(f"The exact probability is computed for up to {_MAX_USERS_EXACT:,} users.")
        from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

        length = next_fast_len(max(2 * users, users + 200), real=True)
        mean = users / size
        reach = 12 * math.sqrt(mean) + 60
        counts = np.arange(max(0, math.floor(mean - reach)), min(length - 1, math.ceil(mean + reach)) + 1)
        reported = np.zeros(length)
        reported[counts] = self.shown(counts) * np.exp(_log_poisson(mean, counts))
        spectrum = rfft(reported) ** needed
        if needed < size:  # the other items may have any number of holders
            phase = np.exp(-2j * math.pi * rfftfreq(length))
            spectrum = spectrum * np.exp((size - needed) * mean * (phase - 1))
        joint = irfft(spectrum, length)[users]
        return min(1.0, float(joint / np.exp(_log_poisson(float(users), np.array([users])))[0]))


def draw_estimates(protocol: HistogramProtocol, counts: Ints, generator: np.random.Generator) -> Floats:
    """Estimates of many rounds at once, with noise drawn in floating point; a row of true counts for each round."""
    estimates: Floats
    match protocol:
        case BalcerCheuHistogram():
            omitted = generator.binomial(protocol.users, float(protocol.absence), counts.shape)
            mean = protocol.users * float(protocol.absence)
            estimates = np.where(counts > omitted, counts - omitted + mean, 0.0)
        case StabilityHistogram():
            success = float(protocol.ratio.complement)
            noise = generator.geometric(success, counts.shape) - generator.geometric(success, counts.shape)
            estimates = np.where((counts > 0) & (counts + noise >= protocol.threshold), counts + noise, 0.0)
        case SampleAndThresholdHistogram():
            sampled = generator.binomial(counts, float(protocol.sampling))
            estimates = np.where(sampled >= protocol.threshold, sampled / float(protocol.sampling), 0.0)
        case _:
            raise ParameterError(f"Rounds of {protocol.name} cannot be simulated in batches.")
    return estimates


def exact_zeros(protocol: HistogramProtocol, problem: Problem, rule: str) -> ExactZeros:
    """Identification by a protocol that never reports an empty item, with the rule ``shown`` or ``paper``.

    A protocol whose parameters depend on the average count uses the average over the support, whose size is public.
    """
    if rule != "paper":
        return ExactZeros(protocol, problem, protocol.chance_shown)
    if not isinstance(protocol, BalcerCheuHistogram):
        raise ParameterError(f"The rule 'paper' is that of balcer-cheu, not of {protocol.name}; use another rule.")
    least = paper_radius(Binomial(protocol.users, protocol.absence).mean, problem.support_size) + 1
    return ExactZeros(protocol, problem, partial(protocol.chance_shown, least=least), least)


def paper_radius(noise_mean: float, support_size: int) -> float:
    """t in the proof of Claim 14: the error of each of h counts, except with probability 1/200 (Theorem 11 (ii))."""
    return noise_mean + 2 * math.sqrt(noise_mean * math.log(400 * support_size))


@lru_cache(maxsize=8)
def holder_window(users: int, support_size: int) -> tuple[Ints, Floats, float]:
    """The likely numbers of users who hold an item, their probabilities, and the probability of all others.

    Cached, since a search for the best threshold calls it repeatedly; callers must not modify the arrays.
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
