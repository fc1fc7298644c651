"""FLIP: its table by hand, the printed numbers, both routes, and the edges."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.histogram.fake_users import FakeUsersHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def test_the_table_of_a_report_by_hand():
    """Rows 00, 01, 10, 11 with flips of 1/4: value 0 is the row 10, and one fake row is 00."""
    protocol = FakeUsersHistogram(Target(3, 1.0, 0.9), Dyadic(1, 2), 1, 2)
    pmf = protocol.report_pmf(0)
    real = {0: Fraction(3, 16), 1: Fraction(1, 16), 2: Fraction(9, 16), 3: Fraction(3, 16)}
    fake = {0: Fraction(9, 16), 1: Fraction(3, 16), 2: Fraction(3, 16), 3: Fraction(1, 16)}
    assert pmf[(2, 0, 0, 0)] == real[0] * fake[0]
    assert pmf[(1, 0, 1, 0)] == real[0] * fake[2] + real[2] * fake[0]
    assert pmf[(0, 1, 0, 1)] == real[1] * fake[3] + real[3] * fake[1]
    assert sum(pmf.values()) == 1


@pytest.mark.parametrize(("users", "rmse"), [(10_000, 9.23), (10**6, 9.24)])
def test_the_printed_numbers(users, rmse):
    protocol = FakeUsersHistogram.calibrate(users=users, domain_size=1000, **TARGET)
    assert protocol.expected_error().rmse == pytest.approx(rmse, abs=0.0051)
    assert (protocol.cost.messages_per_user, protocol.cost.bits_per_message) == (2, 1000)
    assert users * float(protocol.flip) == pytest.approx(42.65, rel=0.02)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6


def test_more_fake_rows_and_the_paper_constant():
    """n k q (1 - q) = (33/5) ((e^eps + 1)/(e^eps - 1))^2 ln(4/delta)."""
    errors = [FakeUsersHistogram.calibrate(users=10_000, domain_size=9, **TARGET).expected_error().rmse]
    for settings in FakeUsersHistogram.alternatives(users=10_000):
        more = FakeUsersHistogram.calibrate(users=10_000, domain_size=9, **TARGET, **settings)
        errors.append(more.expected_error().rmse)
    assert errors == sorted(errors, reverse=True)
    paper = FakeUsersHistogram.calibrate(users=10_000, domain_size=9, calibration="paper", **TARGET)
    q = float(paper.flip)
    assert 10_000 * q * (1 - q) == pytest.approx(6.6 / math.tanh(0.5) ** 2 * math.log(4e6))
    with pytest.raises(ConditionError, match="fake rows"):
        FakeUsersHistogram.calibrate(users=1000, domain_size=9, calibration="paper", **TARGET)


def test_what_one_report_reveals():
    """The largest ratio of two values' reports, rows in order, is ((1 - q)/q)^2; without an order it is no larger."""
    protocol = FakeUsersHistogram(Target(3, 1.0, 0.9), Dyadic(1, 2), 2, 2)
    assert protocol.guarantee.local_epsilon == pytest.approx(2 * math.log(3))
    first, second = protocol.report_pmf(0), protocol.report_pmf(1)
    assert max(first[report] / second[report] for report in first) <= 9


def test_both_routes_have_the_predicted_error():
    """1,000 independent squares, mean within five standard deviations of sqrt(2/1000)."""
    protocol = FakeUsersHistogram.calibrate(users=5_000, domain_size=1000, **TARGET)
    values = np.arange(5_000) % 1000
    for route in ("messages", "counts"):
        errors = protocol.run(values, route=route).counts - 5
        assert abs(np.mean(errors**2) / protocol.expected_error().rmse ** 2 - 1) < 5 * math.sqrt(2 / 1000) * 1.1


def test_edges_and_bad_input():
    one = FakeUsersHistogram.calibrate(users=3, domain_size=1, **TARGET)
    assert one.guarantee.local_epsilon == 0
    assert one.run([0, 0, 0], route="messages").counts.tolist() == [3]
    few = FakeUsersHistogram.calibrate(users=2, domain_size=2, **TARGET)
    assert few.guarantee.delta_at(1.0) <= 1e-6
    with pytest.raises(InfeasibleError, match="too few"):
        FakeUsersHistogram.calibrate(users=5, domain_size=2, epsilon=1e-5, delta=1e-9)
    for rows in (0, -1):
        with pytest.raises(ParameterError, match="At least one fake row"):
            FakeUsersHistogram.calibrate(users=50, domain_size=2, fake_rows=rows, **TARGET)
    with pytest.raises(ParameterError, match="below 1/2"):
        FakeUsersHistogram(Target(3, 1.0, 0.9), Dyadic(1, 1), 1, 2)
    with pytest.raises(ParameterError, match="rows"):
        few.estimate(Tally(np.array([5, 1]), 2))
    with pytest.raises(ParameterError, match="too many to list"):
        FakeUsersHistogram.calibrate(users=1000, domain_size=20, **TARGET).report_pmf(0)
