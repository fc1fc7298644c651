"""The binomial distribution itself: masses, tails and quantiles against exact rationals and mpmath."""

from fractions import Fraction
from itertools import accumulate
from math import comb

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import Dyadic


def exact_masses(trials: int, rate: Fraction) -> list[Fraction]:
    return [comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1)]


@settings(max_examples=100)
@given(trials=st.integers(1, 80), numerator=st.integers(1, 4095))
def test_masses_tails_and_quantiles(trials, numerator):
    curve = Binomial(trials, Dyadic(numerator, 12))
    masses = exact_masses(trials, Fraction(numerator, 4096))
    points = np.arange(-1, trials + 2)
    assert curve.pmf(points) == pytest.approx([0.0, *map(float, masses), 0.0], rel=1e-12)
    below = list(accumulate(masses))
    assert curve.lower_tail(np.arange(trials + 1)) == pytest.approx(list(map(float, below)), rel=1e-12)
    above = list(accumulate(reversed(masses)))[::-1]
    assert curve.upper_tail(np.arange(trials + 1)) == pytest.approx(list(map(float, above)), rel=1e-12)
    for level in (1e-6, 0.025, 0.3, 0.7, 0.975):
        found = curve.least_with_lower_tail(level)
        assert below[found] >= level * (1 - 1e-12)
        assert found == 0 or below[found - 1] < level * (1 + 1e-12)


@pytest.mark.parametrize(
    ("trials", "mean"), [(10**6, 300.0), (10**6, 3e5), (10**9, 34.0), (10**9, 1e4), (10**12, 34.0)]
)
@pytest.mark.parametrize("steps", [-8, -3, 0, 3, 8, 30])
def test_masses_far_out_for_many_trials(trials, mean, steps):
    """Relative accuracy against forty digits, where the mass may be as small as 1e-200."""
    curve = Binomial(trials, Dyadic.at_least(mean / trials))
    k = round(curve.mean + steps * curve.deviation)
    if not 0 <= k <= trials:
        return
    with mpmath.workdps(60):
        rate = mpmath.mpf(curve.probability.numerator) / 2**64
        log_mass = (
            mpmath.loggamma(trials + 1)
            - mpmath.loggamma(k + 1)
            - mpmath.loggamma(trials - k + 1)
            + k * mpmath.log(rate)
            + (trials - k) * mpmath.log1p(-rate)
        )
        truth = mpmath.exp(log_mass)
        error = abs(float(curve.pmf(k)) / truth - 1)
    assert error <= float(curve.tail_error(k)) / 5


def test_moments():
    curve = Binomial(1000, Dyadic(1, 2))
    assert (curve.mean, curve.variance) == (250.0, 187.5)
    assert curve.mirrored.mean == 750.0


@pytest.mark.parametrize(("trials", "numerator"), [(0, 1), (-3, 1), (5, 0), (5, 4)])
def test_degenerate_distributions_are_refused(trials, numerator):
    with pytest.raises(ParameterError):
        Binomial(trials, Dyadic(numerator, 2))
