"""Randomized response and sample-and-threshold on a binary sum, by exact distributions.

Randomized response with parameter lambda (Cheu and others 2019): a user sends a fair coin with probability
share = lambda / n, else the bit. Sample-and-threshold (Bharadwaj and Cormode 2022): every user is sampled with some
probability, and the number of sampled ones is released if it reaches a threshold, else 0.

They have the first step in common: randomized response is a sample at rate 1 - share in which every bit that is not
sampled is replaced by a fair coin (``filled_sample_pmf``). The second step differs: users toss the coins, while in
sample-and-threshold a counting party removes small numbers. For a threshold of 2 to n and rates strictly between 0 and
1, neither is a post-processing of the other:

- Randomized response is purely private, e^epsilon = (2 - share) / share for every number of users, and so is every
  post-processing of it. Sample-and-threshold is not: all users with a 1 may be sampled, and that number of sampled ones
  is impossible if one user fewer holds a 1.
- From a threshold of 2 on, sample-and-threshold releases 0 both if nobody and if one user holds a 1. Any
  post-processing has one distribution for both; randomized response has two.

With a threshold of 1, which changes nothing, the second statement is false: from a rate of (1 - share) / (1 - share/2)
on, randomized response can be computed from the sampled ones, by a coin for each of them and for each other user
(``sample_with_coins_pmf``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from numbers import Rational

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.exact_ratios import Exact, Ratio

Pmf = tuple[Fraction, ...]
"""The probabilities of 0, 1, 2, ..."""


def response_pmf(users: int, ones: int, share: Exact) -> Pmf:
    """The number of ones received by randomized response, where a coin is sent with probability ``share``."""
    flip = _checked(users, ones, share) / 2
    return convolved(binomial_pmf(ones, 1 - flip), binomial_pmf(users - ones, flip))


def filled_sample_pmf(users: int, ones: int, share: Exact) -> Pmf:
    """The number of ones in a sample at rate 1 - ``share``, with a fair coin for everybody who was not sampled.

    Summed over the numbers of sampled ones and zeros, without reference to randomized response.
    """
    rate = 1 - _checked(users, ones, share)
    total = [Fraction(0)] * (users + 1)
    for sampled_ones, mass in enumerate(binomial_pmf(ones, rate)):
        for sampled_zeros, other in enumerate(binomial_pmf(users - ones, rate)):
            for coins, tossed in enumerate(binomial_pmf(users - sampled_ones - sampled_zeros, Fraction(1, 2))):
                total[sampled_ones + coins] += mass * other * tossed
    return tuple(total)


def sample_with_coins_pmf(users: int, ones: int, rate: Exact, share: Exact) -> Pmf:
    """The number of ones if every sampled one, and every other user, is replaced by an independent coin.

    The coin of the others is a one with probability ``share`` / 2; that of a sampled one is such that a user with a 1
    yields a one with probability 1 - ``share`` / 2. It is a post-processing of the number of sampled ones, and equals
    ``response_pmf``.
    """
    flip, sampling = _checked(users, ones, share) / 2, _checked(users, ones, rate)
    if sampling * (1 - flip) < 1 - 2 * flip:
        raise ParameterError(f"The rate must be at least {(1 - 2 * flip) / (1 - flip)}; got {sampling}.")
    sampled_coin = (1 - 2 * flip + sampling * flip) / sampling
    total = [Fraction(0)] * (users + 1)
    for sampled, mass in enumerate(binomial_pmf(ones, sampling)):
        for shown, other in enumerate(
            convolved(binomial_pmf(sampled, sampled_coin), binomial_pmf(users - sampled, flip))
        ):
            total[shown] += mass * other
    return tuple(total)


def thresholded_sample_pmf(users: int, ones: int, rate: Exact, threshold: int) -> Pmf:
    """The released number: the number of sampled ones if it is at least ``threshold``, else 0."""
    sampled = binomial_pmf(ones, _checked(users, ones, rate))
    total = [Fraction(0)] * (users + 1)
    for number, mass in enumerate(sampled):
        total[number if number >= threshold else 0] += mass
    return tuple(total)


def pure_ratio(pmfs: Sequence[Pmf]) -> Ratio:
    """e^epsilon over neighbouring counts, where ``pmfs[c]`` is the distribution with c ones; infinite if none holds."""
    largest: Ratio = Fraction(1)
    for first, second in [*pairwise(pmfs), *pairwise(pmfs[::-1])]:
        for mass, other in zip(first, second, strict=True):
            if mass and not other:
                return math.inf
            if mass:
                largest = max(largest, mass / other)
    return largest


def response_variance(users: int, share: Exact) -> Fraction:
    """The variance of the unbiased estimate by randomized response, the same for every number of ones."""
    flip = _checked(users, 0, share) / 2
    return users * flip * (1 - flip) / (1 - 2 * flip) ** 2


def sample_variance(ones: int, rate: Exact) -> Fraction:
    """The variance of the unbiased estimate from a sample without threshold: ones (1 - rate) / rate."""
    return ones * (1 - Fraction(rate)) / Fraction(rate)


def equal_variance_count(users: int, share: Exact) -> Fraction:
    """The number of ones at which both have the same variance, at the rate 1 - ``share``: above users / 2."""
    part = Fraction(share)
    return users * (2 - part) / (4 * (1 - part))


def binomial_pmf(trials: int, probability: Fraction) -> Pmf:
    """The exact binomial distribution."""
    return tuple(
        math.comb(trials, hits) * probability**hits * (1 - probability) ** (trials - hits) for hits in range(trials + 1)
    )


def convolved(first: Pmf, second: Pmf) -> Pmf:
    """The distribution of the sum of two independent numbers."""
    total = [Fraction(0)] * (len(first) + len(second) - 1)
    for number, mass in enumerate(first):
        for more, other in enumerate(second):
            total[number + more] += mass * other
    return tuple(total)


def _checked(users: int, ones: int, share: Exact) -> Fraction:
    if not isinstance(share, Rational) or not 0 < Fraction(share) < 1:
        raise ParameterError(f"The probability must be an exact number in (0, 1), not {share!r}.", share=share)
    if not 0 <= ones <= users:
        raise ParameterError(f"ones must lie between 0 and users; got {ones} of {users}.", ones=ones, users=users)
    return Fraction(share)
