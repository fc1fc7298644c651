"""Plans for several releases: all together meet the target, limits are for all, and every plan shows a year."""

import math

import pytest

import shuffledp as sdp
from shuffledp.errors import ParameterError
from shuffledp.planning.several_releases import MONTHS

QUESTION = sdp.Quantiles(users=25_000, lower=0, upper=8, bins=4)
TARGET = {"epsilon": 1.0, "delta": 1e-8}


@pytest.fixture(scope="module")
def plans():
    return sdp.plan(QUESTION, **TARGET, releases=6)


def test_every_plan_meets_the_target_with_all_releases(plans):
    assert plans.releases == 6
    for plan in plans:
        assert plan.releases == plan.composed.releases == 6
        assert 0.99 < plan.composed.epsilon <= 1.0
        assert plan.composed.delta == 1e-8
        assert plan.protocol.guarantee.after(6, delta=1e-8).epsilon == plan.composed.epsilon
        assert plan.calibration == "tight"


def test_ranked_by_the_errors_of_one_of_the_releases(plans):
    once = sdp.plan(QUESTION, **TARGET)
    errors = [plan.expected.rmse for plan in plans if not plan.reference]
    assert errors == sorted(errors)
    assert all(plan.expected.rmse > 2 * once[plan.protocol.name].expected.rmse for plan in plans)


def test_json_has_the_composed_guarantee(plans):
    document = plans.to_json()
    assert document["releases"] == 6
    for plan, written in zip(plans, document["plans"], strict=True):
        assert written["composed"] == {"releases": 6, "epsilon": plan.composed.epsilon, "delta": 1e-8}
        assert written["guarantee"]["releases"] == 1
        assert written["after_a_year"]["releases"] == MONTHS
    assert "6 releases together" in repr(plans)
    assert "6 releases together" in plans._repr_html_()


@pytest.mark.parametrize(
    "question",
    [
        sdp.Count(users=25_000),
        pytest.param(sdp.Histogram(users=25_000, domain_size=12), marks=pytest.mark.slow),
        pytest.param(sdp.Mean(users=25_000, lower=0, upper=120), marks=pytest.mark.slow),
    ],
    ids=lambda question: question.name,
)
def test_every_plan_shows_a_year(question):
    for plan in sdp.plan(question, **TARGET):
        year = plan.after_a_year
        assert (year.releases, year.delta) == (12, 1e-8)
        assert plan.composed == plan.protocol.guarantee
        assert plan.protocol.guarantee.epsilon_at(1e-8) < year.epsilon
        assert year.epsilon <= 12 * plan.protocol.guarantee.epsilon * 1.001 or math.isinf(year.epsilon)
        if math.isfinite(year.epsilon):
            assert year.delta_at(year.epsilon) <= 1e-8


@pytest.mark.parametrize(("name", "epsilon"), [("correlated-noise", 11.54), ("uniform-blanket", 3.472)])
def test_a_year_of_one_release_repeated(name, epsilon):
    plan = sdp.plan(sdp.Histogram(users=25_000, domain_size=12), **TARGET)[name]
    assert plan.after_a_year.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert plan.protocol.guarantee.after(12).epsilon == pytest.approx(epsilon, rel=1e-3)


def test_the_limit_on_the_local_epsilon_is_for_all_releases():
    protocol = sdp.protocols.RandomizedResponse.calibrate(users=1000, epsilon=0.3, delta=1e-6)
    limits = sdp.Limits(max_local_epsilon=0.5)
    assert not limits.why_not(protocol)
    assert "epsilon is 0.9" in limits.why_not(protocol, 3)


@pytest.mark.parametrize("releases", [0, 2.0, "3", 10_001])
def test_impossible_numbers_of_releases_are_one_line(releases):
    for planned in (
        lambda: sdp.plan(QUESTION, **TARGET, releases=releases),
        lambda: sdp.least_epsilon_for(QUESTION, accuracy=50.0, delta=1e-8, releases=releases),
    ):
        with pytest.raises(ParameterError, match="number of releases") as failure:
            planned()
        assert "\n" not in str(failure.value)


@pytest.mark.slow
def test_the_least_epsilon_for_several_releases_is_larger():
    arguments = {"accuracy": 400.0, "delta": 1e-6, "trust": "central"}
    once = sdp.least_epsilon_for(QUESTION, **arguments)
    twice = sdp.least_epsilon_for(QUESTION, **arguments, releases=2)
    assert twice.releases == 2
    assert 1.2 * once.epsilon < twice.epsilon <= 2.02 * once.epsilon
