"""Definition 21, Lemmas 22 and 23, Corollary 24: with their conditions, and true."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import count_delta
from shuffledp.privacy.smoothness import (
    LARGEST_EPSILON_OF_COROLLARY_24,
    binomial_smoothness,
    corollary_24_mean,
    corollary_24_users,
    lemma_23_mean,
    privacy_of_smooth_noise,
    smoothness_delta,
)
from shuffledp.randomness import Dyadic


def test_definition_21_by_hand():
    curve = [0.25, 0.5, 0.25]
    # at epsilon ln 2 every outcome has a neighbour that is at most half as likely
    assert smoothness_delta(curve, math.log(2)) == pytest.approx(0.75)
    # at ln 3 only the ends do, where the neighbour has mass zero
    assert smoothness_delta(curve, math.log(3)) == pytest.approx(0.25)
    # two steps away: the ends and the middle, where it is off the support
    assert smoothness_delta(curve, math.log(3), k=2) == pytest.approx(0.75)


@settings(max_examples=100)
@given(trials=st.integers(20, 400), gamma=st.floats(0.05, 0.5), alpha=st.floats(0.05, 0.95), k=st.integers(1, 3))
def test_lemma_23_holds(trials, gamma, alpha, k):
    if k > alpha * gamma * trials / 2:
        with pytest.raises(ConditionError, match="k <= alpha gamma n / 2"):
            binomial_smoothness(trials, gamma, alpha, k)
        return
    epsilon, delta = binomial_smoothness(trials, gamma, alpha, k)
    curve = stats.binom.pmf(np.arange(trials + 1), trials, gamma)
    assert smoothness_delta(curve / curve.sum(), epsilon, k) <= delta + 1e-12


@settings(max_examples=60)
@given(trials=st.integers(2, 200), rate=st.floats(0.02, 0.5), epsilon=st.floats(0.05, 3))
def test_lemma_22_holds(trials, rate, epsilon):
    """Smoothness is sufficient: the true delta is never above it."""
    noise = Binomial(trials, Dyadic.at_least(rate))
    curve = noise.pmf(np.arange(trials + 1))
    smooth = smoothness_delta(curve / curve.sum(), epsilon)
    promised = privacy_of_smooth_noise(epsilon, smooth)
    assert count_delta(noise, promised[0]) <= promised[1] + 1e-9


def test_lemma_22_scales_with_sensitivity():
    assert privacy_of_smooth_noise(0.5, 1e-3, 4, sensitivity=3) == (1.5, 3e-3)
    with pytest.raises(ConditionError):
        privacy_of_smooth_noise(0.5, 1e-3, 1, sensitivity=2)


def test_corollary_24_is_lemma_23_simplified():
    for epsilon in (0.1, 0.5, 1.0):
        users = corollary_24_users(epsilon, 1e-6)
        mean = corollary_24_mean(users, epsilon, 1e-6)
        assert mean / users <= 0.5
        assert mean >= lemma_23_mean(epsilon, 1e-6)
        promised = binomial_smoothness(users, mean / users, math.tanh(epsilon / 2))
        assert promised[0] == pytest.approx(epsilon)
        assert promised[1] <= 1e-6


def test_the_constant_behind_corollary_24():
    """tanh(e/2) >= e/sqrt(5) exactly up to the stated epsilon."""
    limit = LARGEST_EPSILON_OF_COROLLARY_24
    assert math.tanh(limit / 2) >= limit / math.sqrt(5)
    beyond = limit + 1e-4
    assert math.tanh(beyond / 2) < beyond / math.sqrt(5)


def test_the_simplification_breaks_for_large_epsilon_and_the_lemma_does_not():
    users, delta = 1_000_000, 1e-6
    formula = 50 / 8.0**2 * math.log(2 / delta)
    assert count_delta(Binomial(users, Dyadic.at_least(formula / users)), 8.0) > 10 * delta
    mean = lemma_23_mean(8.0, delta)
    assert count_delta(Binomial(users, Dyadic.at_least(mean / users)), 8.0) <= delta


@pytest.mark.parametrize(("gamma", "alpha"), [(0.0, 0.5), (0.6, 0.5), (0.3, 0.0), (0.3, 1.0)])
def test_conditions_of_lemma_23(gamma, alpha):
    with pytest.raises(ConditionError):
        binomial_smoothness(1000, gamma, alpha)


def test_conditions_of_corollary_24():
    with pytest.raises(ConditionError, match="epsilon <= 1"):
        corollary_24_mean(10**6, 1.1, 1e-6)
    with pytest.raises(ConditionError, match="1,451"):
        corollary_24_mean(1000, 1.0, 1e-6)


@pytest.mark.parametrize("masses", [[], [0.5, 0.6], [-0.5, 1.5], [[0.5], [0.5]]])
def test_what_is_no_distribution_is_refused(masses):
    with pytest.raises(ParameterError):
        smoothness_delta(masses, 1.0)
    with pytest.raises(ParameterError):
        smoothness_delta([0.5, 0.5], 1.0, k=0)
