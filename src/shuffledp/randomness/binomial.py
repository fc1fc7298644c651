"""Exact binomial draws: the law of how many of many users' coins fall on one side."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shuffledp.randomness.dyadic import Dyadic
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.source import SYSTEM, RandomSource

__all__ = ["binomial"]

_LARGEST_VARIANCE = 1 << 28  # a table is about 30 standard deviations long: at most half a million entries
_CHUNK = 1 << 16


def binomial(trials: int, probability: Dyadic, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of exactly Bin(trials, probability)."""
    if probability.numerator in (0, 1 << probability.bits) or trials == 0:
        fixed = trials if probability.numerator else 0
        return np.full(size, fixed, dtype=np.int64)
    variance = trials * float(probability) * float(probability.complement)
    parts = max(1, -(-int(variance) // _LARGEST_VARIANCE))
    share, larger_parts = divmod(trials, parts)
    out = np.zeros(size, dtype=np.int64)
    for part_trials, repetitions in ((share, parts - larger_parts), (share + 1, larger_parts)):
        if not repetitions:
            continue
        table = _binomial_table(part_trials, probability)
        for _ in range(repetitions):
            for start in range(0, size, _CHUNK):
                chunk = out[start : start + _CHUNK]
                chunk += table.draw(len(chunk), source)
    return out


@lru_cache(maxsize=8)
def _binomial_table(trials: int, probability: Dyadic) -> InversionTable:
    return InversionTable(lambda precision: _cdf_bounds(trials, probability, precision))


def _cdf_bounds(trials: int, probability: Dyadic, precision: int) -> CdfBounds:
    """Bounds of the distribution function from whole-number weights relative to the mode.

    Each weight is the one before times the ratio of neighbouring probabilities, rounded down, so it
    is at most (distance to the mode) units too small. Dividing by the sum makes them probabilities.
    """
    success, failure = probability.numerator, (1 << probability.bits) - probability.numerator
    mode = min(trials, (trials + 1) * success >> probability.bits)
    unit = 1 << (precision + 64)
    upward, downward = [], []
    weight, k = unit, mode
    while weight and k < trials:
        weight = weight * (trials - k) * success // ((k + 1) * failure)
        k += 1
        upward.append(weight)
    upward_left = _bound_beyond(weight, len(upward), (trials - k) * success, (k + 1) * failure)
    weight, k = unit, mode
    while weight and k > 0:
        weight = weight * k * failure // ((trials - k + 1) * success)
        k -= 1
        downward.append(weight)
    downward_left = _bound_beyond(weight, len(downward), k * failure, (trials - k + 1) * success)
    weights = [*reversed(downward), unit, *upward]
    error = len(upward) ** 2 + len(downward) ** 2 + upward_left + downward_left
    cumulative = list(accumulate(weights))
    total = cumulative[-1]
    guard = total.bit_length() + 32
    scale_down = (1 << precision + guard) // (total + error)
    scale_up = (1 << precision + guard) // total + 1
    lower = [value * scale_down >> guard for value in cumulative]
    upper = [((value + error) * scale_up >> guard) + 1 for value in cumulative]
    if mode + len(upward) == trials:
        lower[-1] = upper[-1] = 1 << precision
    return CdfBounds(mode - len(downward), lower, upper)


def _bound_beyond(weight: int, distance: int, ratio_numerator: int, ratio_denominator: int) -> int:
    """Upper bound on all weights past the last one kept: a geometric series, the ratios only fall."""
    if ratio_numerator == 0:
        return 0
    step = ratio_denominator - ratio_numerator
    return -(-(weight + distance) * ratio_numerator // step) if step > 0 else 1 << 256
