"""The largest of very many: tails far out, quantiles, order statistics."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from shuffledp.lab.problems.extremes import NOTHING, BinomialTail, EmptyItems, LaplaceTail
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

RATE = Dyadic.at_least(0.2689)
HALF_EPSILON = Dyadic.at_least(math.exp(-0.5))


def exact_log_tail(trials, probability, k):
    with mpmath.workdps(60):
        rate = mpmath.mpf(probability.numerator) / 2**probability.bits
        term = mpmath.binomial(trials, k) * rate**k * (1 - rate) ** (trials - k)
        total = mpmath.mpf(0)
        for j in range(k, trials + 1):
            total += term
            if term < total * mpmath.mpf(10) ** -40:
                break
            term *= (trials - j) * rate / ((j + 1) * (1 - rate))
        return float(mpmath.log(total))


@pytest.mark.parametrize(
    "probability", [RATE, RATE.complement, Dyadic.at_least(1e-4), Dyadic.at_least(1e-4).complement]
)
@pytest.mark.parametrize("trials", [1, 2, 50, 3000])
def test_binomial_tails_against_many_digits(trials, probability):
    distribution = BinomialTail(Binomial(trials, probability))
    for k in sorted(
        {0, 1, trials // 2, trials - 1, trials, min(trials, int(distribution.distribution.mean) + 1), int(0.9 * trials)}
    ):
        assert distribution.log_upper_tail(k) == pytest.approx(
            exact_log_tail(trials, probability, k), rel=1e-11, abs=1e-11
        )
    assert distribution.log_upper_tail(trials + 1) == -math.inf


def test_binomial_tails_of_very_many_users():
    trials = 371_200_000
    distribution = BinomialTail(Binomial(trials, RATE))
    for k in (int(distribution.distribution.mean) + 10**6, 144_730_134, trials - 5):
        assert distribution.log_upper_tail(k) == pytest.approx(exact_log_tail(trials, RATE, k), rel=1e-12)


def test_laplace_tails():
    distribution = LaplaceTail(HALF_EPSILON)
    ratio = float(HALF_EPSILON)
    points = np.arange(-400, 401)
    masses = (1 - ratio) / (1 + ratio) * ratio ** np.abs(points)
    for k in (-30, -1, 0, 1, 2, 50):
        assert distribution.log_upper_tail(k) == pytest.approx(math.log(masses[points >= k].sum()), rel=1e-12)


@pytest.mark.parametrize("distribution", [BinomialTail(Binomial(3000, RATE)), LaplaceTail(HALF_EPSILON)])
def test_quantiles_are_the_last_points_above(distribution):
    levels = np.concatenate((-np.geomspace(1e-12, 1, 40), -np.geomspace(1, 3900, 200)))
    for level, k in zip(levels, distribution.quantile(levels).tolist(), strict=True):
        assert distribution.log_upper_tail(k) > level >= distribution.log_upper_tail(k + 1)


def pmf_of_largest(masses, number, rank):
    """Pr[the rank-th largest of so many is k], for rank 1 or 2."""
    below = np.cumsum(masses)
    at_most = below**number
    if rank == 2:
        at_most = at_most + number * below ** (number - 1) * (1 - below)
    return np.maximum(np.diff(np.concatenate(([0.0], at_most))), 0.0)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("number", [2, 50, 10**6])
def test_order_statistics_of_a_binomial(number, rank):
    """100,000 rounds against the exact distribution. The fault: a tenth (or one more) of the items."""
    empty = BinomialTail(Binomial(40, Dyadic.at_least(0.3)))
    distribution = pmf_of_largest(stats.binom.pmf(np.arange(41), 40, 0.3), number, rank)

    def seen(items):
        return np.bincount(EmptyItems(empty, math.log(items)).largest(100_000, 2, SYSTEM)[:, rank - 1], minlength=41)

    assert p_value(seen(number), distribution) > ALPHA
    assert p_value(seen(number // 10 if number > 2 else 3), distribution) < ALPHA


def test_order_statistics_of_laplace_noise():
    """100,000 rounds against the exact pmf, over twenty items and over e^40. The fault: a tenth of the items."""
    empty, ratio = LaplaceTail(HALF_EPSILON), float(HALF_EPSILON)
    points = np.arange(-60, 200)
    masses = (1 - ratio) / (1 + ratio) * ratio ** np.abs(points)
    tails = np.array([math.exp(empty.log_upper_tail(int(k) + 1)) for k in points])
    for log_number in (math.log(20), 40.0):
        if log_number < 10:
            distribution = pmf_of_largest(masses, 20, 1)
        else:
            distribution = np.diff(np.concatenate(([0.0], np.exp(math.exp(log_number) * np.log1p(-tails)))))

        def seen(log_items):
            drawn = EmptyItems(empty, log_items).largest(100_000, 1, SYSTEM)[:, 0] + 60
            return np.bincount(np.clip(drawn, 0, 259), minlength=260)

        assert p_value(seen(log_number), distribution) > ALPHA
        assert p_value(seen(log_number - math.log(10)), distribution) < ALPHA


def test_the_largest_three_together_are_those_of_a_list():
    """30,000 rounds of twelve items, drawn and sorted. The fault: three independent largest ones."""
    empties = EmptyItems(BinomialTail(Binomial(6, Dyadic(1, 1))), math.log(12))
    listed = -np.sort(-np.random.default_rng().binomial(6, 0.5, (30_000, 12)), axis=1)[:, :3]
    drawn = empties.largest(30_000, 3, SYSTEM)
    apart = np.column_stack([empties.largest(30_000, 1, SYSTEM) for _ in range(3)])

    def table(rows):
        return np.bincount(rows @ np.array([49, 7, 1]), minlength=343)

    assert same_distribution(table(listed), table(drawn)) > ALPHA
    assert same_distribution(table(listed), table(-np.sort(-apart, axis=1))) < ALPHA


def test_few_or_no_items():
    distribution = BinomialTail(Binomial(6, Dyadic(1, 1)))
    assert (EmptyItems(distribution, -math.inf).largest(5, 2, SYSTEM) == NOTHING).all()
    assert EmptyItems(distribution, -math.inf).log_any_at_least(0) == -math.inf
    few = EmptyItems(distribution, math.log(2)).largest(5, 4, SYSTEM)
    assert (few[:, 2:] == NOTHING).all()
    assert (few[:, :2] >= 0).all()
    assert EmptyItems(distribution, 0.0).largest(0, 3, SYSTEM).shape == (0, 3)


def test_a_domain_known_by_its_logarithm_alone():
    """ln N = 1.28e7: the largest is where N times the tail is about 1."""
    distribution = BinomialTail(Binomial(407_000_000, RATE))
    largest = EmptyItems(distribution, 1.28e7).largest(1000, 2, SYSTEM)
    assert (largest[:, 0] >= largest[:, 1]).all()
    assert abs(1.28e7 + distribution.log_upper_tail(int(np.median(largest[:, 0])))) < 5
