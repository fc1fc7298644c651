"""Estimates that are linear: their intervals hold their confidence for every truth, by exact sums."""

import math

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.protocols.parts import linear
from shuffledp.protocols.parts.linear import FixedNoise, IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.response import blanket_for, response_analysis
from shuffledp.protocols.protocol import check_estimator
from shuffledp.randomness import Dyadic

CONFIDENCES = (0.5, 0.8, 0.95, 0.99, 0.999)
EXACT = 1e-9  # of the sums


class Coins:
    """Noise with a mean that is no whole number: Bin(7, 0.3)."""

    distribution = stats.binom(7, 0.3)
    mean, variance = 2.1, 7 * 0.21

    def upper_tail(self, k):
        return self.distribution.sf(k - 1)

    def lower_tail(self, k):
        return self.distribution.cdf(k)


LAPLACE = DiscreteLaplace(Dyadic.of(0.75))
NOISES = [(Coins(), np.arange(8)), (LAPLACE, np.arange(-200, 201))]


def masses(noise, outcomes):
    return np.array([float(noise.upper_tail(int(k)) - noise.upper_tail(int(k) + 1)) for k in outcomes])


@pytest.mark.parametrize(("noise", "outcomes"), NOISES)
@pytest.mark.parametrize("step", [1.0, 0.5, 3.0])
@pytest.mark.parametrize("confidence", [0.01, *CONFIDENCES, 1 - 1e-9])
def test_fixed_noise_is_covered_exactly(noise, outcomes, step, confidence):
    distribution = FixedNoise(noise, step)
    errors = step * (outcomes - noise.mean)
    low, high = distribution.interval(errors, 1 - confidence)  # where the truth is 0
    weights = masses(noise, outcomes)
    covered = weights[(low <= EXACT) & (high >= -EXACT)].sum()
    assert covered >= confidence - EXACT
    for side in (weights[low > EXACT].sum(), weights[high < -EXACT].sum()):
        assert side <= (1 - confidence) / 2 + EXACT
    # not wider than needed: one outcome less at either end would miss too often, unless the centre alone is enough
    assert weights[low > EXACT - step].sum() > (1 - confidence) / 2 - EXACT or covered <= weights.max() + EXACT


@pytest.mark.parametrize(("noise", "outcomes"), NOISES)
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_radius_of_fixed_noise_is_the_least(noise, outcomes, confidence):
    radius = FixedNoise(noise, 2.0).radius(1 - confidence, 1e9)
    errors, weights = 2.0 * np.abs(outcomes - noise.mean), masses(noise, outcomes)
    assert weights[errors > radius].sum() <= 1 - confidence + EXACT
    assert weights[errors > radius - 1e-4].sum() > 1 - confidence - EXACT


def test_a_planted_fault_shows():
    """Intervals from a noise that is a tenth smaller do not cover."""
    noise, outcomes = NOISES[1]
    distribution = FixedNoise(DiscreteLaplace(Dyadic.of(0.72)))
    low, high = distribution.interval(outcomes - noise.mean, 0.01)
    assert masses(noise, outcomes)[(low <= EXACT) & (high >= -EXACT)].sum() < 0.99


def coverage(users, values, epsilon, confidence, truths):
    """For each truth, how often the interval of randomized response holds it."""
    blanket = blanket_for(values, epsilon)
    intervals = response_analysis(users, values, blanket).intervals(np.arange(users + 1))(confidence)
    other = float(blanket) / values
    own = other + 1 - float(blanket)
    for truth in truths:
        mine = stats.binom.pmf(np.arange(truth + 1), truth, own)
        pmf = np.convolve(mine, stats.binom.pmf(np.arange(users - truth + 1), users - truth, other))
        holds = (intervals[:, 0] <= truth + EXACT) & (intervals[:, 1] >= truth - EXACT)
        yield float(pmf[holds].sum())


@pytest.mark.parametrize("users", [1, 2, 3, 10, 50])
@pytest.mark.parametrize(("values", "epsilon"), [(2, 0.1), (2, 1), (2, 5), (3, 1), (10, 1), (10, 5), (100, 8)])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_independent_terms_are_covered_for_every_truth(users, values, epsilon, confidence):
    assert min(coverage(users, values, epsilon, confidence, range(users + 1))) >= confidence - EXACT


