"""Exact sampling from the logarithmic series distribution: the cluster sizes of a negative binomial count."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.computable import NegativeLogarithm
from shuffledp.randomness.dyadic import Dyadic, Probability
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.samplers import geometric
from shuffledp.randomness.source import SYSTEM, RandomSource, draw_words

LEAST_COMPLEMENT_BITS = 18
"""A ratio must be at most 1 - 2^-18: the closer it is to one, the longer a draw takes."""

_SPARE_BITS = 64  # rounding errors add up to far less than 2^64 units of the weights
_LONGEST_TABLE = 8192
_NEGLIGIBLE = 1e-9  # probability beyond the table, where the slower method is used
_CHUNK = 1 << 16


def logarithmic(ratio: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent K with Pr[K = k] = ratio^k / (-k ln(1 - ratio)) exactly, for k = 1, 2, 3, ..."""
    ratio = Dyadic.of(ratio)
    if ratio.numerator == 0 or ratio.complement.fraction < Fraction(1, 1 << LEAST_COMPLEMENT_BITS):
        raise ParameterError(
            f"The ratio {ratio} of a logarithmic distribution must lie in (0, 1 - 2^-{LEAST_COMPLEMENT_BITS}].",
            ratio=ratio,
        )
    if size < 0:
        raise ParameterError(f"size must be at least 0; got {size}.", size=size)
    table = _logarithmic_table(ratio)
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        chunk = out[start : start + _CHUNK]
        chunk[:] = table.draw(len(chunk), source)
        beyond = np.flatnonzero(chunk == table.last)
        if len(beyond):
            chunk[beyond] = _draw_from(table.last, ratio, len(beyond), source)
    return out


def _draw_from(least: int, ratio: Dyadic, size: int, source: RandomSource) -> NDArray[np.int64]:
    """Draws conditional on K >= least, by rejection: a geometric proposal k is accepted with probability least / k."""
    out = np.empty(size, dtype=np.int64)
    waiting = np.arange(size)
    while len(waiting):
        proposed = geometric(ratio, len(waiting), source) + least
        out[waiting] = proposed
        waiting = waiting[_integers_below(proposed, source) >= least]
    return out


def _integers_below(bounds: NDArray[np.int64], source: RandomSource) -> NDArray[np.int64]:
    """One integer per bound, exactly uniform on 0 .. bound - 1."""
    divisors = bounds.astype(np.uint64)
    surplus = (np.uint64((1 << 64) - 1) - divisors + np.uint64(1)) % divisors  # 2^64 modulo the bound
    largest = np.uint64((1 << 64) - 1) - surplus
    words = draw_words(len(bounds), np.uint64, source)
    rejected = np.flatnonzero(words > largest)
    while len(rejected):
        words[rejected] = draw_words(len(rejected), np.uint64, source)
        rejected = rejected[words[rejected] > largest[rejected]]
    remainders: NDArray[np.int64] = (words % divisors).astype(np.int64)
    return remainders


@lru_cache(maxsize=64)
def _logarithmic_table(ratio: Dyadic) -> InversionTable:
    """The distribution, truncated in its tail; the last value of the table stands for all larger values."""
    length = _LONGEST_TABLE
    if (share := float(ratio)) < 1:
        length = min(length, 1 + int(log(_NEGLIGIBLE) / log(share)))
    return InversionTable(lambda precision: _cdf_bounds(ratio, length, precision))


def _cdf_bounds(ratio: Dyadic, length: int, precision: int) -> CdfBounds:
    """Bounds for 1 .. length, then one entry for all larger values.

    The weights ratio^(k-1) / k sum to -ln(1 - ratio) / ratio. Powers are rounded down and so at most
    k units too small, weights at most 2 units, and sums of k weights at most 2 k.
    """
    low, high = NegativeLogarithm(1 / ratio.fraction, ratio).between(precision + _SPARE_BITS)
    one, unit = 1 << precision, 1 << (precision + _SPARE_BITS)
    scale_down = unit * high.denominator // high.numerator
    scale_up = unit * low.denominator // low.numerator + 1
    shift = precision + 2 * _SPARE_BITS
    power, total = unit, 0
    lower, upper = [], []
    for k in range(1, length + 1):
        total += power // k
        lower.append(total * scale_down >> shift)
        upper.append(((total + 2 * k) * scale_up >> shift) + 1)
        power = power * ratio.numerator >> ratio.bits
    return CdfBounds(1, [*lower, one], [*upper, one])
