"""Estimates projected onto the number of users: exact distributions, coverage, which protocols, bars, bad input."""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import shuffledp as sdp
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.clusters import DifferenceWithSingles
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, least_ratio
from shuffledp.privacy.negative_binomial import NegativeBinomial
from shuffledp.privacy.shuffler_noise import TruncatedLaplace
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.projected import MAX_PROJECTED, Negated, ProjectedNoise, projected_analysis
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.randomness import Dyadic

NOISES = [
    DiscreteLaplace(Dyadic.of(0.5)),
    TruncatedLaplace(Dyadic.of(0.375), 3),
    Binomial(12, Dyadic.of(0.25)),
    Negated(Binomial(12, Dyadic.of(0.25))),
    DifferenceWithSingles(NegativeBinomial(Fraction(1), Dyadic.of(0.375)), Fraction(3, 2)),
]


def enumerated(noise, numbers):
    """The distribution of (d - 1) N - (N_2 + ... + N_d), by adding one term after the other."""
    centre = round(noise.mean)
    values = range(centre - 45, centre + 46)
    masses = [float(noise.upper_tail(k)) - float(noise.upper_tail(k + 1)) for k in values]
    pmf = {0: 1.0}
    for factor in (numbers - 1, *[-1] * (numbers - 1)):
        added = defaultdict(float)
        for total, mass in pmf.items():
            for value, share in zip(values, masses, strict=True):
                if mass * share > 1e-17:
                    added[total + factor * value] += mass * share
        pmf = added
    return pmf


@pytest.mark.parametrize("numbers", [2, 3, 4])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
def test_the_distribution_is_exact(noise, numbers):
    """Never below the enumeration, and within 1e-10."""
    projected, pmf = ProjectedNoise(noise, numbers), enumerated(noise, numbers)
    assert projected.variance == pytest.approx(sum(value**2 * mass for value, mass in pmf.items()), rel=1e-6)
    for k in range(-15, 16, 2):
        above = sum(mass for value, mass in pmf.items() if value >= k)
        below = sum(mass for value, mass in pmf.items() if value <= k)
        assert above - 1e-11 <= projected.upper_tail(k) <= above + 1e-10
        assert below - 1e-11 <= projected.lower_tail(k) <= below + 1e-10


def exchangeable():
    kinds = PROTOCOLS["histogram"].values()
    return sorted(kind.name for kind in kinds if issubclass(kind, HistogramProtocol) and kind.exchangeable_noise)


def test_which_protocols_have_exchangeable_noise():
    assert exchangeable() == ["balcer-cheu", "correlated-noise", "shuffler-laplace"]
    for kind in PROTOCOLS["histogram"].values():
        assert ("projected" in kind.estimators) == (kind.name in exchangeable())
    with pytest.raises(UnknownNameError, match="projected"):
        sdp.find("histogram", "cheu").calibrate(users=100, domain_size=3, epsilon=1.0, delta=1e-3).expected_error(
            estimator="projected"
        )
    with pytest.raises(ParameterError, match="not exchangeable"):
        sdp.find("histogram", "cheu").calibrate(users=100, domain_size=3, epsilon=1.0, delta=1e-3).analysis_by(
            "projected", 100
        )


@pytest.mark.parametrize("name", exchangeable())
def test_projected_estimates_sum_to_the_users_and_intervals_cover(name):
    """3,000 rounds: errors as predicted within six deviations, and the coverage of 90 % intervals at alpha = 1e-6."""
    protocol = sdp.find("histogram", name).calibrate(users=300, domain_size=3, epsilon=1.0, delta=1e-3)
    counts, rounds = np.array([0, 100, 200]), 3000
    expected = protocol.expected_error(estimator="projected")
    unbiased = protocol.expected_error(estimator="unbiased")
    assert expected.rmse == pytest.approx(unbiased.rmse * math.sqrt(2 / 3), rel=1e-9)
    covered, squares, largest = np.zeros(3), [], 0
    for _ in range(rounds):
        estimate = protocol.estimate(protocol.sample_tally(counts), estimator="projected")
        assert estimate.counts.sum() == pytest.approx(300, abs=1e-9)
        low, high = estimate.interval(0.9).T
        covered += (low <= counts) & (counts <= high)
        error = estimate.counts - counts
        squares.append(float(np.mean(error**2)))
        largest += bool(np.max(np.abs(error)) > expected.max_error)
    assert covered.min() >= binom.ppf(1e-6 / 3, rounds, 0.9)
    assert covered.max() < 0.999 * rounds
    assert largest <= binom.ppf(1 - 1e-6, rounds, 0.05)
    assert abs(np.mean(squares) - expected.rmse**2) <= 6 * np.std(squares) / math.sqrt(rounds)
    assert abs(np.mean(squares) - unbiased.rmse**2) > 6 * np.std(squares) / math.sqrt(
        rounds
    )  # the fault: no projection


