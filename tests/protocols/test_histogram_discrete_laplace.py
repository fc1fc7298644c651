"""The central histogram: reference numbers, exact noise, predicted against measured errors, bad input."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.histogram.discrete_laplace import DiscreteLaplaceHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value


@pytest.mark.parametrize(("domain_size", "largest"), [(16, 11.0), (1000, 20.0), (100_000, 29.0), (10**7, 38.0)])
def test_reference_errors_of_independent_noise(domain_size, largest):
    protocol = DiscreteLaplaceHistogram.calibrate(
        users=10**6, domain_size=domain_size, epsilon=1.0, delta=1e-6, conditioned=False
    )
    error = protocol.expected_error()
    assert error.rmse == pytest.approx(2.80, abs=0.005)
    assert error.max_error == pytest.approx(largest, abs=1e-4)


@pytest.mark.parametrize(("domain_size", "rmse"), [(2, 1.357), (3, 1.7785), (12, 2.5135), (1000, 2.796)])
def test_reference_errors_of_noise_of_total_0(domain_size, rmse):
    protocol = DiscreteLaplaceHistogram.calibrate(users=10**6, domain_size=domain_size, epsilon=1.0, delta=1e-6)
    assert protocol.conditioned
    assert protocol.expected_error().rmse == pytest.approx(rmse, rel=2.5e-4)
    estimate = protocol.run([0] * 10**6, route="counts")
    assert estimate.counts.sum() == 10**6


def test_a_large_domain_with_much_noise_has_independent_noise():
    protocol = DiscreteLaplaceHistogram.calibrate(users=100, domain_size=10**6, epsilon=0.01, delta=1e-6)
    assert not protocol.conditioned


def test_documents_of_independent_noise_are_as_before():
    independent = DiscreteLaplaceHistogram.calibrate(
        users=100, domain_size=3, epsilon=1.0, delta=1e-6, conditioned=False
    )
    document = to_document(independent)
    assert set(document["parameters"]) == {"terms", "ratio", "domain_size", "categories"}
    assert from_document(document) == independent
    conditioned = DiscreteLaplaceHistogram.calibrate(users=100, domain_size=3, epsilon=1.0, delta=1e-6)
    assert from_document(to_document(conditioned)) == conditioned
    document["parameters"]["conditioned"] = False
    with pytest.raises(ParameterError, match="true or left out"):
        from_document(document)


def test_counts_that_do_not_sum_to_the_users_are_refused():
    protocol = DiscreteLaplaceHistogram.calibrate(users=10, domain_size=3, epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match="not to the 10 users"):
        protocol.estimate(Tally(np.array([4, 4, 4]), 10, released=True))


@pytest.mark.parametrize("conditioned", [True, False])
def test_it_is_purely_private(conditioned):
    protocol = DiscreteLaplaceHistogram.calibrate(
        users=100, domain_size=3, epsilon=0.7, delta=1e-6, conditioned=conditioned
    )
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


def test_intervals_of_few_categories_cover_every_count():
    """4,000 rounds of 4 categories: coverage of 90 % intervals within the binomial bound at alpha = 1e-6."""
    protocol = DiscreteLaplaceHistogram.calibrate(users=1000, domain_size=4, epsilon=1.0, delta=1e-6)
    counts, rounds = np.array([0, 100, 400, 500]), 4000
    covered = np.zeros(4)
    for _ in range(rounds):
        low, high = protocol.estimate(protocol.sample_tally(counts)).interval(0.9).T
        covered += (low <= counts) & (counts <= high)
    assert covered.min() >= binom.ppf(1e-6 / 4, rounds, 0.9)
    assert covered.max() < 0.999 * rounds  # not trivially wide


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
