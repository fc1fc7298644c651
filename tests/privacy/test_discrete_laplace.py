"""How private discrete Laplace noise is: against sums over outcomes in high precision, and its tails."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.composition import compose
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.randomness import Dyadic

mpmath.mp.dps = 40


def exact_masses(ratio: Dyadic, reach: int) -> list[Fraction]:
    a = ratio.fraction
    return [(1 - a) / (1 + a) * a ** abs(x) for x in range(-reach, reach + 1)]


def brute_force(ratio: Dyadic, move: int, epsilon: float, reach: int) -> Fraction:
    """The divergence over outcomes up to the reach: never above the truth."""
    masses = exact_masses(ratio, reach)
    growth = Fraction(math.exp(epsilon))
    pairs = zip(masses[move:], masses[:-move], strict=True)
    return sum((max(p - growth * q, Fraction(0)) for p, q in pairs), Fraction(0))


@settings(max_examples=60)
@given(numerator=st.integers(8, 250), move=st.integers(1, 6), epsilon=st.floats(0, 8))
def test_one_number_moved_equals_brute_force(numerator, move, epsilon):
    ratio = Dyadic(numerator, 8)
    reach = math.ceil(40 / decay_of(ratio)) + move if numerator < 200 else 60
    exact = brute_force(ratio, move, epsilon, reach)
    bound = DiscreteLaplaceCurve(ratio, move).delta_at(epsilon)
    assert Fraction(bound) >= exact
    if numerator < 200:
        assert bound <= float(exact) + 1e-12


@pytest.mark.parametrize("move", [1, 2, 3])
@pytest.mark.parametrize("numerator", [20, 128, 180])
def test_two_numbers_moved_equal_brute_force(numerator, move):
    ratio = Dyadic(numerator, 8)
    masses = np.array([float(mass) for mass in exact_masses(ratio, 130)])
    up, stay = masses[:-move], masses[move:]
    curve = DiscreteLaplaceCurve(ratio, move, coordinates=2)
    for epsilon in (0.0, 0.3, 1.0, 2.5, curve.pure_epsilon * 0.99):
        table = np.outer(up, stay) - math.exp(epsilon) * np.outer(stay, up)
        assert curve.delta_at(epsilon) == pytest.approx(float(table[table > 0].sum()), rel=1e-8, abs=1e-14)


def test_smaller_moves_are_less_visible():
    ratio = Dyadic.of(0.8)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        deltas = [DiscreteLaplaceCurve(ratio, move).delta_at(epsilon) for move in range(1, 12)]
        assert all(less <= more for less, more in pairwise(deltas))


def test_the_closed_form_of_a_count():
    ratio = least_ratio(1.0)
    for epsilon in (0.0, 0.2, 0.9):
        expected = (1 - math.exp(epsilon - 1)) / (1 + math.exp(-1))
        assert DiscreteLaplaceCurve(ratio).delta_at(epsilon) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0, 3.3, 10.0, 40.0])
@pytest.mark.parametrize(("sensitivity", "coordinates"), [(1, 1), (1, 2), (100, 1), (10**4, 1), (3, 2)])
def test_the_pure_epsilon_is_the_least_from_above(epsilon, sensitivity, coordinates):
    curve = DiscreteLaplaceCurve(least_ratio(epsilon, sensitivity, coordinates), sensitivity, coordinates)
    exact = (
        -sensitivity * coordinates * mpmath.log(mpmath.mpf(curve.ratio.numerator) / mpmath.mpf(2) ** curve.ratio.bits)
    )
    assert exact <= curve.pure_epsilon <= epsilon
    assert exact >= epsilon * (1 - (1e-7 if epsilon < 20 else 1e-3))
    assert curve.delta_at(curve.pure_epsilon) == 0.0
    assert curve.delta_at(epsilon) == 0.0
    assert curve.delta_at(epsilon * 0.999) > 0.0


def test_a_ratio_rounded_down_would_be_caught():
    """One unit in the last place less noise exceeds the pure epsilon."""
    ratio = least_ratio(1.0)
    less = Dyadic.of(math.nextafter(math.nextafter(float(ratio), 0), 0))
    assert DiscreteLaplaceCurve(less).pure_epsilon > 1.0


@pytest.mark.parametrize("ratio", [Dyadic.of(0.05), Dyadic.of(0.5), Dyadic.of(0.97)])
def test_tails_and_radii(ratio):
    noise = DiscreteLaplace(ratio)
    masses = [float(mass) for mass in exact_masses(ratio, 400)]
    assert noise.variance == pytest.approx(
        sum(x * x * m for x, m in zip(range(-400, 401), masses, strict=True)), rel=1e-3
    )
    assert noise.deviation**2 == pytest.approx(noise.variance)
    assert noise.mean == 0.0
    for k in range(-5, 6):
        assert noise.upper_tail(k) == pytest.approx(sum(masses[k + 400 :]), rel=1e-4)
        assert noise.upper_tail(k) + noise.upper_tail(1 - k) == pytest.approx(1.0)
    for risk in (1.0, 0.5, 0.05, 1e-6):
        radius = noise.radius(risk)
        assert 2 * noise.upper_tail(radius + 1) <= risk
        assert radius == 0 or 2 * noise.upper_tail(radius) > risk


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize("sensitivity", [1, 7])
def test_its_pairs_compose(sensitivity, coordinates):
    curve = DiscreteLaplaceCurve(least_ratio(1.0, sensitivity, coordinates), sensitivity, coordinates)
    (pairs,) = curve.directions(1e-16)
    assert len(pairs) == coordinates
    assert all(math.fsum(pair.p) == pytest.approx(1, abs=1e-12) for pair in pairs)
    composed = compose(curve, 3)
    assert composed.delta_at(3.1) <= 1e-12
    assert composed.delta_at(0.5) >= curve.delta_at(0.5)


def test_refusals():
    curve = DiscreteLaplaceCurve(Dyadic.of(0.5))
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ParameterError):
            curve.delta_at(epsilon)
    for ratio in (Dyadic(0), Dyadic(1, 0)):
        with pytest.raises(ParameterError):
            DiscreteLaplace(ratio)
    for wrong in ({"sensitivity": 0}, {"coordinates": 3}):
        with pytest.raises(ParameterError):
            DiscreteLaplaceCurve(Dyadic.of(0.5), **wrong)
    with pytest.raises(InfeasibleError):
        least_ratio(1e-12, 10**9)
    with pytest.raises(ParameterError):
        DiscreteLaplace(Dyadic.of(0.5)).radius(0.0)
