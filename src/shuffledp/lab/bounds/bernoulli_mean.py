"""Sample complexity of a Bernoulli mean: lower bounds with explicit constants, and the exact error of randomized bits.

n users hold independent bits with mean mu, which is to be estimated within alpha with probability p for every mu.

Lower bound. An estimate within alpha tells mu = 1/2 - a from 1/2 + a for every a > alpha, each with probability p, so
the distributions of all messages have a total variation distance of at least 2 p - 1. Let R(0), R(1) be the
distributions of one epsilon-private message and m = (R(0) + R(1)) / 2. The messages have the distributions m - a D and
m + a D with D = R(1) - R(0) and |D| <= 2 tanh(epsilon / 2) m, so their Hellinger affinity is

    sum of sqrt(m^2 - a^2 D^2) >= sqrt(1 - 4 a^2 tanh(epsilon / 2)^2).

Affinities of independent messages multiply, and total variation is at most sqrt(1 - affinity^2). Hence
(2 p - 1)^2 <= 1 - (1 - 4 a^2 tanh(epsilon / 2)^2)^n. If users are asked in turn, each message given the earlier ones
has the same bound, and the affinities multiply all the same. Without privacy tanh becomes 1.
"""

from __future__ import annotations

import math

from shuffledp.checks import check_epsilon
from shuffledp.errors import ParameterError


def check_mean_target(alpha: float, probability: float) -> None:
    """Refuse a half-width that is not in (0, 1/2), or a probability that is not in (1/2, 1)."""
    if not (0 < alpha < 0.5 and 0.5 < probability < 1):
        raise ParameterError(
            f"alpha must lie in (0, 1/2) and the probability in (1/2, 1); got {alpha} and {probability}.",
            alpha=alpha,
            probability=probability,
        )


def local_users_lower(alpha: float, probability: float, epsilon: float) -> int:
    """No epsilon-private local protocol with fewer users estimates every Bernoulli mean within alpha.

    ln(1 / (4 p (1 - p))) / -ln(1 - 4 alpha^2 tanh(epsilon / 2)^2), rounded up: Omega(1 / (alpha epsilon)^2) with its
    constant. It holds for pure privacy, with or without sequential interaction.
    """
    check_mean_target(alpha, probability)
    check_epsilon(epsilon)
    return _users_lower(2 * alpha * math.tanh(epsilon / 2), probability)


def users_lower(alpha: float, probability: float) -> int:
    """No protocol of any model with fewer users estimates every Bernoulli mean within alpha, private or not."""
    check_mean_target(alpha, probability)
    return _users_lower(2 * alpha, probability)


def _users_lower(separation: float, probability: float) -> int:
    if separation == 0:
        raise ParameterError("epsilon is too small: no number of users is enough.")
    bound = -math.log(4 * probability * (1 - probability)) / -math.log1p(-(separation**2))
    return max(1, math.ceil(bound * (1 - 1e-12)))


def alpha_lower(users: int, probability: float, epsilon: float = math.inf) -> float:
    """The half-width below which ``users`` users are too few: the inverse of ``local_users_lower``."""
    if users < 1 or not 0.5 < probability < 1:
        raise ParameterError(f"users must be at least 1 and the probability in (1/2, 1); got {users}, {probability}.")
    affinity = (4 * probability * (1 - probability)) ** (1 / users)
    return min(math.sqrt(1 - affinity) / (2 * math.tanh(epsilon / 2)), 0.5)


def randomized_bits_success(users: int, flip: float, mean: float, alpha: float) -> float:
    """The exact probability that randomized response on sampled bits estimates their mean within alpha.

    Every message is independently 1 with probability flip + (1 - 2 flip) mean, so their sum is binomial.
    """
    from scipy import stats

    share = flip + (1 - 2 * flip) * mean
    reach = (1 - 2 * flip) * alpha * users
    low, high = math.ceil(users * share - reach - 1e-9), math.floor(users * share + reach + 1e-9)
    ones = stats.binom(users, share)
    return float(ones.cdf(high) - ones.cdf(low - 1))
