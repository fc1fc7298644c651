"""Noise in shares: the distribution of one share, and of all shares together."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs
from shuffledp.protocols.parts.noise_shares import NoiseShares
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value

SHARES = NoiseShares(Dyadic.of(0.5), NegativeBinomialPairs(Fraction(3, 2), Dyadic.of(0.25)), planned=4)
MOST = 60


def negative_binomial(shape, ratio):
    """Pr[X = k] proportional to Gamma(k + shape) / k! * ratio^k."""
    return stats.nbinom.pmf(np.arange(MOST), float(shape), 1 - ratio)


def share_by_hand(users=1):
    """The joint distribution of the "+1" and "-1" of so many users' shares."""
    part = Fraction(users, 4)
    staying, flooding = negative_binomial(part, 0.5), negative_binomial(part * Fraction(3, 2), 0.25)
    table = np.zeros((MOST, MOST))
    for pairs in range(30):
        table[pairs:, pairs:] += flooding[pairs] * np.outer(staying, staying)[: MOST - pairs, : MOST - pairs]
    return table


def test_the_distribution_of_a_share_by_hand():
    pmf, table = SHARES.pmf(1e-5), share_by_hand()
    assert 1 - 1e-5 <= sum(pmf.values()) <= 1
    for (plus, minus), mass in pmf.items():
        assert mass == pytest.approx(table[plus, minus], rel=1e-6)


def test_the_mean_number_of_messages():
    """2 (1 + 1.5 / 3) / 4 by hand, and by the distribution."""
    assert SHARES.mean_messages == 0.75
    pmf = SHARES.pmf(1e-9)
    assert sum((plus + minus) * mass for (plus, minus), mass in pmf.items()) == pytest.approx(0.75, abs=1e-6)


def tables_of_draws(shares, cells):
    drawn = np.bincount(shares.draw(cells, SYSTEM), minlength=2 * cells).reshape(cells, 2)
    return np.histogram2d(drawn[:, 0], drawn[:, 1], bins=[np.arange(MOST + 1) - 0.5] * 2)[0]


def test_draws_have_the_distribution_of_a_share():
    """100,000 shares; flooding off by a quarter is caught."""
    table = share_by_hand()
    table /= table.sum()
    assert p_value(tables_of_draws(SHARES, 100_000), table) > ALPHA
    more = NegativeBinomialPairs(Fraction(3, 2) * Fraction(5, 4), Dyadic.of(0.25))
    wrong = NoiseShares(Dyadic.of(0.5), more, planned=4)
    assert p_value(tables_of_draws(wrong, 100_000), table) < ALPHA


@pytest.mark.parametrize("users", [1, 4, 6])
def test_totals_have_the_distribution_of_so_many_shares(users):
    """100,000 bins; the totals of another number of users are caught."""
    table = share_by_hand(users)
    table /= table.sum()

    def seen(of):
        plus, minus = SHARES.totals(of, 100_000, SYSTEM)
        return np.histogram2d(plus, minus, bins=[np.arange(MOST + 1) - 0.5] * 2)[0]

    assert p_value(seen(users), table) > ALPHA
    assert p_value(seen(users + 1), table) < ALPHA


@pytest.mark.parametrize("users", [4, 5, 8, 40])
def test_what_stays_when_pairs_cancel(users):
    """Tails, mean and variance against sums over the difference of two negative binomials."""
    noise = SHARES.remaining(users)
    one = stats.nbinom.pmf(np.arange(400), users / 4, 0.5)
    difference = np.convolve(one, one[::-1])  # from -399 on
    for k in (-30, -3, -1, 0, 1, 2, 7, 30):
        assert noise.upper_tail(k) == pytest.approx(difference[399 + k :].sum(), rel=1e-6, abs=1e-12)
        assert noise.lower_tail(k) == pytest.approx(difference[: 400 + k].sum(), rel=1e-6, abs=1e-12)
    assert noise.mean == 0
    assert noise.variance == pytest.approx(users / 4 * 2 * 0.5 / 0.25)


def test_no_cells_no_messages():
    assert SHARES.draw(0, SYSTEM).tolist() == []


RATES = {1: Fraction(1, 2), 3: Fraction(1), 4: Fraction(1)}
CLUSTERED = NoiseShares(Dyadic.of(0.5), PairClusters(Fraction(5, 2), ((1, 1, 1), (3, 4, 2)), Fraction(3, 4)), planned=4)


def poisson(rate):
    return stats.poisson.pmf(np.arange(MOST), float(rate))


