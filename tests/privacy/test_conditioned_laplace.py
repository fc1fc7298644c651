"""Noise of total 0: reference errors, the privacy curve against enumeration, tails, composition, bad input."""

import math
from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.conditioned_laplace import ConditionedLaplace, ConditionedLaplaceCurve, sum_masses
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.randomness import Dyadic

ERRORS = {2: 1.357, 3: 1.7785, 4: 2.007, 8: 2.380, 12: 2.5135, 32: 2.689, 100: 2.764, 1000: 2.796}


@pytest.mark.parametrize(("categories", "error"), ERRORS.items())
def test_reference_errors(categories, error):
    assert ConditionedLaplace(least_ratio(1.0, coordinates=2), categories).deviation == pytest.approx(error, rel=2.5e-4)


def enumerated(ratio, categories, reach):
    """The exact distribution of the noise, as an array over all but the last number."""
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * (categories - 1), indexing="ij")
    size = sum(np.abs(axis) for axis in axes) + np.abs(sum(axes))
    weights = float(ratio) ** size
    return axes, weights / weights.sum()


@pytest.mark.parametrize(("categories", "ratio"), [(2, 0.6), (3, 0.55), (4, 0.3), (5, 0.2)])
def test_marginals_and_privacy_losses_are_those_of_the_enumeration(categories, ratio):
    """The guarantee: of all pairs of categories and both directions, never below and within a relative 1e-6."""
    noise = Dyadic.of(ratio)
    reach = 70 if categories <= 3 else 20 if categories == 4 else 10
    axes, masses = enumerated(noise, categories, reach)
    exact = ConditionedLaplace(noise, categories)
    for k in range(6):
        assert masses[axes[0] == k].sum() == pytest.approx(exact.masses[k], rel=1e-5)
        assert masses[axes[0] >= k].sum() == pytest.approx(exact.upper_tail(k), rel=1e-5)
        assert masses[axes[0] <= -k].sum() == pytest.approx(exact.lower_tail(-k), rel=1e-5)
    curve = ConditionedLaplaceCurve(noise, categories)
    other = axes[1] if categories > 2 else -axes[0]
    loss = (np.abs(axes[0] + 1) + np.abs(other - 1) - np.abs(axes[0]) - np.abs(other)) * decay_of(noise)
    assert loss.max() <= curve.pure_epsilon
    for epsilon in (0.0, 0.1, 0.5, 0.9 * curve.pure_epsilon):
        delta = float((masses * np.maximum(0, -np.expm1(epsilon - loss))).sum())
        claimed = curve.delta_at(epsilon)
        assert delta * (1 - 1e-6) <= claimed <= delta * (1 + 1e-5)
        assert claimed == pytest.approx(curve.directions(0.0)[0][0].delta(epsilon), rel=1e-6)
    assert curve.delta_at(curve.pure_epsilon) == 0


def test_sums_are_convolutions():
    """Both methods against repeated convolution, up to far tails."""
    ratio = Dyadic.of(0.625)
    reach = 120
    one = 0.375 / 1.625 * 0.625 ** np.abs(np.arange(-2000, 2001))
    total = np.array([1.0])
    for terms in range(1, 9):
        total = np.convolve(total, one)
        middle = len(total) // 2
        assert np.allclose(sum_masses(ratio, terms, reach), total[middle : middle + reach + 1], rtol=1e-10, atol=0)
    assert sum_masses(ratio, 0, 2).tolist() == [1, 0, 0]
    for terms in (199, 200, 201, 202):  # the methods change at 200
        few, many = sum_masses(ratio, terms, reach), sum_masses(ratio, terms + 1, reach)
        assert np.all(many[:5] < few[:5])
        assert np.all(many[:5] > 0.99 * few[:5])


def test_it_has_less_noise_than_independent_numbers_and_the_same_epsilon():
    for epsilon in (0.05, 0.7, 3.0):
        ratio = least_ratio(epsilon, coordinates=2)
        independent = DiscreteLaplace(ratio)
        for categories in (2, 3, 10, 500):
            conditioned = ConditionedLaplace(ratio, categories)
            assert conditioned.variance < independent.variance
            curve = ConditionedLaplaceCurve(ratio, categories)
            assert curve.pure_epsilon == DiscreteLaplaceCurve(ratio, coordinates=2).pure_epsilon <= epsilon
            for risk in (0.3, 1e-3, 1e-9):
                radius = conditioned.radius(risk)
                assert 2 * conditioned.upper_tail(radius + 1) <= risk
                assert radius == 0 or 2 * conditioned.upper_tail(radius) > risk


def test_two_categories_are_a_count():
    ratio, squared = Dyadic.of(0.75), Dyadic.of(0.5625)
    pair, count = ConditionedLaplaceCurve(ratio, 2), DiscreteLaplaceCurve(squared)
    for epsilon in (0.0, 0.2, 0.5):
        assert pair.delta_at(epsilon) == pytest.approx(count.delta_at(epsilon), rel=1e-6)
    assert ConditionedLaplace(ratio, 2).variance == pytest.approx(DiscreteLaplace(squared).variance, rel=1e-12)


def test_one_category_has_nothing_to_hide():
    alone = ConditionedLaplace(Dyadic.of(0.5), 1)
    assert (alone.variance, alone.upper_tail(1), alone.upper_tail(0), alone.lower_tail(-1)) == (0, 0, 1, 0)
    assert ConditionedLaplaceCurve(Dyadic.of(0.5), 1).delta_at(0.0) == 0


def test_the_distribution_is_complete():
    for categories, epsilon in product((2, 7, 150, 201, 5000), (0.02, 1.0, 30.0)):
        noise = ConditionedLaplace(least_ratio(epsilon, coordinates=2), categories)
        total = 2 * math.fsum(noise.masses) - noise.masses[0]
        assert total == pytest.approx(1, abs=1e-12)
        assert noise.upper_tail(-3) == pytest.approx(1 - noise.upper_tail(4), abs=1e-7)
        assert 0 < noise.upper_tail(10 * len(noise.masses)) < 1e-20 or epsilon == 30.0


def test_extreme_parameters_are_refused():
    for categories in (0, -3):
        with pytest.raises(ParameterError):
            ConditionedLaplaceCurve(Dyadic.of(0.5), categories)
        with pytest.raises(ParameterError):
            ConditionedLaplace(Dyadic.of(0.5), categories)
    slow = Dyadic((1 << 60) - 1, 60)
    with pytest.raises((ConditionError, ParameterError)):
        ConditionedLaplaceCurve(slow, 3).delta_at(0.0)
    with pytest.raises((ConditionError, ParameterError)):
        ConditionedLaplaceCurve(Dyadic.of(1 - 2.0**-16), 10**12).delta_at(0.0)
    with pytest.raises(ParameterError, match="risk"):
        ConditionedLaplace(Dyadic.of(0.5), 3).radius(0.0)
