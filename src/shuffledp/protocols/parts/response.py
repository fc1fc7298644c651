"""Randomized response on k values: the true value, or with probability ``blanket`` a uniform one.

For k = 2 it is Warner's randomized response. Protocols use it for a category, a hash, or a rounded number.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.supports import support_analysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.randomness import Dyadic, RandomSource, bernoulli_indices, binomials, integers, uniform_counts

_LARGEST_EPSILON = 40.0  # for larger ones the probability of a uniform answer would be too small to sample


def blanket_for(values: int, epsilon: float) -> Dyadic:
    """The least probability of a uniform answer that makes the answer epsilon-private."""
    if values == 1:
        return Dyadic(0, 0)  # a single value reveals nothing
    guess = Dyadic.at_least(values / (values + math.expm1(min(epsilon, _LARGEST_EPSILON))))
    while response_epsilon(values, guess) > epsilon:
        guess = Dyadic.at_least(min(Fraction(1), guess.fraction * (1 + Fraction(1, 1 << 48))))
    if guess.complement.numerator == 0:
        raise InfeasibleError(
            f"At epsilon = {epsilon:g} every answer about {values:,} values would be uniform; allow a larger epsilon.",
            epsilon=epsilon,
            values=values,
        )
    return guess


def response_epsilon(values: int, blanket: Dyadic) -> float:
    """ln(1 + k (1 - blanket) / blanket), rounded up."""
    if values == 1:
        return 0.0
    if blanket.numerator == 0:
        raise ParameterError("The blanket must be above 0: without it randomized response sends the true value.")
    uniform = blanket.numerator
    return log_ratio_above(uniform + values * (blanket.complement.numerator), uniform)


def response_pmf(index: int, values: int, blanket: Dyadic) -> Pmf:
    """The distribution of one answer, as copies of each value."""
    other = blanket.fraction / values
    pmf: dict[tuple[int, ...], Fraction] = {}
    for sent in range(values):
        copies = tuple(int(value == sent) for value in range(values))
        pmf[copies] = other + (1 - blanket.fraction if sent == index else 0)
    return pmf


def respond(owned: NDArray[np.int64], values: int, blanket: Dyadic, source: RandomSource) -> NDArray[np.int64]:
    """Each user's own value, or with probability ``blanket`` a uniform one."""
    if 2 * blanket.numerator > 1 << blanket.bits:  # few answers are true
        answers = integers(values, len(owned), source).view(np.int64)
        truthful = bernoulli_indices(blanket.complement, len(owned), source)
        answers[truthful] = owned[truthful]
        return answers
    answers = owned.copy()
    uniform_answers = bernoulli_indices(blanket, len(owned), source)
    answers[uniform_answers] = integers(values, len(uniform_answers), source).view(np.int64)
    return answers


def sample_responses(counts: NDArray[np.int64], blanket: Dyadic, source: RandomSource) -> Tally:
    """The tally of all answers: users with a uniform answer are moved to uniform categories."""
    uniform_answers = binomials(counts, blanket, source)
    answers = counts - uniform_answers + uniform_counts(int(uniform_answers.sum()), len(counts), source)
    return Tally(answers, int(counts.sum()), source.secure)


def response_analysis(users: int, values: int, blanket: Dyadic, *, numbers: int | None = None) -> LinearAnalysis:
    """The unbiased estimate (C - n q) / (p - q) with q = blanket / k and p = q + 1 - blanket."""
    other = float(blanket) / values
    slope = float(blanket.complement)
    own = other + slope
    return support_analysis(users, values if numbers is None else numbers, own, other, slope=slope)
