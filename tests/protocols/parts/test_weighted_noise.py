"""Bounds on the tails of weighted noise, against exact distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import multinomial, nbinom

from shuffledp.protocols.parts.weighted_noise import LaplaceCells, UniformMessages, WeightedNoise, bernstein_radius
from shuffledp.randomness import Dyadic

RISKS = [0.3, 0.05, 1e-2, 1e-3, 1e-4]


def uniform_case(messages, coefficients):
    """The noise, and its exact distribution by enumeration: values and masses."""
    cells = len(coefficients)
    outcomes = [o for o in itertools.product(range(messages + 1), repeat=cells) if sum(o) == messages]
    masses = np.array([multinomial.pmf(o, messages, [1 / cells] * cells) for o in outcomes])
    values = (np.array(outcomes) - messages / cells) @ np.array(coefficients)
    return WeightedNoise((UniformMessages(messages, cells),), [np.array(coefficients)]), values, masses


def laplace_case(ratio, coefficients, reach=120):
    grid = np.arange(-reach, reach + 1)
    one = ratio ** np.abs(grid) * (1 - ratio) / (1 + ratio)
    values = np.add.outer(coefficients[0] * grid, coefficients[1] * grid).ravel()
    masses = np.multiply.outer(one, one).ravel()
    return WeightedNoise((LaplaceCells(Dyadic.of(ratio)),), [np.array(coefficients)]), values, masses


def shares_case(ratio, shares, coefficients, reach=60):
    """Differences of two negative binomial numbers whose shape is not 1."""
    masses = nbinom.pmf(np.arange(reach), shares, 1 - ratio)
    one, grid = np.convolve(masses, masses[::-1]), np.arange(1 - reach, reach)
    values = np.add.outer(coefficients[0] * grid, coefficients[1] * grid).ravel()
    return (
        WeightedNoise((LaplaceCells(Dyadic.of(ratio), shares),), [np.array(coefficients)]),
        values,
        np.multiply.outer(one, one).ravel(),
    )


CASES = {
    "few messages": uniform_case(12, [0.75, -0.25, -0.5]),
    "many messages": uniform_case(60, [1.0, -0.4, -0.6]),
    "two cells": uniform_case(200, [0.5, -0.5]),
    "laplace": laplace_case(0.75, [0.8, -0.3]),
    "many shares": shares_case(0.5, 1.7, [0.8, -0.3]),
    "few shares": shares_case(0.6, 0.4, [1.0, 0.4]),
    "narrow laplace": laplace_case(0.25, [1.0, 0.1]),
}


def larger_side(values, masses, radius):
    """The probability of the likelier side beyond the radius."""
    far = 1e-9
    return max(masses[values > radius + far].sum(), masses[values < -radius - far].sum())


@pytest.mark.parametrize("case", CASES)
def test_variances(case):
    noise, values, masses = CASES[case]
    assert noise.variance == pytest.approx(float(masses @ values**2 - (masses @ values) ** 2), rel=1e-6)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("risk", RISKS)
def test_neither_side_is_likelier_than_half_of_the_risk(case, risk):
    noise, values, masses = CASES[case]
    assert larger_side(values, masses, noise.radius(risk)) <= risk / 2
    tail = noise.noises[0].tail
    assert larger_side(values, masses, float(bernstein_radius(np.array(noise.variance), tail, risk))) <= risk / 2


@pytest.mark.parametrize("case", ["many messages", "two cells", "laplace"])
def test_the_radius_is_nearly_the_least(case):
    """A radius shorter by a tenth (and by a step of the lattice) does not hold: the test above can fail."""
    noise, values, masses = CASES[case]
    step = 1.0 if case == "two cells" else 0.3
    assert larger_side(values, masses, 0.9 * noise.radius(0.05) - step) > 0.05 / 2


def test_nothing_is_risked_where_there_is_no_noise():
    assert WeightedNoise((UniformMessages(0, 4),), [np.array([1.0, 0, 0, -1.0])]).radius(0.05) == 0
    assert math.isfinite(WeightedNoise((UniformMessages(5, 2),), [np.array([0.5, -0.5])]).radius(1e-12))
