"""Composition is for parameters that are fixed in advance; whoever chooses them after a release can exceed delta.

The number is in the documentation of the analyzer's ledger (``docs/collection/analyzer.md``).
"""

import math

import numpy as np
from scipy.stats import binom

import shuffledp as sdp
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import is_within

USERS, DELTA = 10_000, 1e-6


def tokens(mean: float) -> sdp.BalcerCheuCount:
    return sdp.BalcerCheuCount.with_noise(users=USERS, absence=mean / USERS, delta=DELTA)


def view(protocol: sdp.BalcerCheuCount) -> tuple[np.ndarray, np.ndarray]:
    """The number of absent tokens and its law if the user holds a 0 and a 1: the worse direction for large epsilons."""
    noise = binom.pmf(np.arange(600), USERS, float(protocol.absence))
    return np.append(noise, 0.0), np.append(0.0, noise)


def divergence(pair: tuple[np.ndarray, np.ndarray], growths: np.ndarray) -> np.ndarray:
    p, q = pair
    return np.array([np.maximum(p - growth * q, 0.0).sum() for growth in growths])


def test_a_second_release_chosen_by_the_first_exceeds_delta_although_either_choice_is_allowed():
    first, noisy = tokens(150.0), tokens(36.42)
    coin = sdp.find("count", "randomized-response").calibrate(users=USERS, epsilon=0.64521, delta=DELTA)
    for second in (noisy, coin):
        assert is_within(compose_all([first.guarantee.curve, second.guarantee.curve]), 1.0, DELTA)

    lie = 1 / (1 + math.exp(coin.guarantee.local_epsilon))
    answers = np.array([1 - lie, lie])
    p, q = view(first)
    growths = math.e * q[p > 0] / p[p > 0]
    chosen = [divergence(view(noisy), growths), divergence((answers, answers[::-1]), growths)]
    either = [float(p[p > 0] @ delta) for delta in chosen]
    assert max(either) <= DELTA
    assert min(either) > 0.99 * DELTA
    assert 1.98 * DELTA < float(p[p > 0] @ np.maximum(*chosen)) < 2 * DELTA  # an author who has seen the first release
