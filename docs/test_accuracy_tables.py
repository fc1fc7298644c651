"""The tables of numbers on the accuracy page are what the library computes."""

import re
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.calibration import least_users
from shuffledp.privacy.smooth import corollary_24_users

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
    return protocol.users * float(protocol.noise.absence)


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
                absence=planned.noise.absence,
                delta=1e-6,
                honest_fraction=float(row[0].rstrip("%")) / 100,
                **settings,
            )
            cells.append(f"{actual.guarantee.epsilon:.3f}")
        except sdp.ShuffledpError:
            cells.append("none")
    assert row[1:] == cells
