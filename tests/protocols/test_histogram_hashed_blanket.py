"""FE1: its table by hand, the printed numbers, the choice of buckets, and small domains."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.histogram.hashed_blanket import HashedBlanketHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def test_the_table_of_a_report_by_hand():
    """Modulo 3 into 2 buckets there are 12 messages, of which 6 agree with a value; 1/4 of the users add one."""
    protocol = HashedBlanketHistogram(Target(3, 1.0, 0.9), Slots(0, Dyadic(1, 2)), 2, 3)
    pmf = protocol.report_pmf(2)
    single = [report for report in pmf if sum(report) == 1]
    assert len(single) == 6
    assert {pmf[report] for report in single} == {Fraction(3, 4) / 6}
    for report in single:
        factor, shift, bucket = protocol.message_format.message(np.array([report.index(1)]))[0].tolist()
        assert ((factor + 1) * 2 + shift) % 3 % 2 == bucket
    assert sum(pmf.values()) == 1
    twice = [report for report in pmf if max(report) == 2]
    assert {pmf[report] for report in twice} == {Fraction(1, 4) / 6 / 12}


@pytest.mark.parametrize(
    ("users", "size", "messages", "buckets", "most"),
    [
        (10_000, 10**6, 2.0, 234, 2),
        (10**6, 10**5, 2.0, 23_444, 2),
        (10**6, 10**7, 2.0, 23_444, 2),
        (10**6, 10**7, 11.0, 234_441, 11),
    ],
)
def test_the_printed_numbers(users, size, messages, buckets, most):
    """As many buckets as the messages can hide in."""
    protocol = HashedBlanketHistogram.calibrate(users=users, domain_size=size, most_messages=most, **TARGET)
    assert protocol.buckets == pytest.approx(buckets, abs=1 + buckets * 2e-5)
    assert protocol.cost.messages_per_user == pytest.approx(messages)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6
    one_more = Slots(most - 1, Dyadic(0)).curve(users, protocol.buckets + 1)
    assert one_more.delta_at(1.0) > 1e-6


@pytest.mark.parametrize(("most", "rmse"), [(2, 9.24), (11, 6.85)])
def test_the_printed_errors(most, rmse):
    """With collisions of nearly 1/b, as in a domain far larger than b."""
    protocol = HashedBlanketHistogram.calibrate(users=10**6, domain_size=10**7, most_messages=most, **TARGET)
    assert protocol.expected_error().rmse == pytest.approx(rmse, rel=0.012)


def test_the_variance_formula():
    """[(n - f) p (1 - p) + n whole (1/b)(1 - 1/b) + n (rest/b)(1 - rest/b)] / (1 - p)^2."""
    protocol = HashedBlanketHistogram(Target(1000, 1.0, 0.9), Slots(3, Dyadic(1, 2)), 10, 50)
    p = float(protocol.hashes.collision)
    for held in (0, 400):
        variance = (1000 - held) * p * (1 - p) + 1000 * (3 * 0.1 * 0.9 + 0.025 * 0.975)
        assert protocol.expected_error(counts=np.array([held])).rmse ** 2 == pytest.approx(variance / (1 - p) ** 2)


def test_given_buckets_and_the_paper_constant():
    given = HashedBlanketHistogram.calibrate(users=10_000, domain_size=1000, buckets=100, **TARGET)
    assert given.buckets == 100
    assert given.cost.messages_per_user == pytest.approx(1.4233, abs=0.001)  # 1.4265 if values did not collide
    paper = HashedBlanketHistogram.calibrate(users=10_000, domain_size=1000, calibration="paper", **TARGET)
    assert paper.buckets == math.floor(10_000 / (32 * math.log(2e6)))
    assert paper.blanket.mean == pytest.approx(32 * math.log(2e6) * paper.buckets / 10_000)


def test_by_messages_the_error_is_as_predicted():
    """1,000 nearly independent squared errors: their mean within a quarter, more than five standard deviations."""
    protocol = HashedBlanketHistogram.calibrate(users=20_000, domain_size=1000, **TARGET)
    values = np.arange(20_000) % 1000
    for route in ("messages", "counts"):
        errors = protocol.run(values, route=route).counts - 20
        assert np.mean(errors**2) / protocol.expected_error().rmse ** 2 == pytest.approx(1, abs=0.25)


def test_what_is_too_small_is_refused():
    with pytest.raises(InfeasibleError, match="uniform-blanket"):
        HashedBlanketHistogram.calibrate(users=1000, domain_size=3, **TARGET)
    with pytest.raises(InfeasibleError, match="twice as many"):
        HashedBlanketHistogram.calibrate(users=1000, domain_size=10, buckets=6, **TARGET)
    with pytest.raises(InfeasibleError, match="most_messages"):
        HashedBlanketHistogram.calibrate(users=30, domain_size=10, **TARGET)
    with pytest.raises(InfeasibleError, match="most_messages"):
        HashedBlanketHistogram.calibrate(users=300, domain_size=10, calibration="paper", **TARGET)
    with pytest.raises(ParameterError, match="At least 2 messages"):
        HashedBlanketHistogram.calibrate(users=30, domain_size=10, most_messages=1, **TARGET)
    with pytest.raises(ParameterError, match="too many to list"):
        HashedBlanketHistogram.calibrate(users=10_000, domain_size=100, **TARGET).report_pmf(0)
    for settings in HashedBlanketHistogram.alternatives(users=1000):
        HashedBlanketHistogram.calibrate(users=1000, domain_size=100, **TARGET, **settings)
