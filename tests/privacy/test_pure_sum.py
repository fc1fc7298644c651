"""Pure sums: against exact fractions over all data of few users, the printed numbers, and a planted fault."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

import shuffledp.privacy.pure_sum as pure_sum
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.pure_sum import MAX_ENUMERATED, MAX_WEIGHTS, PureSum, falling_weights
from shuffledp.privacy.pure_sum_search import least_error_sum
from shuffledp.privacy.pure_sum_slots import SlotCertificate
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
    ("users", "epsilon", "error"),
    [(2, 7.9, 0.0273), (20, 1.0, 1.95), (100, 1.0, 1.96), (100, 6.0, 0.1235), (250, 1.0, 1.97), (10**6, 1.0, 1.98)],
)
def test_calibration_meets_the_target(users, epsilon, error):
    """With the error that was measured; before, it was 0.0628, 2.4, 2.7, 0.384, 2.73 and 173."""
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


def integer_epsilon(others, holders, half, bits, noisy):
    """The largest |ln(ratio)| over all totals, exactly: polynomials as integers (Kronecker), no floating point.

    ``half`` are the weights above the middle over 2^bits, and so is ``noisy``, the probability of noise.
    """
    weights = [*reversed(half), *half]
    slot = (others + 1) * 2 * bits + 8  # bits of a coefficient
    zero = [noisy * weight for weight in weights]
    zero[len(half) - 1] += ((1 << bits) - noisy) << bits
    packed_zero = sum(mass << (slot * index) for index, mass in enumerate(zero))
    packed_one = sum(mass << (slot * index) for index, mass in enumerate(reversed(zero)))
    rest = packed_zero ** (others - holders) * packed_one**holders
    without, with_one = rest * packed_zero, rest * packed_one
    mask, worst = (1 << slot) - 1, Fraction(1)
    for index in range((others + 1) * (len(weights) - 1) + 1):
        a, b = (number >> (slot * index) & mask for number in (without, with_one))
        worst = max(worst, Fraction(a, b), Fraction(b, a))
    return math.log(worst)


def slots(others, half, bits, count):
    return SlotCertificate(others, np.array(half) / 2.0**bits, count)


@pytest.mark.parametrize("others", [3, 7, 14])
@pytest.mark.parametrize("count", [1, 2, 5, 14])
def test_slots_are_never_below_the_exact_epsilon(others, count):
    """Random noise, not only of the shapes that calibration chooses; exact for every K if there are enough slots."""
    draw = random.Random(others * 100 + count)
    for _ in range(6):
        half = [draw.randrange(1, 30) for _ in range(draw.randrange(1, 5))]
        half.insert(draw.randrange(len(half) + 1), 128 - sum(half))
        noisy = draw.randrange(1, 150)
        exact = max(integer_epsilon(others, holders, half, 8, noisy) for holders in range(others + 1))
        bound = slots(others, half, 8, count).epsilon(noisy / 256)
        assert exact <= bound
        if count >= others:
            assert bound <= exact * (1 + 1e-8) + 1e-8


@pytest.mark.parametrize(
    ("others", "half", "noisy"),
    [(90, (72, 40, 12, 3, 1), 5), (110, (62, 40, 14, 7, 4, 1), 4), (120, (100, 20, 6, 2), 4)],
)
def test_slots_are_close_for_many_users(others, half, noisy):
    """More users than slots, at several K, within one per cent."""
    exact = max(integer_epsilon(others, holders, half, 8, noisy) for holders in (0, others // 3, others // 2, others))
    bound = slots(others, half, 8, 32).epsilon(noisy / 256)
    assert exact <= bound <= 1.01 * exact


def test_data_of_both_values_must_not_be_left_out():
    """The planted fault: if all others hold the same value, epsilon is 1.3 % less than for the worst data."""
    others, half, noisy = 6, (23, 85, 20), 59
    exact = max(integer_epsilon(others, holders, half, 8, noisy) for holders in range(others + 1))
    certificate = slots(others, half, 8, 6)
    assert certificate.epsilon(noisy / 256, ones=(0,)) < 0.99 * exact <= certificate.epsilon(noisy / 256)


def test_what_is_not_a_number_is_never_certified():
    half = np.array([0.5 - 1e-30, 1e-30])
    for mix in (1e-300, 1 - 2.0**-53, 0.5):
        assert SlotCertificate(10**15, half).epsilon(mix) > 10
    assert SlotCertificate(10**6, np.array([math.nan, 0.2])).epsilon(0.1) == math.inf
    with pytest.raises(ConditionError, match="No epsilon"):
        PureSum(10**6, (1, 2**63 - 1, 2**63 - 1, 1), Dyadic(1, 1000)).certified_epsilon  # noqa: B018


def test_more_users_than_enumerated_have_one_bound_on_both_sides_of_the_limit():
    curves = [PureSum(users, falling_weights(15, 0.85), Dyadic.of(0.011)) for users in (MAX_ENUMERATED, 251)]
    few, many = (curve.certified_epsilon for curve in curves)
    assert many == pytest.approx(few, rel=0.02)


def test_limits_are_stated():
    with pytest.raises(InfeasibleError, match="too few"):
        least_error_sum(3, 0.3)
    with pytest.raises(InfeasibleError, match="calibrated for epsilon from"):
        least_error_sum(100, 0.1)
    assert least_error_sum(10**15, 1.0).users == 10**9
    for wrong in (
        lambda: falling_weights(4, 1.0),
        lambda: falling_weights(5, 0.0),
        lambda: falling_weights(501, 5.0),
        lambda: pure(1, 3, 1.0, 0.5),
        lambda: pure(10**6, MAX_WEIGHTS + 1, 0.05, 3.0),
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
