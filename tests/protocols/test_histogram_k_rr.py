"""k-ary randomized response: its table, its published error, both routes, and misuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import BelowMinimumError, DomainError, ParameterError, UnknownNameError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.histogram.k_rr import KRandomizedResponse
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution


def calibrated(users: int = 1000, size: int = 4, epsilon: float = 1.0, **options: object) -> KRandomizedResponse:
    return KRandomizedResponse.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain_size=size, **options)


def test_the_table_by_hand():
    """With probability 1/2 a uniform one of three: 2/3, 1/6, 1/6."""
    pmf = KRandomizedResponse(Target(3, 2.0, 0.0), Dyadic(1, 1), 3).report_pmf(1)
    assert pmf == {(1, 0, 0): Fraction(1, 6), (0, 1, 0): Fraction(2, 3), (0, 0, 1): Fraction(1, 6)}


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("size", [2, 3, 100, 10**7])
def test_probabilities_and_variance_are_the_published_ones(size, epsilon):
    protocol = calibrated(size=size, epsilon=epsilon)
    own = 1 - float(protocol.blanket) * (size - 1) / size
    factor = math.exp(epsilon)
    assert own == pytest.approx(factor / (factor + size - 1), rel=1e-8)
    assert epsilon * (1 - 1e-5) <= protocol.guarantee.local_epsilon <= epsilon
    published = 1000 * (factor + size - 2) / (factor - 1) ** 2
    assert float(protocol.analysis(1000).error.variance(np.array([0.0]))[0]) == pytest.approx(published, rel=1e-5)


def test_the_guarantee_needs_nobody_else():
    guarantee = calibrated().guarantee
    assert (guarantee.trust, guarantee.delta, guarantee.honest_users) == ("local", 0.0, 1)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = KRandomizedResponse(Target(3, 0.5, 0.0), Dyadic(1, 1), 3).guarantee


def test_routes_agree_and_a_quieter_one_does_not():
    protocol = calibrated(users=6, size=2)
    counts = np.array([4, 2])
    values = np.repeat([0, 1], counts)
    tables = np.zeros((3, 7))
    for _ in range(2_000):
        tables[0, protocol.tally(protocol.randomize_all(values)).counts[0]] += 1
        tables[1, protocol.sample_tally(counts).counts[0]] += 1
        tables[2, protocol.sample_tally(np.array([5, 1])).counts[0]] += 1
    assert same_distribution(tables[0], tables[1]) > ALPHA
    assert same_distribution(tables[0], tables[2]) < ALPHA
    own = 1 - float(protocol.blanket) / 2
    pmf = np.convolve(stats.binom.pmf(np.arange(5), 4, own), stats.binom.pmf(np.arange(3), 2, 1 - own))
    assert p_value(tables[0], pmf) > ALPHA


def test_the_error_is_as_predicted():
    """Squared errors of one category over 300 rounds by the chi-square pmf; three times the variance is rejected."""
    protocol = calibrated(users=100_000, size=100)
    counts = np.full(100, 1000)
    squares = [(protocol.estimate(protocol.sample_tally(counts)).counts[7] - 1000) ** 2 for _ in range(300)]
    total = sum(squares) / protocol.expected_error(counts=counts).rmse ** 2
    assert min(stats.chi2.cdf(total, 300), stats.chi2.sf(total, 300)) > ALPHA
    assert stats.chi2.cdf(total / 3, 300) < ALPHA


def test_what_is_refused():
    protocol = calibrated()
    with pytest.raises(DomainError, match=r"outside 0 \.\. 3"):
        protocol.randomize_all(np.array([4]))
    with pytest.raises(DomainError):
        protocol.report_pmf(-1)
    with pytest.raises(DomainError):
        protocol.tally(Messages(np.array([4], dtype=np.uint8), 1))
    with pytest.raises(DomainError, match="domain_size or categories"):
        KRandomizedResponse.calibrate(users=9, epsilon=1, delta=1e-6)
    with pytest.raises(BelowMinimumError):
        protocol.estimate(Tally(np.zeros(4, dtype=np.int64), 999))
    with pytest.raises(UnknownNameError):
        protocol.estimate(protocol.sample_tally(np.full(4, 250)), estimator="best")
    with pytest.raises(ParameterError):
        calibrated(epsilon=-1)


def test_categories_by_name():
    protocol = KRandomizedResponse.calibrate(users=4, epsilon=30, delta=1e-6, categories=["red", "green"])
    estimate = protocol.run(["red", "green", "red", "red"])
    assert estimate.categories == ("red", "green")
    assert estimate.counts.round().tolist() == [3, 1]
