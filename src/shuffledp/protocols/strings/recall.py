"""The probability that a search finds a string that c users hold.

The c holders of a string are divided among the levels at random, so their numbers have a multinomial distribution.
These are independent Poisson variables of mean c / levels, given that their sum is c. Let F(r) be the probability of
finding the string if these variables are independent and have mean r / levels; a walk over the levels computes it. Let
P(c) be the probability for exactly c holders. Then e^r F(r) = sum of P(c) r^c / c!, so that P(c) follows from F on a
circle in the complex plane (Cauchy's formula).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Integers = NDArray[np.int64]

_MAX_COUNT = 1 << 24
_NODES = 12
"""Nodes of a circle that are computed together, from the positive axis on."""
_NEGLIGIBLE = 1e-10


class ScoreWalk:
    """The score of a right string over the levels of a search: it starts at 0, and below 0 the string is dropped."""

    def __init__(self, shares: Floats, gains: Integers, costs: Integers, ceilings: Sequence[int]) -> None:
        self._shares, self._gains, self._costs, self._ceilings = shares, gains, costs, ceilings
        self._circles: dict[int, Complexes] = {}

    def recall(self, count: float) -> float:
        """The probability that a string that this many users hold is found; between integers, interpolated."""
        if count <= 0:
            return 0.0
        count = min(count, float(_MAX_COUNT))
        below = math.floor(count)
        part = count - below
        found = (1 - part) * self._recall(below)
        return found + part * self._recall(below + 1) if part else found

    def least_count(self, probability: float, start: float) -> float:
        """The least count that is found with this probability, or infinity; the search for it begins at ``start``."""
        low, high = 0, max(1, round(start))
        while self._recall(high) < probability:
            low, high = high, high + max(1, high // 16)
            if high > _MAX_COUNT:
                return math.inf
        step = max(1, high // 32)
        while low < high - step and self._recall(high - step) >= probability:
            high -= step
        low = max(low, high - step)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._recall(middle) >= probability else (middle, high)
        return float(high)

    def _recall(self, count: int) -> float:
        if count <= 0:
            return 0.0
        root = max(2, 2 * round(math.sqrt(count) / 2))
        radius, size, found = root * root, _circle_size(root), self._circle(root)
        # the reciprocal of a Poisson probability, which is not small since the radius is near the count
        scale = math.exp(radius + math.lgamma(count + 1.0) - count * math.log(radius))
        terms = (found * np.exp(-2j * math.pi * count / size * np.arange(len(found)))).real
        # besides the first, only the node on the negative axis is its own mirror image
        last = float(terms[-1]) if len(terms) == size // 2 + 1 else 0.0
        total = 2 * float(terms.sum()) - float(terms[0]) - last
        return min(1.0, max(0.0, scale * total / size))

    def _circle(self, root: int) -> Complexes:
        """e^(z - r) F(z) on the upper half of the circle of radius r = ``root``^2, up to where it is negligible."""
        if root not in self._circles:
            radius, size = float(root * root), _circle_size(root)
            parts: list[Complexes] = []
            for start in range(0, size // 2 + 1, _NODES):
                nodes = np.arange(start, min(start + _NODES, size // 2 + 1))
                parts.append(self._found(radius * np.exp(2j * np.pi * nodes / size), radius))
                if float(np.abs(parts[-1][-2:]).max()) < _NEGLIGIBLE:
                    break
            self._circles[root] = np.concatenate(parts)
        return self._circles[root]

    def _found(self, means: Complexes, radius: float) -> Complexes:
        """e^(z - r) times the probability that a string with a Poisson number of holders of mean z is found."""
        levels = len(self._costs)
        symbols = _symbols_with_holders(self._shares, means / levels, radius / levels)
        least = int(self._gains.min())
        kernel = np.zeros((len(means), int(self._gains.max()) - least + 1), dtype=np.complex128)
        for symbol, gain in enumerate((self._gains - least).tolist()):
            kernel[:, gain] += symbols[:, symbol]
        states = max(self._ceilings) + 1
        size = 1 << (states + kernel.shape[1] - 1).bit_length()
        transformed = np.fft.fft(kernel, size, axis=1)
        scores = np.zeros((len(means), states), dtype=np.complex128)
        scores[:, 0] = 1.0
        for cost, ceiling in zip(self._costs.tolist(), self._ceilings, strict=True):
            moved = np.fft.ifft(np.fft.fft(scores, size, axis=1) * transformed, axis=1)
            scores = _clipped(moved[:, : states + kernel.shape[1] - 1], least - cost, ceiling, states)
        return np.asarray(scores.sum(axis=1))


def _circle_size(root: int) -> int:
    """An even number of nodes: counts that differ by it lie at least 8 standard deviations from the radius."""
    return 10 * root + 12


def _clipped(masses: NDArray[Any], offset: int, ceiling: int, states: int) -> NDArray[Any]:
    """The pmf of scores, from ``masses`` that start at ``offset``; drops scores below 0, clips at the ceiling."""
    scores = np.zeros((len(masses), states), dtype=masses.dtype)
    if offset < 0:
        masses, offset = masses[:, -offset:], 0
    inside = masses[:, : max(0, ceiling + 1 - offset)]
    scores[:, offset : offset + inside.shape[1]] = inside
    scores[:, ceiling] += masses[:, inside.shape[1] :].sum(axis=1)
    return scores


def _symbols_with_holders(shares: Floats, means: Complexes, radius: float) -> Complexes:
    """e^(z - r) times the distribution of the symbols of a cell to which holders add a Poisson number of mean z."""
    width = len(shares) - 1  # counts 0 .. cap, and the symbol 0 of an erased cell
    added = np.exp(np.arange(width) * np.log(means)[:, None] - radius - _log_factorials(width))
    symbols = np.zeros((len(means), width + 1), dtype=np.complex128)
    for count, share in enumerate(shares[1:-1].tolist()):
        symbols[:, 1 + count : width] += share * added[:, : width - 1 - count]
    total = np.exp(means - radius)
    symbols[:, 0] = shares[0] * total
    symbols[:, -1] = shares[1:].sum() * total - symbols[:, 1:-1].sum(axis=1)
    return symbols


@lru_cache(maxsize=256)
def _log_factorials(width: int) -> Floats:
    return np.array([math.lgamma(count + 1.0) for count in range(width)])
