"""Discrete Laplace noise on a sum of levels, added by a trusted party."""

import math

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.sum.discrete_laplace import DiscreteLaplaceSum
from shuffledp.testing.statistics import ALPHA, p_value

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> DiscreteLaplaceSum:
    return DiscreteLaplaceSum.calibrate(**({"users": 10_000, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


def test_the_error_is_that_of_the_specification():
    """2 a / (1 - a)^2 / k^2 + n / (4 k^2) with a = e^(-epsilon / k)."""
    sums = protocol(levels=100)
    a = math.exp(-1 / 100)
    expected = 2 * a / (1 - a) ** 2 / 100**2 + 10_000 / (4 * 100**2)
    assert sums.expected_error().rmse == pytest.approx(math.sqrt(expected), rel=1e-9)
    assert sums.variance(np.zeros(10_000)) == pytest.approx(expected - 0.25, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("users", [2, 1000, 10**9])
def test_by_default_rounding_is_lost_in_the_noise(users, epsilon):
    rmse = protocol(users=users, epsilon=epsilon).expected_error().rmse
    assert rmse <= 1.01 * math.sqrt(2) / epsilon


def test_whole_numbers_are_not_rounded():
    sums = protocol(domain=Interval(-3, 4, whole=True))
    assert sums.levels == 7
    places = sums.domain.encode_all(np.arange(-3, 5))
    assert sums.randomize_all(places).values.tolist() == list(range(8))
    assert protocol(domain=Interval(0, 10**12, whole=True)).levels == 1000


def test_the_guarantee_is_pure_and_central():
    guarantee = protocol().guarantee
    assert (guarantee.delta, guarantee.trust, guarantee.delta_at(1.0)) == (0.0, "central", 0.0)


def test_the_noise_has_its_distribution_and_half_of_it_is_noticed():
    """4000 releases at alpha 1e-7; the same table rejects noise of half the scale."""
    sums = protocol(users=2, levels=2)
    tally = Tally(np.array([3]), 2)
    pmf = sums.release_pmf(tally)
    drawn = [int(sums.release(tally).counts[0]) for _ in range(4000)]
    masses = list(pmf.values())
    assert sum(masses) == pytest.approx(1.0, abs=1e-13)
    assert p_value([drawn.count(key) for (key,) in pmf], masses) > ALPHA
    halved = [3 + (each - 3) // 2 for each in drawn]
    assert p_value([halved.count(key) for (key,) in pmf], masses) < ALPHA


def test_measured_errors_are_as_predicted():
    """300 rounds: the mean square is within nine of its standard deviations; intervals of 95 % hold in 85 % or more."""
    sums = protocol(users=1000)
    places = np.random.default_rng().random(1000)
    estimates = [sums.run(places) for _ in range(300)]
    errors = np.array([each.value for each in estimates]) - places.sum()
    expected = sums.expected_error(values=places).rmse ** 2
    assert abs(np.mean(errors**2) / expected - 1) < 9 * math.sqrt(5 / 300)
    held = sum(low <= places.sum() <= high for low, high in (each.interval(0.95) for each in estimates))
    assert held >= 0.85 * 300


def test_nothing_is_estimated_without_noise_and_noise_is_added_once():
    sums = protocol(users=2)
    tally = sums.tally(sums.randomize_all(np.array([0.5, 1.0])))
    with pytest.raises(ParameterError, match="release it first"):
        sums.estimate(tally)
    with pytest.raises(ParameterError, match="already released"):
        sums.release(sums.release(tally))


def test_too_many_levels_are_refused():
    with pytest.raises(ParameterError, match="are not supported"):
        protocol(users=10**12, levels=1 << 30)
