"""The central histogram: reference numbers, exact noise, predicted against measured errors, bad input."""

import math

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.protocols.histogram.discrete_laplace import DiscreteLaplaceHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value


@pytest.mark.parametrize(("domain_size", "largest"), [(16, 11.0), (1000, 20.0), (100_000, 29.0), (10**7, 38.0)])
def test_the_numbers_of_the_specification(domain_size, largest):
    protocol = DiscreteLaplaceHistogram.calibrate(users=10**6, domain_size=domain_size, epsilon=1.0, delta=1e-6)
    error = protocol.expected_error()
    assert error.rmse == pytest.approx(2.80, abs=0.005)
    assert error.max_error == pytest.approx(largest, abs=1e-4)


def test_it_is_purely_private():
    protocol = DiscreteLaplaceHistogram.calibrate(users=100, domain_size=3, epsilon=0.7, delta=1e-6)
    guarantee = protocol.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.trust) == (0.7, 0.0, "central")
    assert guarantee.delta_at(0.7) == 0
    assert math.isclose(-2 * math.log(float(protocol.ratio)), 0.7, rel_tol=1e-12)
    assert math.isinf(guarantee.local_epsilon)
    with pytest.raises(ParameterError, match="more than the claimed"):
        DiscreteLaplaceHistogram(Target(100, 0.69, 0.0), protocol.ratio, 3).guarantee  # noqa: B018


def test_the_noise_has_its_distribution():
    """200,000 draws against the whole table; a ratio off by two per cent is rejected. alpha = 1e-7."""
    protocol = DiscreteLaplaceHistogram.calibrate(users=2, domain_size=200_000, epsilon=1.0, delta=1e-6)
    noise = protocol.sample_tally(np.zeros(200_000, dtype=np.int64)).counts
    seen = np.bincount(np.clip(noise + 30, 0, 60), minlength=61)
    for ratio, right in ((float(protocol.ratio), True), (1.02 * float(protocol.ratio), False)):
        pmf = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-30.0, 31))
        pmf[[0, -1]] /= 1 - ratio
        assert (p_value(seen, pmf) > ALPHA) == right


def test_predicted_errors_and_intervals_hold():
    """100,000 errors: 2.5 % is five deviations of their mean square."""
    protocol = DiscreteLaplaceHistogram.calibrate(users=1000, domain_size=100_000, epsilon=1.0, delta=1e-6)
    counts = np.zeros(100_000, dtype=np.int64)
    counts[:500] = 2
    estimate = protocol.run(np.repeat(np.arange(500), 2))
    errors = estimate.counts - counts
    assert np.mean(errors**2) == pytest.approx(protocol.expected_error(counts=counts).rmse ** 2, rel=0.04)
    low, high = estimate.interval(0.9).T
    assert np.mean((low <= counts) & (counts <= high)) > 0.9


def test_bad_input():
    protocol = DiscreteLaplaceHistogram(Target(3, 2.0, 0.0), Dyadic(1, 1), 2)
    tally = protocol.tally(protocol.randomize_all(np.array([0, 1, 1])))
    assert tally.counts.tolist() == [1, 2]
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(tally)
    released = protocol.release(tally)
    with pytest.raises(ParameterError, match="already released"):
        protocol.release(released)
    with pytest.raises(ParameterError, match="too many outcomes"):
        DiscreteLaplaceHistogram(Target(3, 2.0, 0.0), Dyadic(1, 1), 9).release_pmf(
            DiscreteLaplaceHistogram(Target(3, 2.0, 0.0), Dyadic(1, 1), 9).tally(protocol.randomize_all(np.array([0])))
        )
    assert (
        len(DiscreteLaplaceHistogram.calibrate(users=2, domain_size=1, epsilon=1.0, delta=0.1).run([0, 0]).counts) == 1
    )
