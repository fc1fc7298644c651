"""Splitting and mixing: the distance against exact total variation over small groups, and the printed parameters."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.composition import compose
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, least_ratio
from shuffledp.privacy.split_and_mix import (
    SplitAndMixCurve,
    least_messages,
    least_modulus,
    mixing_distance,
    noise_margin,
    split_and_mix_noise,
)
from shuffledp.randomness import Dyadic


def share_pmf(value: int, modulus: int, messages: int) -> np.ndarray:
    """How often each non-zero element occurs among one user's shares, by listing all of them."""
    curve = np.zeros((messages + 1,) * (modulus - 1))
    for free in product(range(modulus), repeat=messages - 1):
        shares = (*free, (value - sum(free)) % modulus)
        curve[tuple(shares.count(element) for element in range(1, modulus))] += modulus ** -(messages - 1.0)
    return curve


def worst_distance(users: int, modulus: int, messages: int) -> float:
    """The largest total variation between the mixed shares of two inputs with the same sum, over all inputs."""
    size, axes = (users * messages + 1,) * (modulus - 1), tuple(range(modulus - 1))
    spectra = [np.fft.fftn(share_pmf(value, modulus, messages), s=size, axes=axes) for value in range(modulus)]
    by_sum: dict[int, list[np.ndarray]] = {}
    for counts in product(range(users + 1), repeat=modulus - 1):
        if sum(counts) <= users:
            zeros = users - sum(counts)
            spectrum = spectra[0] ** zeros
            for value, count in enumerate(counts, start=1):
                spectrum = spectrum * spectra[value] ** count
            total = sum(value * count for value, count in enumerate(counts, start=1)) % modulus
            by_sum.setdefault(total, []).append(np.fft.ifftn(spectrum, axes=axes).real.ravel())
    return max(
        float(np.abs(np.array(curves) - curve).sum(axis=1).max()) / 2 for curves in by_sum.values() for curve in curves
    )


@pytest.mark.parametrize("messages", [4, 5, 6])
@pytest.mark.parametrize("users", [19, 40, 100])
def test_distance_of_bits_is_above_the_exact_one(users, messages):
    exact = worst_distance(users, 2, messages)
    assert exact <= mixing_distance(users, 2, messages)
    assert exact > 1e-14


def test_distance_modulo_three_is_above_the_exact_one():
    assert worst_distance(19, 3, 4) <= mixing_distance(19, 3, 4)


def test_one_message_less_would_be_caught():
    """The exponent m - 1 holds on average only: over bits, 200 users with 3 shares each exceed it."""
    exact = worst_distance(200, 2, 3)
    assert exact == pytest.approx(2.05e-2, rel=0.01)
    assert exact > math.sqrt(2 * (math.e / 200) ** 2)


@pytest.mark.parametrize(("users", "bits", "messages"), [(10**4, 22, 8), (10**6, 32, 6)])
def test_printed_numbers_of_messages(users, bits, messages):
    curve = split_and_mix_noise(
        epsilon=1.0, delta=1e-6, users=users, levels=math.isqrt(users - 1) + 1, modulus=1 << bits
    )
    assert curve.messages == messages
    assert curve.delta_at(1.0) <= 1e-6
    assert mixing_distance(users, 1 << bits, messages - 1) > 1e-6
    assert least_messages(users, 1 << bits, math.log2(1e6)) == messages


def test_the_formula_of_messages():
    for users in (19, 100, 10**6):
        for modulus in (2, 1000, 2**40):
            for sigma in (1, 10.5, 40, 100):
                formula = math.ceil((2 * sigma + math.log2(modulus)) / math.log2(users / math.e)) + 2
                assert least_messages(users, modulus, sigma) == max(4, formula)


def test_delta_is_that_of_the_sum_and_of_mixing():
    ideal = DiscreteLaplaceCurve(least_ratio(1.0, 100), 100)
    curve = SplitAndMixCurve(ideal, 8, 1 << 22, 10**4)
    for epsilon in (0.0, 0.3, 0.9, 1.0, 5.0):
        assert curve.delta_at(epsilon) == pytest.approx(ideal.delta_at(epsilon) + curve.distance)
        assert curve.delta_at(epsilon) >= ideal.delta_at(epsilon) + curve.distance
    assert compose(curve, 2).delta_at(2.1) == pytest.approx(2 * curve.distance, rel=1e-3)


def test_all_of_a_small_round():
    """Bits, noise in Z_2, few users: the shares of the whole round never exceed the bound of the proof."""
    users, messages, a = 5, 4, 0.5
    odd_noise = 2 * a / (1 + a) ** 2  # of a discrete Laplace draw
    curves = [share_pmf(value, 2, messages) for value in (0, 1)]

    def mixed(ones: int) -> np.ndarray:
        result = np.ones(1)
        for user in range(users):
            result = np.convolve(result, curves[int(user < ones)])
        return result

    distance = worst_distance(users, 2, messages)
    for ones in range(users - 1):
        # a user with 0 carries the noise, another one is replaced
        before, after = ((1 - odd_noise) * mixed(n) + odd_noise * mixed(n + 1) for n in (ones, ones + 1))
        for epsilon in (0.0, 0.3, math.log(2)):
            exact = float(np.maximum(before - math.exp(epsilon) * after, 0).sum())
            ideal = DiscreteLaplaceCurve(Dyadic(1, 1)).delta_at(epsilon)
            assert exact <= ideal + distance + 1e-12


def test_the_sum_does_not_wrap():
    curve = split_and_mix_noise(epsilon=0.1, delta=1e-6, users=30, levels=5, honest_users=20)
    margin = noise_margin(curve.ideal.ratio, Fraction(3, 2), 1e-12)
    assert curve.modulus > 30 * 5 + 2 * margin
    assert curve.modulus == least_modulus(30, 5, margin)
    # of one whole share the tail is known
    for ratio in (0.3, 0.9, 0.999):
        for risk in (0.1, 1e-9):
            margin = noise_margin(Dyadic.of(ratio), Fraction(1), risk)
            assert 2 * ratio ** (margin + 1) / (1 + ratio) <= risk
            assert 2 * ratio ** (margin / 3) / (1 + ratio) > risk


@pytest.mark.parametrize("users", [19, 1000, 10**9])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-12), (1.0, 1e-6), (10.0, 1e-3)])
def test_calibrated_parameters_meet_the_target(users, epsilon, delta):
    curve = split_and_mix_noise(epsilon=epsilon, delta=delta, users=users, levels=100)
    assert curve.delta_at(epsilon) <= delta
    assert curve.ideal.pure_epsilon <= epsilon


def test_refusals():
    with pytest.raises(ConditionError, match="19"):
        split_and_mix_noise(epsilon=1.0, delta=1e-6, users=18, levels=5)
    with pytest.raises(ConditionError, match="4 messages"):
        mixing_distance(100, 16, 3)
    with pytest.raises(ParameterError):
        mixing_distance(100, 1, 4)
    with pytest.raises(ParameterError):
        split_and_mix_noise(epsilon=1.0, delta=1e-6, users=100, levels=5, modulus=500)
    with pytest.raises(ParameterError):
        split_and_mix_noise(epsilon=1.0, delta=1e-6, users=100, levels=5, honest_users=101)
    with pytest.raises(ParameterError):
        least_messages(100, 16, 0)
    with pytest.raises(InfeasibleError):
        least_messages(19, 1 << 2000, 1000)
