"""Exact lower bounds on epsilon after shuffling, which no valid upper bound may fall below.

A guarantee holds for the worst data. So the exact divergence of *some* neighbouring data sets is a lower bound on
every valid guarantee for the same randomizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.amplification import two_response_delta
from shuffledp.privacy.amplification.clones import fair_mass, probability_at_most
from shuffledp.privacy.binomial import Binomial
from shuffledp.search import bisect_ratio

Floats = NDArray[np.float64]
DeltaOf = Callable[[float], float]

_DEVIATIONS = 8  # the tails beyond are omitted, which can only decrease the lower bound
_TOLERANCE = 2e-4
_ONES = (0, 8)
"""Numbers of other users who hold a 1: none is close to the worst case, a few can be slightly worse."""


def epsilon_upper_bound(delta_of: DeltaOf, delta: float, high: float, *, tolerance: float = _TOLERANCE) -> float:
    """An epsilon up to ``high`` that meets delta, at most 1 + ``tolerance`` times the least one."""
    return _crossing(delta_of, delta, high, tolerance)[1]


def _crossing(delta_of: DeltaOf, delta: float, high: float, tolerance: float) -> tuple[float, float]:
    """Two close epsilons: the curve is above delta at the first and at most delta at the second."""
    low = high / 4
    while low > 1e-12 and delta_of(low) <= delta:
        low, high = low / 4, low
    if low <= 1e-12:
        return 0.0, high
    return bisect_ratio(lambda epsilon: delta_of(epsilon) <= delta, low, high, ratio=1 + tolerance)


def two_answers_lower_bound(users: int, local_epsilon: float, delta: float) -> float:
    """Lower bound on epsilon of shuffled randomized response on bits, if nearly all other users hold a 0."""
    flip = 1 / (1 + math.exp(local_epsilon))

    def delta_of(epsilon: float) -> float:
        return max(two_response_delta(users, flip, epsilon, ones=ones) for ones in _ONES if ones < users)

    return _crossing(delta_of, delta, local_epsilon, _TOLERANCE)[0]


def response_lower_bound(users: int, local_epsilon: float, values: int, delta: float) -> float:
    """Lower bound on epsilon of shuffled randomized response on ``values`` >= 3, if all others hold a third value."""
    ratio = math.exp(local_epsilon)

    def delta_of(epsilon: float) -> float:
        return other_value_delta(epsilon, users, ratio, 1 / (ratio + values - 1))

    return _crossing(delta_of, delta, local_epsilon, _TOLERANCE)[0]


def other_value_delta(epsilon: float, users: int, ratio: float, rate: float) -> float:
    """The divergence among two or more users when the target sends one of two messages ``ratio`` times as often.

    The target sends the message of its own value with probability ratio * rate, the other one with probability
    ``rate``; each other user sends either with probability ``rate``; all other messages do not depend on the target's
    value. Given that t users sent one of the two, the likelihood ratio increases with the number that sent the first.
    """
    growth, gap = math.exp(epsilon), math.expm1(epsilon)
    neither = max(1 - (ratio + 1) * rate, 0.0)
    others = Binomial(users - 1, probability_at_most(2 * rate))
    reach = _DEVIATIONS * math.sqrt(others.variance) + _DEVIATIONS
    sent = np.arange(max(1, math.floor(others.mean - reach)), min(users, math.ceil(others.mean + reach)) + 1)
    fewer, same = others.pmf(sent - 1), np.where(sent < users, others.pmf(np.minimum(sent, users - 1)), 0.0)
    threshold = gap * neither * (users - sent) / (1 - 2 * rate) + sent * (growth * ratio - 1)
    crossing = np.floor(threshold / ((ratio - 1) * (1 + growth))).astype(np.int64) + 1
    inside = crossing <= sent
    crossing, sent, fewer, same = crossing[inside], sent[inside], fewer[inside], same[inside]
    positive = (ratio - growth) * fair_mass(crossing - 1, sent - 1)
    negative = gap * (1 + ratio) * _fair_tail(crossing, sent - 1)
    terms = rate * fewer * (positive - negative) - gap * neither * same * _fair_tail(crossing, sent)
    return float(np.maximum(terms, 0.0).sum())


def _fair_tail(k: NDArray[np.int64], trials: NDArray[np.int64]) -> Floats:
    """Pr[Bin(trials, 1/2) >= k] for k >= 1."""
    from scipy.special import betainc

    inner = np.minimum(k, np.maximum(trials, 1))
    tail: Floats = np.where(k > trials, 0.0, betainc(inner, np.maximum(trials - inner + 1, 1), 0.5))
    return tail


def two_users_delta(channel: Floats, epsilon: float, *, value: int, neighbour: int, other: int) -> float:
    """The exact divergence of the two shuffled reports of a target and one other user."""
    distributions = []
    for row in (channel[value], channel[neighbour]):
        ordered = np.outer(row, channel[other])
        distributions.append(np.triu(ordered + ordered.T) - np.diag(np.diag(ordered)))
    return float(np.maximum(distributions[0] - math.exp(epsilon) * distributions[1], 0.0).sum())
