"""A sum from one message per user."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.protocols.sum.privacy_blanket import PrivacyBlanketSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> PrivacyBlanketSum:
    return PrivacyBlanketSum.calibrate(**({"users": 10**6, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


def test_the_table_by_hand():
    """Three levels and a fair coin: 1/6 for each, and 1/2 more for the own one."""
    sums = PrivacyBlanketSum(Target(3, 1.0, 0.9), levels=2, blanket=Dyadic(1, 1), domain=UNIT)
    assert sums.report_pmf(0.5) == {
        (1, 0, 0): Fraction(1, 6),
        (0, 1, 0): Fraction(2, 3),
        (0, 0, 1): Fraction(1, 6),
    }


def test_the_error_by_the_formula():
    sums = PrivacyBlanketSum(Target(3, 1.0, 0.9), levels=5, blanket=Dyadic(1, 2), domain=UNIT)
    gamma, k, x = 0.25, 5, 0.3
    square = (1 * 0.5 + 4 * 0.5) / 25  # the place 1.5 of 5 is rounded to 1 or 2
    each = (1 - gamma) * square + gamma * (2 * k + 1) / (6 * k) - ((1 - gamma) * x + gamma / 2) ** 2
    assert sums.variance(np.array([x])) == pytest.approx(each / (1 - gamma) ** 2)


def test_the_tight_numbers():
    """n = 1e6 at (1, 1e-6): an error of 26.5 with about 32 levels, 42 to 43 uniform messages for each."""
    sums = protocol()
    assert 28 <= sums.levels <= 38
    assert sums.expected_error().rmse == pytest.approx(26.5, abs=0.15)
    assert 42 < float(sums.blanket) * 10**6 / (sums.levels + 1) < 43


def test_the_papers_numbers():
    """The same with the paper's constants: 203 uniform messages for each level and an error of 44.6."""
    sums = protocol(calibration="paper")
    assert float(sums.blanket) * 10**6 / (sums.levels + 1) == pytest.approx(203, abs=0.5)
    assert sums.expected_error().rmse == pytest.approx(44.6, abs=0.2)


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_the_chosen_levels_are_about_the_best(factor):
    chosen = protocol(users=20_000, epsilon=2.0)
    other = protocol(users=20_000, epsilon=2.0, levels=round(factor * chosen.levels))
    assert chosen.expected_error().rmse < other.expected_error().rmse


def test_few_whole_numbers_are_levels():
    assert protocol(users=50_000, epsilon=2.0, domain=Interval(0, 3, whole=True)).levels == 3


def test_measured_errors_of_both_routes_are_as_predicted():
    """300 rounds of 500 users each way: the mean square is within six of its standard deviations."""
    sums = PrivacyBlanketSum(Target(500, 1.0, 0.99), levels=6, blanket=Dyadic.at_least(0.3), domain=UNIT)
    places = np.random.default_rng().random(500)
    for route in ("messages", "counts"):
        errors = np.array([sums.run(places, route=route).value for _ in range(300)]) - places.sum()
        assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 6 * math.sqrt(2 / 300)


def test_bad_input():
    with pytest.raises(ConditionError, match="epsilon <= 1"):
        protocol(calibration="paper", epsilon=2.0)
    with pytest.raises(ConditionError, match="honest users"):
        protocol(calibration="paper", users=100)
    with pytest.raises(ParameterError, match="levels"):
        protocol(levels=0)
    with pytest.raises(ParameterError, match="strictly between"):
        PrivacyBlanketSum(Target(3, 1.0, 0.9), levels=2, blanket=Dyadic(1, 0), domain=UNIT)
