"""Randomized response over k values: exact distributions, the least blanket, and both routes by whole tables."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.protocols.parts.response import (
    blanket_for,
    respond,
    response_analysis,
    response_epsilon,
    response_pmf,
    sample_responses,
)
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value

QUARTER = Dyadic(1, 2)


def test_the_distribution_by_hand():
    """Three values, a blanket of a quarter: 1/12 each, and 3/4 more for the own one."""
    assert response_pmf(1, 3, QUARTER) == {
        (1, 0, 0): Fraction(1, 12),
        (0, 1, 0): Fraction(10, 12),
        (0, 0, 1): Fraction(1, 12),
    }


@pytest.mark.parametrize("values", [2, 3, 10, 10**3, 10**7])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, math.log(3), 1.0, 5.0, 20.0])
def test_the_blanket_is_the_least_one(values, epsilon):
    blanket = blanket_for(values, epsilon)
    with mpmath.workdps(60):
        share = mpmath.mpf(blanket.numerator) / 2**blanket.bits
        true = mpmath.log(1 + values * (1 - share) / share)
        assert true <= response_epsilon(values, blanket) <= epsilon
        wanted = values / (values + mpmath.expm1(epsilon))
        assert float(share) == pytest.approx(float(wanted), rel=1e-12)
        resolution = values * 2.0**-47 / math.expm1(epsilon)  # of the blanket, which is exact as a float
        assert float(true) == pytest.approx(epsilon, rel=1e-9 + resolution)


def test_a_large_epsilon_still_has_a_blanket():
    assert blanket_for(2, 700.0).numerator > 0
    assert response_epsilon(2, blanket_for(2, 700.0)) < 45


def test_a_single_value_says_nothing():
    assert blanket_for(1, 1.0).numerator == 0
    assert response_epsilon(1, Dyadic(0, 0)) == 0.0
    assert response_pmf(0, 1, Dyadic(0, 0)) == {(1,): 1}


def test_the_truth_in_clear_has_no_epsilon():
    with pytest.raises(ParameterError):
        response_epsilon(2, Dyadic(0, 4))


def test_a_tiny_epsilon_over_a_large_domain():
    with pytest.raises(InfeasibleError, match="would be uniform"):
        blanket_for(10**7, 1e-10)


OWNED = np.array([0, 0, 0, 1, 1, 3])


def exact_table(values, blanket):
    """The probability of each answer by each owned value."""
    return [[float(p) for p in response_pmf(owned, values, blanket).values()] for owned in range(values)]


def answers_of(respond_as, values, users):
    owned = np.repeat(np.arange(values), users)
    return np.bincount(owned * values + respond_as(owned), minlength=values**2).reshape(values, values)


def test_answers_have_their_distribution():
    """20,000 answers to each of 4 values: the p-value of every row, and of a blanket off by a sixth."""
    blanket = Dyadic.at_least(0.3)
    seen = answers_of(lambda owned: respond(owned, 4, blanket, SYSTEM), 4, 20_000)
    expected = exact_table(4, blanket)
    assert min(p_value(row, pmf) for row, pmf in zip(seen, expected, strict=True)) > ALPHA
    wrong = answers_of(lambda owned: respond(owned, 4, Dyadic.at_least(0.35), SYSTEM), 4, 20_000)
    assert min(p_value(row, pmf) for row, pmf in zip(wrong, expected, strict=True)) < ALPHA


def test_the_owned_values_are_left_alone():
    owned = OWNED.copy()
    respond(owned, 4, Dyadic(1, 0), SYSTEM)
    assert owned.tolist() == OWNED.tolist()


def tally_pmf(counts, blanket):
    """The exact distribution of the tally of two values."""
    own, other = float(1 - blanket.fraction / 2), float(blanket.fraction / 2)
    zeros, ones = counts
    pmf = np.array([1.0])
    for probability in [other] * zeros + [own] * ones:
        pmf = np.convolve(pmf, [1 - probability, probability])
    return pmf


def test_the_fast_route_has_the_distribution_of_all_answers():
    """4,000 tallies of 2 and 3 users; a blanket half as large again fails."""
    counts, blanket = np.array([2, 3]), Dyadic.at_least(0.4)
    seen = np.bincount([sample_responses(counts, blanket, SYSTEM).counts[1] for _ in range(4000)], minlength=6)
    assert p_value(seen, tally_pmf(counts, blanket)) > ALPHA
    assert p_value(seen, tally_pmf(counts, Dyadic.at_least(0.6))) < ALPHA


def test_the_analysis_is_unbiased_and_its_variance_exact():
    users, values, blanket = 5, 3, QUARTER
    analysis = response_analysis(users, values, blanket)
    own, other = 10 / 12, 1 / 12
    for truth in range(users + 1):
        mean = truth * own + (users - truth) * other
        variance = truth * own * (1 - own) + (users - truth) * other * (1 - other)
        assert analysis.estimate(np.array([mean]), "unbiased")[0] == pytest.approx(truth)
        assert analysis.error.variance(np.array([float(truth)]))[0] == pytest.approx(variance / 0.75**2)
