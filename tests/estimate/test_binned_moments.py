"""Mean and variance from counts of bins: exact counts, any position within a bin, and coverage under noise."""

import numpy as np
import pytest
from scipy.stats import binom

from shuffledp import find
from shuffledp.errors import ParameterError
from shuffledp.estimate.binned_moments import BinnedMoments

ALPHA = 1e-6
USERS, BINS = 150, 64


def without_noise(values, bins):
    """The moments of numbers from 0 to 1, counted exactly."""
    indices = np.minimum((values * bins).astype(int), bins - 1)
    counts = np.bincount(indices, minlength=bins).astype(float)
    return BinnedMoments(counts, len(values), lambda weights, risk: 0.0)


@pytest.mark.parametrize("position", [0.0, 0.5, 1 - 1e-9, None])
def test_numbers_anywhere_in_their_bins_are_covered(position):
    """Also at the ends of the bins, and at the outer ends of all of them, which moves the deviation the most."""
    rng = np.random.default_rng()
    for bins in (2, 3, 10, 100):
        indices = rng.integers(0, bins, 50)
        inside = (indices > indices.mean()) * (1 - 1e-9) if position is None else position
        values = (indices + inside) / bins
        moments = without_noise(values, bins)
        low, high = moments.mean_interval(0.05)
        assert low - 1e-12 <= values.mean() <= high + 1e-12
        assert high - low <= 1 / bins + 1e-12
        low, high = moments.deviation_interval(0.05)
        assert low - 1e-12 <= values.std() <= high + 1e-12
        assert high - low <= 1 / bins + 1e-12


def test_numbers_in_the_middle_of_their_bins_are_exact():
    values = (np.array([1, 1, 4, 9]) + 0.5) / 10
    moments = without_noise(values, 10)
    assert moments.mean == pytest.approx(values.mean())
    assert moments.variance == pytest.approx(values.var())


def test_uniform_numbers_have_a_twelfth():
    moments = without_noise((np.arange(1000) + 0.5) / 1000, 10)
    assert moments.variance + moments.variance_within == pytest.approx(1 / 12)


@pytest.mark.parametrize("centre", [0.0, 0.31, 1.0])
def test_errors_of_the_counts_move_the_variance_by_no_more(centre):
    """Whatever the errors of both weighted sums are, within their radii the true deviation is inside."""
    rng = np.random.default_rng()
    bins = 20
    middles = (np.arange(bins) + 0.5) / bins
    for _ in range(300):
        counts = rng.multinomial(500, rng.dirichlet(np.full(bins, 0.3))).astype(float)
        if centre in (0.0, 1.0):
            counts = np.zeros(bins)
            counts[-1 if centre else 0] = 500.0
        error = rng.normal(0, rng.choice([1.0, 10.0, 60.0]), bins)
        error -= error.mean()

        def radius(weights, _, error=error):
            return abs(float(weights @ error))  # just large enough for every sum that is asked for

        truth = (counts @ (middles - middles @ counts / 500) ** 2 / 500) ** 0.5
        low, high = BinnedMoments(counts + error, 500, radius).deviation_interval(0.05)
        assert low - 1e-9 <= truth <= high + 1e-9


@pytest.fixture(scope="module")
def rounds():
    """A protocol, true numbers, and a function that draws an estimate of them."""
    protocol = find("quantiles", "uniform-blanket").calibrate(
        users=USERS, epsilon=1.0, delta=1e-6, lower=-10, upper=54, bins=BINS, branching=(8, 8)
    )
    indices = np.random.default_rng(5).choice([3, 20, 21, 22, 40, 60], USERS)
    counts = np.bincount(indices, minlength=BINS)
    return indices + 0.5 - 10, lambda: protocol.estimate(protocol.sample_tally(counts))


def covered(rounds, times, narrower=1.0):
    """How often the mean, the variance and the standard deviation lie in their 95 per cent intervals."""
    values, draw = rounds
    inside = np.zeros(3, dtype=int)
    for _ in range(times):
        estimate = draw()
        radius_of = estimate.radius_of
        object.__setattr__(estimate, "radius_of", lambda weights, risk, f=radius_of: f(weights, risk) / narrower)
        numbers = estimate.mean(), estimate.variance(), estimate.standard_deviation()
        truth = values.mean(), values.var(), values.std()
        inside += [number.low <= true <= number.high for number, true in zip(numbers, truth, strict=True)]
        assert all(number.low <= number.value <= number.high for number in numbers)
    return inside


def test_some_intervals_cover(rounds):
    enough = binom.ppf(ALPHA, 40, 0.95)
    assert (covered(rounds, 40) >= enough).all()
    assert (covered(rounds, 40, narrower=1e6) < enough).all()  # planted: the noise is forgotten


@pytest.mark.slow
def test_intervals_cover(rounds):
    times = 300
    enough = binom.ppf(ALPHA, times, 0.95)
    assert (covered(rounds, times) >= enough).all()
    assert (covered(rounds, times, narrower=4) < enough).all()  # planted: a quarter of the width


def test_bounds_are_the_widest_intervals(rounds):
    estimate = rounds[1]()
    number = estimate.variance(1 - 1e-12)
    assert 0 <= number.low <= number.high <= 32**2
    mean = estimate.mean(1 - 1e-12)
    assert -10 <= mean.low <= mean.high <= 54
    for confidence in (0, 1, float("nan")):
        with pytest.raises(ParameterError):
            estimate.variance(confidence)


def test_the_json_form(rounds):
    estimate = rounds[1]()
    document = estimate.to_json(confidence=0.9)
    for name in ("mean", "variance", "standard_deviation"):
        number = getattr(estimate, name)(0.9)
        assert document[name] == {"value": number.value, "interval": [number.low, number.high]}
