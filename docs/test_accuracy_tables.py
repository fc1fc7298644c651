"""The tables of numbers on the accuracy page are what the library computes."""

import math
import re
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.privacy.balcer_cheu import least_users
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.smoothness import corollary_24_users
from shuffledp.protocols.quantiles.protocol import TreeAnalysis

PAGE = (Path(__file__).parent / "accuracy.md").read_text(encoding="utf-8")


def rows(heading):
    """The rows of the table below the heading, as text."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, heading
    table = re.findall(r"^\| (\d.*?) \|$", section[1], re.MULTILINE)
    assert table, heading
    return [[cell.strip().replace(",", "") for cell in row.split("|")] for row in table]


def both(kind, epsilon, delta, **settings):
    tight = kind.calibrate(users=10**6, epsilon=epsilon, delta=delta, **settings)
    return kind.calibrate(users=10**6, epsilon=epsilon, delta=delta, calibration="paper", **settings), tight


def variance(protocol):
    return protocol.expected_error(estimator="unbiased").rmse ** 2


def mean_noise(protocol):
    return protocol.users * float(protocol.absence)


@pytest.mark.parametrize("row", rows("A count: paper against tight"), ids=" ".join)
def test_count_table(row):
    epsilon, delta = float(row[0]), float(row[1])
    paper, tight = both(sdp.BalcerCheuCount, epsilon, delta)
    ratio = variance(paper) / variance(tight)
    exact = paper.guarantee.epsilon_at(delta)
    assert row[2:] == [f"{variance(paper):.1f}", f"{variance(tight):.1f}", f"{ratio:.1f}", f"{exact:.4f}"]


@pytest.mark.parametrize("row", rows("A histogram: paper against tight"), ids=" ".join)
def test_histogram_table(row):
    epsilon, delta = float(row[0]), float(row[1])
    paper, tight = both(sdp.BalcerCheuHistogram, epsilon, delta, domain_size=2)
    means = mean_noise(paper), mean_noise(tight)
    exact = paper.guarantee.epsilon_at(delta)
    assert row[2:] == [f"{means[0]:.1f}", f"{means[1]:.1f}", f"{means[0] / means[1]:.1f}", f"{exact:.4f}"]


def conditioned_error(categories, epsilon):
    """Of discrete Laplace noise for half of epsilon per category, given that it adds up to 0.

    The positive and the negative parts have one total T, which has a probability proportional to (C(T + d - 1, d - 1)
    a^T)^2. Both are then uniform compositions of T into d parts, of variance T (T + d)(d - 1) / (d^2 (d + 1)) each.
    """
    d = categories
    totals = range(20 * d + 400)
    logs = [2 * (math.lgamma(t + d) - math.lgamma(d) - math.lgamma(t + 1)) - epsilon * t for t in totals]
    largest = max(logs)
    masses = [math.exp(each - largest) for each in logs]
    squares = (2 * mass * t * (t + d) * (d - 1) / (d**2 * (d + 1)) for t, mass in zip(totals, masses, strict=True))
    return math.sqrt(math.fsum(squares) / math.fsum(masses))


@pytest.mark.parametrize("row", rows("Against the central model"), ids=" ".join)
def test_central_table(row):
    errors = []
    for conditioned in (False, True):
        protocol = sdp.find("histogram", "discrete-laplace").calibrate(
            users=10**6, domain_size=int(row[0]), epsilon=1.0, delta=1e-6, conditioned=conditioned
        )
        errors.append(f"{protocol.expected_error().rmse:.3f}")
    assert row[1:] == errors
    assert errors[1] == f"{conditioned_error(int(row[0]), 1.0):.3f}"


def test_ratios_to_the_central_model():
    settings = {"users": 10**6, "epsilon": 1.0, "delta": 1e-6}
    kind = sdp.find("histogram", "correlated-noise")
    many, few = (kind.calibrate(domain_size=size, **settings).expected_error().rmse for size in (1000, 12))
    assert f"{many:.2f} {many / conditioned_error(1000, 1.0):.3f}" == "3.11 1.114"
    assert f"{few:.2f} {few / conditioned_error(12, 1.0):.2f}" == "2.98 1.19"
    best = kind.calibrate(domain_size=12, split=0.98, **settings)
    assert f"{best.expected_error().rmse / conditioned_error(12, 1.0):.2f}" == "1.09"
    assert best.cost.messages_per_user < 1.1
    added = sdp.find("histogram", "discrete-laplace").calibrate(domain_size=1000, **settings | {"epsilon": 2.0})
    assert f"{added.expected_error().rmse:.2f}" == "1.36"


@pytest.mark.parametrize("row", rows("Quantiles"), ids=" ".join)
def test_quantiles(row):
    branching = tuple(map(int, row[0].split()))
    settings = {"users": 10**6, "epsilon": 1.0, "delta": 1e-6, "domain": sdp.Bins(0, 1, 1024), "branching": branching}
    tree = sdp.find("quantiles", "uniform-blanket").calibrate(**settings)
    noises = tree.noises(tree.users)
    worst = TreeAnalysis(tree.tree, noises, noises).standard_errors.max()
    assert row[1:] == [
        f"{tree.users * tree.blankets[0].mean / tree.tree.sizes[0]:.1f}",
        f"{tree.cost.messages_per_user:.2f}",
        f"{tree.expected_error().rmse:.1f}",
        f"{worst:.1f}",
        f"{sdp.find('quantiles', 'discrete-laplace').calibrate(**settings).expected_error().rmse:.1f}",
    ]


@pytest.mark.parametrize("row", rows("Quantiles with correlated noise"), ids=" ".join)
def test_quantiles_with_correlated_noise(row):
    settings = {"users": 10**6, "epsilon": 1.0, "delta": 1e-6, "domain": sdp.Bins(0, 1, 1024)}
    tree = sdp.find("quantiles", "correlated-noise").calibrate(
        **settings, branching=tuple(map(int, row[0].split())), split=float(row[1])
    )
    noises = tree.noises(tree.users)
    worst = TreeAnalysis(tree.tree, noises, noises).standard_errors.max()
    assert row[2:] == [
        f"{float(tree.flood_shape * tree.flood_ratio.fraction / tree.flood_ratio.complement.fraction):.1f}",
        f"{noises[0].variance ** 0.5:.2f}",
        f"{tree.cost.messages_per_user:.2f}",
        f"{tree.expected_error().rmse:.1f}",
        f"{worst:.1f}",
    ]


@pytest.mark.parametrize("row", rows("The fewest users"), ids=" ".join)
def test_fewest_users(row):
    epsilon, delta = float(row[0]), float(row[1])
    assert [int(cell) for cell in row[2:]] == [
        corollary_24_users(epsilon, delta),
        least_users(epsilon, delta, BinomialCount),
        corollary_24_users(epsilon / 2, delta / 2),
        least_users(epsilon, delta, BinomialHistogram),
    ]


@pytest.mark.parametrize("row", rows("Fewer honest users than planned"), ids=" ".join)
def test_honest_users(row):
    cells = []
    for kind, settings in ((sdp.BalcerCheuCount, {}), (sdp.BalcerCheuHistogram, {"domain_size": 2})):
        planned = kind.calibrate(users=10_000, epsilon=1.0, delta=1e-6, **settings)
        try:
            actual = kind.with_noise(
                users=10_000,
                absence=planned.absence,
                delta=1e-6,
                honest_fraction=float(row[0].rstrip("%")) / 100,
                **settings,
            )
            cells.append(f"{actual.guarantee.epsilon:.3f}")
        except sdp.ShuffledpError:
            cells.append("none")
    assert row[1:] == cells


@pytest.mark.parametrize("row", rows("Noise that is no longer added"), ids=" ".join)
def test_removed_slack(row):
    """The numbers of today; those of before are printed as they were, and all larger."""
    users, kind, setting, epsilon, delta, _, before, now = row
    question, name = kind.strip("`").split("/")
    number = int(setting.split()[0].replace(",", "")) if setting else 5
    settings = {"domain_size": 1_000, "buckets": number} if "buckets" in setting else {"domain_size": number}
    if name == "almost-central":
        settings = {"levels": number, "domain": sdp.Interval(0, 1)}
    protocol = sdp.find(question, name).calibrate(
        users=int(users), epsilon=float(epsilon), delta=float(delta), **(settings if question != "count" else {})
    )
    if name == "almost-central":
        noise = (protocol.cost.messages_per_user - 1) * int(users)
    elif name == "cheu":
        noise = int(users) * float(protocol.flip)
    elif name == "hashed-blanket":
        noise = protocol.blanket.mean
    else:
        noise = float(protocol.blanket) / 2 if number == 2 else int(users) * float(protocol.blanket) / number
    assert f"{noise:.4g}" == f"{float(now):.4g}"
    assert noise < float(before)
