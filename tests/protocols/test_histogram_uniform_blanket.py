"""FE0: its table by hand, the printed numbers, exact intervals, and the edges."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.histogram.uniform_blanket import UniformBlanketHistogram
from shuffledp.protocols.parts.blanket import slots_of
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def test_the_table_of_a_report_by_hand():
    """The own value, one uniform value, and with probability 1/4 another."""
    protocol = UniformBlanketHistogram(Target(3, 1.0, 0.9), Slots(1, Dyadic(1, 2)), 2)
    assert protocol.report_pmf(0) == {
        (2, 0): Fraction(3, 8),
        (1, 1): Fraction(3, 8),
        (3, 0): Fraction(1, 16),
        (2, 1): Fraction(1, 8),
        (1, 2): Fraction(1, 16),
    }
    assert protocol.cost.messages_per_user == 2.25
    assert protocol.cost.max_messages_per_user == 3


@pytest.mark.parametrize(
    ("users", "size", "messages"),
    [(10_000, 16, 1.068), (10_000, 1000, 5.265), (10**6, 16, 1.001), (10**6, 1000, 1.043), (10**6, 10**7, 427.5)],
)
def test_the_printed_numbers(users, size, messages):
    """The noise needs a mean of 42.65 a category; its variance is that times 1 - 1/d."""
    protocol = UniformBlanketHistogram.calibrate(users=users, domain_size=size, **TARGET)
    assert protocol.cost.messages_per_user == pytest.approx(messages, abs=0.00051 * max(1, messages / 4))
    assert protocol.expected_error().rmse / math.sqrt(1 - 1 / size) == pytest.approx(6.53, abs=0.0051)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6
    assert math.isinf(protocol.guarantee.local_epsilon)


def test_the_predicted_largest_error():
    """19.0 for 16 categories and 26.5 for 1,000 are printed for noise with a mean of 42.65 in each."""
    for size, printed in ((16, 19.0), (1000, 26.5)):
        protocol = UniformBlanketHistogram.calibrate(users=10_000, domain_size=size, **TARGET)
        assert protocol.expected_error().max_error == pytest.approx(printed, abs=1.0)


def test_the_largest_error_is_exceeded_as_rarely_as_stated():
    """Of 400 rounds at most 5 % may exceed it: 45 or more would have a probability below 1e-6."""
    protocol = UniformBlanketHistogram.calibrate(users=2_000, domain_size=5, **TARGET)
    true = np.array([2_000, 0, 0, 0, 0])
    radius = protocol.expected_error(confidence=0.95).max_error
    errors = [np.abs(protocol.estimate(protocol.sample_tally(true)).counts - true).max() for _ in range(400)]
    assert np.sum(np.array(errors) > radius) < 45
    assert np.sum(np.array(errors) > 0.6 * radius) >= 45


def test_the_paper_constant():
    protocol = UniformBlanketHistogram.calibrate(users=100_000, domain_size=50, calibration="paper", **TARGET)
    assert protocol.blanket.mean == pytest.approx(32 * math.log(2e6) * 50 / 100_000)
    with pytest.raises(ConditionError, match="epsilon <= 3"):
        UniformBlanketHistogram.calibrate(users=1000, domain_size=5, epsilon=4.0, delta=1e-6, calibration="paper")


def test_the_noise_given_the_number_of_messages_is_binomial():
    """A whole table of an empty category's count, with the added messages known; one more message is caught."""
    from scipy import stats

    protocol = UniformBlanketHistogram(Target(10, 1.0, 0.99), Slots(2, Dyadic(0)), 4)
    true = np.array([10, 0, 0, 0])
    seen = np.bincount([protocol.sample_tally(true).counts[1] for _ in range(20_000)], minlength=22)
    distribution = stats.binom.pmf(np.arange(22), 20, 0.25)
    assert p_value(seen, distribution) > ALPHA
    assert p_value(seen, stats.binom.pmf(np.arange(22), 21, 0.25)) < ALPHA


def test_intervals_are_shifted_quantiles():
    """Z ~ Bin(T, 1/d): [C - hi, C - lo] at its quantiles."""
    from scipy import stats

    protocol = UniformBlanketHistogram(Target(50, 1.0, 0.99), Slots(1, Dyadic(1, 1)), 5)
    tally = Tally(np.array([40, 20, 20, 20, 20]), 50)
    low, high = protocol.estimate(tally).interval(0.95)[0]
    assert (low, high) == pytest.approx((40 - stats.binom.ppf(0.975, 70, 0.2), 40 - stats.binom.ppf(0.025, 70, 0.2)))
    assert protocol.estimate(tally).counts[0] == pytest.approx(40 - 70 / 5)


def test_by_messages_the_error_is_as_predicted():
    """1,000 independent squares: their mean is within five standard deviations, sqrt(2/1000) each."""
    protocol = UniformBlanketHistogram.calibrate(users=20_000, domain_size=1000, **TARGET)
    values = np.arange(20_000) % 1000
    errors = protocol.run(values, route="messages").counts - 20
    assert abs(np.mean(errors**2) / protocol.expected_error().rmse ** 2 - 1) < 5 * math.sqrt(2 / 1000) * 1.1


def test_edges_and_bad_input():
    one = UniformBlanketHistogram.calibrate(users=4, domain_size=1, **TARGET)
    assert one.run([0] * 4).counts.tolist() == [4]
    assert one.guarantee.local_epsilon == 0
    assert one.expected_error().max_error == 0
    two = UniformBlanketHistogram.calibrate(users=2, domain_size=2, **TARGET)
    assert two.cost.messages_per_user > 30
    assert slots_of(2.5) == Slots(2, Dyadic.at_least(0.5))
    with pytest.raises(ParameterError, match="messages"):
        two.estimate(Tally(np.array([1, 1]), 2))
    with pytest.raises(ParameterError, match="cannot add"):
        UniformBlanketHistogram(Target(3, 1.0, 0.9), Slots(-1, Dyadic(0)), 2)
    with pytest.raises(ParameterError, match="too many to list"):
        UniformBlanketHistogram.calibrate(users=100, domain_size=100, **TARGET).report_pmf(0)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = UniformBlanketHistogram(Target(100, 1.0, 1e-6), Slots(0, Dyadic(1, 3)), 2).guarantee
