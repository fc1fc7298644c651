"""Error of randomized response on bits: exact variance, and Hoeffding's bound.

Warner (1965): each of N users sends the true bit with probability 1/2 + gamma, else its complement. From k received
ones the number of true ones is estimated without bias by (k - (1/2 - gamma) N) / (2 gamma). k is a sum of N independent
bits, so Hoeffding's inequality bounds its deviation; the estimate deviates by 1 / (2 gamma) times as much. Hoeffding's
bound for the average of N bits is not enough: it lacks this factor and, for a sum, a factor N.

All bounds hold for every data set, and in floating point too.
"""

from __future__ import annotations

import math

from shuffledp.checks import check_number_of_users, check_open_unit, check_positive_epsilon
from shuffledp.errors import ParameterError

_ROUNDED_UP = 1 + 1e-14  # larger than the rounding error of a few operations
_TINIEST = 5e-324


def gamma_of_epsilon(epsilon: float) -> float:
    """gamma = tanh(epsilon / 2) / 2, rounded down."""
    check_positive_epsilon(epsilon)
    return math.tanh(epsilon / 2) / 2 / _ROUNDED_UP


def epsilon_of_gamma(gamma: float) -> float:
    """epsilon = ln((1/2 + gamma) / (1/2 - gamma)) = 2 artanh(2 gamma), the exact local epsilon, rounded up."""
    return 2 * math.atanh(2 * _checked(gamma)) * _ROUNDED_UP


def sum_variance(users: int, gamma: float) -> float:
    """The variance of the estimated number of ones: N (1/4 - gamma^2) / (4 gamma^2), the same for every data set.

    With gamma of epsilon it is N e^epsilon / (e^epsilon - 1)^2.
    """
    check_number_of_users(users)
    gamma = _checked(gamma)
    return users * (0.5 - gamma) * (0.5 + gamma) / (2 * gamma) ** 2 * _ROUNDED_UP


def mean_variance(users: int, gamma: float) -> float:
    """The variance of the estimated share of ones."""
    return sum_variance(users, gamma) / users / users


def sum_tail(users: int, gamma: float, error: float) -> float:
    """Upper bound on the probability that the estimated number of ones is off by ``error`` or more.

    Hoeffding: 2 exp(-8 gamma^2 error^2 / N), since the number of received ones is then off by 2 gamma error.
    """
    check_number_of_users(users)
    _check_error(error)
    deviation = 2 * _checked(gamma) * error
    exponent = 2 * deviation * (deviation / users) / _ROUNDED_UP
    return min(1.0, 2 * math.exp(-exponent) * _ROUNDED_UP + _TINIEST)


def mean_tail(users: int, gamma: float, error: float) -> float:
    """Upper bound on the probability that the estimated share of ones is off by ``error`` or more.

    2 exp(-8 gamma^2 N error^2).
    """
    check_number_of_users(users)
    _check_error(error)
    return sum_tail(users, gamma, error * users)


def sum_radius(users: int, gamma: float, beta: float) -> float:
    """The error of the estimated number of ones that is exceeded with probability at most ``beta``.

    sqrt(N ln(2 / beta) / 2) / (2 gamma), of order sqrt(N) / epsilon.
    """
    check_number_of_users(users)
    check_open_unit("beta", beta)
    return math.sqrt(users * math.log(2 / beta) / 2) / (2 * _checked(gamma)) * _ROUNDED_UP


def mean_radius(users: int, gamma: float, beta: float) -> float:
    """The error of the estimated share of ones that is exceeded with probability at most ``beta``.

    ``sum_radius`` divided by N, of order 1 / (epsilon sqrt(N)).
    """
    return sum_radius(users, gamma, beta) / users


def _checked(gamma: float) -> float:
    if not 0 < gamma < 0.5:
        raise ParameterError(f"gamma must lie strictly between 0 and 1/2, not {gamma}.", gamma=gamma)
    return gamma


def _check_error(error: float) -> None:
    if not error >= 0:
        raise ParameterError(f"The error must be at least 0, not {error}.", error=error)
