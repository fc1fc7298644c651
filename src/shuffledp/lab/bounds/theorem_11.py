"""Theorem 11 (ii) of Balcer and Cheu (2020), computed: the probability that its error is exceeded.

The analyzer receives S + Z tokens, Z ~ Bin(n, p), where S users hold a 1. With N = n - Z ~ Bin(n, q), q = 1 - p, the
estimate of S is S - N + n q if N < S, and 0 otherwise. So the error is |n q - N| if N < S, and S otherwise.
"""

from __future__ import annotations

import math

from shuffledp.protocols.count.balcer_cheu import theorem_11_alpha


def theorem_11_failure(users: int, epsilon: float, delta: float, beta: float) -> float:
    """The largest probability over all counts that the error exceeds the alpha of Theorem 11 (ii), at its noise."""
    radius = users * theorem_11_alpha(users, epsilon, delta, beta)
    return error_exceeds(users, 50 * math.log(2 / delta) / (epsilon**2 * users), radius)


def error_exceeds(users: int, absence: float, radius: float) -> float:
    """The largest probability over all counts S that the error exceeds ``radius``.

    For S <= radius the error exceeds it if |n q - N| > radius and N < S, which is likelier for larger S. For S > radius
    it also does if N >= S; the probability then decreases up to S = n q + radius and is constant from there on. So the
    worst counts are the last one up to the radius, the first one above it, and ``users``.
    """
    from scipy import stats

    missing = stats.binom(users, absence)
    mean = users * absence

    def failure(count: int) -> float:
        # N < S and |n q - N| > radius: N below mean - radius, or between mean + radius and S
        below = missing.cdf(min(math.ceil(mean - radius) - 1, count - 1))
        above = max(0.0, missing.cdf(count - 1) - missing.cdf(math.floor(mean + radius)))
        hidden = missing.sf(count - 1) if count > radius else 0.0
        return float(below + above + hidden)

    least_above = math.floor(radius) + 1
    return max(failure(count) for count in (0, math.floor(radius), min(least_above, users), users))
