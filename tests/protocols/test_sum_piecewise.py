"""The piecewise mechanism on a grid."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.protocols.sum.duchi import DuchiSum
from shuffledp.protocols.sum.piecewise import PiecewiseSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> PiecewiseSum:
    return PiecewiseSum.calibrate(**({"users": 1000, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


def test_the_table_by_hand():
    """Two levels, windows of two answers one apart: 3/4 in the window, 1/4 in the two others."""
    sums = PiecewiseSum(Target(2, 2.0, 0.0), levels=2, step=1, window=2, outside=Dyadic(1, 2), domain=UNIT)
    inner, outer = Fraction(3, 8), Fraction(1, 8)
    pmf = sums.report_pmf(0.5)
    assert [pmf[tuple(int(k == y) for k in range(4))] for y in range(4)] == [outer, inner, inner, outer]
    between = sums.report_pmf(0.25)
    assert between[1, 0, 0, 0] == (inner + outer) / 2
    assert sums.guarantee.local_epsilon == pytest.approx(math.log(3))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0, 20.0])
@pytest.mark.parametrize("place", [0.0, 0.2, 0.5, 1.0])
def test_the_variance_is_close_to_the_papers(epsilon, place):
    """(u^2 / (h - 1) + (h + 3) / (3 (h - 1)^2)) / 4 with h = e^(epsilon / 2); a grid changes it by a few per cent."""
    h, u = math.exp(epsilon / 2), 2 * place - 1
    expected = (u * u / (h - 1) + (h + 3) / (3 * (h - 1) ** 2)) / 4
    assert protocol(epsilon=epsilon).variance(np.array([place])) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 30.0])
def test_all_of_epsilon_is_used(epsilon):
    local = protocol(epsilon=epsilon).guarantee.local_epsilon
    assert 0.999999 * epsilon <= local <= epsilon


def test_it_overtakes_duchi_between_one_and_one_and_a_half():
    def ratio(epsilon: float) -> float:
        other = DuchiSum.calibrate(users=1000, epsilon=epsilon, delta=1e-6, domain=UNIT)
        return protocol(epsilon=epsilon).expected_error().rmse / other.expected_error().rmse

    assert ratio(1.1) > 1 > ratio(1.5)


def test_measured_errors_are_as_predicted():
    """300 rounds of 1000 users: the mean square is within six of its standard deviations."""
    sums = protocol()
    places = np.random.default_rng().random(1000)
    errors = np.array([sums.run(places).value for _ in range(300)]) - places.sum()
    assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 6 * math.sqrt(2 / 300)


@pytest.mark.parametrize(
    ("window", "outside"), [(0, Dyadic(1, 2)), (2, Dyadic(0, 0)), (2, Dyadic(1, 1)), (1 << 21, Dyadic(1, 2))]
)
def test_what_makes_no_sense_is_refused(window, outside):
    with pytest.raises(ParameterError):
        PiecewiseSum(Target(2, 2.0, 0.0), levels=2, step=1, window=window, outside=outside, domain=UNIT)


def test_a_fine_grid_is_not_listed():
    with pytest.raises(ParameterError, match="too many to list"):
        protocol().report_pmf(0.5)
    with pytest.raises(ParameterError, match="At least 2 answers"):
        protocol(answers=1)
