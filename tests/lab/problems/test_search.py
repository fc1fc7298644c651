"""The measured sample size against the exact one."""

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.lab.problems import (
    Method,
    PointerChasing,
    PointerJumping,
    SupportIdentification,
    exact_zeros,
    measure_sample_size,
)
from shuffledp.lab.problems.search import Measurement, _crossing, measure_success
from shuffledp.randomness import InsecureSeededRandomness

SURE = 1 - 1e-7
STABILITY = Method(epsilon=1.0, delta=1e-6, protocol="stability")


def claims_hold(found, problem, method):
    """At ``low`` the exact probability is below 99/100, at ``high`` it is not."""
    low = method.identifier(problem, found.low).success_probability
    return low < 0.99 <= method.identifier(problem, found.high).success_probability


@pytest.mark.parametrize("problem", [PointerChasing(2, 100), PointerJumping(10**4, 10), PointerChasing(1, 100)])
def test_the_claims_hold_by_the_exact_distribution(problem):
    """20,000 rounds at each number, wrong with probability 1e-7. The fault: a simulator with too little noise."""
    found = measure_sample_size(problem, STABILITY, trials=20_000, confidence=SURE)
    assert found.low < found.users <= found.high < 1.3 * found.low
    assert claims_hold(found, problem, STABILITY)
    assert found.tested == tuple(sorted(found.tested))
    assert {found.low, found.high} <= {each.users for each in found.tested}


def test_a_simulator_with_too_little_noise_is_noticed(monkeypatch):
    problem = PointerChasing(2, 100)
    honest = exact_zeros.draw_estimates
    monkeypatch.setattr(exact_zeros, "draw_estimates", lambda protocol, counts, g: honest(protocol, counts + 5, g))
    found = measure_sample_size(problem, STABILITY, trials=20_000, confidence=SURE)
    assert not claims_hold(found, problem, STABILITY)


def test_where_privacy_is_what_limits():
    found = measure_sample_size(SupportIdentification(1, 8), Method(epsilon=1.0, delta=1e-6), trials=2000)
    assert (found.low, found.users, found.high) == (147, 148, 148)  # with fewer no noise is private
    assert found.tested[0].trials == 0


def test_the_local_model():
    problem = PointerChasing(2, 100)
    found = measure_sample_size(problem, Method(epsilon=1.0, delta=1e-6, protocol="unary"), trials=2000)
    assert 0.9 * 14_144 < found.low < found.high <= 1.1 * 14_144


def test_progress_and_words():
    seen = []
    found = measure_sample_size(PointerChasing(2, 9), STABILITY, trials=1500, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert (
        f"with {found.low:,} users and at least 99/100 with {found.high:,} (95% confidence, up to 1,500 rounds"
        in found.sentence()
    )
    document = found.to_json()
    assert set(document) == {"users", "low", "high", "confidence", "trials", "tested"}
    assert set(document["tested"][0]) == {"users", "trials", "successes"}


def test_a_seed_repeats_a_search():
    first, second = (
        measure_sample_size(PointerChasing(2, 9), STABILITY, trials=1500, source=InsecureSeededRandomness(5))
        for _ in range(2)
    )
    assert first == second


def test_where_a_rising_curve_crosses():
    def tested(*rates):
        return tuple(Measurement(100 + 10 * place, 1000, rate) for place, rate in enumerate(rates))

    assert _crossing(tested(900, 980, 1000)) == 115  # halfway from 0.98 to 1
    assert _crossing(tested(995, 1000)) == 100
    assert _crossing(tested(900, 950)) == 110
    assert _crossing(tested(900, 992, 986, 1000)) == 121  # 992 and 986 are pooled to 989
    assert _crossing((Measurement(50, 0, 0), Measurement(51, 100, 100))) == 51


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trials": 500}, "At least 1,232 trials are needed for a confidence of 0.95, not 500"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
        ({"precision": 0.0}, "precision must lie strictly between 0 and 1"),
    ],
)
def test_bad_input(settings, words):
    with pytest.raises(ParameterError, match=words):
        measure_sample_size(PointerChasing(2, 9), STABILITY, **settings)


def test_other_bad_input():
    with pytest.raises(ParameterError, match="At least one trial is needed; got 0"):
        measure_success(PointerChasing(2, 9), STABILITY, 100, trials=0)
    with pytest.raises(InfeasibleError, match="too many to list"):
        measure_sample_size(PointerChasing(2, 100), Method(epsilon=1.0, delta=1e-6, protocol="k-rr"))


def test_ten_thousand_rounds_of_a_hundred_items_are_quick():
    method = Method(epsilon=1.0, delta=1e-6)
    identifier = method.identifier(SupportIdentification(100, 10**30), 8449)
    assert 9800 < identifier.successes(10_000, np.random.default_rng(), InsecureSeededRandomness(1)) < 10_000