@pytest.mark.parametrize("users", [500, 2000])
@pytest.mark.parametrize(("values", "epsilon"), [(2, 1), (10, 3), (1000, 6)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_independent_terms_of_many_users(users, values, epsilon, confidence):
    truths = [0, 1, 2, 5, 20, users // 10, users // 2, users - 1, users]
    assert min(coverage(users, values, epsilon, confidence, truths)) >= confidence - EXACT


@pytest.mark.parametrize(
    ("users", "values", "epsilon", "confidence"),
    [(50, 1000, 5, 0.99), (100, 1000, 5, 0.99), (20, 1000, 5, 0.95), (200, 1000, 3, 0.99), (50, 100, 2, 0.99)],
)
def test_independent_terms_of_large_domains(users, values, epsilon, confidence):
    assert min(coverage(users, values, epsilon, confidence, range(users + 1))) >= confidence - EXACT


def test_every_truth_that_explains_the_estimate_is_inside():
    """The interval is said to solve |estimate - truth| <= width(truth)."""
    distribution = response_analysis(100, 1000, blanket_for(1000, 5)).error
    truths = np.linspace(0, 100, 401)
    for side in (-1, -0.5, 0.5, 1):
        estimates = truths + side * 0.999 * distribution._width(truths, 0.01)
        low, high = distribution.interval(estimates, 0.01)
        assert np.all((low <= truths) & (truths <= high))


@pytest.mark.parametrize("users", [10, 100, 1000])
@pytest.mark.parametrize(("values", "epsilon"), [(2, 1), (3, 3), (10, 1), (1000, 5)])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_radius_of_independent_terms_holds_for_every_truth(users, values, epsilon, confidence):
    blanket = blanket_for(values, epsilon)
    analysis = response_analysis(users, values, blanket)
    radius = analysis.error.radius(1 - confidence, users)
    other = float(blanket) / values
    own = other + 1 - float(blanket)
    estimates = analysis.estimate(np.arange(users + 1), "unbiased")
    for truth in {0, 1, users // 10, users // 4, users // 2, users - 1, users}:
        mine = stats.binom.pmf(np.arange(truth + 1), truth, own)
        pmf = np.convolve(mine, stats.binom.pmf(np.arange(users - truth + 1), users - truth, other))
        assert pmf[np.abs(estimates - truth) > radius].sum() <= 1 - confidence + EXACT


def test_widths_are_the_normal_ones_with_many_users():
    """Within five per cent at a hundred million users: nothing is lost for ever."""
    distribution = IndependentTerms(base_variance=1e8, variance_per_holder=0.0, largest_term=1.0)
    low, high = distribution.interval(np.array([0.0]), 0.05)
    assert (high - low)[0] / 2 == pytest.approx(1.96e4, rel=0.01)
    assert distribution.radius(0.05, 1e8) == pytest.approx(1.96e4, rel=0.01)


def test_bernsteins_constant_is_used():
    distribution = IndependentTerms(1.0, 0.0, 3.0, heaviest_tail=2.0)
    level = math.log(2 / 1e-6)
    assert distribution.radius(1e-6, 10) == pytest.approx(2 * level + math.sqrt((2 * level) ** 2 + 2 * level))


def test_variances_and_standard_errors():
    distribution = IndependentTerms(4.0, 0.5, 1.0)
    assert distribution.variance(np.array([0.0, 10.0])).tolist() == [4.0, 9.0]
    assert IndependentTerms(1.0, -0.5, 1.0).variance(np.array([10.0])).tolist() == [0.0]
    analysis = LinearAnalysis(offset=5.0, slope=2.0, error=distribution, largest=10)
    assert analysis.estimate(np.array([5, 25, 125]), "unbiased").tolist() == [0, 10, 60]
    assert analysis.standard_errors(np.array([-95, 5, 25, 125])).tolist() == [2.0, 2.0, 3.0, 3.0]
    assert FixedNoise(LAPLACE, 3.0).variance(np.zeros(2)).tolist() == pytest.approx([9 * LAPLACE.variance] * 2)


def test_clipped_estimates_lie_between_what_is_possible():
    analysis = LinearAnalysis(offset=0.0, slope=0.5, error=FixedNoise(LAPLACE), largest=10)
    observed = np.array([-3, 0, 2, 5, 9])
    assert analysis.estimate(observed, "clipped").tolist() == [0, 0, 4, 10, 10]
    ends = analysis.intervals(observed)(0.95)
    assert ends.shape == (5, 2)
    assert np.all((ends >= 0) & (ends <= 10) & (ends[:, :1] <= ends[:, 1:]))


def test_the_expected_error_is_the_mean_over_categories():
    distribution = IndependentTerms(4.0, 0.5, 1.0)
    many = LinearAnalysis(offset=0.0, slope=1.0, error=distribution, largest=100, numbers=10)
    assert many.expected_error(0.95).rmse == pytest.approx(math.sqrt(4 + 0.5 * 10))
    truth = np.array([91] + [1] * 9)
    assert many.expected_error(0.95, truth).rmse == pytest.approx(many.expected_error(0.95).rmse)
    one = LinearAnalysis(offset=0.0, slope=1.0, error=distribution, largest=100)
    assert one.expected_error(0.95).rmse == pytest.approx(math.sqrt(54))
    assert one.expected_error(0.95, np.array([0.0])).rmse == pytest.approx(2.0)
    assert many.expected_error(0.95).max_error > one.expected_error(0.95).max_error


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_confidences_that_mean_nothing(confidence):
    with pytest.raises(ParameterError):
        LinearAnalysis(0.0, 1.0, FixedNoise(LAPLACE), 10).expected_error(confidence)


def test_unknown_estimators():
    check_estimator("clipped", ("unbiased", "clipped"))
    with pytest.raises(UnknownNameError, match="unbiased, clipped"):
        check_estimator("median", ("unbiased", "clipped"))


def test_normal_quantiles_do_not_depend_on_how_many_are_asked_for(monkeypatch):
    levels = np.geomspace(1e-200, 0.4999, 30)
    few = linear._normal_quantiles(levels)
    monkeypatch.setattr(linear, "_FEW", 0)
    np.testing.assert_allclose(few, linear._normal_quantiles(levels), rtol=1e-13)
