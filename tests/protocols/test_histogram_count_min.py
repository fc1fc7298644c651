"""The noisy Count-Min sketch: its table, reference numbers, order statistics, shared cells, bad input."""

from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, same_distribution

QUARTER = Dyadic(1, 2)
TARGET = {"epsilon": 1.0, "delta": 1e-6}


def tiny(hashes=((0, 0), (1, 1), (0, 1)), domain_size=3):
    return CountMinHistogram(Target(3, 20.0, 0.99), QUARTER, 2, hashes, domain_size)


def test_the_table_of_a_report_by_hand():
    """One row, x to (x mod 3) mod 2: category 1 is in bucket 1."""
    assert tiny(((0, 0),)).report_pmf(1) == {
        (0, 1): Fraction(9, 16),
        (0, 2): Fraction(3, 16),
        (1, 1): Fraction(3, 16),
        (1, 2): Fraction(1, 16),
    }


def test_the_numbers_of_the_specification():
    """gamma n = 789 for 22 rows; an empty category's least row is 53 too small, its median has a deviation of 7.3."""
    protocol = CountMinHistogram.calibrate(users=10**6, domain_size=100_000, rows=22, buckets=4 * 10**6, **TARGET)
    assert float(protocol.gamma) * 10**6 == pytest.approx(789, rel=0.01)
    assert protocol.cost.messages_per_user == pytest.approx(22 + 22 * 4 * 789, rel=0.01)
    assert protocol.expected_error(estimator="minimum").rmse == pytest.approx(np.hypot(53, 14), rel=0.05)
    odd = CountMinHistogram.calibrate(users=10**6, domain_size=100_000, buckets=4 * 10**6, **TARGET)
    assert odd.rows == 23
    assert odd.expected_error().rmse == pytest.approx(7.3, abs=0.2)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6


def test_the_paper_needs_a_thousand_times_more():
    paper = CountMinHistogram.calibrate(users=10**8, domain_size=100_000, calibration="paper", **TARGET)
    assert (paper.rows, paper.buckets) == (22, 2 * 10**8)
    assert float(paper.gamma) * 10**8 == pytest.approx(766_643, rel=1e-3)


@pytest.mark.parametrize("users", [10**5, 10**9])
def test_defaults_stay_small(users):
    protocol = CountMinHistogram.calibrate(users=users, domain_size=100, **TARGET)
    assert protocol.rows % 2 == 1
    assert protocol.buckets == 100
    assert CountMinHistogram.calibrate(users=5000, domain_size=10**6, **TARGET).buckets == 20_000


@pytest.mark.parametrize("estimator", ["median", "minimum"])
def test_predicted_and_measured_errors_agree_with_shared_cells(estimator):
    """Forty categories in sixteen buckets; six deviations of the mean square over 1,500 rounds."""
    protocol = CountMinHistogram.calibrate(users=4000, domain_size=40, rows=5, buckets=16, **TARGET)
    counts = np.zeros(40, dtype=np.int64)
    counts[[0, 3, 17, 30]] = 3000, 900, 60, 40
    errors = np.array(
        [protocol.estimate(protocol.sample_tally(counts), estimator=estimator).counts - counts for _ in range(1500)]
    )
    squares = np.mean(errors**2, axis=1)
    predicted = protocol.expected_error(estimator=estimator, counts=counts).rmse ** 2
    assert abs(squares.mean() - predicted) < 6 * squares.std() / np.sqrt(len(errors))
    alone = protocol.expected_error(estimator=estimator).rmse ** 2
    assert abs(predicted - alone) > 0.02 * alone  # cells are shared, and it shows


