"""Smooth distributions: Appendix A of Balcer and Cheu (2020), with its conditions.

Noise is smooth if a small shift rarely changes its probability by much. The paper proves its protocols private by
Lemma 23, Lemma 22 and Corollary 24; the exact accounting in ``binomial_noise`` needs less noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from shuffledp.checks import LARGEST_EPSILON, check_epsilon, check_target
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.search import bisect

LARGEST_EPSILON_OF_COROLLARY_24 = 1.2042
"""Up to here tanh(epsilon / 2) >= epsilon / sqrt(5), as the proof requires; the paper requires epsilon <= 1."""


def smoothness_delta(masses: ArrayLike, epsilon: float, k: int = 1) -> float:
    """The least delta for which a distribution on consecutive integers is (epsilon, delta, k)-smooth.

    Definition 21: the largest Pr[D(Y) / D(Y + k') >= e^(|k'| epsilon)] over all shifts k' with 1 <= |k'| <= k. The
    paper also allows the shift 0, for which no distribution is smooth. A zero in the denominator counts as an infinite
    ratio.
    """
    pmf = np.asarray(masses, dtype=np.float64)
    if pmf.ndim != 1 or len(pmf) == 0 or (pmf < 0).any() or not math.isclose(float(pmf.sum()), 1.0, abs_tol=1e-9):
        raise ParameterError("The masses of a distribution must be at least 0 and sum to 1.")
    check_epsilon(epsilon)
    if k < 1:
        raise ParameterError(f"Smoothness needs k >= 1, not {k}.", k=k)
    padded = np.concatenate((np.zeros(k), pmf, np.zeros(k)))
    worst = 0.0
    for shift in (s for s in range(-k, k + 1) if s != 0):
        shifted = padded[k + shift : k + shift + len(pmf)]
        rare = (pmf > 0) & (pmf >= math.exp(min(abs(shift) * epsilon, LARGEST_EPSILON)) * shifted)
        worst = max(worst, math.fsum(pmf[rare]))
    return worst


def privacy_of_smooth_noise(epsilon: float, delta: float, k: int = 1, *, sensitivity: int = 1) -> tuple[float, float]:
    """Lemma 22: (epsilon, delta, k)-smooth noise makes an integer function private.

    For sensitivity 1 this is the paper's lemma; for larger ones it is Lemma 4.11 of Ghazi et al. (2019), where
    replacing a user changes the value by at most k.
    """
    if not 1 <= sensitivity <= k:
        raise ConditionError(
            f"Lemma 22 needs 1 <= sensitivity <= k; given sensitivity {sensitivity} and k {k}.",
            sensitivity=sensitivity,
            k=k,
        )
    return epsilon * sensitivity, delta * sensitivity


def binomial_smoothness(trials: int, gamma: float, alpha: float, k: int = 1) -> tuple[float, float]:
    """Lemma 23: Bin(trials, gamma) is (epsilon, delta, k)-smooth; returns epsilon and delta.

    Conditions: gamma <= 1/2, 0 < alpha < 1 and k <= alpha gamma trials / 2.
    """
    if not 0 < gamma <= 0.5:
        raise ConditionError(f"Lemma 23 needs 0 < gamma <= 1/2; given gamma = {gamma}.", gamma=gamma)
    if not 0 < alpha < 1:
        raise ConditionError(f"Lemma 23 needs 0 < alpha < 1; given alpha = {alpha}.", alpha=alpha)
    mean = gamma * trials
    if not 1 <= k <= alpha * mean / 2:
        raise ConditionError(
            f"Lemma 23 needs 1 <= k <= alpha gamma n / 2 = {alpha * mean / 2:.4g}; given k = {k}.",
            k=k,
            limit=alpha * mean / 2,
        )
    epsilon = math.log1p(alpha) - math.log1p(-alpha)
    return epsilon, _lemma_23_delta(alpha, mean)


def corollary_24_users(epsilon: float, delta: float) -> int:
    """Corollary 24's condition: at least this many users, (100 / epsilon^2) ln(2 / delta), rounded up."""
    check_target(epsilon, delta)
    return math.ceil(100 / epsilon**2 * math.log(2 / delta))


def corollary_24_mean(users: int, epsilon: float, delta: float) -> float:
    """Corollary 24: Bin(users, m / users) with mean m = 50 ln(2/delta) / epsilon^2 is enough noise.

    Conditions: epsilon <= 1, as in the paper, and enough users for m / users <= 1/2.
    """
    check_target(epsilon, delta)
    if epsilon > 1:
        raise ConditionError(
            f"Corollary 24 needs epsilon <= 1; given {epsilon:g}. Use the tight calibration, which has no such limit.",
            epsilon=epsilon,
        )
    needed = corollary_24_users(epsilon, delta)
    if users < needed:
        raise ConditionError(
            f"Corollary 24 needs n >= (100/epsilon^2) ln(2/delta) = {needed:,} users for epsilon = {epsilon:g} and "
            f"delta = {delta:g}; given {users:,}.",
            users=users,
            needed=needed,
        )
    return 50 * math.log(2 / delta) / epsilon**2


def lemma_23_mean(epsilon: float, delta: float) -> float:
    """The least mean for which Lemma 23 itself gives (epsilon, delta); valid for every epsilon.

    The constant 50 of Corollary 24 comes from a simplification that is invalid for epsilon above 1.2042; from about
    epsilon = 8 on, the constant is too small by a large factor.
    """
    check_target(epsilon, delta)
    alpha = math.tanh(epsilon / 2)
    low, high = 2 / alpha, 2 / alpha
    while _lemma_23_delta(alpha, high) > delta:
        low, high = high, 2 * high
    return bisect(lambda mean: _lemma_23_delta(alpha, mean) <= delta, low, high, relative=1e-12)


def _lemma_23_delta(alpha: float, mean: float) -> float:
    return math.exp(-(alpha**2) * mean / 8) + math.exp(-(alpha**2) * mean / (8 + 2 * alpha))
