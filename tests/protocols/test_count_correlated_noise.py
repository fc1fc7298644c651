"""A count with correlated noise: nearly the central error, with few messages more than one each."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import BelowMinimumError, ParameterError, ShuffledpError
from shuffledp.messages import Tally
from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs
from shuffledp.protocols.count.correlated_noise import CorrelatedNoiseCount
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

FLOOD = NegativeBinomialPairs(Fraction(2), Dyadic.of(0.25))


def calibrated(epsilon=1.0, users=10_000, **more) -> CorrelatedNoiseCount:
    return CorrelatedNoiseCount.calibrate(users=users, epsilon=epsilon, delta=1e-6, **more)


def central(epsilon):
    return math.sqrt(2 * math.exp(-epsilon)) / (1 - math.exp(-epsilon))


@pytest.mark.parametrize(("epsilon", "flood"), [(0.5, 551), (1.0, 300), (2.0, 163)])
def test_printed_numbers(epsilon, flood):
    """Reference values: the flooding of the paper's encoding, and 1.11 to 1.15 times the central error."""
    protocol = calibrated(epsilon, encoding="unary")
    assert protocol.flood.mean_pairs < flood  # clusters need fewer pairs than a negative binomial number
    assert float(protocol.ratio) == pytest.approx(math.exp(-0.9 * epsilon), rel=1e-9)
    assert protocol.expected_error().rmse == pytest.approx(central(0.9 * epsilon), rel=1e-9)
    assert 1.10 < protocol.expected_error().rmse / central(epsilon) < 1.16
    assert protocol.guarantee.delta_at(epsilon) <= 1e-6


@pytest.mark.parametrize(("epsilon", "flood"), [(0.5, 4422), (1.0, 2200), (2.0, 1089)])
def test_the_papers_flooding(epsilon, flood):
    protocol = calibrated(epsilon, encoding="unary", calibration="paper")
    assert protocol.flood.mean_pairs == pytest.approx(flood, rel=0.002)
    assert protocol.guarantee.delta_at(epsilon) <= 1e-6


def test_the_signed_encoding_is_as_good():
    """Everybody sends a sign, and half of noise twice as wide is left: the same error up to rounding."""
    protocol = calibrated()
    assert protocol.expected_error().rmse / central(1.0) < 1.20
    assert protocol.cost.messages_per_user == pytest.approx(1, abs=0.3)
    for bit in (0, 1):
        pmf = protocol.report_pmf(bit)
        assert all(plus + minus >= 1 for plus, minus in pmf)


def test_the_number_of_messages_does_not_depend_on_the_value():
    protocol = CorrelatedNoiseCount(Target(2, 9.0, 0.9), Dyadic.of(0.25), FLOOD)
    sizes = []
    for bit in (0, 1):
        pmf = {}
        for report, mass in protocol.report_pmf(bit).items():
            pmf[sum(report)] = pmf.get(sum(report), 0) + mass
        sizes.append(pmf)
    assert sizes[0] == pytest.approx(sizes[1])
    mean = sum(size * mass for size, mass in sizes[0].items())
    assert protocol.cost.messages_per_user == pytest.approx(mean, abs=1e-3)


def test_a_larger_split_means_less_error_and_more_messages():
    few, many = calibrated(split=0.6), calibrated(split=0.97)
    assert few.expected_error().rmse > many.expected_error().rmse
    assert few.cost.messages_per_user < many.cost.messages_per_user
    assert {each["split"] for each in CorrelatedNoiseCount.alternatives()} == {0.97, 0.6}


