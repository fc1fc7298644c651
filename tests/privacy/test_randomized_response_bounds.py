"""The error of randomized response: exact binomial sums against the bounds, and the slip that they correct."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy.randomized_response_bounds import (
    epsilon_of_gamma,
    gamma_of_epsilon,
    mean_radius,
    mean_tail,
    mean_variance,
    sum_radius,
    sum_tail,
    sum_variance,
)


def received_pmf(users, ones, gamma):
    """The exact pmf of the received ones: those who hold a one and keep it, and those who do not and flip it."""
    curve = [Fraction(1)]
    for place in range(users):
        share = Fraction(1, 2) + (gamma if place < ones else -gamma)
        curve = [
            (curve[k] if k < len(curve) else 0) * (1 - share) + (curve[k - 1] * share if k else 0)
            for k in range(len(curve) + 1)
        ]
    return curve


def errors(users, ones, gamma):
    """Every error of the estimated number of ones, with its probability."""
    curve = received_pmf(users, ones, gamma)
    return [((k - (Fraction(1, 2) - gamma) * users) / (2 * gamma) - ones, mass) for k, mass in enumerate(curve)]


CASES = [(10, 3, Fraction(1, 4)), (40, 40, Fraction(1, 8)), (60, 21, Fraction(2, 5)), (1, 0, Fraction(1, 3))]


@pytest.mark.parametrize(("users", "ones", "gamma"), CASES)
def test_the_variance_is_exact(users, ones, gamma):
    curve = errors(users, ones, gamma)
    assert sum(mass for _, mass in curve) == 1
    assert sum(error * mass for error, mass in curve) == 0
    exact = sum(error**2 * mass for error, mass in curve)
    claimed = sum_variance(users, float(gamma))
    assert claimed == pytest.approx(float(exact), rel=1e-12)
    assert claimed >= float(exact) * (1 - 1e-15)
    assert mean_variance(users, float(gamma)) == pytest.approx(float(exact) / users**2, rel=1e-12)


def exact_tail(curve, error):
    return float(sum(mass for found, mass in curve if abs(found) >= error))


@pytest.mark.parametrize(("users", "ones", "gamma"), CASES)
def test_the_tail_holds_at_every_error(users, ones, gamma):
    curve = errors(users, ones, gamma)
    for found, _ in curve:
        error = float(abs(found))
        assert exact_tail(curve, abs(found)) <= sum_tail(users, float(gamma), error)
        assert exact_tail(curve, abs(found)) <= mean_tail(users, float(gamma), error / users)


@pytest.mark.parametrize(("users", "ones", "gamma"), CASES)
@pytest.mark.parametrize("beta", [0.5, 0.1, 0.01, 1e-6])
def test_the_radius_holds(users, ones, gamma, beta):
    curve = errors(users, ones, gamma)
    radius = sum_radius(users, float(gamma), beta)
    assert exact_tail(curve, radius) <= beta
    assert mean_radius(users, float(gamma), beta) == pytest.approx(radius / users)
    assert sum_tail(users, float(gamma), radius) == pytest.approx(beta, rel=1e-9)


def test_the_bound_for_an_average_of_bits_fails():
    """The survey notes apply 2 exp(-2 N t^2), with t = sqrt(ln(1/beta) / (2 N)), to this estimator as it is."""
    users, ones, gamma, beta = 60, 21, Fraction(1, 8), 0.05
    radius = math.sqrt(math.log(1 / beta) / (2 * users))
    curve = errors(users, ones, gamma)
    assert exact_tail(curve, radius) > 0.9  # as the error of the number of ones
    mean_pmf = [(error / users, mass) for error, mass in curve]
    assert exact_tail(mean_pmf, radius) > 0.4  # as the error of their share: 1 / (2 gamma) is missing
    assert exact_tail(mean_pmf, mean_radius(users, float(gamma), beta)) <= beta
    # nor is 1 for 2 in the logarithm a bound: one user, whose estimate is off by 24.5 or 25.5
    tail = exact_tail(errors(1, 0, Fraction(1, 100)), 24.5)
    assert tail == 1
    assert math.exp(-8 * 0.01**2 * 24.5**2) < 0.7
    assert sum_tail(1, 0.01, 24.5) == 1


@given(st.floats(1e-6, 30))
def test_gamma_and_epsilon(epsilon):
    gamma = gamma_of_epsilon(epsilon)
    assert 0 < gamma < 0.5
    assert epsilon_of_gamma(gamma) == pytest.approx(epsilon, rel=1e-2 if epsilon > 20 else 1e-5)
    with mpmath.workdps(50):
        exact = 2 * mpmath.atanh(2 * mpmath.mpf(gamma))
        assert exact <= epsilon_of_gamma(gamma) <= exact * (1 + 1e-13)
        assert gamma <= mpmath.tanh(mpmath.mpf(epsilon) / 2) / 2
    if epsilon < 5:
        growth = math.exp(epsilon)
        assert sum_variance(100, gamma) == pytest.approx(100 * growth / (growth - 1) ** 2, rel=1e-4)


def test_the_protocol_agrees():
    from shuffledp.protocols.count.randomized_response import RandomizedResponse

    protocol = RandomizedResponse.calibrate(users=1000, epsilon=1.0, delta=1e-6)
    assert protocol.gamma == pytest.approx(gamma_of_epsilon(1.0), rel=1e-9)
    error = protocol.expected_error().rmse
    assert error**2 == pytest.approx(sum_variance(1000, protocol.gamma), rel=1e-9)


def test_extremes():
    assert sum_tail(10, 0.25, 0.0) == 1.0
    assert 0 < sum_tail(10, 0.25, 1e200) < 1e-300
    assert sum_tail(10, 0.25, math.inf) < 1e-300
    assert sum_radius(10**12, 0.25, 1e-9) == pytest.approx(2 * math.sqrt(10**12 * math.log(2e9) / 2))


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (gamma_of_epsilon, (0.0,)),
        (gamma_of_epsilon, (math.inf,)),
        (gamma_of_epsilon, (math.nan,)),
        (epsilon_of_gamma, (0.5,)),
        (epsilon_of_gamma, (0.0,)),
        (sum_variance, (0, 0.25)),
        (mean_variance, (0, 0.25)),
        (sum_variance, (10, 0.6)),
        (sum_tail, (10, 0.25, -1.0)),
        (sum_tail, (10, 0.25, math.nan)),
        (mean_tail, (0, 0.25, 1.0)),
        (mean_tail, (10, math.nan, 1.0)),
        (sum_radius, (10, 0.25, 0.0)),
        (mean_radius, (10, 0.25, 1.0)),
        (mean_radius, (0, 0.25, 0.5)),
    ],
)
def test_nonsense_is_refused(call, given):
    with pytest.raises(ParameterError, match=r"must|needed"):
        call(*given)
