"""Quantiles from trees: errors as planned, intervals that cover, both routes, and refusals."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

import shuffledp as sdp
from shuffledp.errors import DomainError, ParameterError
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


@pytest.mark.parametrize("name", ["uniform-blanket", "discrete-laplace"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_errors_are_as_planned(name, epsilon, values):
    kind = sdp.find("quantiles", name)
    protocol = kind.calibrate(users=USERS, epsilon=epsilon, delta=1e-6, lower=0, upper=32, bins=32)
    counts = protocol.summary(protocol.domain.encode_all(values))
    truth = below(values, protocol.domain.edges)
    squares = [np.mean((protocol.estimate(protocol.sample_tally(counts)).below - truth) ** 2) for _ in range(400)]
    error = np.std(squares) / np.sqrt(len(squares))
    planned = protocol.expected_error().rmse ** 2
    assert abs(np.mean(squares) - planned) < 5 * error  # alpha = 6e-7
    assert 5 * error < 0.3 * planned  # and errors off by 15 per cent show


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


def test_some_intervals_cover(small, values):
    rounds = 40
    assert min(covered(small, values, 0.5, rounds=rounds)) >= binom.ppf(ALPHA, rounds, 0.95)


def test_the_band_covers_all_edges_at_once(small, values):
    counts, rounds = small.summary(small.domain.encode_all(values)), 300
    truth = below(values, small.domain.edges)
    inside = 0
    for _ in range(rounds):
        band = small.estimate(small.sample_tally(counts)).interval(0.95, simultaneous=True)
        inside += bool(((band[:, 0] <= truth) & (truth <= band[:, 1])).all())
    assert inside >= binom.ppf(ALPHA, rounds, 0.95)


def test_both_routes_and_both_estimators(small, values):
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
    for branching, most_messages, most_error in (((4,) * 5, 5.3, 21), ((32, 32), 2.1, 29)):
        protocol = UniformBlanketQuantiles.calibrate(
            users=users, epsilon=1.0, delta=1e-6, lower=0, upper=1024, bins=1024, branching=branching
        )
        assert protocol.cost.messages_per_user <= most_messages
        assert protocol.expected_error().rmse <= most_error
        best[branching] = protocol
    for values in (rng.uniform(0, 1024, users), rng.lognormal(5, 0.7, users), 20 * rng.pareto(1.1, users)):
        data = np.clip(values, 0, 1024)
        for protocol in best.values():
            estimate = protocol.run(data, route="counts")
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


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_extremes_are_refused(small, values, share):
    with pytest.raises(ParameterError, match="between 0 and 1"):
        small.run(values).quantile(share)


@pytest.mark.parametrize(
    "settings",
    [
        {"lower": 5, "upper": 5},
        {"lower": 6, "upper": 5},
        {"lower": float("nan"), "upper": 5},
        {"lower": 0, "upper": 5, "bins": 0},
        {"lower": 0, "upper": 5, "bins": 2.5},
        {"lower": 0},
        {"lower": 0, "upper": 1, "bins": 16, "branching": (2, 2)},
    ],
)
def test_bad_bins_are_refused(settings):
    with pytest.raises(DomainError):
        UniformBlanketQuantiles.calibrate(users=1000, epsilon=1.0, delta=1e-6, **settings)


def test_impossible_tallies_are_refused(small, values):
    tally = small.sample_tally(small.summary(small.domain.encode_all(values)))
    for counts in (tally.counts[:-1], tally.counts + 10**6, tally.counts * 0):
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