@pytest.mark.parametrize("encoding", ["signed", "unary"])
@pytest.mark.parametrize("users", [100, 150])
def test_released_numbers_have_the_distribution_of_the_noise(encoding, users):
    """20,000 rounds of as many, or half as many more, users than planned; 5 % less noise is caught."""
    protocol = calibrated(users=100, encoding=encoding)
    share, ratio = users / 100, float(protocol.ratio)
    one = stats.nbinom.pmf(np.arange(2000), share, 1 - ratio)
    distribution = np.convolve(one, one[::-1])[1999 - 300 : 1999 + 301]
    plus, minus = protocol.shares.totals(users, 20_000, SYSTEM)
    seen = np.bincount(np.clip(plus - minus + 300, 0, 600), minlength=601)
    assert p_value(seen, distribution / distribution.sum()) > ALPHA
    slope = 2 if encoding == "signed" else 1
    error = protocol.analysis(users).expected_error(0.95)
    assert error.rmse == pytest.approx(math.sqrt(2 * share * ratio) / (1 - ratio) / slope, rel=1e-9)
    less = np.bincount(np.clip(np.round(0.8 * (plus - minus)).astype(int) + 300, 0, 600), minlength=601)
    assert p_value(less, distribution / distribution.sum()) < ALPHA


@pytest.mark.parametrize("encoding", ["signed", "unary"])
def test_both_routes_agree(encoding):
    """600 rounds of 5 users each way, on the difference of the signs. The fault: two users answer the other way."""
    protocol = CorrelatedNoiseCount(Target(5, 9.0, 0.9), Dyadic.of(0.5), FLOOD, encoding)
    values, counts = np.array([1, 1, 0, 0, 0]), np.array([3, 2])
    fast = [int(protocol.observed(protocol.sample_tally(counts))[0]) for _ in range(600)]
    slow = [int(protocol.observed(protocol.tally(protocol.randomize_all(values)))[0]) for _ in range(600)]
    tables = [np.bincount(np.clip(np.array(each) + 30, 0, 60), minlength=61) for each in (fast, slow)]
    assert same_distribution(*tables) > ALPHA
    assert same_distribution(tables[0], np.roll(tables[1], 4)) < ALPHA


def test_intervals_hold_their_confidence():
    """The exact coverage over the noise, for every count of 20 users."""
    protocol = calibrated(users=20)
    noise = protocol.shares.remaining(20)
    outcomes = np.arange(-80, 81)
    pmf = np.array([float(noise.upper_tail(int(k)) - noise.upper_tail(int(k) + 1)) for k in outcomes])
    analysis = protocol.analysis(20)
    for ones in range(21):
        ends = analysis.intervals(2 * ones - 20 + outcomes)(0.9)
        assert pmf[(ends[:, 0] <= ones + 1e-9) & (ends[:, 1] >= ones - 1e-9)].sum() >= 0.9


def test_honest_users_carry_all_the_noise():
    half = calibrated(users=10_000, honest_fraction=0.5)
    assert half.shares.planned == 5000
    assert half.expected_error().rmse == pytest.approx(math.sqrt(2) * calibrated().expected_error().rmse, rel=1e-6)


def test_tallies_that_cannot_be():
    protocol = calibrated(users=100)
    with pytest.raises(ParameterError, match="at least"):
        protocol.estimate(Tally(np.array([40, 40]), 100))
    with pytest.raises(ParameterError):
        protocol.estimate(Tally(np.array([100]), 100))
    with pytest.raises(BelowMinimumError):
        protocol.estimate(Tally(np.array([99, 0]), 99))
    assert protocol.sample_tally(np.array([0, 0])).users == 0


@pytest.mark.parametrize("wrong", [{"split": 0}, {"split": 1}, {"split": -1}, {"split": math.nan}])
def test_splits_that_mean_nothing(wrong):
    with pytest.raises(ShuffledpError):
        calibrated(**wrong)


def test_an_unknown_encoding():
    with pytest.raises(ParameterError, match="signed or unary"):
        calibrated(encoding="binary")


def test_too_little_noise_is_not_claimed():
    with pytest.raises(ParameterError, match="more than the claimed"):
        CorrelatedNoiseCount(Target(100, 1.0, 1e-6), Dyadic.of(0.25), FLOOD).guarantee  # noqa: B018


def test_a_count_has_no_singles():
    flood = PairClusters(Fraction(20), ((2, 4, 1),), Fraction(1))
    with pytest.raises(ParameterError, match="no singles"):
        CorrelatedNoiseCount(Target(100, 1.0, 1e-6), Dyadic.of(0.25), flood)
