"""Intervals of sampled counts with dummies: exact inversion, coverage at every true count, planted faults."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import shuffledp as sdp
from shuffledp.protocols.parts.sampled_counts import SampledCounts
from shuffledp.randomness import Dyadic

USERS = 2500


def _masses(counts, true, length):
    """Pr[X = 0], ..., Pr[X = length - 1], by convolution."""
    ratio = float(counts.ratio)
    dummies = (1 - ratio) * ratio ** np.arange(length)
    return np.convolve(binom.pmf(np.arange(length), true, float(counts.keep)), dummies)[:length]


def _geometric(epsilon):
    return sdp.find("histogram", "shuffler-geometric").calibrate(
        users=USERS, domain_size=3, epsilon=epsilon, delta=1e-6
    )


def _worst_miss(claimed, actual, risk):
    """The largest probability of missing a true count, of intervals for ``claimed`` if counts are ``actual``."""
    observed = np.arange(USERS + 200 + int(40 / (1 - float(actual.ratio))))
    low, high = claimed.interval(observed, risk, USERS)
    worst = 0.0
    for true in [*range(40), *range(40, USERS + 1, 164)]:
        missed = (low > true) | (true > high)
        worst = max(worst, float(_masses(actual, true, len(observed))[missed].sum()))
    return worst


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("risk", [0.1, 0.05, 1e-6])
def test_every_true_count_is_covered_and_little_is_given_away(epsilon, risk):
    """By exact laws, so without alpha: at most ``risk`` is missed, and at some count more than 7/10 of it."""
    protocol = _geometric(epsilon)
    counts = SampledCounts(protocol.keep, protocol.ratio)
    assert 0.7 * risk < _worst_miss(counts, counts, risk) <= risk


@pytest.mark.parametrize(
    "fault", [{"keep": Dyadic.of(0.42)}, {"keep": Dyadic.of(0.37)}, {"ratio": Dyadic.of(2.0**-20)}]
)
def test_a_wrong_distribution_is_noticed(fault):
    """At epsilon 1 reports are kept with probability 0.393: six per cent off, or intervals that forget the dummies."""
    protocol = _geometric(1.0)
    counts = SampledCounts(protocol.keep, protocol.ratio)
    assert _worst_miss(replace(counts, **fault), counts, 0.05) > 0.05


@pytest.mark.parametrize("keep", [0.02, 0.39, 0.5, 0.9])
@pytest.mark.parametrize("ratio", [0.001, 0.38, 0.88])
def test_intervals_are_the_exact_inversion(keep, ratio):
    """Of both tails, added up for all counts; no count more or less."""
    counts, users, risk = SampledCounts(Dyadic.of(keep), Dyadic.of(ratio)), 150, 0.0313
    observed = np.arange(200)
    low, high = counts.interval(observed, risk, users)
    laws = np.array([_masses(counts, true, 1000) for true in range(users + 1)])
    below = np.cumsum(laws, axis=1)[:, :200]
    above = laws[:, ::-1].cumsum(axis=1)[:, ::-1][:, :200]
    for x in range(200):
        likely = np.flatnonzero((below[:, x] > risk / 2) & (above[:, x] > risk / 2))
        if len(likely):
            assert (low[x], high[x]) == (likely[0], likely[-1])
        else:
            assert low[x] == high[x] == users


@pytest.mark.parametrize(("keep", "ratio", "true"), [(0.39, 0.38, 400), (0.02, 0.49, 2000), (0.98, 0.02, 300)])
def test_tails_are_upper_bounds(keep, ratio, true):
    counts = SampledCounts(Dyadic.of(keep), Dyadic.of(ratio))
    masses = _masses(counts, true, 3000)
    observed = np.arange(600)
    held = np.full(600, true)
    for bound, exact in (
        (counts.upper_tail(observed, held), masses[::-1].cumsum()[::-1][:600]),
        (counts.lower_tail(observed, held), masses.cumsum()[:600]),
    ):
        above = exact > 1e-18
        np.testing.assert_allclose(bound[above], exact[above], rtol=1e-8)
        assert np.all(bound >= exact * (1 - 1e-10))


def test_estimates_have_these_intervals():
    """Less than half of the width of Bernstein's inequality, for a count of about 10."""
    protocol = _geometric(1.0)
    tally = protocol.sample_tally(np.array([0, 10, USERS - 10]))
    intervals = protocol.estimate(tally).interval(0.95)
    exact = SampledCounts(protocol.keep, protocol.ratio)
    assert np.array_equal(intervals, np.stack(exact.interval(tally.counts, 1 - 0.95, USERS), axis=-1))
    few = np.array([4])
    (low,), (high,) = exact.interval(few, 0.05, USERS)
    analysis = protocol.analysis(USERS)
    (bernstein,) = np.diff(analysis.error.interval(analysis.estimate(few, "unbiased"), 0.05), axis=0)[0]
    assert high - low < bernstein / 2


def test_large_counts_and_hostile_ratios():
    """A billion users; and dummies of a document with so large a ratio that intervals are Bernstein's."""
    protocol = sdp.find("histogram", "shuffler-geometric").calibrate(
        users=10**9, domain_size=3, epsilon=1.0, delta=1e-6
    )
    low, high = protocol.analysis(10**9).intervals(np.array([0, 1, 393_000_000, 394_000_000]))(0.95).T
    keep = float(protocol.keep)
    assert low[0] == 0
    assert high[0] < 10
    deviation = np.sqrt(1e9 * (1 - keep) / keep)
    assert high[2] - low[2] == pytest.approx(2 * 1.96 * deviation, rel=0.01)
    hostile = replace(protocol, ratio=Dyadic.of(1 - 2.0**-20), target=replace(protocol.target, users=1000))
    low, high = hostile.analysis(1000).intervals(np.array([0, 10**6]))(0.95).T
    assert np.all(low <= high)
