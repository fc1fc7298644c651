"""The printed tables of exact numbers: noise, least users, error radii, large epsilon, honest fractions."""

import json
import math
from pathlib import Path

import pytest

from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.privacy.balcer_cheu import least_users, paper_noise, tight_noise
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.calibration import honest_count
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.smoothness import corollary_24_users, lemma_23_mean
from shuffledp.protocols.count.balcer_cheu import theorem_11_alpha
from shuffledp.protocols.parts.postprocessing import SurplusAnalysis
from shuffledp.randomness import Dyadic

TABLES = json.loads((Path(__file__).parent / "spec_tables.json").read_text())


def rows(name: str, *, every: int = 1):
    """The rows of a table; of a dear one every so many, and the others in the slow tests."""
    return [
        pytest.param(
            row,
            id="-".join(f"{row[key]:g}" for key in ("epsilon", "delta")),
            marks=[pytest.mark.slow] if place % every else [],
        )
        for place, row in enumerate(TABLES[name])
    ]


@pytest.mark.parametrize("row", rows("count_noise"))
def test_noise_of_a_count(row):
    users, epsilon, delta = row["users"], row["epsilon"], row["delta"]
    if row["tight_rate"] is None:
        with pytest.raises(InfeasibleError):
            tight_noise(users, epsilon, delta, BinomialCount)
    else:
        curve = Binomial(users, tight_noise(users, epsilon, delta, BinomialCount))
        assert float(curve.probability) == pytest.approx(row["tight_rate"], rel=6e-4)
        assert curve.variance == pytest.approx(row["tight_variance"], rel=2e-3)
        assert BinomialCount(curve).delta_at(epsilon) <= delta
    if row["paper_rate"] is None:
        with pytest.raises(ConditionError, match="users"):
            paper_noise(users, epsilon, delta, coordinates=1)
    else:
        curve = Binomial(users, paper_noise(users, epsilon, delta, coordinates=1))
        assert float(curve.probability) == pytest.approx(row["paper_rate"], rel=6e-4)
        assert least_epsilon(BinomialCount(curve), delta) == pytest.approx(row["paper_true_epsilon"], abs=1.01e-4)
    if row["lemma_23_variance"] is not None:
        mean = lemma_23_mean(epsilon, delta)
        assert mean * (1 - mean / users) == pytest.approx(row["lemma_23_variance"], rel=1e-3)


@pytest.mark.parametrize("row", rows("histogram_noise", every=2))
def test_noise_of_a_histogram(row):
    users, epsilon, delta = row["users"], row["epsilon"], row["delta"]
    if row["tight_mean"] is None:
        with pytest.raises(InfeasibleError):
            tight_noise(users, epsilon, delta, BinomialHistogram)
    else:
        rate = tight_noise(users, epsilon, delta, BinomialHistogram)
        assert users * float(rate) == pytest.approx(row["tight_mean"], abs=0.051)
        assert BinomialHistogram(Binomial(users, rate)).delta_at(epsilon) <= delta
    if row["paper_mean"] is None:
        with pytest.raises(ConditionError, match="users"):
            paper_noise(users, epsilon, delta, coordinates=2)
    else:
        assert users * float(paper_noise(users, epsilon, delta, coordinates=2)) == pytest.approx(
            row["paper_mean"], abs=0.051
        )


@pytest.mark.parametrize("row", rows("least_users", every=4))
def test_least_users(row):
    epsilon, delta = row["epsilon"], row["delta"]
    assert corollary_24_users(epsilon, delta) == row["paper_count"]
    assert corollary_24_users(epsilon / 2, delta / 2) == row["paper_histogram"]
    # the table looks at the rate 1/2 only; a rate just below can do with one user less
    assert row["tight_count"] - 1 <= least_users(epsilon, delta, BinomialCount) <= row["tight_count"]
    assert least_users(epsilon, delta, BinomialHistogram) == row["tight_histogram"]


