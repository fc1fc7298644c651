"""Plans: best first, reasons for the rest, never one that cannot be run."""

import json
from functools import cache

import pytest

import shuffledp as sdp
from shuffledp.errors import BelowMinimumError, DomainError, InfeasibleError, ParameterError


def names(plans, *, reference=False):
    return [plan.protocol.name for plan in plans.plans if plan.reference == reference]


@cache
def plans_of_a_million():
    """Several tests look at these."""
    return sdp.plan(sdp.Histogram(users=10**6, domain_size=1000), epsilon=1, delta=1e-6)


def test_the_best_plan_runs():
    plans = sdp.plan(sdp.Histogram(categories=["bus", "bike", "car"], users=2_000), epsilon=0.5, delta=1e-6)
    estimate = plans.best.run(["bus"] * 1_200 + ["car"] * 800)
    assert estimate.guarantee.epsilon == 0.5
    assert estimate.counts == pytest.approx([1_200, 0, 800], abs=100)
    assert estimate.categories == ("bus", "bike", "car")


def test_near_central_error_at_about_one_message():
    """The promises for a million users and a thousand categories."""
    plans = plans_of_a_million()
    central = min(plan.expected.rmse for plan in plans.plans if plan.protocol.trust == "central")
    chosen = [plan for plan in plans.plans if not plan.reference]
    assert any(each.expected.rmse <= 1.2 * central and each.cost.messages_per_user <= 2 for each in chosen)
    assert any(each.expected.rmse < 7 and each.cost.messages_per_user <= 1.1 for each in chosen)
    assert plans.best.name == "correlated-noise"
    assert {"discrete-laplace", "stability", "k-rr", "unary", "sample-and-threshold"} <= set(
        names(plans, reference=True)
    )


@pytest.mark.parametrize("trust", ["shuffled", "augmented", "local", "central"])
def test_the_model_asked_for_comes_first(trust):
    plans = sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, trust=trust)
    models = [plan.protocol.trust for plan in plans.plans]
    first = models.count(trust)
    assert models[:first] == [trust] * first
    assert [plan.reference for plan in plans.plans] == [False] * first + [True] * (len(models) - first)
    assert set(models) == {"shuffled", "augmented", "local", "central"}


def test_tight_comes_before_paper():
    plans = sdp.plan(sdp.Count(users=100_000), epsilon=0.5, delta=1e-8)
    ranks = {(plan.protocol.name, plan.calibration): place for place, plan in reversed(list(enumerate(plans.plans)))}
    assert ranks["balcer-cheu", "tight"] < ranks["balcer-cheu", "paper"]
    assert ranks["cheu", "tight"] < ranks["cheu", "paper"]
    assert "lowest error" in plans.plans[0].why
    assert "times the error" in plans.plans[1].why
    assert "the collecting party sees every value" in next(p.why for p in plans.plans if p.protocol.trust == "central")


def test_what_is_rejected_says_why():
    plans = sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6)
    reasons = {(each.protocol, each.calibration): each.reason for each in plans.rejected}
    assert "1,451 users" in reasons["balcer-cheu", "paper"]
    assert "epsilon < 1" in reasons["cheu", "paper"]


def test_limits_reject_with_their_reason():
    question = sdp.Histogram(users=10_000, domain_size=100)
    few = sdp.plan(question, epsilon=1, delta=1e-6, max_messages=1)
    assert all(plan.cost.messages_per_user <= 1 for plan in few.plans if not plan.reference)
    assert any("messages per user, more than 1" in each.reason for each in few.rejected)
    short = sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, max_bytes=0.2)
    assert all(plan.cost.bytes_per_user <= 0.2 for plan in short.plans if not plan.reference)
    safe = sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, max_local_epsilon=10)
    assert {plan.protocol.guarantee.local_epsilon <= 10 for plan in safe.plans if not plan.reference} == {True}
    assert any("there is no guarantee" in each.reason for each in safe.rejected)


def test_nothing_feasible_is_an_error_with_every_reason():
    with pytest.raises(InfeasibleError, match="bytes per user"):
        sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, max_bytes=0.01)
    with pytest.raises(InfeasibleError, match="80 are needed"):
        sdp.plan(sdp.Count(users=50), epsilon=1, delta=1e-6, max_messages=0.5)


def test_honest_fraction_reaches_the_guarantee():
    plans = sdp.plan(sdp.Count(users=10_000), epsilon=1, delta=1e-6, honest_fraction=0.8)
    for plan in plans.plans:
        if plan.protocol.trust == "shuffled":
            assert plan.protocol.guarantee.honest_users == 8000


