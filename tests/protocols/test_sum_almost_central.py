"""Sums by atoms that cancel."""

import math

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.sum.almost_central import AlmostCentralSum
from shuffledp.testing.statistics import ALPHA, same_distribution

UNIT = Interval(0.0, 1.0)


@pytest.fixture(scope="module")
def sums() -> AlmostCentralSum:
    return AlmostCentralSum.calibrate(users=1000, epsilon=1.0, delta=1e-6, domain=UNIT, levels=3)


def test_the_error_is_that_of_nine_tenths_of_epsilon(sums):
    a = math.exp(-0.9 / 3)
    expected = 2 * a / (1 - a) ** 2 / 9 + 1000 / (4 * 9)
    assert sums.expected_error().rmse == pytest.approx(math.sqrt(expected), rel=1e-6)
    assert sums.guarantee.delta_at(1.0) <= 1e-6


def test_every_part_but_the_noise_of_the_sum_cancels(sums):
    members = [part[0] for part in sums._parts]
    assert members[:2] == [(1,), (-1,)]
    assert all(sum(each) == 0 for each in members[2:])


def test_messages_are_as_many_as_promised(sums):
    """30 rounds over 1000 users: the mean is within seven of its standard deviations, which half the noise is not."""
    lengths = []
    for _ in range(30):
        messages = sums.randomize_all(np.zeros(1000))
        assert np.diff(messages.offsets).min() >= 1
        lengths.append(len(messages))
    variance = sum(
        len(members) ** 2 * float(shape) * float(ratio) / float(ratio.complement) ** 2
        for members, shape, ratio in sums._parts
    )
    allowed = 7 * math.sqrt(variance / 30)
    expected = 1000 * sums.cost.messages_per_user
    assert abs(np.mean(lengths) - expected) < allowed
    assert abs(1000 + (np.mean(lengths) - 1000) / 2 - expected) > allowed


def test_both_routes_give_the_same_sums(sums):
    """60 and 300 rounds at alpha 1e-7; the same table notices a sum that is off by three deviations."""
    places = np.full(1000, 1 / 3)
    by_messages = [int(sums.observed(sums.tally(sums.randomize_all(places)))[0]) for _ in range(60)]
    by_counts = [int(sums.observed(sums.sample_tally(places))[0]) for _ in range(300)]
    middle = int(np.median(by_counts))

    def table(observed: list[int]) -> list[int]:
        return np.bincount(np.clip((np.array(observed) - middle) // 4 + 5, 0, 10), minlength=11).tolist()

    assert same_distribution(table(by_messages), table(by_counts)) > ALPHA
    assert same_distribution(table([each + 15 for each in by_messages]), table(by_counts)) < ALPHA


def test_measured_errors_are_as_predicted(sums):
    """300 rounds: the mean square is within six of its standard deviations."""
    places = np.random.default_rng().random(1000)
    errors = np.array([sums.run(places, route="counts").value for _ in range(300)]) - places.sum()
    assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 6 * math.sqrt(3 / 300)


def test_bad_input(sums):
    with pytest.raises(ParameterError, match="tight calibration"):
        AlmostCentralSum.calibrate(users=1000, epsilon=1.0, delta=1e-6, domain=UNIT, calibration="paper")
    with pytest.raises(ParameterError, match="A tally counts"):
        sums.estimate(Tally(np.array([1, 2]), 1000))


def test_whatever_is_calibrated_can_be_drawn():
    """By default levels are fewer where the shares of noise would be too long to draw; asked for, they are refused."""
    settings = {"users": 10**8, "epsilon": 0.1, "delta": 1e-6, "domain": Interval(0, 1)}
    protocol = AlmostCentralSum.calibrate(**settings)
    assert protocol.levels < 1000
    assert protocol.sample_tally(np.full(10, 0.5)).users == 10
    with pytest.raises(ParameterError, match="fewer levels"):
        AlmostCentralSum.calibrate(levels=1000, **settings)
