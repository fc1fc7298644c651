"""Sample complexity of a Bernoulli mean: lower bounds with explicit constants, and the exact error of randomized bits.

n users hold independent bits with mean mu, which is to be estimated within alpha with probability p for every mu, where
alpha < 1/2 and p > 1/2. (For alpha >= 1/2 the answer 1/2 is enough, for small p a guess.)

Lower bound. An estimate within alpha tells mu = 1/2 - a from 1/2 + a for every a > alpha, each with probability p, so
the distributions of the transcript have a total variation distance of at least 2 p - 1. A transcript y, public coins
included, has probability c(y) times the product of f_i(y, x_i) over users i with bits x_i, in however many rounds users
are asked. Local privacy bounds f_i(y, 1) / f_i(y, 0) by e^epsilon and e^-epsilon, so with m_i and D_i the mean of the
two and their difference, |D_i| <= 2 tanh(epsilon / 2) m_i. The distribution of the transcript is c times the product of
m_i - a D_i for the one mu, of m_i + a D_i for the other, and for mu = 1/2 it is s = c times the product of m_i. So the
Hellinger affinity of the first two is

    sum of s times the product of sqrt(1 - a^2 D_i^2 / m_i^2) >= (1 - 4 a^2 tanh(epsilon / 2)^2)^(n / 2).

Total variation is at most sqrt(1 - affinity^2). Hence (2 p - 1)^2 <= 1 - (1 - 4 a^2 tanh(epsilon / 2)^2)^n. Without
privacy tanh becomes 1.

Exact bound. f_i(y, x) = sum over bits z of g_i(y, z) q(z | x) with q randomized response at the same epsilon, and
g_i >= 0 because of the two ratios. The sum of c times the product of g_i(y, z_i) over y is 1 for every z, since q is
invertible and maps 1 to 1. So every such protocol can be computed from n independent randomized responses, and the best
success of those on given means (``local_success_upper``) bounds that of all.
"""

from __future__ import annotations

import math

from shuffledp.checks import check_epsilon, check_positive_epsilon
from shuffledp.errors import ParameterError
from shuffledp.search import least_integer

_ROUNDING = 1e-9
"""Margin for rounding errors of sums of probabilities."""
_MAX_SUMMED = 10**7
"""Maximum number of users whose distribution is summed exactly."""


def check_mean_target(alpha: float, probability: float) -> None:
    """Reject a half-width that is not in (0, 1/2), or a probability that is not in (1/2, 1)."""
    if not (0 < alpha < 0.5 and 0.5 < probability < 1):
        raise ParameterError(
            f"alpha must lie in (0, 1/2) and the probability in (1/2, 1); got {alpha} and {probability}.",
            alpha=alpha,
            probability=probability,
        )


def local_users_lower(alpha: float, probability: float, epsilon: float) -> int:
    """No epsilon-private local protocol with fewer users estimates every Bernoulli mean within alpha.

    ln(1 / (4 p (1 - p))) / -ln(1 - 4 alpha^2 tanh(epsilon / 2)^2), rounded up: Omega(1 / (alpha epsilon)^2) with its
    constant. It holds for pure privacy, however users are asked: at once, in turn, or repeatedly, with public coins.
    """
    check_mean_target(alpha, probability)
    check_epsilon(epsilon)
    return _users_lower(2 * alpha * math.tanh(epsilon / 2), probability)


def exact_local_users_lower(alpha: float, probability: float, epsilon: float, *, points: int = 2) -> int:
    """A sharper bound than ``local_users_lower``, from the exact success on ``points`` means."""
    check_mean_target(alpha, probability)
    check_positive_epsilon(epsilon)

    def may_succeed(users: int) -> bool:
        return local_success_upper(users, alpha, epsilon, points=points) >= probability - _ROUNDING

    first = local_users_lower(alpha, probability, epsilon)
    return least_integer(may_succeed, low=first - 1, high=first)


def local_success_upper(users: int, alpha: float, epsilon: float, *, points: int = 2) -> float:
    """No epsilon-private local protocol estimates all of ``points`` means within alpha with a larger probability.

    The means are 2 alpha apart around 1/2, and drawn with probabilities proportional to a cosine. The success of the
    best guess from the number of ones among randomized responses is summed exactly.
    """
    import numpy as np
    from scipy import stats

    if users < 1 or points < 2 or not 0 < alpha * (points - 1) < 0.5:
        raise ParameterError(
            "users must be at least 1, and at least 2 points 2 alpha apart must lie in (0, 1); "
            f"got {users:,} users and {points} points for alpha = {alpha}."
        )
    check_positive_epsilon(epsilon)
    if points == 2:  # the majority is right, a tie in half of the cases
        responses = stats.binom(users, 0.5 + alpha * math.tanh(epsilon / 2))
        tie = 0.0 if users % 2 else float(responses.pmf(users // 2))
        return float(responses.sf(users // 2)) + tie / 2
    if users > _MAX_SUMMED:
        raise ParameterError(f"More than 2 points are summed for at most {_MAX_SUMMED:,} users; got {users:,}.")
    offsets = np.arange(points) - (points - 1) / 2
    prior = np.cos(np.pi * offsets / (points + 1))
    shares = 0.5 + 2 * alpha * offsets * math.tanh(epsilon / 2)
    ones = np.arange(users + 1)
    joint = np.zeros(users + 1)
    for weight, share in zip(prior / prior.sum(), shares, strict=True):
        np.maximum(joint, weight * stats.binom.pmf(ones, users, share), out=joint)
    return float(joint.sum())


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
    if not (users >= 1 and 0.5 < probability < 1 and epsilon > 0):
        raise ParameterError(
            "users must be at least 1, the probability in (1/2, 1) and epsilon above 0; "
            f"got {users}, {probability} and {epsilon}."
        )
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