@pytest.mark.parametrize("row", rows("error_radius"))
def test_error_radius(row):
    users, epsilon, delta = row["users"], row["epsilon"], row["delta"]
    noise = Binomial(users, tight_noise(users, epsilon, delta, BinomialCount))
    assert SurplusAnalysis(noise, 1, risk=0.05).radius() == row["tight"]
    assert SurplusAnalysis(noise, 1, risk=0.05 / users).radius() == pytest.approx(row["tight_all"], abs=1)
    # the table gives each tail half of the risk; sharing it between the tails can do with less
    assert 0.9 * row["unbiased"] - 1 <= SurplusAnalysis(noise, 1, "unbiased", risk=0.05).radius() <= row["unbiased"] + 1
    if row["paper"] is not None:
        assert users * theorem_11_alpha(users, epsilon, delta, 0.05) == pytest.approx(row["paper"], abs=1)
        assert users * theorem_11_alpha(users, epsilon, delta, 0.05 / users) == pytest.approx(row["paper_all"], abs=1)


@pytest.mark.parametrize("row", rows("large_epsilon"))
def test_large_epsilon(row):
    users, epsilon, delta = 1_000_000, row["epsilon"], row["delta"]
    for curve, mean in ((BinomialCount, row["tight_count_mean"]), (BinomialHistogram, row["tight_histogram_mean"])):
        rate = tight_noise(users, epsilon, delta, curve)
        assert users * float(rate) == pytest.approx(mean, abs=0.0051)
        assert curve(Binomial(users, rate)).delta_at(epsilon) <= delta
    assert lemma_23_mean(epsilon, delta) == pytest.approx(row["lemma_23_mean"], abs=0.051)
    formula = 50 / epsilon**2 * math.log(2 / delta)
    true = BinomialCount(Binomial(users, Dyadic.at_least(formula / users))).delta_at(epsilon)
    assert true == pytest.approx(row["paper_true_delta"], rel=0.06)


@pytest.mark.parametrize("row", rows("honest_fraction"))
def test_honest_fraction(row):
    users, epsilon, delta = row["users"], row["epsilon"], row["delta"]
    for side, curve in enumerate((BinomialCount, BinomialHistogram)):
        rate = tight_noise(users, epsilon, delta, curve)
        for place, fraction in enumerate(row["fractions"]):
            left = curve(Binomial(honest_count(users, fraction), rate))
            expected = row["epsilon_at_delta"][place][side]
            assert least_epsilon(left, delta) == pytest.approx(math.inf if expected is None else expected, abs=1e-3)
            assert left.delta_at(epsilon) == pytest.approx(row["delta_at_epsilon"][place][side], rel=0.06)


POSTPROCESSING = [  # epsilon, delta, categories, threshold, unbiased, clipped, midpoint; a million users
    (1.0, 1e-6, 100, 66, 24, 24, 22.5),
    (1.0, 1e-6, 10_000, 74, 33, 33, 30.0),
    (1.0, 1e-6, 1_000_000, 82, 40, 40, 35.5),
    (1.0, 1e-6, 10**9, 82, 49, 40, 37.5),
    (1.0, 1e-8, 100, 90, 29, 29, 27.0),
    (1.0, 1e-8, 10_000, 100, 39, 39, 35.5),
    (1.0, 1e-8, 1_000_000, 108, 48, 48, 43.0),
    (1.0, 1e-8, 10**9, 108, 58, 48, 46.0),
    (0.5, 1e-8, 100, 252, 51, 51, 49.5),
]


@pytest.mark.parametrize(
    ("epsilon", "delta", "categories", "threshold", "unbiased", "clipped", "midpoint"), POSTPROCESSING
)
def test_radius_of_each_estimator(epsilon, delta, categories, threshold, unbiased, clipped, midpoint):
    noise = Binomial(1_000_000, tight_noise(1_000_000, epsilon, delta, BinomialHistogram))
    radius = {
        name: SurplusAnalysis(noise, categories, name).radius()
        for name in ("threshold", "unbiased", "clipped", "midpoint")
    }
    assert radius["threshold"] == threshold
    # the table gives each tail half of the risk; sharing it between the tails can do with less
    assert 0.93 * unbiased - 1 <= radius["unbiased"] <= unbiased + 1
    assert 0.93 * clipped - 1 <= radius["clipped"] <= clipped + 1
    assert 0.93 * midpoint - 1 <= radius["midpoint"] <= midpoint + 0.5
