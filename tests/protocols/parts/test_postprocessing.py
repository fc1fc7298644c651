"""Estimators and intervals: coverage for every count by exact summation, radii that hold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp import BalcerCheuHistogram
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.parts.postprocessing import ESTIMATORS, SurplusAnalysis
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA


def coverage(analysis: SurplusAnalysis, count: int, confidence: float) -> float:
    """The exact probability that the interval holds the count."""
    noise = np.arange(analysis.noise.trials + 1)
    low, high = analysis.intervals(count - noise)(confidence).T
    return float(analysis.noise.pmf(noise) @ ((low <= count) & (count <= high)))


@settings(max_examples=80)
@given(
    users=st.integers(1, 300),
    rate=st.floats(0.001, 0.5),
    confidence=st.sampled_from([0.5, 0.8, 0.95, 0.999]),
    estimator=st.sampled_from(sorted(ESTIMATORS)),
    share=st.floats(0, 1),
)
def test_intervals_hold_their_level_for_every_count(users, rate, confidence, estimator, share):
    """Rare categories too, where the distribution is far from normal."""
    analysis = SurplusAnalysis(Binomial(users, Dyadic.at_least(rate)), 3, estimator)
    for count in {0, 1, min(2, users), round(share * users), users}:
        assert coverage(analysis, count, confidence) >= confidence - 1e-9


def test_intervals_are_not_needlessly_wide():
    """The printed coverage of the exact intervals: 0.958 to 0.969 away from the ends."""
    noise = Binomial(10_000, Dyadic.at_least(0.0043))
    for count in (100, 1000, 5000):
        assert 0.95 <= coverage(SurplusAnalysis(noise, 1, "unbiased"), count, 0.95) <= 0.97


def test_a_normal_interval_would_fail_for_rare_noise():
    """The planted fault: mean plus or minus 1.96 deviations misses its level when little noise is needed."""
    noise = Binomial(1000, Dyadic.at_least(0.0046))
    points = np.arange(1001)
    inside = np.abs(points - noise.mean) <= 1.96 * noise.deviation
    normal = float(noise.pmf(points) @ inside)
    assert normal < 0.95
    assert coverage(SurplusAnalysis(noise, 1, "unbiased"), 500, 0.95) >= 0.95


def test_simultaneous_intervals_hold_together():
    """Four hundred rounds of forty categories; the separate intervals must fail this test."""
    protocol = BalcerCheuHistogram.calibrate(users=2000, domain_size=40, epsilon=1, delta=1e-6)
    counts = np.array([2000 - 39 * 25] + [25] * 39)
    together = separately = 0
    rounds = 400
    for _ in range(rounds):
        estimate = protocol.estimate(protocol.sample_tally(counts))
        for simultaneous in (True, False):
            low, high = estimate.interval(0.9, simultaneous=simultaneous).T
            held = bool(((low <= counts) & (counts <= high)).all())
            together += held and simultaneous
            separately += held and not simultaneous
    slack = 5.5 * math.sqrt(0.09 / rounds)
    assert together / rounds >= 0.9 - slack
    assert separately / rounds < 0.9 - slack


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("categories", [1, 50, 1000])
def test_the_radius_holds(estimator, categories):
    """All categories within the radius with the promised confidence; half the radius must be rejected."""
    noise = Binomial(3000, Dyadic.at_least(42.7 / 3000))
    analysis = SurplusAnalysis(noise, categories, estimator, risk=0.2)
    radius = analysis.radius()
    rng = np.random.default_rng()
    rounds = 300
    slack = 5.5 * math.sqrt(0.16 / rounds)
    with_half = []
    for true in (0, 20, 43, 60, 200, int(radius) + 1, int(radius / 2) + 1):  # the last two are the worst to zero
        counts = np.zeros(categories, dtype=np.int64)
        counts[: max(1, min(categories, 3000 // max(true, 1)))] = true
        drawn = rng.binomial(3000, float(noise.probability), size=(rounds, categories))
        errors = np.abs(analysis.estimate(counts - drawn) - counts).max(axis=1)
        failures = float((errors > radius + 1e-6).mean())
        assert failures <= 0.2 + slack
        with_half.append(float((errors > radius / 2 + 1e-6).mean()))
    assert max(with_half) > 0.2 + slack


@settings(max_examples=60)
@given(
    users=st.integers(2, 120),
    rate=st.floats(0.01, 0.5),
    risk=st.floats(0.001, 0.95),
    estimator=st.sampled_from(sorted(ESTIMATORS)),
)
def test_the_radius_holds_exactly_for_every_count_and_confidence(users, rate, risk, estimator):
    """One category: the exact chance of a larger error, at every true count, is at most the risk."""
    analysis = SurplusAnalysis(Binomial(users, Dyadic.at_least(rate)), 1, estimator, risk)
    radius = analysis.radius()
    noise = np.arange(users + 1)
    mass = analysis.noise.pmf(noise)
    for count in range(users + 1):
        error = np.abs(analysis.estimate(count - noise) - count)
        assert float(mass @ (error > radius + 1e-6)) <= risk + 1e-9


def test_midpoint_has_the_least_radius():
    noise = Binomial(100_000, Dyadic.at_least(42.66 / 100_000))
    radius = {name: SurplusAnalysis(noise, 1000, name).radius() for name in ESTIMATORS}
    assert (
        radius["midpoint"] < radius["clipped"] <= radius["unbiased"] < radius["relaxed-threshold"] < radius["threshold"]
    )


def test_no_estimate_but_the_unbiased_one_exceeds_the_users():
    noise = Binomial(50, Dyadic.at_least(0.2))
    everybody = 50 - np.arange(51)
    for name in ESTIMATORS:
        assert (SurplusAnalysis(noise, 5, name).estimate(everybody).max() > 50) == (name == "unbiased")


def test_only_the_threshold_keeps_every_empty_category_at_zero():
    noise = Binomial(50, Dyadic.at_least(0.2))
    surplus = -np.arange(51)
    assert not SurplusAnalysis(noise, 5, "threshold").estimate(surplus).any()
    for other in ("unbiased", "clipped", "midpoint", "relaxed-threshold"):
        assert SurplusAnalysis(noise, 5, other).estimate(surplus).any()


def test_bias_is_computed_exactly():
    noise = Binomial(1000, Dyadic.at_least(0.03))
    assert SurplusAnalysis(noise, 1, "unbiased").bias(17) == pytest.approx(0.0, abs=1e-9)
    assert SurplusAnalysis(noise, 1, "threshold").bias(0) == 0.0
    points = np.arange(1001)
    mass = noise.pmf(points)
    by_formula = -float(mass[points >= 25] @ (25 - points[points >= 25] + noise.mean))
    assert SurplusAnalysis(noise, 1, "threshold").bias(25) == pytest.approx(by_formula, rel=1e-9)


def test_relaxed_threshold_finds_smaller_categories():
    noise = Binomial(100_000, Dyadic.at_least(62.1 / 100_000))
    strict, relaxed = (SurplusAnalysis(noise, 100, name) for name in ("threshold", "relaxed-threshold"))
    assert relaxed.mean_squared_error(60) < strict.mean_squared_error(60) / 3
    assert relaxed.mean_squared_error(0) < 1.0


def test_misuse_is_refused():
    noise = Binomial(50, Dyadic.at_least(0.2))
    with pytest.raises(UnknownNameError, match="threshold, unbiased"):
        SurplusAnalysis(noise, 1, "best")
    with pytest.raises(ParameterError):
        SurplusAnalysis(noise, 1, risk=0.0)
    estimate = BalcerCheuHistogram.calibrate(users=300, domain_size=2, epsilon=1, delta=1e-6).run(
        np.zeros(300, dtype=np.int64)
    )
    for confidence in (0, 1, -1, 2, math.nan):
        with pytest.raises(ParameterError):
            estimate.interval(confidence)


def test_alpha_is_small_enough_to_run_unseeded():
    assert ALPHA <= 1e-6