def clusters_by_hand(users):
    """The joint distribution of "+1" and "-1" from clusters, singles and geometric noise of so many users."""
    part = Fraction(users, 4)
    pairs = np.eye(1, MOST)[0]
    for size, rate in RATES.items():
        numbers = np.zeros(MOST)
        numbers[::size] = poisson(part * rate)[: len(numbers[::size])]
        pairs = np.convolve(pairs, numbers)[:MOST]
    minus = negative_binomial(part, 0.5)
    plus = np.convolve(minus, poisson(part * Fraction(3, 4)))[:MOST]
    table = np.zeros((MOST, MOST))
    for number, mass in enumerate(pairs):
        table[number:, number:] += mass * np.outer(plus, minus)[: MOST - number, : MOST - number]
    return table


def test_the_distribution_of_a_share_with_clusters():
    pmf, table = CLUSTERED.pmf(1e-5), clusters_by_hand(1)
    assert 1 - 1e-5 <= sum(pmf.values()) <= 1
    for (plus, minus), mass in pmf.items():
        assert mass == pytest.approx(table[plus, minus], rel=1e-5, abs=1e-9)
    mean = sum((plus + minus) * mass for (plus, minus), mass in CLUSTERED.pmf(1e-9).items())
    assert CLUSTERED.mean_messages == pytest.approx((2 * (1 + 7.5) + 0.75) / 4)
    assert mean == pytest.approx(CLUSTERED.mean_messages, abs=1e-6)


@pytest.mark.parametrize(
    "fault",
    [
        PairClusters(Fraction(5, 2) * Fraction(21, 20), ((1, 1, 1), (3, 4, 2)), Fraction(3, 4)),
        PairClusters(Fraction(5, 2), ((1, 1, 1), (3, 4, 2)), Fraction(3, 4) * Fraction(9, 8)),
        PairClusters(Fraction(5, 2), ((1, 1, 1), (3, 3, 2), (4, 4, 3)), Fraction(3, 4)),
        PairClusters(Fraction(5, 2), ((1, 1, 1), (3, 5, 2)), Fraction(3, 4)),
    ],
    ids=["rate", "singles", "weight", "size"],
)
def test_draws_have_the_distribution_of_a_share_with_clusters(fault):
    """200,000 shares, over the whole table; every kind of wrong parameter is caught."""
    table = clusters_by_hand(1)
    table /= table.sum()
    assert p_value(tables_of_draws(CLUSTERED, 200_000), table) > ALPHA
    assert p_value(tables_of_draws(NoiseShares(Dyadic.of(0.5), fault, planned=4), 200_000), table) < ALPHA


@pytest.mark.parametrize("users", [1, 4, 6])
def test_totals_with_clusters(users):
    """100,000 bins; the totals of another number of users are caught."""
    table = clusters_by_hand(users)
    table /= table.sum()

    def seen(of):
        plus, minus = CLUSTERED.totals(of, 100_000, SYSTEM)
        return np.histogram2d(plus, minus, bins=[np.arange(MOST + 1) - 0.5] * 2)[0]

    assert p_value(seen(users), table) > ALPHA
    assert p_value(seen(users + 1), table) < ALPHA


@pytest.mark.parametrize("users", [4, 6, 40])
def test_what_stays_with_singles(users):
    noise = CLUSTERED.remaining(users)
    one = stats.nbinom.pmf(np.arange(400), users / 4, 0.5)
    difference = np.convolve(np.convolve(one, one[::-1]), stats.poisson.pmf(np.arange(200), 0.75 * users / 4))
    for k in (-30, -3, 0, 1, 2, 7, 30):
        assert noise.upper_tail(k) == pytest.approx(difference[399 + k :].sum(), rel=1e-6, abs=1e-12)
        assert noise.lower_tail(k) == pytest.approx(difference[: 400 + k].sum(), rel=1e-6, abs=1e-12)
    assert noise.mean == pytest.approx(0.75 * users / 4)
    assert noise.variance == pytest.approx(users / 4 * (2 * 0.5 / 0.25 + 0.75))


@pytest.mark.parametrize("bins", [1, 7])
def test_the_length_of_a_report_with_clusters(bins):
    """Upper bounds on the probability of more messages, against the convolution of all parts; within 1e-6."""
    parts = [stats.nbinom.pmf(np.arange(600), 2 * bins / 4, 0.5), stats.poisson.pmf(np.arange(600), bins * 0.75 / 4)]
    for size, rate in RATES.items():
        numbers = np.zeros(600)
        numbers[:: 2 * size] = stats.poisson.pmf(np.arange(len(numbers[:: 2 * size])), bins * float(rate) / 4)
        parts.append(numbers)
    masses = parts[0]
    for part in parts[1:]:
        masses = np.convolve(masses, part)[:600]
    for messages in (0, 1, 5, 20, 60):
        exact = masses[messages + 1 :].sum()
        assert exact * (1 - 1e-9) <= CLUSTERED.chance_of_more(messages, bins) <= exact * (1 + 1e-6) + 1e-15
