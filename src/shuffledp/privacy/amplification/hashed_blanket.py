"""Privacy accounting of a hashed value among uniform hashed messages: ``hashed-blanket``.

A message that agrees with both of the values that an attacker tries to distinguish hides either of them. With c the
probability that two values collide, a uniform message over b buckets agrees with one value only with probability
(1 - c)/b for each, and with both with probability c/b. The user's own message agrees with both with probability c.
Given H uniform messages that agree with at least one value, the likelihood of the H + 1 messages under a value is
proportional to the number of them that agree with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon
from shuffledp.privacy.amplification.clones import (
    ClonesCurve,
    clone_counts,
    fair_mass,
    fair_upper_tail,
    probability_at_most,
)
from shuffledp.privacy.binomial import MAX_TRIALS, Binomial, binomial_masses
from shuffledp.privacy.cheu.cells import reach
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.incomplete_beta import betainc

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CUTS = (1e-20, 1e-50, 1e-305)
_COARSENESS = 1e-3  # width of a block of counts, relative to the count
_BLOCKS_PER_DEVIATION = 16
_COUNTS_PER_BLOCK = 700  # of all messages that agree, per block of those that agree with both values
_RARE = 1e-15  # numbers of messages that agree with both values, which count as if there were none
_TINIEST = 1e-305
_LARGEST_EPSILON = 600.0  # beyond, its delta is a bound: products with e^epsilon stay finite


@dataclass(frozen=True)
class HashedBlanketCurve:
    """The privacy curve of one hashed message among those of ``messages``: trials, each sent with a probability.

    ``plain`` is the curve without collisions. It is an upper bound, and has a pair of distributions.
    """

    messages: tuple[tuple[int, Fraction], ...]
    buckets: int
    collision: Fraction
    plain: ClonesCurve

    @property
    def theorem(self) -> str:
        """The proof."""
        return "exact sum over the uniform messages that agree with either value or with both"

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Those of the curve without collisions."""
        return self.plain.directions(cut)

    def pair_of_about(self, outcomes: int, cut: float) -> DiscretePair:
        """That of the curve without collisions."""
        return self.plain.pair_of_about(outcomes, cut)

    @property
    def _agreeing(self) -> tuple[Binomial, ...]:
        """The number of uniform messages that agree with at least one value; probabilities are rounded down."""
        rates = (
            (trials, probability_at_most(sent * (2 - self.collision) / self.buckets)) for trials, sent in self.messages
        )
        return tuple(Binomial(min(trials, MAX_TRIALS), rate) for trials, rate in rates if trials > 0 and rate.numerator)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy.

        Exact except for rounding up to about 700 messages that agree. Beyond, numbers of messages are grouped into
        blocks, and each is replaced by the smallest of its block: fewer messages that agree hide less.
        """
        check_epsilon(epsilon)
        growth = math.exp(min(epsilon, _LARGEST_EPSILON))
        delta, agreeing = 1.0, self._agreeing
        for cut in _CUTS:
            counts = clone_counts(
                agreeing, 0, cut, direct=True, coarseness=_COARSENESS, blocks_per_deviation=_BLOCKS_PER_DEVIATION
            )
            deltas = _three_kinds_delta(counts.least, float(self.collision), growth)
            delta = counts.expectation(deltas) + counts.left_out
            if delta > 1e6 * cut:
                break
        return min(as_delta(delta * (1 + 1e-12) + _TINIEST), self.plain.delta_at(epsilon))


def _three_kinds_delta(agreeing: Integers, collision: float, growth: float) -> Floats:
    """Upper bound on the divergence, given the number of uniform messages that agree with at least one value.

    C of the T = ``agreeing`` + 1 messages agree with both values, C ~ Bin(T, c/(2 - c)), and the divergence is
    (2 - c)/T times the expected advantage. It falls with C, so every C is replaced by the least of its block.
    """
    total = agreeing + 1
    share = collision / (2 - collision)
    deviation = reach((total * (share * (1 - share))).astype(np.float64), _RARE)
    first = np.maximum(np.floor(total * share - deviation), 0).astype(np.int64)
    last = np.minimum(np.ceil(total * share + deviation).astype(np.int64), total)
    step = max(1, int(total[-1]) // _COUNTS_PER_BLOCK)
    both = np.minimum(first[:, None] + step * np.arange(int(((last - first) // step).max()) + 1), total[:, None])
    masses = _block_masses(both, total[:, None], share, step)
    advantage = (masses * _advantage(total[:, None] - both, both, growth)).sum(axis=1)
    advantage += np.where(first > 0, _RARE * _advantage(total, np.zeros_like(total), growth), 0.0)
    result: Floats = positive_part((2 - collision) / total * advantage)
    return result


def _block_masses(both: Integers, total: Integers, share: float, step: int) -> Floats:
    """Bounds on Pr[C = both], or of a block from ``both`` on; the last of each row includes all larger numbers."""
    if step == 1:
        masses = binomial_masses(both, np.broadcast_to(total, both.shape), share) * (1 + 1e-12)
        masses[:, 1:] *= both[:, 1:] > both[:, :-1]  # numbers beyond the total are repetitions of it
        masses[:, -1] += _RARE
        return masses
    inner = np.maximum(both, 1).astype(np.float64)
    tails = np.where(both > 0, betainc(inner, np.maximum(total - inner + 1, 1.0), share), 1.0)
    following = np.append(tails[:, 1:], np.zeros((len(tails), 1)), axis=1)
    return positive_part(tails - following) + 2.0**-48 * tails


def _advantage(one: Integers, both: Integers, growth: float) -> Floats:
    """Upper bound on E[max(0, (A + both) - e^epsilon (one - A + both))] for A ~ Bin(one, 1/2).

    It is (1 + e^epsilon) a/2 Pr[A = a] - (e^epsilon - 1)(one/2 + both) Pr[A >= a], with a the least A that counts.
    """
    all_count = one - (growth - 1) * both  # the advantage if A = one
    least = one + 1 - np.ceil(np.maximum(all_count / (1 + growth), -1.0)).astype(np.int64)
    counted = np.minimum(least, np.maximum(one, 1))
    error = 1e-12 + np.abs(counted - one / 2) * 2.0**-46
    gained = (1 + growth) * counted / 2 * fair_mass(np.minimum(counted, one), one)
    paid = (growth - 1) * (one / 2 + both) * fair_upper_tail(counted, one)
    several = positive_part(gained * (1 + error) - paid * (1 - error))
    single = all_count * np.exp2(-one.astype(np.float64)) * (1 + 1e-12)  # the difference cancels at large epsilon
    advantage: Floats = np.where(least > one, 0.0, np.where(least == one, single, several))
    return advantage
