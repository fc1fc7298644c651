"""Lower bounds on the error when every user sends one shuffled message, with explicit constants.

``histogram_error_lower`` starts from Theorem 6.2 of Cheu and others (2019): if the shuffled protocol is (epsilon,
delta)-private for n users, then for all values x, x' and sets Y of messages

    R(x)(Y) <= n e^epsilon R(x')(Y) + delta.

It packs the domain: t users hold one of d - 1 values v, the others v0. The t messages that differ are independent, so
by basic composition the data with v give any event at most (n e^epsilon)^t times its probability on the data with v0
alone, plus t delta. The events "v is estimated above t/2, all others but v0 below" exclude each other. An error below
t/2 with probability 1 - beta therefore needs 1 - beta <= t delta + (n e^epsilon)^t / (d - 1).

``count_error_lower`` compares two facts about the overlap o = sum of min(R(0), R(1)) = a + b, where a = R(0)(Y),
b = R(1)(not Y) and Y = {R(1) > R(0)}:

1. If all bits are uniform, the count given all reports has an expected variance of n/2 times the sum of
   R(0) R(1) / (R(0) + R(1)), at least n o / 4. No estimator has a smaller mean squared error on all data.
2. "No message in Y" has probability (1 - a)^n if all hold a 0, and b (1 - a)^(n - 1) if one holds a 1. So privacy says
   (1 - a)^(n - 1) (1 - a - e^epsilon b) <= delta, and the same with a and b exchanged.

For every kappa in (0, 1 - delta): either o >= kappa e^-epsilon, or a + e^epsilon b and b + e^epsilon a are below kappa,
so (1 - a)^(n - 1) and (1 - b)^(n - 1) are below delta / (1 - kappa). The mean squared error is therefore at least

    min(n kappa e^-epsilon / 4, n/2 (1 - (delta / (1 - kappa))^(1 / (n - 1)))).
"""

from __future__ import annotations

import math

from shuffledp.checks import check_target
from shuffledp.errors import ParameterError
from shuffledp.search import bisect

_ROUNDING = 1e-9
"""Relative margin for rounding errors of the last steps."""


def histogram_error_lower(
    users: int, log_domain_size: float, epsilon: float, delta: float, *, failure: float = 0.05
) -> float:
    """An error (in users) that every single-message histogram exceeds on some data with probability ``failure``.

    The domain is given by the natural logarithm of its size, which may be far too large to write down. The result is
    0 where the bound says nothing; it grows like ln(d) / (2 (epsilon + ln n)), at most to n / 2.
    """
    _check(users, epsilon, delta, failure)
    if not log_domain_size >= math.log(2):
        raise ParameterError("The domain needs at least two categories.", log_domain_size=log_domain_size)
    others = log_domain_size + math.log1p(-math.exp(-log_domain_size))  # ln(d - 1)
    per_user = epsilon + math.log(users)

    def excluded(held: int) -> bool:
        exponent = held * per_user - others
        return exponent < 0 and held * delta + math.exp(exponent) < 1 - failure

    held = min(int(others / per_user), users)
    while held > 0 and not excluded(held):
        held -= 1
    return held / 2


def any_histogram_error_lower(
    log_domain_size: float, epsilon: float, delta: float, *, users: int, failure: float = 0.05
) -> float:
    """As ``histogram_error_lower``, for (epsilon, delta)-private histograms of any model, by packing and group privacy.

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


def count_error_lower(users: int, epsilon: float, delta: float) -> float:
    """A lower bound on the root mean squared error of every (epsilon, delta)-private single-message binary sum.

    On some data every estimator errs at least as much. The best kappa is taken; for many users the bound tends to
    sqrt(ln(1/delta) / 2). It is at least ``count_error_closed_form``.
    """
    _check(users, epsilon, delta, 0.5)

    logarithm = math.log(1 / delta)

    def terms(slack: float) -> tuple[float, float]:
        """Both terms of the minimum at kappa = 1 - e^-slack."""
        kappa, hidden = -math.expm1(-slack), -math.expm1((slack - logarithm) / (users - 1))
        return users * kappa * math.exp(-epsilon) / 4, users * hidden / 2

    def is_first_larger(slack: float) -> bool:
        first, second = terms(slack)
        return first >= second

    slack = bisect(is_first_larger, 0.0, logarithm, relative=1e-12)
    return math.sqrt(min(terms(slack * (1 - _ROUNDING))) * (1 - _ROUNDING))


def count_error_closed_form(users: int, epsilon: float, delta: float) -> float:
    """``count_error_lower`` with kappa = 1 - 1/e, in closed form.

    The root of min((1 - 1/e) e^-epsilon n / 4, (ln(1/delta) - 1) / (2 e)): 0.4288 sqrt(ln(1/delta) - 1) from
    ``count_users_least`` users on; 0 for a delta of 1/e or more.
    """
    _check(users, epsilon, delta, 0.5)
    few, many = (1 - 1 / math.e) * math.exp(-epsilon) * users / 4, (math.log(1 / delta) - 1) / (2 * math.e)
    return math.sqrt(max(0.0, min(few, many)))


def count_users_least(epsilon: float, delta: float) -> float:
    """The number of users from which on the closed form no longer depends on users and epsilon."""
    check_target(epsilon, delta)
    return max(2.0, 2 * math.exp(epsilon) * (math.log(1 / delta) - 1) / (math.e - 1))


def _check(users: int, epsilon: float, delta: float, failure: float) -> None:
    check_target(epsilon, delta)
    if users < 2 or not 0 < failure < 1:
        raise ParameterError(f"users must be at least 2 and the failure in (0, 1); got {users} and {failure}.")
