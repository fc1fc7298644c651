"""Lower bounds on the error when every user sends one shuffled message, with explicit constants.

Both start from the same fact: a single message cannot be hidden better than the other users' messages hide it. If the
shuffled protocol is (epsilon, delta)-private for n users, then for all values x, x' and sets Y of messages

    R(x)(Y) <= n e^epsilon R(x')(Y) + delta                                (Cheu and others 2019, Theorem 6.2).

``histogram_error_lower`` packs the domain: t users hold one of d - 1 values v, the others v0. The set of messages that
are more than 2 n e^epsilon times likelier on v than on v0 has probability at most 2 delta on v. So the data with v and
the data with v0 alone give any event probabilities within a factor of (2 n e^epsilon)^t, apart from 2 t delta. Events
"v is estimated above t/2, all others below" exclude each other. An error below t/2 with probability 1 - beta therefore
needs 1 - beta <= 2 t delta + (2 n e^epsilon)^t / (d - 1).

``count_error_lower`` looks at messages that betray a 1. Of all messages in Y_c = {R(1) > c R(0)} a user with a 0 sends
one with probability below 1/c. With all zeros no message lies in Y_c with probability at least (1 - 1/c)^n; if one
user holds a 1, with at most h (1 - 1/c)^(n - 1) when h = R(1)(not Y_c). Privacy bounds h from below:

    h >= e^-epsilon (1 - 1/c - delta (1 - 1/c)^-(n - 1)).

So each 1 is sent with probability h as a message that is at most c / h times as likely as on 0, with c up to about
n / ln(1/delta). The other ones are revealed, which only helps. Counts s and s + k then differ by at most
``revealed`` (two binomial numbers of revealed ones) and ``blended`` (k messages among those of n - s zeros, by the
chi-square divergence), and no estimator has a mean squared error below k^2 (1 - distance) / 4 on both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shuffledp.checks import check_target
from shuffledp.errors import ParameterError

_SLACKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
_MAX_SHIFT = 400


def histogram_error_lower(
    users: int, log_domain_size: float, epsilon: float, delta: float, *, failure: float = 0.05
) -> float:
    """The largest error in users that every single-message histogram exceeds on some data with this probability.

    The domain is given by the natural logarithm of its size, which may be far too large to write down. The result is
    0 where the bound says nothing; it grows like ln(d) / (2 (epsilon + ln(2 n))), without limit.
    """
    _check(users, epsilon, delta, failure)
    if not log_domain_size >= math.log(2):
        raise ParameterError("The domain needs at least two categories.", log_domain_size=log_domain_size)
    others = log_domain_size + math.log1p(-math.exp(-log_domain_size))  # ln(d - 1)
    per_user = epsilon + math.log(2 * users)

    def excluded(held: int) -> bool:
        exponent = held * per_user - others
        return exponent < 0 and 2 * held * delta + math.exp(exponent) < 1 - failure

    held = min(int(others / per_user), users)
    while held > 0 and not excluded(held):
        held -= 1
    return held / 2


def any_histogram_error_lower(
    log_domain_size: float, epsilon: float, delta: float, *, users: int, failure: float = 0.05
) -> float:
    """The same for every (epsilon, delta)-private histogram of any model, by packing and group privacy.

    1 - beta <= e^(t epsilon) / (d - 1) + delta (e^(t epsilon) - 1) / (e^epsilon - 1): the lower half of the central row
    of Table 1, min(ln d, ln(1/delta)) / epsilon, with its constant.
    """
    _check(users, epsilon, delta, failure)
    others = log_domain_size + math.log1p(-math.exp(-log_domain_size))
    held = 0
    while held < users:
        exponent = (held + 1) * epsilon
        if exponent >= others:
            break
        leaked = delta * math.expm1(exponent) / math.expm1(epsilon)
        if math.exp(exponent - others) + leaked >= 1 - failure:
            break
        held += 1
    return held / 2


@dataclass(frozen=True)
class CountBound:
    """A lower bound on the error of every single-message count, and the two counts that prove it."""

    rmse: float
    """Every estimator has at least this root mean squared error on one of the two counts."""
    count: int
    shift: int
    """The other count is ``count + shift``."""
    hidden: float
    """The probability that a message of a 1 is not betrayed by its likelihood ratio."""
    distance: float
    """Upper bound on the total variation distance between the two counts."""


def count_error_lower(users: int, epsilon: float, delta: float) -> CountBound:
    """A lower bound on the root mean squared error of every (epsilon, delta)-private single-message binary sum.

    It grows like sqrt(ln(1/delta)); ``count_error_constant`` is the constant for many users.
    """
    _check(users, epsilon, delta, 0.5)
    best = CountBound(0.0, 0, 0, 0.0, 1.0)
    for slack in _SLACKS:
        expected = math.log(1 / delta) - slack  # of messages that betray a 1, with all zeros
        if expected <= 1 or expected >= users / 2:
            continue
        rest = math.log1p(-expected / users)
        hidden = math.exp(-epsilon) * (math.exp(rest) - delta * math.exp(-(users - 1) * rest))
        if hidden <= 0:
            continue
        likelier = users / expected / hidden
        for share in (0.5, 0.2, 0.05, 0.01, 0.001):
            count = int(share * users)
            if count < 1:
                continue
            revealed = (1 - hidden) * _largest_probability(count, 1 - hidden)
            best = max(best, _best_shift(users, count, hidden, likelier, revealed), key=lambda bound: bound.rmse)
    return best


def count_error_constant(epsilon: float) -> float:
    """The c with which the error of every single-message count is at least c sqrt(ln(1/delta) - 1), for many users.

    sqrt(max over x of x (1 - sqrt(e^x - 1) / 2) / 4) sqrt(e^-epsilon (1 - 1/e)), for shifts that need not be integers.
    """
    best = max(x * (1 - math.sqrt(math.expm1(x)) / 2) / 4 for x in (step / 1000 for step in range(1, 1600)))
    return math.sqrt(best * math.exp(-epsilon) * (1 - 1 / math.e))


def _best_shift(users: int, count: int, hidden: float, likelier: float, revealed: float) -> CountBound:
    best = CountBound(0.0, count, 0, hidden, 1.0)
    zeros = users - count
    for shift in range(1, min(_MAX_SHIFT, zeros // 2) + 1):
        # overlap of two random subsets of ``shift`` among ``zeros``; Hoeffding (1963): at most the binomial moment
        exponent = shift * math.log1p(shift / zeros * (likelier - 1))
        if exponent > 2:
            break
        distance = shift * revealed + math.sqrt(math.expm1(exponent)) / 2
        if distance < 1:
            bound = CountBound(shift / 2 * math.sqrt(1 - distance), count, shift, hidden, distance)
            best = max(best, bound, key=lambda each: each.rmse)
    return best


def _largest_probability(trials: int, chance: float) -> float:
    """The largest probability of Bin(trials, chance): the distance of the distribution from its shift by one."""
    from scipy import stats

    mode = math.floor((trials + 1) * chance)
    return max(float(stats.binom.pmf(number, trials, chance)) for number in (mode - 1, mode))


def _check(users: int, epsilon: float, delta: float, failure: float) -> None:
    check_target(epsilon, delta)
    if users < 2 or not 0 < failure < 1:
        raise ParameterError(f"users must be at least 2 and the failure in (0, 1); got {users} and {failure}.")
