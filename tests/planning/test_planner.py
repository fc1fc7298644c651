"""Plans: best first, reasons for the rest, never one that cannot be run."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shuffledp as sdp
from shuffledp.errors import DomainError, InfeasibleError, ParameterError


def test_the_best_plan_runs():
    plans = sdp.plan(sdp.Histogram(categories=["bus", "bike", "car"], users=20_000), epsilon=0.5, delta=1e-8)
    estimate = plans.best.run(["bus"] * 12_000 + ["car"] * 8_000)
    assert estimate.counts[1] == 0.0
    assert estimate.guarantee.epsilon == 0.5


def test_tight_comes_before_paper():
    plans = sdp.plan(sdp.Count(users=100_000), epsilon=0.5, delta=1e-8)
    assert [plan.calibration for plan in plans.plans] == ["tight", "paper"]
    assert plans.plans[0].expected.rmse < plans.plans[1].expected.rmse
    assert "least error" in plans.plans[0].why
    assert "times the error" in plans.plans[1].why


def test_what_is_rejected_says_why():
    plans = sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6)
    assert [rejection.calibration for rejection in plans.rejected] == ["paper"]
    assert "1,451 users" in plans.rejected[0].reason


def test_nothing_feasible_is_an_error_with_every_reason():
    with pytest.raises(InfeasibleError, match="80 are needed"):
        sdp.plan(sdp.Count(users=50), epsilon=1, delta=1e-6)
    with pytest.raises(InfeasibleError, match="messages per user, more than 5"):
        sdp.plan(sdp.Histogram(users=10_000, domain_size=100), epsilon=1, delta=1e-6, max_messages=5)
    with pytest.raises(InfeasibleError, match="bytes per user"):
        sdp.plan(sdp.Histogram(users=10_000, domain_size=100), epsilon=1, delta=1e-6, max_bytes=5)
    with pytest.raises(InfeasibleError, match="shuffled model"):
        sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, trust="local")


def test_honest_fraction_reaches_the_guarantee():
    plans = sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, honest_fraction=0.8)
    assert plans.best.guarantee.honest_users == 8000


@settings(max_examples=25)
@given(
    users=st.integers(0, 10**7),
    size=st.integers(1, 10**6),
    epsilon=st.floats(0.05, 6),
    exponent=st.floats(-10, -1),
)
def test_every_plan_holds_its_promise(users, size, epsilon, exponent):
    delta = 10**exponent
    try:
        plans = sdp.plan(sdp.Histogram(users=users, domain_size=size), epsilon=epsilon, delta=delta)
    except (InfeasibleError, ParameterError):
        return
    errors = [plan.expected.rmse for plan in plans.plans]
    assert errors == sorted(errors)
    for plan in plans.plans:
        assert plan.protocol.guarantee.delta_at(epsilon) <= delta
        assert plan.protocol.users == users


def test_json_keys():
    document = json.loads(
        json.dumps(sdp.plan(sdp.Histogram(users=20_000, domain_size=10), epsilon=1, delta=1e-6).to_json())
    )
    assert set(document) == {"question", "target", "plans", "rejected"}
    best = document["plans"][0]
    assert set(best) == {"protocol", "model", "calibration", "guarantee", "expected", "cost", "parameters", "why"}
    assert {"epsilon", "delta", "users", "honest_users", "local_epsilon", "neighbours"} <= set(best["guarantee"])
    assert set(best["expected"]) == {"rmse", "max_error", "confidence"}
    assert set(best["cost"]) == {"messages_per_user", "max_messages_per_user", "bits_per_message", "bytes_per_user"}
    assert best["guarantee"]["local_epsilon"] is None


def test_predicted_errors_are_those_of_the_run():
    plans = sdp.plan(sdp.Histogram(users=5000, domain_size=5), epsilon=1, delta=1e-6)
    counts = np.array([1000] * 5)
    protocol = plans.best
    errors = np.concatenate([protocol.estimate(protocol.sample_tally(counts)).counts - counts for _ in range(2000)])
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(plans.plans[0].expected.rmse, rel=0.06)


def test_meaningless_questions_are_refused():
    with pytest.raises(DomainError):
        sdp.Histogram(users=100)
    with pytest.raises(DomainError):
        sdp.Histogram(users=100, domain_size=0)
    with pytest.raises(DomainError):
        sdp.Histogram(users=100, categories=["a"], domain_size=3)
    with pytest.raises(ParameterError, match="confidence"):
        sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6, confidence=2)
    for limit in (0, -1, float("nan")):
        with pytest.raises(ParameterError, match="limit"):
            sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6, max_messages=limit)
    with pytest.raises(ParameterError):
        sdp.plan(sdp.Count(users=1), epsilon=1, delta=1e-6)
    with pytest.raises(ParameterError):
        sdp.plan(sdp.Count(users=100), epsilon=1, delta=1e-6, trust="nobody")
    with pytest.raises(ParameterError):
        sdp.plan(sdp.Count(users=100), epsilon=1, delta=1e-6, honest_fraction=0)
