"""Independent computations of what the published numbers rest on, with SciPy's distributions and without the package.

They confirm that the numbers computed here are private, and that slightly less noise would not be.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

_TAIL = 1e-25


def blanket_delta(users: int, cells: int, messages_per_user: float, epsilon: float) -> float:
    """Delta of a value among uniform messages: ``users`` times the whole part, and a binomial number of further ones.

    Given N blanket messages in the two cells that an attacker compares, half of them are in each on average.
    """
    whole, rest = divmod(messages_per_user, 1.0)
    hits = np.convolve(_binomial(users * int(whole), 2 / cells), _binomial(users, rest * 2 / cells))
    growth = math.exp(epsilon)
    delta = 0.0
    for number in np.flatnonzero(hits > _TAIL).tolist():
        a = np.arange(number + 2)
        gained, lost = _fair(number, a - 1), _fair(number, a)
        delta += float(hits[number]) * float(np.maximum(gained - growth * lost, 0.0).sum())
    return delta


def threshold_delta_lower(sampling: float, threshold: int, epsilon: float, most: int = 200) -> float:
    """A lower bound on delta of sampling and hiding counts below a threshold: one more holder of one value.

    The maximum over the number of other holders, up to ``most``.
    """
    growth, best = math.exp(epsilon), 0.0
    for holders in range(threshold, most):
        shown = np.arange(threshold, holders + 1)
        more, fewer = (stats.binom.pmf(shown, count, sampling) for count in (holders, holders - 1))
        hidden = tuple(float(stats.binom.cdf(threshold - 1, count, sampling)) for count in (holders, holders - 1))
        upward = float(np.maximum(more - growth * fewer, 0).sum()) + max(hidden[0] - growth * hidden[1], 0.0)
        downward = float(np.maximum(fewer - growth * more, 0).sum()) + max(hidden[1] - growth * hidden[0], 0.0)
        best = max(best, upward, downward)
    return best


def _binomial(trials: int, rate: float) -> NDArray[np.float64]:
    if trials == 0 or rate == 0:
        return np.ones(1)
    mean = trials * rate
    last = min(trials, math.ceil(mean + 14 * math.sqrt(mean) + 100))  # a tail below 1e-30
    masses: NDArray[np.float64] = stats.binom.pmf(np.arange(last + 1), trials, rate)
    return masses


def _fair(number: int, heads: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pr[Bin(number, 1/2) = heads]; 0 outside of 0 to ``number``."""
    inside = (heads >= 0) & (heads <= number)
    bounded = np.clip(heads, 0, number)
    logarithms = (
        special.gammaln(number + 1)
        - special.gammaln(bounded + 1)
        - special.gammaln(number - bounded + 1)
        - number * math.log(2)
    )
    masses: NDArray[np.float64] = np.where(inside, np.exp(logarithms), 0.0)
    return masses
