"""Quantiles from trees: errors as planned, intervals that cover, both routes, and refusals."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

import shuffledp as sdp
from shuffledp.errors import DomainError, ParameterError
from shuffledp.protocols.quantiles.correlated_noise import CorrelatedNoiseQuantiles
from shuffledp.protocols.quantiles.uniform_blanket import UniformBlanketQuantiles

ALPHA = 1e-6
USERS = 20_000


@pytest.fixture(scope="module")
def small():
    """32 bins of width 1."""
    return UniformBlanketQuantiles.calibrate(users=USERS, epsilon=1.0, delta=1e-6, lower=0, upper=32, bins=32)


@pytest.fixture(scope="module")
def values():
    return np.clip(np.random.default_rng(5).lognormal(2.0, 0.6, USERS), 0, 32)


def below(values, edges):
    return np.searchsorted(np.sort(values), edges[1:-1], side="left")


NAMES = ["uniform-blanket", "correlated-noise", "discrete-laplace"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_errors_are_as_planned(name, epsilon, values):
    kind = sdp.find("quantiles", name)
    protocol = kind.calibrate(users=USERS, epsilon=epsilon, delta=1e-6, lower=0, upper=32, bins=32)
    counts = protocol.summary(protocol.domain.encode_all(values))
    truth = below(values, protocol.domain.edges)
    squares = [np.mean((protocol.estimate(protocol.sample_tally(counts)).below - truth) ** 2) for _ in range(800)]
    error = np.std(squares) / np.sqrt(len(squares))
    planned = protocol.expected_error().rmse ** 2
    assert abs(np.mean(squares) - planned) < 5 * error  # alpha = 6e-7
    assert 5 * error < 0.3 * planned  # and errors off by 15 per cent show


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bins", [64, 1024])
def test_measured_errors_are_within_five_per_cent_of_the_plan(name, bins):
    """Root mean squared errors over all edges and many rounds; noise of ten per cent more is found out."""
    users = 10**6
    protocol = sdp.find("quantiles", name).calibrate(users=users, epsilon=1.0, delta=1e-6, domain=sdp.Bins(0, 1, bins))
    counts = np.random.default_rng(8).multinomial(users, np.random.default_rng(9).dirichlet(np.full(bins, 0.2)))
    truth = np.cumsum(counts)[:-1]
    squares = [np.mean((protocol.estimate(protocol.sample_tally(counts)).below - truth) ** 2) for _ in range(6000)]
    spread = np.std(squares) / np.sqrt(len(squares)) / np.mean(squares)
    assert 5 * spread < 0.1  # of squares: 5 per cent of errors are more than five deviations
    assert np.sqrt(np.mean(squares)) == pytest.approx(protocol.expected_error().rmse, rel=0.05)
    assert np.sqrt(np.mean(squares)) != pytest.approx(1.1 * protocol.expected_error().rmse, rel=0.05)


def covered(protocol, values, share, narrower=1.0, rounds=1200):
    """How many rounds have the true quantile in its 95 per cent interval, and the users below an edge in theirs."""
    counts = protocol.summary(protocol.domain.encode_all(values))
    truth = np.sort(values)[int(np.ceil(share * len(values))) - 1]
    inside, edge_inside = 0, 0
    edge = 9
    true_below = np.count_nonzero(values < protocol.domain.edges[edge])
    for _ in range(rounds):
        estimate = protocol.estimate(protocol.sample_tally(counts))
        if narrower != 1.0:
            radius_of, intervals = estimate.radius_of, estimate.intervals
            middle = estimate.unbiased[:, None]
            estimate = dataclasses.replace(
                estimate,
                radius_of=lambda weights, risk, f=radius_of: f(weights, risk) / narrower,
                intervals=lambda confidence, f=intervals, m=middle: m + (f(confidence) - m) / narrower,
            )
        quantile = estimate.quantile(share)
        inside += quantile.low <= truth <= quantile.high
        number = estimate.range(0.0, float(protocol.domain.edges[edge]))
        edge_inside += number.low <= true_below <= number.high
    return inside, edge_inside


@pytest.mark.slow
def test_intervals_cover(small, values):
    rounds = 1200
    enough = binom.ppf(ALPHA, rounds, 0.95)
    for share in (0.1, 0.5, 0.9):
        assert min(covered(small, values, share, rounds=rounds)) >= enough
    assert min(covered(small, values, 0.5, narrower=2.0, rounds=rounds)) < enough  # planted: half as wide


@pytest.fixture(scope="module")
def small_correlated():
    """Two levels over the same bins; a tenth of the users is dishonest, so that all add more noise than is needed."""
    return CorrelatedNoiseQuantiles.calibrate(
        users=USERS, epsilon=1.0, delta=1e-6, lower=0, upper=32, bins=32, branching=(4, 8), honest_fraction=0.9
    )


def test_some_intervals_cover(small, small_correlated, values):
    rounds = 40
    for protocol in (small, small_correlated):
        assert min(covered(protocol, values, 0.5, rounds=rounds)) >= binom.ppf(ALPHA, rounds, 0.95)


def test_more_users_than_honest_ones_add_more_noise(small_correlated, values):
    """As predicted: 1/0.9 times the variance of the noise that the honest ones are planned to add."""
    counts = small_correlated.summary(small_correlated.domain.encode_all(values))
    true = small_correlated.tree.counts_of(counts)
    rounds = 2500
    noise = [
        np.concatenate(small_correlated.centred(small_correlated.sample_tally(counts))) - true for _ in range(rounds)
    ]
    variance, ratio = np.mean(np.square(noise)), float(small_correlated.ratio)
    assert small_correlated.noises(USERS)[0].variance == pytest.approx(2 * ratio / (1 - ratio) ** 2 / 0.9)
    spread = np.std(np.square(noise)) / np.sqrt(np.size(noise))
    assert abs(variance - small_correlated.noises(USERS)[0].variance) < 5 * spread  # alpha = 6e-7
    assert 5 * spread < (1 / 0.9 - 1) / 1.1 * variance  # and noise of the honest ones alone shows


def test_the_band_covers_all_edges_at_once(small, values):
    counts, rounds = small.summary(small.domain.encode_all(values)), 300
    truth = below(values, small.domain.edges)
    inside = 0
    for _ in range(rounds):
        band = small.estimate(small.sample_tally(counts)).interval(0.95, simultaneous=True)
        inside += bool(((band[:, 0] <= truth) & (truth <= band[:, 1])).all())
    assert inside >= binom.ppf(ALPHA, rounds, 0.95)


@pytest.mark.parametrize("kind", ["small", "small_correlated"])
def test_both_routes_and_both_estimators(kind, values, request):
    small = request.getfixturevalue(kind)
    for route in ("messages", "counts"):
        for estimator in small.estimators:
            estimate = small.run(values, route=route, estimator=estimator)
            largest = small.expected_error(confidence=1 - 1e-6).max_error
            assert np.abs(estimate.below - below(values, estimate.edges)).max() < largest
            assert estimate.quantile(0.5).low <= np.median(values) + 1
    monotone = small.run(values, estimator="monotone").below
    assert (np.diff(monotone) >= 0).all()
    assert monotone.min() >= 0
    assert monotone.max() <= USERS


def test_a_million_users_and_1024_bins():
    """The errors that the specification demands, and deciles in their bins or neighbours, for three distributions."""
    rng = np.random.default_rng(3)
    users, best = 10**6, {}
    cases = (
        (UniformBlanketQuantiles, (4,) * 5, 5.3, 21),
        (UniformBlanketQuantiles, (32, 32), 2.1, 29),
        (CorrelatedNoiseQuantiles, (32, 32), 2.6, 21),
    )
    for kind, branching, most_messages, most_error in cases:
        protocol = kind.calibrate(
            users=users, epsilon=1.0, delta=1e-6, lower=0, upper=1024, bins=1024, branching=branching
        )
        assert protocol.cost.messages_per_user <= most_messages
        assert protocol.expected_error().rmse <= most_error
        best[kind, branching] = protocol
    for values in (rng.uniform(0, 1024, users), rng.lognormal(5, 0.7, users), 20 * rng.pareto(1.1, users)):
        data = np.clip(values, 0, 1024)
        for protocol in best.values():
            estimate = protocol.run(data, route="counts")
            error = estimate.below - below(data, estimate.edges)
            assert np.sqrt(np.mean(error**2)) <= 3 * protocol.expected_error().rmse
            for share in np.arange(0.1, 1.0, 0.1):
                true_bin = protocol.domain.encode(float(np.quantile(data, share)))
                assert abs(protocol.domain.encode(estimate.quantile(float(share)).value) - true_bin) <= 1


def test_ranges_histograms_and_shares_agree(small, values):
    estimate = small.run(values)
    whole = estimate.range(0, 32)
    assert (whole.value, whole.low, whole.high) == (USERS, USERS, USERS)
    parts = estimate.histogram([0, 4, 8.5, 20, 32])
    assert sum(part.value for part in parts) == pytest.approx(USERS, abs=1e-6 * USERS)
    assert all(part.low <= part.value <= part.high for part in parts)
    share = estimate.cdf(8.5)
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert estimate.cdf(-5).value == 0
    assert estimate.cdf(99).value == 1


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), "0.5", None])
def test_extremes_are_refused(small, values, share):
    with pytest.raises(ParameterError, match="between 0 and 1"):
        small.run(values).quantile(share)


@pytest.mark.parametrize(
    "settings",
    [
        {"lower": 5, "upper": 5},
        {"lower": 6, "upper": 5},
        {"lower": float("nan"), "upper": 5},
        {"lower": 0, "upper": float("inf")},
        {"lower": "low", "upper": 5},
        {"lower": 0, "upper": [5]},
        {"lower": 0, "upper": 10**400},
        {"lower": 0, "upper": 5, "bins": 0},
        {"lower": 0, "upper": 5, "bins": 2.5},
        {"lower": 0},
        {"lower": 0, "upper": 1, "bins": 16, "branching": (2, 2)},
    ],
)
def test_bad_bins_are_refused(settings):
    for kind in (UniformBlanketQuantiles, CorrelatedNoiseQuantiles):
        with pytest.raises(DomainError) as refused:
            kind.calibrate(users=1000, epsilon=1.0, delta=1e-6, **settings)
        assert "\n" not in str(refused.value)
    if "branching" not in settings and "upper" in settings:
        with pytest.raises(DomainError):
            sdp.Quantiles(1000, **settings)


@pytest.mark.parametrize("kind", ["small", "small_correlated"])
def test_impossible_tallies_are_refused(kind, values, request):
    small = request.getfixturevalue(kind)
    tally = small.sample_tally(small.summary(small.domain.encode_all(values)))
    too_many = [tally.counts + 10**6] if kind == "small" else []  # correlated noise has no largest number of messages
    for counts in (tally.counts[:-1], *too_many, tally.counts * 0):
        with pytest.raises(ParameterError):
            small.estimate(dataclasses.replace(tally, counts=counts))


def test_json_and_tables(small, values):
    estimate = small.run(values)
    document = estimate.to_json()
    assert [row["quantile"] for row in document["quantiles"]] == [0.1, 0.25, 0.5, 0.75, 0.9]
    assert len(document["edges"]) == 33
    assert len(document["below"]) == len(document["intervals"]) == 31
    assert set(estimate.columns()) >= {"edge", "below", "standard_error", "lower", "upper", "share"}
    assert "0.5 quantile" in repr(estimate)
