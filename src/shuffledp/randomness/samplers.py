"""Exact sampling of uniform integers, geometric and discrete Laplace numbers, without floating point or modulo bias."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness.dyadic import Dyadic, Probability
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.source import (
    BUFFER_BYTES,
    SYSTEM,
    RandomSource,
    draw_bytes,
    draw_words,
    number_of_draws,
    stream_of,
)

if ACTIVE:
    from shuffledp.native import _numbers

_LONGEST_GEOMETRIC_TABLE = 4096
LEAST_GEOMETRIC_COMPLEMENT_BITS = 28
"""A ratio must be at most 1 - 2^-28: a draw takes about mean/4096 steps, up to 65,536 of them."""
_FEW = 1 << 10  # up to this size numpy is as fast as the kernel


def integers(bound: int, size: int, source: RandomSource = SYSTEM) -> NDArray[np.uint64]:
    """``size`` independent integers, each exactly uniform on 0 .. bound - 1 (bound <= 2**64)."""
    if not isinstance(bound, int | np.integer) or not 1 <= bound <= 1 << 64:
        raise ParameterError(f"bound must be an integer between 1 and 2^64; got {bound!r}.", bound=bound)
    bound = int(bound)
    size = number_of_draws(size)
    if ACTIVE and size > _FEW and bound < 1 << 64:
        return _integers_natively(bound, size, source)
    words: NDArray[Any] = draw_words(size, np.uint64, source)
    if bound == 1 << 64:
        return words
    largest = np.uint64((1 << 64) // bound * bound - 1)  # reject the incomplete last multiple of the bound
    rejected = np.flatnonzero(words > largest)
    while len(rejected):
        words[rejected] = draw_words(len(rejected), np.uint64, source)
        rejected = rejected[words[rejected] > largest]
    remainders: NDArray[np.uint64] = words % np.uint64(bound)
    return remainders


def _integers_natively(bound: int, size: int, source: RandomSource) -> NDArray[np.uint64]:
    out = np.empty(size, dtype=np.uint64)
    fill = stream_of(source, 8 * size)
    buffer = np.empty(min(size, BUFFER_BYTES // 8), dtype=np.uint64)
    done = 0
    try:
        while done < size:
            words = buffer[: size - done]
            fill(words.view(np.uint8))
            done += _numbers.draw_below(words, bound, out[done:])
    finally:
        buffer.fill(0)
    return out


def uniform_below(bound: int, source: RandomSource) -> int:
    """An integer that is exactly uniform on 0 .. bound - 1, for a bound of any size."""
    bits = (bound - 1).bit_length()
    excess = -bits % 8
    while True:  # at most half of the draws are rejected
        drawn = int.from_bytes(draw_bytes(-(-bits // 8), source).tobytes(), "big") >> excess
        if drawn < bound:
            return drawn


def geometric(ratio: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent K with Pr[K = k] = (1 - ratio) ratio^k exactly, for k = 0, 1, 2, ..."""
    ratio = Dyadic.of(ratio)
    if not 0 <= ratio.numerator < 1 << ratio.bits:
        raise ParameterError(f"The ratio {ratio} of a geometric distribution must be below 1.", ratio=ratio)
    if ratio.complement.numerator << LEAST_GEOMETRIC_COMPLEMENT_BITS < 1 << ratio.bits:
        raise ParameterError(
            f"A geometric number with a ratio above 1 - 2^-{LEAST_GEOMETRIC_COMPLEMENT_BITS} takes too long to draw; "
            "use less noise.",
            ratio=ratio,
        )
    table = _geometric_table(ratio)
    out = table.draw(size, source)
    overflowing = np.flatnonzero(out == table.last)
    while len(overflowing):  # memoryless: the excess over the table has the same geometric distribution
        more = table.draw(len(overflowing), source)
        out[overflowing] += more
        overflowing = overflowing[more == table.last]
    return out


def discrete_laplace(ratio: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent X with Pr[X = x] proportional to ratio^|x| exactly.

    With ratio = e^(-epsilon), rounded up, this is the noise that makes a count epsilon-private.
    """
    return geometric(ratio, size, source) - geometric(ratio, size, source)


@lru_cache(maxsize=32)
def _geometric_table(ratio: Dyadic) -> InversionTable:
    """The distribution, truncated where the tail has a probability of about 1/1000."""
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
