"""Shuffled k-RR: the printed numbers, Theorem 3.1 and its conditions, the error, and the edges."""

import math

import numpy as np
import pytest

from shuffledp.errors import ConditionError, DomainError, InfeasibleError, ParameterError
from shuffledp.privacy.amplification import RandomizedResponseCurve
from shuffledp.protocols.histogram.shuffled_k_rr import ShuffledKRandomizedResponse, theorem_31_mean
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

TARGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("users", "size", "local", "empty", "held"),
    [
        (10_000, 16, 5.53, 6.48, 9.88),
        (10_000, 1000, 6.61, 5.62, 37.08),
        (1_000_000, 16, 10.06, 6.53, 10.12),
        (1_000_000, 1000, 10.11, 6.50, 64.03),
        (1_000_000, 100_000, 11.22, 5.62, 366.89),
    ],
)
def test_the_printed_errors(users, size, local, empty, held):
    """The local epsilon and the errors of an empty category and of one that a tenth of the users hold."""
    protocol = ShuffledKRandomizedResponse.calibrate(users=users, domain_size=size, **TARGET)
    assert protocol.guarantee.local_epsilon == pytest.approx(local, abs=0.0051)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6
    assert protocol.expected_error(counts=np.array([0])).rmse == pytest.approx(empty, abs=0.0051)
    assert protocol.expected_error(counts=np.array([users // 10])).rmse == pytest.approx(held, rel=6e-4)
    assert protocol.cost.messages_per_user == 1


def test_the_blanket_is_the_least():
    protocol = ShuffledKRandomizedResponse.calibrate(users=10_000, domain_size=16, **TARGET)
    less = Dyadic.at_least(float(protocol.blanket) * (1 - 1e-4))
    assert RandomizedResponseCurve(10_000, less, 16).delta_at(1.0) > 1e-6


def test_theorem_31():
    """gamma = max(14 k ln(2/delta)/((n-1) eps^2), 27 k/((n-1) eps))."""
    protocol = ShuffledKRandomizedResponse.calibrate(users=100_001, domain_size=20, calibration="paper", **TARGET)
    assert float(protocol.blanket) == pytest.approx(14 * 20 * math.log(2e6) / 100_000)
    assert theorem_31_mean(1.0, 0.5) == 27
    with pytest.raises(ConditionError, match="epsilon <= 1"):
        theorem_31_mean(1.5, 1e-6)
    with pytest.raises(ConditionError, match="honest users"):
        ShuffledKRandomizedResponse.calibrate(users=1000, domain_size=20, calibration="paper", **TARGET)


def test_fewer_honest_users_need_more_noise():
    all_of_them = ShuffledKRandomizedResponse.calibrate(users=10_000, domain_size=16, **TARGET)
    half = ShuffledKRandomizedResponse.calibrate(users=10_000, domain_size=16, honest_fraction=0.5, **TARGET)
    assert float(half.blanket) > 1.7 * float(all_of_them.blanket)
    assert half.guarantee.honest_users == 5_000


def test_the_error_is_as_predicted():
    """2,000 nearly independent squares: their mean to five standard deviations; half as much again is caught."""
    protocol = ShuffledKRandomizedResponse.calibrate(users=20_000, domain_size=100, **TARGET)
    true = np.full(100, 200)
    predicted = protocol.expected_error(counts=true).rmse ** 2
    squares = [np.mean((protocol.estimate(protocol.sample_tally(true)).counts - true) ** 2) for _ in range(20)]
    tolerance = 5 * math.sqrt(2 / 2_000) * 1.1
    assert abs(np.mean(squares) / predicted - 1) < tolerance
    assert abs(np.mean(squares) / (1.5 * predicted) - 1) > tolerance


def test_a_single_category_has_nothing_to_hide():
    protocol = ShuffledKRandomizedResponse.calibrate(users=5, domain_size=1, **TARGET)
    assert protocol.guarantee.local_epsilon == 0
    assert protocol.run([0] * 5).counts.tolist() == [5]


def test_bad_input():
    with pytest.raises(DomainError):
        ShuffledKRandomizedResponse.calibrate(users=100, **TARGET)
    with pytest.raises(InfeasibleError, match="users"):
        ShuffledKRandomizedResponse.calibrate(users=20, domain_size=1000, epsilon=0.01, delta=1e-9)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = ShuffledKRandomizedResponse(Target(1000, 1.0, 1e-6), Dyadic.at_least(0.01), 4).guarantee
