"""Exact sampling from Poisson distributions, whose rates may be irrational."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.computable import Rational, Real
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.source import SYSTEM, RandomSource
from shuffledp.randomness.unimodal import unimodal_bounds

_LARGEST_TABLE_RATE = 1 << 20  # a table is about 30 standard deviations long: some thirty thousand entries
_LARGEST_RATE = 1 << 40


def poisson(rate: Fraction | Real, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of exactly Poisson(rate); a large rate is drawn as a sum of equal parts."""
    real = Rational(rate) if isinstance(rate, int | Fraction) else rate
    if size < 0:
        raise ParameterError(f"size must be at least 0; got {size}.", size=size)
    highest = real.between(64)[1]
    if highest > _LARGEST_RATE:
        raise ParameterError(
            f"A Poisson rate of about {float(highest):.6g} is too large; it must be at most 2^40.", rate=rate
        )
    out = np.zeros(size, dtype=np.int64)
    if highest == 0 or size == 0:
        return out
    parts = max(1, ceil(highest / _LARGEST_TABLE_RATE))
    table = _poisson_table(real.share(parts))
    for _ in range(parts):
        table.add_to(out, source)
    return out


@lru_cache(maxsize=64)
def _poisson_table(rate: Real) -> InversionTable:
    return InversionTable(lambda precision: _cdf_bounds(rate, precision))


def _cdf_bounds(rate: Real, precision: int) -> CdfBounds:
    """Bounds on the distribution function; an irrational rate is replaced by a close rational number.

    At distance n from the mode a weight is off by a factor of at most (1 + e)^n for a relative error
    e of the rate. As weights are at most 2^(precision + 64) and e is at most 2^-(precision + 129),
    that is less than one unit for every n below 2^60.
    """
    close = precision + 130
    low, high = rate.between(close)
    numerator, denominator = low.numerator, low.denominator
    if low != high:  # a power of two as the denominator keeps the numbers small
        shift = close + max(0, denominator.bit_length() - numerator.bit_length() + 1)
        numerator, denominator = (numerator << shift) // denominator, 1 << shift
    return unimodal_bounds(
        lambda k: (numerator, (k + 1) * denominator), numerator // denominator, precision, approximate=low != high
    )
