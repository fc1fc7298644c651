"""The question turned around: the least epsilon, or the fewest users, for a wanted error."""

import pytest

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning import fewest_users_for, least_epsilon_for, plan


@pytest.mark.parametrize(
    ("question", "accuracy"),
    [
        (sdp.Count(users=10_000), 5.0),
        pytest.param(sdp.Histogram(users=100_000, domain_size=50), 8.0, marks=pytest.mark.slow),
    ],
)
def test_least_epsilon(question, accuracy):
    found = least_epsilon_for(question, accuracy=accuracy, delta=1e-6)
    assert found.plans[0].expected.rmse <= accuracy
    less = plan(question, epsilon=found.epsilon * 0.99, delta=1e-6)
    assert less.plans[0].expected.rmse > accuracy


@pytest.mark.parametrize(
    ("trust", "most"), [pytest.param("shuffled", 10_000, marks=pytest.mark.slow), ("local", 200_000)]
)
def test_fewest_users_for_a_mean(trust, most):
    question = sdp.Mean(users=2, lower=0, upper=100)
    found = fewest_users_for(question, accuracy=0.5, epsilon=1, delta=1e-6, trust=trust)
    assert found.plans[0].expected.rmse <= 0.5
    assert found.question.users < most
    fewer = sdp.Mean(users=int(found.question.users * 0.98), lower=0, upper=100)
    assert plan(fewer, epsilon=1, delta=1e-6, trust=trust).plans[0].expected.rmse > 0.5


def test_limits_hold():
    found = least_epsilon_for(sdp.Count(users=10_000), accuracy=50, delta=1e-6, trust="local")
    assert found.best.trust == "local"


@pytest.mark.slow
def test_limits_on_messages_hold():
    one = least_epsilon_for(sdp.Count(users=10_000), accuracy=5, delta=1e-6, max_messages=1)
    assert one.best.cost.messages_per_user <= 1


def test_what_cannot_be_reached_or_means_nothing_is_refused():
    with pytest.raises(InfeasibleError, match="even at epsilon"):
        least_epsilon_for(sdp.Count(users=10_000), accuracy=1e-9, delta=1e-6)
    with pytest.raises(InfeasibleError, match="No number of users"):
        fewest_users_for(sdp.Count(users=2), accuracy=0.01, epsilon=1, delta=1e-6)
    for accuracy in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="target error"):
            least_epsilon_for(sdp.Count(users=100), accuracy=accuracy, delta=1e-6)


def test_few_calibrations_are_tried(monkeypatch):
    """Between the ends only the variant that was the most accurate; a target beyond the range ends there."""
    from shuffledp.planning import accuracy

    tried = []
    original = accuracy.candidates

    def counted(*arguments, **options):
        for result in original(*arguments, **options):
            tried.append(options["variants"])
            yield result

    monkeypatch.setattr(accuracy, "candidates", counted)
    found = least_epsilon_for(sdp.Quantiles(users=50_000, bins=256), accuracy=60, delta=1e-6)
    assert found[0].expected.rmse <= 60
    assert sum(variants is not None for variants in tried) <= 8
    tried.clear()
    found = least_epsilon_for(sdp.Count(users=700), accuracy=200, delta=1e-6)
    assert found.epsilon < 0.0101
    assert sum(variants is not None for variants in tried) <= 6


def test_another_variant_may_be_the_best_at_the_solution():
    """At a small epsilon a tree with many levels, at the start of the search one with few."""
    question = sdp.Quantiles(users=500, bins=512)
    found = least_epsilon_for(question, accuracy=400, delta=1e-6)
    start = plan(question, epsilon=1, delta=1e-6)
    assert (start[0].protocol.name, start[0].variant) != (found[0].protocol.name, found[0].variant)
    assert found[0].expected.rmse <= 400
    assert plan(question, epsilon=found.epsilon * 0.99, delta=1e-6)[0].expected.rmse > 400
