"""Laplace noise added by each user."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.protocols.sum.local_laplace import LocalLaplaceSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> LocalLaplaceSum:
    return LocalLaplaceSum.calibrate(**({"users": 1000, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


def test_the_table_by_hand():
    """One level, ratio 1/2, one more answer on either side: 1/3 at the truth, all that lies beyond at the ends."""
    sums = LocalLaplaceSum(Target(2, 1.0, 0.0), levels=1, ratio=Dyadic(1, 1), margin=1, domain=UNIT)
    pmf = sums.report_pmf(0.0)
    masses = [pmf[tuple(int(k == y) for k in range(4))] for y in range(4)]
    assert masses == [Fraction(1, 3), Fraction(1, 3), Fraction(1, 6), Fraction(1, 6)]
    assert sums.guarantee.local_epsilon == pytest.approx(math.log(2))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_the_error_is_that_of_laplace_noise(epsilon):
    """n 2 / epsilon^2: 8 / epsilon^2 on [-1, 1], a quarter of it here."""
    assert protocol(epsilon=epsilon).expected_error().rmse == pytest.approx(math.sqrt(2000) / epsilon, rel=1e-3)


def test_whole_numbers_are_not_rounded():
    sums = protocol(domain=Interval(0, 1, whole=True))
    a = float(sums.ratio)
    assert sums.levels == 1
    assert sums.expected_error().rmse ** 2 == pytest.approx(1000 * 2 * a / (1 - a) ** 2)


@pytest.mark.parametrize("decay", [1e-3, 0.1, 1.0, 3.0, 10.0, 40.0])
def test_the_constants_of_the_error_bounds(decay):
    """ln E[e^(s X)] <= s^2 v / (2 (1 - c s)), and E|X|^3 <= largest term * v, by summing."""
    a = math.exp(-decay)
    sums = LocalLaplaceSum(Target(2, 50.0, 0.0), levels=1, ratio=Dyadic.at_least(a), margin=9, domain=UNIT)
    reports, v = sums.reports, 2 * a / (1 - a) ** 2
    c = reports.heaviest_tail
    for s in np.linspace(0.001, 0.999, 400) / c:
        logarithm = -math.log1p(-((math.sinh(s / 2) / math.sinh(decay / 2)) ** 2))
        assert logarithm <= s * s * v / (2 * (1 - c * s)) * (1 + 1e-9)
    x = np.arange(1, min(200_000, int(60 / decay) + 60), dtype=float)
    masses = 2 * (1 - a) / (1 + a) * np.exp(-decay * x)
    assert float(masses @ x**3) == pytest.approx(reports.largest_term * v, rel=1e-6)


def test_measured_errors_are_as_predicted():
    """300 rounds of 1000 users: the mean square is within six of its standard deviations."""
    sums = protocol()
    places = np.random.default_rng().random(1000)
    errors = np.array([sums.run(places).value for _ in range(300)]) - places.sum()
    assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 6 * math.sqrt(2 / 300)


def test_what_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="and margin between"):
        LocalLaplaceSum(Target(2, 1.0, 0.0), levels=1, ratio=Dyadic(1, 1), margin=-1, domain=UNIT)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = LocalLaplaceSum(Target(2, 0.5, 0.0), levels=1, ratio=Dyadic(1, 1), margin=1, domain=UNIT).guarantee
    with pytest.raises(ParameterError, match="too many to list"):
        protocol().report_pmf(0.5)
