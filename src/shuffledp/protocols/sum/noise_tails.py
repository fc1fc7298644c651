"""Tails of the noise of sums: the difference of two negative binomial numbers, together with randomized rounding."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.search import least_integer

Floats = NDArray[np.float64]

_MAX_TERMS = 1 << 19
_OMITTED = 1e-15
"""Mass of either tail that is not listed; it is added to the bound."""
_ROUNDING = 1e-13
"""Bound on the rounding errors of the Fourier transforms in a sum of probabilities."""
_LEAST_RISK = 1e-9
_STEPS = 256


def exact_radius(decay: float, shape: float, rounded_users: int, risk: float) -> float:
    """A radius that the error of a sum of levels exceeds with probability ``risk`` at most; infinite if not computed.

    The error is N + R. N is the difference of two negative binomial numbers with ratio e^-decay and the given shape. R
    is the rounding error of ``rounded_users`` numbers: Pr[R > y] <= e^(-2 y^2 / users) (Hoeffding), averaged over N.
    """
    if risk < _LEAST_RISK:
        return math.inf
    pmf = _difference_pmf(decay, shape)
    if pmf is None:
        return math.inf
    length = len(pmf) // 2
    noise = np.arange(-length, length + 1, dtype=np.float64)

    def holds(steps: int) -> bool:
        distance = steps * step - noise
        beyond = distance < 0
        tail = float(pmf[beyond].sum())
        if rounded_users:
            exponents = -2 * distance[~beyond] ** 2 / rounded_users
            tail += float(np.dot(pmf[~beyond], np.exp(exponents)))
        return tail + _OMITTED + _ROUNDING <= risk / 2

    step = (1 / decay + math.sqrt(rounded_users)) / _STEPS
    steps = least_integer(holds, low=-1, high=_STEPS, limit=1 << 20)
    return math.inf if steps is None else steps * step


@lru_cache(maxsize=32)
def _difference_pmf(decay: float, shape: float) -> Floats | None:
    """The probabilities of -length, ..., length; None if there would be too many of them."""
    masses = _negative_binomial_pmf(decay, shape)
    if masses is None:
        return None
    size = 1 << (2 * len(masses) - 1).bit_length()
    transform = np.fft.rfft(masses, size)
    correlation = np.fft.irfft(np.abs(transform) ** 2, size)
    half = np.maximum(correlation[: len(masses)], 0.0)
    return np.concatenate([half[:0:-1], half])


def _negative_binomial_pmf(decay: float, shape: float) -> Floats | None:
    """The probabilities of 0, 1, ... until all others together have at most half of the omitted mass."""
    terms = 64
    while terms <= _MAX_TERMS:
        k = np.arange(1, terms)
        factors = np.log1p((shape - 1) / k) - decay
        logarithms = np.concatenate([[0.0], np.cumsum(factors)]) + shape * math.log(-math.expm1(-decay))
        masses = np.exp(logarithms)
        # from here on the ratio of neighbours is at most that of the last two, or e^-decay
        ratio = max(math.exp(-decay), math.exp(-decay) * (1 + (shape - 1) / terms))
        if ratio < 1 and masses[-1] * ratio / (1 - ratio) <= _OMITTED / 2:
            return masses
        terms *= 2
    return None
