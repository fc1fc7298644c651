"""Lower bounds on epsilon from counts, and events that are learned."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shuffledp.errors import ParameterError
from shuffledp.privacy.audit import (
    Evidence,
    OutcomeSet,
    Threshold,
    epsilon_lower_bound,
    learn_event,
    learn_outcomes,
    learn_threshold,
    proportion_bounds,
)

SURE = 1e-7


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (1, 100_000), (49_000, 100_000)])
@pytest.mark.parametrize("risk", [0.05, 1e-7])
def test_bounds_are_those_of_clopper_and_pearson(hits, trials, risk):
    """At either end, what was seen or anything more extreme has just the risk."""
    low, high = (float(end) for end in proportion_bounds(hits, trials, risk))
    assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(risk if hits else 1.0, rel=1e-4)
    assert stats.binom.cdf(hits, trials, high) == pytest.approx(risk if hits < trials else 1.0, rel=1e-4)
    assert low <= hits / trials <= high


@given(st.floats(0.001, 0.999), st.integers(1, 60), st.sampled_from([0.2, 0.01]))
def test_bounds_err_with_at_most_the_risk(probability, trials, risk):
    """Exactly: the chances of all counts whose bound is wrong add up to the risk at most."""
    counts = np.arange(trials + 1)
    low, high = proportion_bounds(counts, trials, risk)
    chances = stats.binom.pmf(counts, trials, probability)
    assert chances[low > probability].sum() <= risk
    assert chances[high < probability].sum() <= risk


def test_exact_value_of_a_bound():
    evidence = Evidence(1000, 1000, 0, 1000, risk=0.05)
    low, high = 0.025 ** (1 / 1000), 1 - 0.025 ** (1 / 1000)
    assert evidence.epsilon_at(0.1) == pytest.approx(math.log((low - 0.1) / high), rel=1e-6)
    assert evidence.delta_at(evidence.epsilon_at(0.1)) == pytest.approx(0.1, abs=1e-6)
    assert Evidence(500, 1000, 500, 1000, risk=0.05).epsilon_at(0.0) == 0.0
    assert Evidence(0, 1000, 500, 1000, risk=0.05).epsilon_at(0.0) == 0.0
    assert evidence.delta_at(800.0) == 0.0


def test_both_directions_count():
    forth = epsilon_lower_bound(900, 1000, 100, 1000)
    assert forth == epsilon_lower_bound(100, 1000, 900, 1000)
    assert 1.8 < forth < math.log(9)
    assert forth > epsilon_lower_bound(900, 1000, 100, 1000, confidence=0.999)
    assert forth > epsilon_lower_bound(900, 1000, 100, 1000, delta=0.1)


def test_the_bound_is_wrong_no_more_often_than_stated():
    """Randomized response with its true ratio, audited 2000 times at 80 %: a planted fault of half the ratio fails."""
    generator = np.random.default_rng()
    rates, trials, audits = (0.7, 0.3), 400, 2000
    hits = [generator.binomial(trials, rate, audits) for rate in rates]
    bounds = np.array(
        [Evidence(int(p), trials, int(q), trials, risk=0.2).epsilon_at(0.0) for p, q in zip(*hits, strict=True)]
    )
    wrong = int(np.count_nonzero(bounds > math.log(rates[0] / rates[1])))
    assert stats.binom.sf(wrong - 1, audits, 0.2) > SURE
    too_bold = int(np.count_nonzero(bounds > math.log(rates[0] / rates[1]) / 2))
    assert stats.binom.sf(too_bold - 1, audits, 0.2) < SURE


def _noisy(shift, size):
    """Discrete Laplace noise of ratio e^-1."""
    generator = np.random.default_rng()
    ratio = math.exp(-1.0)
    return shift + generator.geometric(1 - ratio, size) - generator.geometric(1 - ratio, size)


@pytest.mark.parametrize("learn", [learn_outcomes, learn_threshold, learn_event])
def test_learned_events_come_close_to_the_truth(learn):
    """Noise with epsilon = 1 exactly: the learned event, counted afresh, shows most of it and no more."""
    learned = learn(_noisy(1, 5000), _noisy(0, 5000), delta=0.0, risk=SURE, trials=50_000)
    hits = [int(learned.event.occurred(_noisy(shift, 50_000)[:, np.newaxis]).sum()) for shift in (1, 0)]
    found = Evidence(hits[0], 50_000, hits[1], 50_000, risk=SURE).epsilon_at(0.0)
    assert 0.8 < found <= 1.0


def test_a_weighted_sum_is_learned_where_no_single_number_tells():
    """Both numbers carry the same large noise; only their difference shows the shift."""
    generator = np.random.default_rng()

    def draw(shift):
        common = generator.integers(0, 10_000, 4000)
        return np.column_stack((common + shift, common + generator.integers(0, 2, 4000)))

    learned = learn_event(draw(3), draw(0), delta=0.0, risk=SURE, trials=4000)
    assert learned.event.occurred(draw(3)).mean() > 0.95  # weights are off by a millionth: 0.985 to 1
    assert learned.event.occurred(draw(0)).mean() < 0.01


def test_events_in_words():
    assert Threshold((1.0,), 5.0, above=True).describe(["ones"]) == "ones is at least 5"
    assert Threshold((0.0, 1.0), 5.0, above=False).describe(["a", "b"]) == "b is at most 5"
    assert Threshold((0.5, 1.0), 5.0, above=False).describe(["a", "b"]) == "0.5 x a + b is at most 5"
    assert OutcomeSet(np.array([[1], [2]])).describe(["ones"]) == "ones is 1 or 2"
    assert OutcomeSet(np.arange(12).reshape(6, 2)).describe(["a", "b"]).endswith("or (6, 7) or one of 2 more")


def test_outcomes_are_compared_whole():
    event = OutcomeSet(np.array([[1, 2], [-3, 4]]))
    rows = np.array([[1, 2], [2, 1], [-3, 4], [-3, -4], [1, 2]])
    assert event.occurred(rows).tolist() == [True, False, True, False, True]


def test_bad_input():
    with pytest.raises(ParameterError, match="no more hits than trials"):
        proportion_bounds(5, 4, 0.05)
    with pytest.raises(ParameterError, match="risk between 0 and 1"):
        proportion_bounds(1, 4, 0.0)
    with pytest.raises(ParameterError, match="confidence must lie"):
        epsilon_lower_bound(1, 4, 1, 4, confidence=1.0)
    with pytest.raises(ParameterError, match="delta must lie"):
        epsilon_lower_bound(1, 4, 1, 4, delta=1.0)
    with pytest.raises(ParameterError, match="epsilon must be"):
        Evidence(1, 4, 1, 4, 0.05).delta_at(-1.0)
    with pytest.raises(ParameterError, match="too few to learn from"):
        learn_event(np.array([1, 2]), np.array([1, 2]), delta=0.0, risk=0.05, trials=10)
