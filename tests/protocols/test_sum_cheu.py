"""Sums of unlabelled flipped bits."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.sum.cheu import CheuSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

UNIT = Interval(0.0, 1.0)


def test_the_table_by_hand():
    """Two bits flipped with 1/4, one of them a one: 2 * 3/4 * 1/4 that both are equal."""
    sums = CheuSum(Target(3, 1.0, 0.9), bits=2, flip=Dyadic(1, 2), domain=UNIT)
    stay, turn = Fraction(3, 4), Fraction(1, 4)
    assert sums.report_pmf(0.5) == {(2, 0): stay * turn, (1, 1): stay**2 + turn**2, (0, 2): stay * turn}
    assert sums.report_pmf(0.25)[0, 2] == (turn**2 + stay * turn) / 2


def test_the_papers_numbers():
    """n = 1e6, r = 1000 at (1, 1e-6): lambda = 970,426 and an error of 534."""
    sums = CheuSum.calibrate(users=10**6, epsilon=1.0, delta=1e-6, domain=UNIT, calibration="paper")
    assert sums.bits == 1000
    assert 2e6 * float(sums.flip) == pytest.approx(970_426, rel=1e-5)
    assert sums.expected_error().rmse == pytest.approx(534, rel=2e-3)


def test_the_tight_numbers():
    """n = 1e4, r = 100 at (1, 1e-6): an error of 4.3, and its formula."""
    sums = CheuSum.calibrate(users=10**4, epsilon=1.0, delta=1e-6, domain=UNIT)
    n, r, lam = 10**4, 100, 2e4 * float(sums.flip)
    assert (sums.bits, sums.cost.messages_per_user, sums.cost.bits_per_message) == (100, 100.0, 1)
    noise = (n / (n - lam)) ** 2 * lam * (1 - lam / (2 * n)) / (2 * r)
    assert sums.expected_error().rmse == pytest.approx(math.sqrt(n / (4 * r * r) + noise), rel=1e-9)
    assert sums.expected_error().rmse == pytest.approx(4.32, abs=0.05)
    assert sums.guarantee.local_epsilon == pytest.approx(r * math.log((1 - lam / 2 / n) / (lam / 2 / n)))


def test_whole_numbers_need_no_more_bits_than_steps():
    settings = {"users": 1000, "epsilon": 1.0, "delta": 1e-4, "domain": Interval(0, 3, whole=True)}
    sums = CheuSum.calibrate(**settings)
    assert sums.bits == 3
    assert list(CheuSum.alternatives(**settings)) == [{"bits": 1}]
    assert sums.variance(np.array([1 / 3])) == pytest.approx(sums.variance(np.array([0.0])))


def test_measured_errors_of_both_routes_are_as_predicted():
    """300 rounds of 400 users each way: the mean square is within six of its standard deviations."""
    sums = CheuSum(Target(400, 1.0, 0.99), bits=20, flip=Dyadic.at_least(0.1), domain=UNIT)
    places = np.random.default_rng().random(400)
    for route in ("messages", "counts"):
        errors = np.array([sums.run(places, route=route).value for _ in range(300)]) - places.sum()
        assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 6 * math.sqrt(2 / 300)


def test_bad_input():
    with pytest.raises(ConditionError, match="users"):
        CheuSum.calibrate(users=50, epsilon=0.5, delta=1e-6, domain=UNIT, calibration="paper")
    for bits, flip in ((0, Dyadic(1, 2)), (1, Dyadic(1, 1)), (1, Dyadic(0, 0)), (1 << 21, Dyadic(1, 2))):
        with pytest.raises(ParameterError):
            CheuSum(Target(3, 1.0, 0.9), bits=bits, flip=flip, domain=UNIT)
    sums = CheuSum(Target(2, 1.0, 0.9), bits=2, flip=Dyadic(1, 2), domain=UNIT)
    with pytest.raises(ParameterError, match="send 4 bits, not 3"):
        sums.estimate(Tally(np.array([1, 2]), 2))