def test_intervals_and_the_largest_error_hold_over_all_hash_functions():
    """Each round has its own hash functions, as calibration draws them."""
    given = CountMinHistogram.calibrate(users=4000, domain_size=500, rows=15, buckets=500, **TARGET)
    counts = np.bincount(np.arange(4000) % 90 * 5, minlength=500)
    held, off = [], []
    for _ in range(40):
        hashes = tuple(zip(*(part.tolist() for part in given._family.draw(15, _system())), strict=True))
        protocol = CountMinHistogram(given.target, given.gamma, given.buckets, hashes, 500)
        estimate = protocol.estimate(protocol.sample_tally(counts))
        low, high = estimate.interval(0.9).T
        held.append(np.mean((low <= counts) & (counts <= high)))
        off.append(np.abs(estimate.counts - counts).max() > protocol.expected_error().max_error)
    assert np.mean(held) > 0.9
    assert np.mean(off) < 0.3  # promised: 0.05


def _system():
    from shuffledp.randomness import SYSTEM

    return SYSTEM


def test_both_routes_have_one_distribution():
    """What single cells hold, by messages and by counts. alpha = 1e-7."""
    protocol = CountMinHistogram(Target(40, 50.0, 0.99), Dyadic(1, 7), 3000, ((5, 7), (11, 3)), 3000)
    counts = np.zeros(3000, dtype=np.int64)
    counts[:2] = 30, 10
    tables = [np.zeros(60), np.zeros(60)]
    for _ in range(100):
        tables[0] += np.bincount(protocol.sample_tally(counts).counts, minlength=60)
        messages = protocol.randomize_all(np.repeat([0, 1], [30, 10]))
        tables[1] += np.bincount(protocol.tally(messages).counts, minlength=60)
    assert same_distribution(*tables) > ALPHA
    assert same_distribution(tables[0], np.roll(tables[1], 1)) < ALPHA


def test_a_report_holds_its_own_cells():
    protocol = CountMinHistogram.calibrate(users=20_000, domain_size=100, **TARGET)
    messages = protocol.randomize_all(np.arange(20_000) % 100)
    assert len(messages) == pytest.approx(20_000 * protocol.cost.messages_per_user, rel=0.01)
    for user in range(20):
        report = messages.values[messages.offsets[user] : messages.offsets[user + 1]].tolist()
        own = protocol._cells(np.array([user]))[:, 0] - np.arange(protocol.rows) * protocol.buckets
        assert all([row, bucket] in report for row, bucket in enumerate(own.tolist()))
    assert np.sqrt(np.mean((protocol.run(np.arange(20_000) % 100).counts - 200) ** 2)) < 15


def test_too_many_messages_are_counted_instead():
    protocol = CountMinHistogram.calibrate(users=100_000, domain_size=100_000, **TARGET)
    with pytest.raises(ParameterError, match="the route counts has the same distribution"):
        protocol.run(np.zeros(100_000, dtype=np.int64), route="messages")
    assert protocol.run(np.zeros(100_000, dtype=np.int64)).counts[0] == pytest.approx(100_000, abs=100)


def test_bad_input():
    with pytest.raises(InfeasibleError, match="too few"):
        CountMinHistogram.calibrate(users=100, domain_size=10, **TARGET)
    with pytest.raises(InfeasibleError, match="fewer buckets"):
        CountMinHistogram.calibrate(users=10**6, domain_size=10, buckets=1 << 32, **TARGET)
    with pytest.raises(ParameterError, match="does not fit into memory"):
        CountMinHistogram.calibrate(users=10**6, domain_size=10, buckets=1 << 27, rows=3, **TARGET).run([0] * 10**6)
    with pytest.raises(ParameterError, match="Hash functions"):
        tiny(((2, 0),))
    with pytest.raises(ParameterError, match="Messages are missing"):
        tiny().estimate(Tally(np.array([3, 0, 3, 0, 1, 1]), 3))
    with pytest.raises(ParameterError, match="does not fit"):
        tiny().estimate(Tally(np.array([3, 0]), 3))
    with pytest.raises(ParameterError, match="too many outcomes"):
        CountMinHistogram.calibrate(users=5000, domain_size=10, **TARGET).report_pmf(0)
    assert len(CountMinHistogram.calibrate(users=2000, domain_size=1, **TARGET).run([0] * 2000).counts) == 1
