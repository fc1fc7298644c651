"""The accountant of the studies is exact: against all outcomes in rational arithmetic, and against many digits."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import pytest

from shuffledp.lab.studies.integer_accountant import (
    BinomialTable,
    count_delta,
    enumerated_delta,
    exponential_bounds,
    histogram_delta,
    no_token_omitted,
)


def pmf(users, absence):
    return {k: math.comb(users, k) * absence**k * (1 - absence) ** (users - k) for k in range(users + 1)}


def divergence(first, second, ratio):
    return sum(max(Fraction(0), mass - ratio * second.get(outcome, 0)) for outcome, mass in first.items())


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 7.3])
def test_bounds_of_the_exponential(epsilon):
    low, high = exponential_bounds(epsilon)
    with mpmath.workdps(80):
        assert mpmath.mpf(low) <= mpmath.exp(epsilon) * mpmath.mpf(2) ** 128 <= mpmath.mpf(high)
    assert high - low <= 3


@pytest.mark.parametrize(("users", "absence"), [(1, Fraction(1, 4)), (9, Fraction(1, 3)), (30, Fraction(5, 64))])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_delta_is_that_of_all_outcomes(users, absence, epsilon):
    noise = pmf(users, absence)
    up, down = ({k + step: mass for k, mass in noise.items()} for step in (1, -1))
    low, high = (Fraction(bound, 1 << 128) for bound in exponential_bounds(epsilon))
    exact = max(divergence(noise, up, high), divergence(noise, down, high))
    found = count_delta(users, absence, epsilon)
    assert found.low <= exact <= found.high
    assert found.high == pytest.approx(float(exact), rel=1e-12)
    joint = {(a, b): noise[a] * noise[b] for a, b in product(noise, repeat=2)}
    moved = {(a - 1, b + 1): mass for (a, b), mass in joint.items()}
    found = histogram_delta(users, absence, epsilon)
    assert divergence(joint, moved, high) <= Fraction(found.high)
    assert Fraction(found.low) <= divergence(joint, moved, low)
    assert found.high == pytest.approx(float(divergence(joint, moved, high)), rel=1e-12)


@pytest.mark.parametrize(("users", "categories", "values"), [(5, 1, 2), (4, 2, 2), (3, 3, 3)])
def test_enumeration_agrees_with_the_changed_counts(users, categories, values):
    absence = Fraction(1, 5)
    listed = enumerated_delta(users, absence, 0.7, categories, values)
    summed = (count_delta if categories == 1 else histogram_delta)(users, absence, 0.7)
    assert listed.high == pytest.approx(summed.high, rel=1e-14)
    assert listed.low <= summed.high
    assert summed.low <= listed.high


def test_tails_far_out():
    noise = BinomialTable(10**6, Fraction(34, 10**6))
    with mpmath.workdps(60):
        q = mpmath.mpf(34) / 10**6
        exact = mpmath.nsum(lambda k: mpmath.binomial(10**6, k) * q**k * (1 - q) ** (10**6 - k), [100, 200])
    assert noise.at_least(100).high == pytest.approx(float(exact), rel=1e-12)
    assert noise.at_most(99).low == pytest.approx(1.0)
    assert noise.at_most(-1).high < 1e-300
    assert noise.at_least(0).low == 1.0
    assert sum(noise.probabilities) == pytest.approx(1.0)
    assert float(noise.mean) == 34.0


def test_half_the_noise_has_another_delta():
    """The number that a wrong constant, or a wrong accountant, would have to hide."""
    right = count_delta(10**6, Fraction(3407, 10**8), 1.0)
    assert right.low < 1.1e-6
    assert count_delta(10**6, Fraction(3407, 2 * 10**8), 1.0).low > 100 * right.high


def test_nobody_omits_a_token():
    assert no_token_omitted(20, Fraction(1, 32)) == Fraction(31**20, 32**20)
