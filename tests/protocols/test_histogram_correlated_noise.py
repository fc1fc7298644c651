"""Correlated noise: reference numbers, the table of a report, shares of noise, measured errors, bad input."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.histogram.discrete_laplace import DiscreteLaplaceHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

TARGET = {"epsilon": 1.0, "delta": 1e-6}
EIGHTH = Dyadic(1, 3)


def tiny(users=3):
    return CorrelatedNoiseHistogram(Target(users, 1.0, 0.9), EIGHTH, NegativeBinomialPairs(Fraction(3, 2), EIGHTH), 2)


@pytest.mark.parametrize(
    ("users", "domain_size", "largest", "messages"),
    [(10_000, 16, 13, 1.677), (10_000, 1000, 22, 43.3), (10**6, 16, 13, 1.007), (10**6, 1000, 22, 1.423)],
)
def test_the_numbers_of_the_specification(users, domain_size, largest, messages):
    protocol = CorrelatedNoiseHistogram.calibrate(users=users, domain_size=domain_size, **TARGET)
    error = protocol.expected_error(estimator="unbiased")
    assert error.rmse == pytest.approx(3.12, abs=0.005)
    assert error.max_error == pytest.approx(largest, abs=1e-3)
    assert protocol.cost.messages_per_user == pytest.approx(messages, rel=0.01)


def test_nearly_the_central_error_with_less_than_two_messages():
    settings = {"users": 10**6, "domain_size": 1000} | TARGET
    central = DiscreteLaplaceHistogram.calibrate(**settings).expected_error().rmse
    protocol = CorrelatedNoiseHistogram.calibrate(**settings)
    assert protocol.expected_error().rmse <= 1.2 * central
    assert protocol.cost.messages_per_user <= 2
    assert 0 < protocol.guarantee.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize(
    ("split", "messages", "rmse"), [(0.94, 1.68, 2.99), (0.9, 1.43, 3.12), (0.82, 1.26, 3.43), (0.75, 1.2, 3.75)]
)
def test_the_split_trades_messages_for_error(split, messages, rmse):
    protocol = CorrelatedNoiseHistogram.calibrate(users=10**6, domain_size=1000, split=split, **TARGET)
    assert messages - 0.03 < protocol.cost.messages_per_user <= messages
    assert rmse - 0.01 < protocol.expected_error(estimator="unbiased").rmse <= rmse
    assert protocol.expected_error().rmse <= rmse
    assert 0.99e-6 < protocol.guarantee.delta_at(1.0) <= 1e-6


def test_few_messages():
    """Weighted clusters and singles: at most 1.13 messages at an error of at most 4.3."""
    alternatives = list(CorrelatedNoiseHistogram.alternatives(epsilon=1.0))
    assert {"split": 0.655, "weighted": True} in alternatives
    protocol = CorrelatedNoiseHistogram.calibrate(users=10**6, domain_size=1000, split=0.655, weighted=True, **TARGET)
    assert protocol.cost.messages_per_user <= 1.13
    assert protocol.expected_error().rmse <= 4.3
    assert 0.99e-6 < protocol.guarantee.delta_at(1.0) <= 1e-6
    counts = np.full(1000, 1000)
    tallies = [protocol.sample_tally(counts) for _ in range(40)]
    errors = np.concatenate([protocol.estimate(tally, estimator="unbiased").counts - counts for tally in tallies])
    predicted = protocol.expected_error(estimator="unbiased").rmse
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(predicted, rel=0.05)  # six deviations
    assert abs(np.mean(errors)) < 6 * 4.3 / 200
    radius = protocol.analysis(10**6).error.radius(0.1, 10**6)  # errors have the fraction of the mean of the singles
    assert np.mean(np.abs(errors) > radius + 1e-6) < 0.11
    assert protocol.category_noise is None


def test_estimates_with_singles_are_projected():
    few = CorrelatedNoiseHistogram.calibrate(users=10**5, domain_size=12, split=0.655, weighted=True, **TARGET)
    assert few.flood.singles > 0
    ratio = few.expected_error().rmse / few.expected_error(estimator="unbiased").rmse
    assert ratio == pytest.approx(math.sqrt(1 - 1 / 12), rel=1e-6)


def test_at_small_epsilon_weights_change_nothing():
    settings = {"users": 10**6, "domain_size": 10, "epsilon": 0.2, "delta": 1e-6, "split": 0.7}
    plain, weighted = (CorrelatedNoiseHistogram.calibrate(**settings, weighted=choice) for choice in (False, True))
    assert plain == weighted
    assert not any("weighted" in options for options in CorrelatedNoiseHistogram.alternatives(epsilon=0.2))
    assert list(CorrelatedNoiseHistogram.alternatives(epsilon=0.05)) == []


def test_reports_have_a_small_cap():
    """What a collection pads to: a length that none of a million users exceeds, but for 1 % of delta."""
    protocol = CorrelatedNoiseHistogram.calibrate(users=10**6, domain_size=1000, **TARGET)
    assert protocol.chance_of_more_messages(177) * 10**6 * (1 + np.e) < 1e-8


def test_the_paper_needs_more_flooding():
    settings = {"users": 10**6, "domain_size": 100} | TARGET
    paper, tight = (CorrelatedNoiseHistogram.calibrate(**settings, calibration=kind) for kind in ("paper", "tight"))
    assert paper.cost.messages_per_user - 1 > 5 * (tight.cost.messages_per_user - 1)
    assert paper.guarantee.delta_at(1.0) < 1e-6
    with pytest.raises(ConditionError):
        CorrelatedNoiseHistogram.calibrate(**settings | {"epsilon": 30.0}, calibration="paper")


def test_the_table_of_a_report_by_hand():
    """A share of a third: nothing but the own message, one more "+1", or a pair."""
    pmf = tiny().report_pmf(1)
    staying, flooding = stats.nbinom(1 / 3, 7 / 8), stats.nbinom(1 / 2, 7 / 8)
    nothing = staying.pmf(0) ** 4 * flooding.pmf(0) ** 2
    assert pmf[(0, 0, 1, 0)] == pytest.approx(nothing, rel=1e-9)
    assert pmf[(0, 0, 2, 0)] == pytest.approx(nothing * staying.pmf(1) / staying.pmf(0), rel=1e-9)
    pair = flooding.pmf(1) / flooding.pmf(0) + (staying.pmf(1) / staying.pmf(0)) ** 2
    assert pmf[(1, 1, 1, 0)] == pytest.approx(nothing * pair, rel=1e-9)
    assert 1 - 1e-5 <= sum(pmf.values()) <= 1


def test_both_routes_have_one_distribution():
    """The numbers of "+1", of "-1", and what is left of both. alpha = 1e-7; half the noise is rejected."""
    protocol = CorrelatedNoiseHistogram.calibrate(users=200, domain_size=50, **TARGET)
    counts = np.bincount(np.arange(200) % 50, minlength=50)
    by_counts = np.concatenate([protocol.sample_tally(counts).counts for _ in range(100)])
    by_messages = np.concatenate(
        [protocol.tally(protocol.randomize_all(np.arange(200) % 50)).counts for _ in range(100)]
    )
    assert (
        same_distribution(*(np.bincount(each[::2] // 20, minlength=200) for each in (by_counts, by_messages))) > ALPHA
    )
    assert (
        same_distribution(*(np.bincount(each[1::2] // 20, minlength=200) for each in (by_counts, by_messages))) > ALPHA
    )
    ratio = float(protocol.ratio)
    for each in (by_counts, by_messages):
        left = each[::2] - each[1::2] - 4
        for a, right in ((ratio, True), (ratio / 2, False)):
            pmf = (1 - a) / (1 + a) * a ** np.abs(np.arange(-40.0, 41))
            assert (p_value(np.bincount(np.clip(left + 40, 0, 80), minlength=81), pmf / pmf.sum()) > ALPHA) == right


@pytest.mark.parametrize("honest_fraction", [1.0, 0.5])
def test_more_reports_than_shares_mean_more_noise(honest_fraction):
    """100,000 errors: 5 % is six deviations of their mean square."""
    protocol = CorrelatedNoiseHistogram.calibrate(
        users=2000, domain_size=20_000, honest_fraction=honest_fraction, **TARGET
    )
    assert protocol.shares.planned == 2000 * honest_fraction
    counts = np.zeros(20_000, dtype=np.int64)
    counts[0] = 3000  # half as many again as planned
    estimates = [protocol.estimate(protocol.sample_tally(counts)) for _ in range(5)]
    errors = np.array([estimate.counts - counts for estimate in estimates])
    distribution = protocol.analysis(3000).error
    assert float(distribution.variance(np.zeros(1))[0]) == pytest.approx(
        1.5 / honest_fraction * 2 * float(protocol.ratio) / (1 - float(protocol.ratio)) ** 2
    )
    assert np.mean(errors**2) == pytest.approx(float(distribution.variance(np.zeros(1))[0]), rel=0.05)
    radius = distribution.radius(0.1, 3000)
    assert np.mean(np.abs(errors) > radius) < 0.11
    assert np.mean(np.abs(errors) > radius - 1) > 0.09
    low, high = estimates[0].interval(0.9).T
    assert np.mean((low <= counts) & (counts <= high)) > 0.89


def test_messages_are_fast_and_in_the_order_of_the_users():
    protocol = CorrelatedNoiseHistogram.calibrate(users=100_000, domain_size=100, **TARGET)
    indices = np.arange(100_000) % 100
    messages = protocol.randomize_all(indices)
    # the standard deviation is 1.2 %
    assert len(messages) == pytest.approx(100_000 * protocol.cost.messages_per_user, rel=0.07)
    for user in range(100):
        report = messages.values[messages.offsets[user] : messages.offsets[user + 1]]
        assert [indices[user], 0] in report.tolist()
    estimate = protocol.run(indices)
    assert np.sqrt(np.mean((estimate.counts - 1000) ** 2)) < 6


@pytest.mark.parametrize("domain_size", [1, 2])
def test_small_domains_and_rounds(domain_size):
    protocol = CorrelatedNoiseHistogram.calibrate(users=2, domain_size=domain_size, epsilon=1.0, delta=0.01)
    assert len(protocol.run([0, domain_size - 1]).counts) == domain_size


def test_bad_input():
    with pytest.raises(ParameterError, match="split"):
        CorrelatedNoiseHistogram.calibrate(users=100, domain_size=2, split=1.0, **TARGET)
    with pytest.raises(ParameterError, match="Messages are missing"):
        tiny().estimate(Tally(np.array([1, 0, 1, 0]), 3))
    with pytest.raises(ParameterError, match="does not fit"):
        tiny().estimate(Tally(np.array([3, 0]), 3))
    with pytest.raises(ParameterError, match="too many outcomes"):
        CorrelatedNoiseHistogram.calibrate(users=100, domain_size=3, **TARGET).report_pmf(0)
    with pytest.raises(ParameterError, match="more than the claimed"):
        CorrelatedNoiseHistogram(Target(3, 0.1, 1e-3), EIGHTH, NegativeBinomialPairs(Fraction(1), EIGHTH), 2).guarantee  # noqa: B018
