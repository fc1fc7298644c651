"""The test of the tests: it accepts the law and rejects a fault."""

import numpy as np

from shuffledp.testing.statistics import ALPHA, p_value, same_law


def test_accepts_the_law_and_rejects_a_shift():
    rng = np.random.default_rng()
    law = np.array([0.5, 0.3, 0.15, 0.05])
    assert p_value(rng.multinomial(100_000, law), law) > ALPHA
    wrong = np.array([0.48, 0.32, 0.15, 0.05])
    assert p_value(rng.multinomial(100_000, wrong), law) < ALPHA


def test_an_outcome_that_cannot_happen_is_fatal():
    assert p_value([10, 1], [1.0, 0.0]) == 0.0


def test_an_outcome_that_never_happens_is_noticed():
    assert p_value([100_000, 0], [0.999, 0.001]) < ALPHA


def test_p_values_are_uniform():
    rng = np.random.default_rng()
    law = np.full(8, 1 / 8)
    values = [p_value(rng.multinomial(800, law), law) for _ in range(400)]
    assert 0.3 < float(np.mean(np.array(values) < 0.9)) <= 1.0
    assert min(values) > ALPHA


def test_two_samples():
    rng = np.random.default_rng()
    law = np.array([0.5, 0.3, 0.2])
    first = rng.multinomial(100_000, law)
    assert same_law(first, rng.multinomial(50_000, law)) > ALPHA
    assert same_law(first, rng.multinomial(50_000, [0.47, 0.33, 0.2])) < ALPHA