def test_near_the_central_error_for_few_categories():
    """At most 1.10 times the central error for twelve categories, with at most two messages per user."""
    question = sdp.Histogram(users=10**5, domain_size=12)
    plans = sdp.plan(question, epsilon=1.0, delta=1e-6)
    central = plans["discrete-laplace"].expected.rmse
    assert central == pytest.approx(2.5135, abs=1e-3)
    assert plans.plans[0].expected.rmse <= 1.10 * central
    assert plans.plans[0].cost.messages_per_user <= 2


def test_the_names_of_before_keep_their_meaning():
    protocol = sdp.find("histogram", "correlated-noise").calibrate(users=1000, domain_size=4, epsilon=1.0, delta=1e-4)
    tally = protocol.sample_tally(np.array([100, 200, 300, 400]))
    observed = protocol.observed(tally)
    assert protocol.estimate(tally, estimator="unbiased").counts == pytest.approx(observed)
    assert protocol.estimate(tally, estimator="clipped").counts == pytest.approx(np.clip(observed, 0, 1000))
    assert protocol.estimate(tally).estimator == "projected"


def test_one_category_is_known():
    protocol = sdp.find("histogram", "correlated-noise").calibrate(users=50, domain_size=1, epsilon=1.0, delta=1e-3)
    estimate = protocol.run([0] * 50)
    assert estimate.counts.tolist() == [50]
    assert estimate.interval(0.99).tolist() == [[50, 50]]


def test_many_categories_and_extreme_risks():
    noise = FixedNoise(DiscreteLaplace(least_ratio(1.0, coordinates=2)))
    many = LinearAnalysis(0.0, 1.0, noise, largest=10**6, numbers=MAX_PROJECTED + 1)
    assert projected_analysis(many, 10**6) is many
    few = projected_analysis(LinearAnalysis(0.0, 1.0, noise, largest=1000, numbers=3), 1000)
    low, high = few.intervals(np.array([10.0, 20.0, 970.0]))(1 - 1e-15)[0]
    assert 0 <= low <= 10 <= high <= 1000


@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize(
    "noise",
    [
        TruncatedLaplace(Dyadic.of(0.125), 7),
        DifferenceWithSingles(NegativeBinomial(Fraction(1), Dyadic.of(0.125)), Fraction(3, 7)),
    ],
    ids=lambda noise: type(noise).__name__,
)
def test_true_counts_at_the_end_of_an_interval_are_inside(noise, confidence):
    """Means of noise are no whole numbers, so estimates are rounded; ends of intervals are compared exactly here."""
    truth, centre = np.array([3, 97]), round(noise.mean)
    analysis = projected_analysis(LinearAnalysis(noise.mean, 1.0, FixedNoise(noise), 100.0, 2), 100)
    tails = [float(noise.upper_tail(k)) for k in range(centre - 9, centre + 11)]
    covered, at_an_end = np.zeros(2), 0
    for first, second in np.ndindex(19, 19):
        observed = truth + centre - 9 + np.array([first, second])
        ends = analysis.intervals(observed)(confidence)
        mass = (tails[first] - tails[first + 1]) * (tails[second] - tails[second + 1])
        covered += mass * ((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        at_an_end += int(np.count_nonzero(ends == truth[:, np.newaxis]))
    assert at_an_end > 10
    assert (covered >= confidence).all()