QUESTIONS = [
    (sdp.Count(users=2), 0.5, 1e-3),
    pytest.param(sdp.Count(users=10**9), 0.05, 1e-12, marks=pytest.mark.slow),
    (sdp.Count(users=300), 6, 1e-2),
    (sdp.Histogram(users=50, domain_size=1), 1, 1e-6),
    (sdp.Histogram(users=1000, domain_size=2), 3, 1e-4),
    pytest.param(sdp.Histogram(users=10**5, domain_size=10**6), 0.3, 1e-8, marks=pytest.mark.slow),
    pytest.param(sdp.Histogram(users=10**8, domain_size=50), 0.1, 1e-10, marks=pytest.mark.slow),
    (sdp.Sum(users=500, lower=-5, upper=5, whole=True), 1, 1e-5),
    pytest.param(sdp.Mean(users=500, lower=0, upper=100), 1, 1e-5, marks=pytest.mark.slow),
    pytest.param(sdp.Mean(users=10**7, lower=0, upper=100), 0.2, 1e-9, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("question", "epsilon", "delta"), QUESTIONS, ids=lambda value: str(value)[:60])
def test_every_plan_holds_its_promise(question, epsilon, delta):
    try:
        plans = sdp.plan(question, epsilon=epsilon, delta=delta)
    except InfeasibleError:
        assert question.users < 100
        return
    for reference in (False, True):
        errors = [plan.expected.rmse for plan in plans.plans if plan.reference == reference]
        assert errors == sorted(errors)
    for plan in plans.plans:
        assert plan.protocol.guarantee.delta_at(epsilon) <= delta
        assert plan.protocol.users == question.users
        assert plan.why
    json.dumps(plans.to_json(), allow_nan=False)


def test_a_small_plan_can_be_run_whole():
    """Not only the best: every plan that is offered runs, in every model."""
    for question, values in (
        (sdp.Count(users=400), [1, 0] * 200),
        (sdp.Histogram(users=400, domain_size=6), list(range(6)) * 66 + [0] * 4),
        (sdp.Sum(users=400, lower=0, upper=10), [2.5] * 400),
    ):
        plans = sdp.plan(question, epsilon=4, delta=1e-3).plans
        assert {plan.protocol.trust for plan in plans} - {"augmented"} == {"shuffled", "local", "central"}
        for plan in plans:
            estimate = plan.protocol.run(values)
            assert estimate.users == 400, plan.protocol.name


def test_a_round_below_its_users_is_refused_by_every_protocol():
    for question, values in ((sdp.Count(users=400), [1] * 399), (sdp.Sum(users=400, lower=0, upper=10), [0.5] * 399)):
        for plan in sdp.plan(question, epsilon=4, delta=1e-3).plans:
            with pytest.raises(BelowMinimumError, match="399"):
                plan.protocol.run(values)


def test_the_frontier_holds_what_nothing_beats():
    plans = plans_of_a_million()
    edge = plans.frontier
    assert plans.plans[0] in edge
    assert [plan.cost.bytes_per_user for plan in edge] == sorted(plan.cost.bytes_per_user for plan in edge)
    for plan in plans.plans:
        if not plan.reference and plan not in edge:
            assert any(
                other.cost.bytes_per_user <= plan.cost.bytes_per_user and other.expected.rmse <= plan.expected.rmse
                for other in edge
            )


def test_json_keys():
    document = json.loads(json.dumps(plans_of_a_million().to_json()))
    assert set(document) == {"question", "target", "releases", "warnings", "plans", "rejected"}
    for plan in document["plans"]:
        assert set(plan) == {
            "protocol", "model", "calibration", "setting", "reference", "guarantee", "composed", "after_a_year",
            "expected", "cost", "parameters", "why",
        }  # fmt: skip
        assert {"epsilon", "delta", "users", "honest_users", "local_epsilon", "neighbours"} <= set(plan["guarantee"])
        assert set(plan["expected"]) == {"rmse", "max_error", "confidence"}
        assert set(plan["cost"]) == {
            "messages_per_user", "max_messages_per_user", "bits_per_message", "bytes_per_user", "dummies_per_user"
        }  # fmt: skip
    assert next(p for p in document["plans"] if p["protocol"] == "balcer-cheu")["guarantee"]["local_epsilon"] is None


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


def test_the_same_question_is_planned_once():
    question = sdp.Count(users=1000)
    first = sdp.plan(question, epsilon=1, delta=1e-6)
    assert sdp.plan(sdp.Count(users=1000), epsilon=1, delta=1e-6) is first
    other = sdp.plan(question, epsilon=1.0, delta=1e-6)
    assert json.dumps(other.to_json()["target"]) != json.dumps(first.to_json()["target"]), "numbers stay as given"
    assert sdp.plan(question, epsilon=1, delta=1e-6, trust="local") is not first
