"""Exact samplers on top of random bits: no floating point, no modulo bias."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.dyadic import Dyadic
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.source import SYSTEM, RandomSource, draw_bytes, draw_words

__all__ = ["bernoulli", "discrete_laplace", "geometric", "integers"]

_CHUNK = 1 << 18
_LONGEST_GEOMETRIC_TABLE = 4096


def bernoulli(probability: Dyadic, size: int, source: RandomSource = SYSTEM) -> NDArray[np.bool_]:
    """``size`` independent bits, each true with exactly ``probability``.

    A bit is "a uniform number lies below the probability". One random byte decides 255 of 256
    cases; only where it equals the probability's leading byte are further bytes drawn.
    """
    out = np.empty(size, dtype=np.bool_)
    if probability.numerator == 1 << probability.bits:
        out.fill(True)
        return out
    width = max(1, -(-probability.bits // 8))
    digits = (probability.numerator << (8 * width - probability.bits)).to_bytes(width, "big")
    first, further = digits[0], digits[1:].rstrip(b"\0")  # nothing lies below a zero digit at the end
    ties = []
    for start in range(0, size, _CHUNK):
        chunk = out[start : start + _CHUNK]
        drawn = chunk.view(np.uint8)
        source.fill(drawn)
        if further:
            ties.append(np.flatnonzero(drawn == first) + start)
        np.less(drawn, first, out=chunk)
    if ties:
        _decide_ties(out, np.concatenate(ties), further, source)
    return out


def _decide_ties(out: NDArray[np.bool_], ties: NDArray[np.intp], digits: bytes, source: RandomSource) -> None:
    """Go on with the next digits where all digits so far were equal; equal to the end is not below."""
    for digit in digits:
        if len(ties) == 0:
            return
        drawn = draw_bytes(len(ties), source)
        out[ties] = drawn < digit
        ties = ties[drawn == digit]


def integers(bound: int, size: int, source: RandomSource = SYSTEM) -> NDArray[np.uint64]:
    """``size`` independent integers, each exactly uniform on 0 .. bound - 1 (bound <= 2**64)."""
    if not 1 <= bound <= 1 << 64:
        raise ParameterError(f"The bound {bound} must lie between 1 and 2^64.", bound=bound)
    words: NDArray[Any] = draw_words(size, np.uint64, source)
    if bound == 1 << 64:
        return words
    largest = np.uint64((1 << 64) // bound * bound - 1)  # accept only whole multiples of the bound
    rejected = np.flatnonzero(words > largest)
    while len(rejected):
        words[rejected] = draw_words(len(rejected), np.uint64, source)
        rejected = rejected[words[rejected] > largest]
    remainders: NDArray[np.uint64] = words % np.uint64(bound)
    return remainders


def geometric(ratio: Dyadic, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent K with Pr[K = k] = (1 - ratio) ratio^k exactly, for k = 0, 1, 2, ..."""
    if not 0 <= ratio.numerator < 1 << ratio.bits:
        raise ParameterError(f"The ratio {ratio} of a geometric law must be below 1.", ratio=ratio)
    table = _geometric_table(ratio)
    out = table.draw(size, source)
    overflowing = np.flatnonzero(out == table.last)
    while len(overflowing):  # memoryless: what lies beyond the table is distributed as the whole
        more = table.draw(len(overflowing), source)
        out[overflowing] += more
        overflowing = overflowing[more == table.last]
    return out


def discrete_laplace(ratio: Dyadic, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent X with Pr[X = x] proportional to ratio^|x| exactly.

    With ratio = e^(-epsilon), rounded up, this is the noise that makes a count epsilon-private.
    """
    return geometric(ratio, size, source) - geometric(ratio, size, source)


@lru_cache(maxsize=32)
def _geometric_table(ratio: Dyadic) -> InversionTable:
    """The law cut at a length where what lies beyond has mass of about a thousandth."""
    length = 1
    remaining = float(ratio)
    while remaining > 1e-3 and length < _LONGEST_GEOMETRIC_TABLE:
        remaining *= float(ratio)
        length += 1

    def cdf_bounds(precision: int) -> CdfBounds:
        one = 1 << precision
        lower, upper = [], []
        power_low = power_high = one
        for _ in range(length):
            power_low = power_low * ratio.numerator >> ratio.bits
            power_high = -(-power_high * ratio.numerator >> ratio.bits)
            lower.append(one - power_high)
            upper.append(one - power_low)
        return CdfBounds(0, [*lower, one], [*upper, one])

    return InversionTable(cdf_bounds)
