"""Radii from the exact tail of the noise of sums, with and without rounding."""

import math

import numpy as np
import pytest
from scipy import stats

from shuffledp.protocols.sum.levels import RoundedNoise
from shuffledp.protocols.sum.noise_tails import exact_radius

CASES = [(0.1, 1.06), (0.5, 0.3), (2.0, 1.2), (0.05, 3.7), (0.02, 1.0)]


def tail(decay, shape, radius):
    """Pr[|N| > radius] by SciPy's negative binomial distribution."""
    noise = stats.nbinom(shape, -math.expm1(-decay))
    k = np.arange(int(60 * (1 + shape) / decay))
    return 2 * float(np.dot(noise.pmf(k), noise.sf(k + math.floor(radius))))


@pytest.mark.parametrize(("decay", "shape"), CASES)
@pytest.mark.parametrize("risk", [0.5, 0.05, 1e-4])
def test_the_radius_is_the_least(decay, shape, risk):
    radius = exact_radius(decay, shape, 0, risk)
    assert tail(decay, shape, radius) <= risk
    assert tail(decay, shape, radius - max(1, radius / 50)) > risk


@pytest.mark.parametrize(("decay", "shape"), CASES)
def test_rounding_is_covered(decay, shape):
    """All users half-way between two levels: at alpha = 1e-9; half the radius must be rejected."""
    draw, users, rounds = np.random.default_rng(), 150, 40_000
    ratio = -math.expm1(-decay)
    errors = draw.negative_binomial(shape, ratio, rounds) - draw.negative_binomial(shape, ratio, rounds)
    errors = errors + draw.binomial(users, 0.5, rounds) - users / 2
    radius, most = exact_radius(decay, shape, users, 0.05), stats.binom.isf(1e-9, rounds, 0.05)
    assert np.count_nonzero(np.abs(errors) > radius) <= most
    assert np.count_nonzero(np.abs(errors) > radius / 2) > most


def test_more_users_than_planned_hardly_widen_an_interval():
    """The Chernoff bounds were twice as wide for a shape just above 1."""
    planned = RoundedNoise(0.1, 13, 146).radius(0.05, 0.0)
    assert planned < RoundedNoise(0.1, 13, 146, shape=1.06).radius(0.05, 0.0) < 1.25 * planned


def test_very_long_tails_and_tiny_risks_are_left_to_the_chernoff_bounds():
    assert exact_radius(1e-9, 1.5, 0, 0.05) == math.inf
    assert exact_radius(0.1, 1.5, 0, 1e-12) == math.inf
    assert RoundedNoise(1e-9, 1, 10, shape=1.5).radius(0.05, 0.0) < math.inf
