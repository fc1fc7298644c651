"""Pure sums: against exact fractions over all data of few users, the printed numbers, and a planted fault."""

import math
from fractions import Fraction

import pytest

import shuffledp.privacy.pure_sum as pure_sum
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.pure_sum import MAX_USERS, PureSum, falling_weights, least_error_sum
from shuffledp.randomness import Dyadic


def user_pmf(value, curve):
    mix = curve.mix.fraction
    masses = [mix * Fraction(w, 2**64) for w in curve.weights]
    masses[(curve.size - 1) // 2 + value] += 1 - mix
    return masses


def total_pmf(values, curve):
    total = [Fraction(1)]
    for value in values:
        mine = user_pmf(value, curve)
        new = [Fraction(0)] * (len(total) + curve.size)
        for i, x in enumerate(total):
            for j, y in enumerate(mine):
                new[i + j] += x * y
        total = new
    return total


def exact_epsilon(curve, holders=None):
    """The largest ratio over every number of ones among the others (or the given ones) and every total."""
    worst = Fraction(1)
    for k in range(curve.users) if holders is None else holders:
        others = [1] * k + [0] * (curve.users - 1 - k)
        zero, one = total_pmf([0, *others], curve), total_pmf([1, *others], curve)
        worst = max(worst, *(max(a / b, b / a) for a, b in zip(zero, one, strict=True)))
    return math.log(worst)


def pure(users, size, decay, noisy):
    return PureSum(users, falling_weights(size, decay), Dyadic.at_least(noisy / users))


@pytest.mark.parametrize("users", [2, 3, 4])
@pytest.mark.parametrize(("size", "decay", "noisy"), [(1, 0.5, 0.5), (3, 1.0, 0.7), (5, 0.7, 1.1)])
def test_certified_epsilon_is_the_exact_one_from_above(users, size, decay, noisy):
    curve = pure(users, size, decay, noisy)
    exact = exact_epsilon(curve)
    assert exact <= curve.certified_epsilon <= exact * (1 + 1e-7) + 1e-7
    assert curve.certified_epsilon <= curve.local_epsilon + 1e-6


@pytest.mark.parametrize(
    ("users", "decay", "noisy", "size", "epsilon", "error"),
    [(100, 0.425, 4, 19, 0.486, 6.3), (100, 0.85, 3, 11, 0.939, 2.98), (100, 1.7, 2, 7, 1.77, 1.46)],
)
def test_settings_as_printed(users, decay, noisy, size, epsilon, error):
    """Reference values, computed independently."""
    curve = pure(users, size, decay, noisy)
    assert curve.certified_epsilon == pytest.approx(epsilon, abs=0.006)
    assert math.sqrt(curve.variance) == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize(("honest", "epsilon"), [(50, 1.47), (10, 3.11)])
def test_fewer_honest_users_as_printed(honest, epsilon):
    curve = PureSum(honest, falling_weights(11, 0.85), Dyadic.of(0.03))
    assert curve.certified_epsilon == pytest.approx(epsilon, abs=0.006)


def test_far_totals_must_not_be_left_out():
    """The planted fault: totals near the middle only miss the largest ratio."""
    curve = pure(4, 3, 1.0, 0.4)
    zero, one = total_pmf([0, 0, 0, 0], curve), total_pmf([1, 0, 0, 0], curve)
    middle = len(zero) // 2
    near = max(abs(math.log(one[t] / zero[t])) for t in (middle, middle + 1))
    assert near < 0.9 * exact_epsilon(curve)


def test_cells_bound_every_number_of_ones():
    curve = pure(30, 7, 0.85, 2.5)
    for ones in range(30):
        assert pure_sum._cell_epsilon(curve, ones, 29 - ones) <= curve.certified_epsilon


def test_weights_are_exact_and_symmetric():
    weights = falling_weights(11, 0.85)
    assert sum(weights) == 2**64
    assert weights == weights[::-1]
    assert weights[5] / weights[4] == pytest.approx(math.exp(0.85), rel=1e-9)


def test_variance_is_exact():
    curve = pure(3, 3, 1.0, 0.6)
    total = total_pmf([1, 0, 1], curve)
    mean = sum(t * mass for t, mass in enumerate(total))
    exact = sum((t - mean) ** 2 * mass for t, mass in enumerate(total)) / (1 - curve.mix.fraction) ** 2
    assert curve.variance == pytest.approx(float(exact))


@pytest.mark.parametrize(
    ("users", "epsilon", "error"), [(20, 1.0, 2.5), (100, 1.0, 2.98), (100, 2.0, 1.46), (MAX_USERS, 1.0, 3.0)]
)
def test_calibration_meets_the_target(users, epsilon, error):
    """With no more error than the printed settings."""
    curve = least_error_sum(users, epsilon)
    assert curve.certified_epsilon <= epsilon
    assert math.sqrt(curve.variance) < error
    assert curve.delta_at(epsilon) == 0


def test_delta_is_that_of_the_worst_pure_distribution():
    curve = pure(20, 7, 0.85, 2)
    pure_epsilon = curve.certified_epsilon
    kept = 1 / (1 + math.exp(-pure_epsilon))
    for epsilon in (0.0, 0.3, 0.9):
        assert curve.delta_at(epsilon) == pytest.approx(kept - math.exp(epsilon) * (1 - kept))
    zero, one = total_pmf([0] * 20, curve), total_pmf([1] + [0] * 19, curve)
    growth = Fraction(math.exp(0.3))
    assert curve.delta_at(0.3) >= float(sum(max(a - growth * b, Fraction(0)) for a, b in zip(one, zero, strict=True)))


def test_limits_are_stated():
    with pytest.raises(InfeasibleError, match="certified for up to"):
        least_error_sum(10**6, 1.0)
    with pytest.raises(InfeasibleError, match="outcomes"):
        least_error_sum(MAX_USERS, 0.25)
    with pytest.raises(InfeasibleError, match="too few"):
        least_error_sum(3, 0.3)
    for wrong in (
        lambda: falling_weights(4, 1.0),
        lambda: falling_weights(5, 0.0),
        lambda: falling_weights(501, 5.0),
        lambda: pure(1, 3, 1.0, 0.5),
        lambda: pure(MAX_USERS + 1, 3, 1.0, 0.5),
        lambda: PureSum(5, (1, 2, 3, 4), Dyadic.of(0.5)),
        lambda: PureSum(5, (2**62, 2**62 + 1, 2**62 - 1, 2**62), Dyadic.of(0.5)),
        lambda: PureSum(5, falling_weights(3, 1.0), Dyadic.of(0.0)),
        lambda: pure(5, 3, 1.0, 0.5).delta_at(-1.0),
        lambda: pure(5, 3, 1.0, 0.5).delta_at(math.nan),
        lambda: least_error_sum(1, 1.0),
        lambda: least_error_sum(20, math.nan),
    ):
        with pytest.raises(ParameterError):
            wrong()
