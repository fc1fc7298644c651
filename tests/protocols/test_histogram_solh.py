"""SOLH: its table by hand, the printed numbers, the choice of buckets, and the paper's."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.amplification import BlanketCurve
from shuffledp.protocols.histogram.shuffled_k_rr import theorem_31_mean
from shuffledp.protocols.histogram.solh import ShuffledLocalHashing
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def test_the_table_of_a_report_by_hand():
    """Six functions modulo 3 into 2 buckets; value 0 hashes to v mod 2 under (u, v)."""
    protocol = ShuffledLocalHashing(Target(3, 1.0, 0.9), Dyadic(1, 1), 2, 2)
    pmf = protocol.report_pmf(0)
    assert len(pmf) == 12
    for report, mass in pmf.items():
        factor, shift, bucket = protocol.message_format.message(np.array([report.index(1)]))[0].tolist()
        assert factor in (0, 1)
        assert mass == Fraction(1, 6) * (Fraction(3, 4) if shift % 2 == bucket else Fraction(1, 4))


def test_the_printed_numbers():
    """500 buckets for 10^4 users: local epsilon 6.31; errors 8.55 and 31.31 with the ideal chance of a collision."""
    protocol = ShuffledLocalHashing.calibrate(users=10_000, domain_size=10**6, buckets=500, **TARGET)
    assert protocol.guarantee.local_epsilon == pytest.approx(6.31, abs=0.0051)
    assert protocol.expected_error(counts=np.array([0])).rmse == pytest.approx(8.55, abs=0.01)
    assert protocol.expected_error(counts=np.array([1000])).rmse == pytest.approx(31.31, abs=0.02)
    many = ShuffledLocalHashing.calibrate(users=10**6, domain_size=10**7, buckets=50_000, **TARGET)
    assert many.guarantee.local_epsilon == pytest.approx(10.91, abs=0.0051)
    assert many.expected_error(counts=np.array([0])).rmse == pytest.approx(8.55, abs=0.02)


@pytest.mark.parametrize("size", [1000, 10**6])
def test_the_buckets_are_well_chosen(size):
    """No worse than the printed 500, and at most a tenth worse than others near."""
    chosen = ShuffledLocalHashing.calibrate(users=10_000, domain_size=size, **TARGET)
    least = chosen.expected_error().rmse
    for buckets in {500, chosen.buckets // 2, chosen.buckets * 2} - {size * 2}:
        other = ShuffledLocalHashing.calibrate(users=10_000, domain_size=size, buckets=buckets, **TARGET)
        assert least < 1.1 * other.expected_error().rmse


def test_a_small_domain_has_no_collisions():
    protocol = ShuffledLocalHashing.calibrate(users=10_000, domain_size=16, **TARGET)
    assert protocol.buckets == 17
    assert protocol.hashes.collision == 0


def test_the_blanket_is_the_least():
    protocol = ShuffledLocalHashing.calibrate(users=10_000, domain_size=1000, buckets=500, **TARGET)
    less = Dyadic.at_least(float(protocol.blanket) * (1 - 1e-4))
    assert BlanketCurve(10_000, less, 500).delta_at(1.0) > 1e-6 >= protocol.guarantee.delta_at(1.0)


def test_the_paper_constants():
    """m = (n - 1)/(14 ln(2/delta)/eps^2), (m + 2)/3 buckets and e^eps_l + buckets - 1 = m."""
    protocol = ShuffledLocalHashing.calibrate(users=50_000, domain_size=1000, calibration="paper", **TARGET)
    m = 49_999 / theorem_31_mean(1.0, 1e-6)
    assert protocol.buckets == round((m + 2) / 3)
    assert math.exp(protocol.guarantee.local_epsilon) + protocol.buckets - 1 == pytest.approx(m)
    with pytest.raises(ConditionError, match="buckets"):
        ShuffledLocalHashing.calibrate(users=500, domain_size=1000, calibration="paper", **TARGET)


def test_by_messages_the_error_is_as_predicted():
    """1,000 nearly independent squared errors: their mean within a quarter, more than five standard deviations."""
    protocol = ShuffledLocalHashing.calibrate(users=20_000, domain_size=1000, buckets=100, **TARGET)
    values = np.arange(20_000) % 1000
    errors = protocol.run(values, route="messages").counts - 20
    assert np.mean(errors**2) / protocol.expected_error().rmse ** 2 == pytest.approx(1, abs=0.25)
    assert abs(np.mean(errors)) < 5 * protocol.expected_error().rmse / math.sqrt(1000) * 2


def test_edges_and_bad_input():
    for users, size in ((2, 2), (10, 1), (50, 3)):
        assert ShuffledLocalHashing.calibrate(users=users, domain_size=size, **TARGET).guarantee.delta_at(1.0) <= 1e-6
    with pytest.raises(InfeasibleError, match="too few"):
        ShuffledLocalHashing.calibrate(users=20, domain_size=1000, buckets=1000, epsilon=0.01, delta=1e-9)
    with pytest.raises(ParameterError, match="buckets"):
        ShuffledLocalHashing.calibrate(users=1000, domain_size=100, buckets=1, **TARGET)
    with pytest.raises(ParameterError, match="strictly"):
        ShuffledLocalHashing(Target(3, 1.0, 0.9), Dyadic(0), 2, 2)
    with pytest.raises(ParameterError, match="too many to list"):
        ShuffledLocalHashing.calibrate(users=10_000, domain_size=1000, buckets=500, **TARGET).report_pmf(0)
