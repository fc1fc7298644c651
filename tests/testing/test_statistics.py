"""The test of the tests: it accepts the distribution and rejects a fault."""

import numpy as np

from shuffledp.testing.statistics import ALPHA, p_value, same_distribution


def test_accepts_the_distribution_and_rejects_a_shift():
    rng = np.random.default_rng()
    distribution = np.array([0.5, 0.3, 0.15, 0.05])
    assert p_value(rng.multinomial(100_000, distribution), distribution) > ALPHA
    wrong = np.array([0.48, 0.32, 0.15, 0.05])
    assert p_value(rng.multinomial(100_000, wrong), distribution) < ALPHA


def test_an_outcome_that_cannot_happen_is_fatal():
    assert p_value([10, 1], [1.0, 0.0]) == 0.0


def test_an_outcome_that_never_happens_is_noticed():
    assert p_value([100_000, 0], [0.999, 0.001]) < ALPHA


def test_p_values_are_uniform():
    rng = np.random.default_rng()
    distribution = np.full(8, 1 / 8)
    values = [p_value(rng.multinomial(800, distribution), distribution) for _ in range(400)]
    assert 0.3 < float(np.mean(np.array(values) < 0.9)) <= 1.0
    assert min(values) > ALPHA


def test_two_samples():
    rng = np.random.default_rng()
    pmf = np.array([0.5, 0.3, 0.2])
    first = rng.multinomial(100_000, pmf)
    assert same_distribution(first, rng.multinomial(50_000, pmf)) > ALPHA
    assert same_distribution(first, rng.multinomial(50_000, [0.47, 0.33, 0.2])) < ALPHA
