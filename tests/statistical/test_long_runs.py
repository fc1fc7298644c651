"""Long runs of whole rounds, message by message: ``make test-slow``.

What the quick tests check on small samples is checked here where a fault ten times smaller shows.
"""

import math

import numpy as np
import pytest
from scipy import stats

from shuffledp import BalcerCheuCount, BalcerCheuHistogram, permute
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import count_delta
from shuffledp.randomness import Dyadic, bernoulli
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.slow


def test_a_probability_off_by_half_a_per_cent_is_noticed():
    """Two hundred million bits at q = 0.0043."""
    probability = Dyadic.at_least(0.0043)
    size = 200_000_000
    ones = sum(int(bernoulli(probability, 20_000_000).sum()) for _ in range(size // 20_000_000))
    share = float(probability)
    assert p_value([size - ones, ones], [1 - share, share]) > ALPHA
    assert p_value([size - ones, ones], [1 - 1.0075 * share, 1.0075 * share]) < ALPHA


def test_all_permutations_of_six():
    """720 cells, 300,000 shuffles."""
    weights = 6 ** np.arange(6)
    codes = np.empty(300_000, dtype=np.int64)
    for trial in range(len(codes)):
        items = np.arange(6)
        permute(items)
        codes[trial] = items @ weights
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == math.factorial(6)
    assert p_value(counts, np.full(720, 1 / 720)) > ALPHA


def test_intervals_and_zeros_over_many_rounds_of_messages():
    """6,000 rounds with categories of 0, 1, 5, 20 and many holders; each interval holds its level."""
    counts = np.array([0, 1, 5, 20, 60, 914])
    users = int(counts.sum())
    protocol = BalcerCheuHistogram.calibrate(users=users, domain_size=6, epsilon=1, delta=1e-4)
    values = np.repeat(np.arange(6), counts)
    held = np.zeros(6)
    rounds = 6_000
    squares = np.zeros(6)
    for _ in range(rounds):
        estimate = protocol.run(values, route="messages")
        low, high = estimate.interval(0.9).T
        held += (low <= counts) & (counts <= high)
        squares += (estimate.counts - counts) ** 2
        assert estimate.counts[0] == 0.0
    for place, covered in enumerate(held):
        assert stats.binom.cdf(covered, rounds, 0.9) > ALPHA, place
    predicted = [protocol.expected_error(counts=counts[place : place + 1]).rmse for place in range(6)]
    assert np.sqrt(squares / rounds)[1:] == pytest.approx(predicted[1:], rel=0.07)


def test_the_exact_delta_is_what_the_real_protocol_shows():
    """The likeliest distinguishing event, counted over rounds of real messages on neighbouring data.

    The difference of frequencies must agree with the exact delta; a delta of half the size would not.
    """
    users, absence, epsilon, rounds = 12, 0.25, 0.5, 150_000
    protocol = BalcerCheuCount.with_noise(users=users, absence=absence, delta=0.5)
    noise = Binomial(users, Dyadic.of(absence))
    exact = count_delta(noise, epsilon)
    tables = []
    for holders in (3, 4):
        bits = np.tile(np.arange(users) < holders, rounds).astype(np.int64)
        tokens = protocol.randomize_all(bits).values.reshape(rounds, -1).sum(axis=1, dtype=np.int64)
        tables.append(np.bincount(tokens, minlength=2 * users + 1) / rounds)
    growth = math.exp(epsilon)
    points = np.arange(2 * users + 1)
    distributions = [noise.pmf(holders + users - points) for holders in (3, 4)]
    found = []
    for first, second in ((0, 1), (1, 0)):
        event = distributions[first] > growth * distributions[second]
        found.append(float(tables[first][event].sum() - growth * tables[second][event].sum()))
    spread = math.sqrt((1 + growth**2) * 0.25 / rounds)
    assert abs(max(found) - exact) < 5.5 * spread
    assert abs(max(found) - exact / 2) > 5.5 * spread
