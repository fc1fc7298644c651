"""Bassily and Smith's oracle: the public signs, the table, the exact error, both routes, and misuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.histogram.bassily_smith import BassilySmith
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution


def calibrated(users: int = 1000, size: int = 20, epsilon: float = 1.0) -> BassilySmith:
    return BassilySmith.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain_size=size)


def noisy(size: int, users: int = 2) -> BassilySmith:
    return BassilySmith(Target(users, 2.0, 0.0), Dyadic(1, 2), size)


def signs(protocol: BassilySmith) -> np.ndarray:
    """The public matrix, from the likelier sign of every row."""
    matrix = np.zeros((protocol.rows, protocol.domain_size), dtype=np.int64)
    for value in range(protocol.domain_size):
        pmf = {copies.index(1): mass for copies, mass in protocol.report_pmf(value).items()}
        matrix[:, value] = [1 if pmf[2 * row] > pmf[2 * row + 1] else -1 for row in range(protocol.rows)]
    return matrix


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 30])
def test_signs_of_any_two_categories_are_independent_fair_coins(size):
    matrix = signs(noisy(size))
    assert matrix.shape[0] == 2 ** math.ceil(math.log2(size + 1))
    assert np.array_equal(matrix.T @ matrix, matrix.shape[0] * np.eye(size))
    assert not matrix.sum(axis=0).any()


def test_the_table_by_hand():
    """One category, rows 0 and 1 with signs + and -, kept with 7/8."""
    pmf = {copies.index(1): mass for copies, mass in noisy(1).report_pmf(0).items()}
    assert pmf == {0: Fraction(7, 16), 1: Fraction(1, 16), 2: Fraction(1, 16), 3: Fraction(7, 16)}


def test_the_whole_table_of_the_randomizer():
    """Every value of three, all rows and signs; another value's are rejected."""
    protocol = noisy(3)
    tables = [
        np.bincount(protocol.message_format.code(protocol.randomize_all(np.full(30_000, value)).values), minlength=8)
        for value in range(3)
    ]
    for value in range(3):
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(value).items()}
        masses = [pmf[code] for code in range(8)]
        assert p_value(tables[value], masses) > ALPHA
        assert p_value(tables[value - 1], masses) < ALPHA


def test_the_estimate_is_the_published_sum():
    """c times the received signs times those of the category."""
    protocol = calibrated(users=300)
    messages = protocol.randomize_all(np.arange(300) % 20)
    received = 1 - 2 * messages.values[:, 1].astype(np.int64)
    scale = (math.e + 1) / (math.e - 1)
    sums = scale * (received @ signs(protocol)[messages.values[:, 0]])
    tally = Tally(protocol.tally(messages).counts, 1000)
    assert protocol.analysis(300).estimate(protocol.observed(tally), "unbiased") == pytest.approx(sums, rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 5.0])
def test_the_error_is_the_published_one(epsilon):
    protocol = calibrated(epsilon=epsilon)
    factor = math.exp(epsilon)
    scale = (factor + 1) / (factor - 1)
    variance = protocol.analysis(1000).error.variance(np.array([0.0, 1000.0]))
    assert variance == pytest.approx(np.array([1000 * scale**2, 1000 * (scale**2 - 1)]), rel=1e-9)
    assert epsilon * (1 - 1e-9) <= protocol.guarantee.local_epsilon <= epsilon


def test_the_error_is_as_predicted():
    """Squared errors of one category over 200 rounds; three times the variance is rejected."""
    protocol = calibrated(users=100_000, size=100)
    counts = np.full(100, 1000)
    squares = [(protocol.estimate(protocol.sample_tally(counts)).counts[7] - 1000) ** 2 for _ in range(200)]
    total = sum(squares) / protocol.expected_error(counts=counts).rmse ** 2
    assert min(stats.chi2.cdf(total, 200), stats.chi2.sf(total, 200)) > ALPHA
    assert stats.chi2.cdf(total / 3, 200) < ALPHA


def test_routes_agree_and_other_counts_do_not():
    """Sixty users are more than the signs of the matrix, so that the fast route is taken."""
    protocol = noisy(2, users=60)
    assert protocol.rows * 2 < 60
    values = np.repeat([0, 1], [40, 20])
    tables = np.zeros((3, 8, 61))
    outputs = np.arange(8)
    for _ in range(700):
        tables[0, outputs, protocol.tally(protocol.randomize_all(values)).counts] += 1
        tables[1, outputs, protocol.sample_tally(np.array([40, 20])).counts] += 1
        tables[2, outputs, protocol.sample_tally(np.array([20, 40])).counts] += 1
    assert all(same_distribution(tables[0, output], tables[1, output]) > ALPHA for output in outputs)
    assert any(same_distribution(tables[0, output], tables[2, output]) < ALPHA for output in outputs)


def test_a_message_is_a_row_and_a_sign():
    assert calibrated(size=100).cost.bits_per_message == 8
    assert calibrated(size=128).cost.bits_per_message == 9


def test_what_is_refused():
    protocol = calibrated()
    with pytest.raises(DomainError):
        protocol.randomize_all(np.array([20]))
    with pytest.raises(DomainError, match="outside its bounds"):
        protocol.tally(Messages(np.array([[32, 0]]), 1))
    with pytest.raises(ParameterError, match="sum to that number"):
        protocol.estimate(Tally(np.zeros(64, dtype=np.int64), 1000))
    with pytest.raises(ParameterError, match="too many to list"):
        calibrated(size=1000).report_pmf(0)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = BassilySmith(Target(2, 1.0, 0.0), Dyadic(1, 2), 3).guarantee
