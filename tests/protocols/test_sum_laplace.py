"""Laplace noise drawn by OpenDP."""

import math
import sys

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import MissingPackageError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.sum import laplace
from shuffledp.protocols.sum.laplace import LaplaceSum
from shuffledp.randomness import InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA, p_value

pytest.importorskip("opendp")

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> LaplaceSum:
    return LaplaceSum.calibrate(**({"users": 1000, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 3.7, 50.0])
@pytest.mark.parametrize("users", [2, 10**6, 10**9])
def test_the_error_is_that_of_laplace_noise(users, epsilon):
    sums = protocol(users=users, epsilon=epsilon)
    assert sums.expected_error().rmse == pytest.approx(math.sqrt(2) / epsilon, rel=1e-3)
    assert laplace._measurement(sums.scale).map(sums.levels) <= epsilon
    assert sums.guarantee.delta == 0.0


def test_the_noise_has_its_distribution_and_half_of_it_is_noticed():
    """1500 releases at alpha 1e-7 of what OpenDP draws; the same table rejects noise of half the scale."""
    sums = protocol(users=2, levels=2)
    tally = Tally(np.array([3]), 2)
    pmf = sums.release_pmf(tally)
    drawn = [int(sums.release(tally).counts[0]) for _ in range(1500)]
    masses = list(pmf.values())
    assert p_value([drawn.count(key) for (key,) in pmf], masses) > ALPHA
    halved = [3 + (each - 3) // 2 for each in drawn]
    assert p_value([halved.count(key) for (key,) in pmf], masses) < ALPHA


def test_measured_errors_are_as_predicted():
    """300 rounds: the mean square is within nine of its standard deviations."""
    sums = protocol()
    places = np.random.default_rng().random(1000)
    errors = np.array([sums.run(places).value for _ in range(300)]) - places.sum()
    assert abs(np.mean(errors**2) / 2 - 1) < 9 * math.sqrt(5 / 300)


def test_a_seed_is_refused():
    with pytest.raises(ParameterError, match="takes no seed"):
        protocol(users=2).run([0.1, 0.2], source=InsecureSeededRandomness(1))


def test_less_noise_than_claimed_is_refused():
    honest = protocol(users=2, levels=4)
    weak = LaplaceSum(honest.target, 4, honest.scale - 1, UNIT)
    with pytest.raises(ParameterError, match="more than"):
        _ = weak.guarantee
    with pytest.raises(ParameterError, match="OpenDP's map"):
        weak.release(Tally(np.array([3]), 2))


def test_without_opendp_it_says_what_to_install(monkeypatch):
    laplace._measurement.cache_clear()
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    with pytest.raises(MissingPackageError, match=r"shuffledp\[opendp\]"):
        protocol(epsilon=0.77)
