"""The protocol of a release in a session: the best one depends on what else the session releases."""

import pytest

import shuffledp as sdp
from shuffledp.errors import ParameterError
from shuffledp.sessions.budget import Budget
from shuffledp.sessions.choosing import choose_within

HISTOGRAM = sdp.Histogram(users=25_000, domain_size=12)


def chosen(question, budget, *, share=None, **options):
    return choose_within(question, budget, budget.allow(share=share), **options)


def test_several_releases_need_noise_that_composes_well():
    """Of twelve releases under (1, 1e-8), uniform-blanket has the least error, 24.0; of one, another has."""
    once = chosen(HISTOGRAM, Budget(25_000, 1.0, 1e-8, announced=1))
    monthly = chosen(HISTOGRAM, Budget(25_000, 1.0, 1e-8, announced=12))
    assert once.name == "correlated-noise"
    assert monthly.name == "uniform-blanket"
    assert monthly.expected_error().rmse == pytest.approx(24.0, rel=0.01)


def test_a_share_stands_for_as_many_releases():
    assert chosen(HISTOGRAM, Budget(25_000, 1.0, 1e-8), share=1 / 12).name == "uniform-blanket"


@pytest.mark.parametrize("protocol", ["balcer-cheu", pytest.param("best", marks=pytest.mark.slow)])
def test_a_tiny_share_is_planned_too(protocol):
    count, budget = sdp.Count(users=10**9), Budget(10**9, 1.0, 1e-8)
    assert chosen(count, budget, share=1e-3, protocol=protocol).guarantee.epsilon == pytest.approx(1e-3)


def test_an_estimator_that_the_best_protocol_does_not_have():
    with pytest.raises(ParameterError, match="There is no estimator 'threshold' of correlated-noise, the"):
        chosen(sdp.Count(users=10_000), Budget(10_000, 1.0, 1e-6), share=1.0, estimator="threshold")


def test_a_named_protocol_and_its_calibration():
    count, budget = sdp.Count(users=100_000), Budget(100_000, 1.0, 1e-6)
    tight = chosen(count, budget, share=1.0, protocol="balcer-cheu")
    paper = chosen(count, budget, share=1.0, protocol="balcer-cheu", calibration="paper")
    assert tight.expected_error().rmse < paper.expected_error().rmse
