"""Noise in shares: the distribution of one share, and of all shares together."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.protocols.parts.noise_shares import NoiseShares
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value

SHARES = NoiseShares(Dyadic.of(0.5), Fraction(3, 2), Dyadic.of(0.25), planned=4)
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
    wrong = NoiseShares(Dyadic.of(0.5), Fraction(3, 2) * Fraction(5, 4), Dyadic.of(0.25), planned=4)
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
