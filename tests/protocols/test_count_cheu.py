"""The shuffled binary sum of Cheu et al.: lambda by Lemma 4.8 in both regimes, and the printed numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import BelowMinimumError, ConditionError, InfeasibleError, ParameterError
from shuffledp.protocols.count.cheu import CheuCount, theorem_4_11_error
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value


def calibrated(epsilon=1.0, delta=1e-6, users=10_000, **more) -> CheuCount:
    return CheuCount.calibrate(users=users, epsilon=epsilon, delta=delta, **more)


def noise(protocol: CheuCount) -> float:
    """lambda"""
    return float(protocol.blanket) * protocol.users


@pytest.mark.parametrize(("users", "expected"), [(10**4, 3830.06550257), (10**6, 3891.66205929)])
def test_golden_lambdas_of_both_regimes(users, expected):
    protocol = calibrated(0.5, users=users, calibration="paper")
    assert noise(protocol) == pytest.approx(expected, rel=1e-10)
    assert protocol.guarantee.theorem == "Cheu et al. 2019, Lemma 4.8"
    assert protocol.guarantee.delta_at(0.4) < 1e-6


def test_the_paper_against_the_least_noise():
    """Reference values at (1, 1e-6), n = 1e4: lambda 993 at 0.99 by the paper, about 68 exactly, 85 by clones."""
    paper = calibrated(0.99, calibration="paper")
    assert noise(paper) == pytest.approx(993, abs=1)
    assert paper.expected_error().rmse ** 2 == pytest.approx(581, abs=1)
    tight = calibrated()
    assert 67 < noise(tight) < 86
    assert tight.expected_error().rmse == pytest.approx(5.8, abs=0.1)
    assert tight.guarantee.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize(
    ("epsilon", "delta", "users", "words"),
    [
        (0.5, 1e-6, 100, "14 ln"),
        (1.0, 1e-6, 10**5, "epsilon < 1"),
        (2.0, 1e-6, 10**5, "epsilon < 1"),
        (0.08, 1e-6, 10**4, "sqrt"),
        (0.5, 1e-12, 406, "14 ln"),
    ],
)
def test_conditions_of_the_lemma(epsilon, delta, users, words):
    with pytest.raises(ConditionError, match=words.replace("(", r"\(")):
        calibrated(epsilon, delta, users, calibration="paper")


def test_just_inside_the_conditions():
    """n = 14 ln(4/delta) rounded up, and epsilon just above its least: lambda stays below n."""
    users = math.ceil(14 * math.log(4 / 1e-6))
    least = math.sqrt(3456) / users * math.log(4 / 1e-6)
    assert least > 1  # no epsilon is left at all with so few
    with pytest.raises(ConditionError):
        calibrated(0.999, users=users, calibration="paper")
    users = 10_000
    least = math.sqrt(3456) / users * math.log(4 / 1e-6)
    protocol = calibrated(least * 1.0001, users=users, calibration="paper")
    assert 0 < noise(protocol) < users


def test_the_distribution_by_hand():
    """lambda / n = 1/4: a fair coin every fourth time."""
    protocol = CheuCount(Target(8, 5.0, 0.9), Dyadic(1, 3))
    assert protocol.blanket == Dyadic(1, 2)
    assert protocol.report_pmf(1) == {(1, 0): Fraction(1, 8), (0, 1): Fraction(7, 8)}
    assert protocol.report_pmf(0) == {(1, 0): Fraction(7, 8), (0, 1): Fraction(1, 8)}


def test_the_estimate_and_its_variance_are_the_papers():
    """S = n/(n - lambda) (ones - lambda/2), variance (n/(n - lambda))^2 lambda/2 (1 - lambda/(2n)) (Claim B.2)."""
    protocol = calibrated(users=1000, delta=1e-3)
    lam = noise(protocol)
    analysis = protocol.analysis(1000)
    assert analysis.estimate(np.array([300]), "unbiased")[0] == pytest.approx(1000 / (1000 - lam) * (300 - lam / 2))
    variance = (1000 / (1000 - lam)) ** 2 * lam / 2 * (1 - lam / 2000)
    assert protocol.expected_error().rmse == pytest.approx(math.sqrt(variance))


def test_both_routes_have_the_distribution_of_the_paper():
    """200,000 users with a 1; a lambda off by a tenth is caught."""
    protocol = CheuCount(Target(10, 5.0, 0.9), Dyadic.at_least(0.1))
    distribution = [0.1, 0.9]
    by_messages = protocol.tally(protocol.randomize_all(np.ones(200_000, dtype=int))).counts
    by_counts = protocol.sample_tally(np.array([0, 200_000])).counts
    assert p_value(by_messages, distribution) > ALPHA
    assert p_value(by_counts, distribution) > ALPHA
    wrong = CheuCount(protocol.target, Dyadic.at_least(0.11))
    assert p_value(wrong.sample_tally(np.array([0, 200_000])).counts, distribution) < ALPHA


def test_honest_users_alone_must_make_the_noise():
    whole, half = calibrated(users=5000), calibrated(users=10_000, honest_fraction=0.5)
    assert half.flip == whole.flip
    assert half.guarantee.honest_users == 5000


def test_what_one_report_alone_says():
    protocol = calibrated()
    flip = float(protocol.flip)
    assert protocol.guarantee.local_epsilon == pytest.approx(math.log((1 - flip) / flip), rel=1e-9)


def test_theorem_4_11():
    """n/(n - lambda) sqrt(2 lambda ln(2/beta)), and the certified radius is below it."""
    assert theorem_4_11_error(10_000, 100, 0.05) == pytest.approx(100 / 99 * math.sqrt(200 * math.log(40)))
    protocol = calibrated(0.5, calibration="paper")
    assert protocol.expected_error().max_error < theorem_4_11_error(10_000, noise(protocol), 0.05)
    for users, lam, beta in [(100, 1, 0.05), (100, 100, 0.05), (100, 50, 0), (100, 50, 1), (100, 50, math.nan)]:
        with pytest.raises(ConditionError):
            theorem_4_11_error(users, lam, beta)


def test_too_few_users():
    with pytest.raises(InfeasibleError, match="too few"):
        calibrated(1e-4, users=20)
    with pytest.raises(BelowMinimumError):
        calibrated(users=1000).run([1] * 999)


def test_too_little_noise_is_not_claimed():
    with pytest.raises(ParameterError, match="more than the claimed"):
        CheuCount(Target(10_000, 1.0, 1e-6), Dyadic.at_least(0.001)).guarantee  # noqa: B018


@pytest.mark.parametrize("flip", [Dyadic(3, 2), Dyadic(1, 0)])
def test_more_than_every_other_bit_flipped(flip):
    with pytest.raises(ParameterError):
        CheuCount(Target(10, 1.0, 0.5), flip)


def test_a_round_is_about_right():
    protocol = calibrated()
    estimate = protocol.run(np.arange(10_000) < 4000)
    assert abs(estimate.value - 4000) < 60
    low, high = estimate.interval(0.999999)
    assert low < estimate.value < high
    assert estimate.standard_error == pytest.approx(protocol.expected_error().rmse)
