"""Exact sampling from binomial distributions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.dyadic import Dyadic, Probability
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.source import SYSTEM, RandomSource, number_of_draws
from shuffledp.randomness.unimodal import unimodal_bounds

_LARGEST_VARIANCE = 1 << 28  # a table is about 30 standard deviations long: at most half a million entries
_LARGEST_POWER_VARIANCE = 1 << 24  # tables of powers of two are cached, so they are shorter
_LARGEST_TOTAL_VARIANCE = 1 << 40
_CHUNK = 1 << 16


def binomial(trials: int, probability: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent draws of exactly Bin(trials, probability)."""
    probability = Dyadic.of(probability)
    trials, size = number_of_draws(trials), number_of_draws(size)
    if probability.numerator in (0, 1 << probability.bits) or trials == 0:
        fixed = trials if probability.numerator else 0
        return np.full(size, fixed, dtype=np.int64)
    variance = trials * float(probability) * float(probability.complement)
    parts = max(1, -(-int(variance) // _LARGEST_VARIANCE))
    share, larger_parts = divmod(trials, parts)
    out = _binomial_table(share, probability).draw(size, source)
    for part_trials, repetitions in ((share, parts - larger_parts - 1), (share + 1, larger_parts)):
        for _ in range(repetitions):
            _binomial_table(part_trials, probability).add_to(out, source)
    return out


def binomials(trials: NDArray[np.int64], probability: Probability, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """One draw of exactly Bin(trials[i], probability) for each entry, all independent.

    The trials are split into powers of two, so that a few dozen tables serve every entry.
    """
    probability = Dyadic.of(probability)
    if np.asarray(trials).dtype.kind not in "iub" and np.size(trials):
        raise ParameterError(f"trials must be integers; got an array of {np.asarray(trials).dtype}.")
    numbers = np.asarray(trials, dtype=np.int64)
    if numbers.size and numbers.min() < 0:
        raise ParameterError(f"trials must be at least 0; got {numbers.min()}.", trials=numbers.min())
    if probability.numerator == 0:
        return np.zeros_like(numbers)
    if probability.numerator == 1 << probability.bits:
        return numbers.copy()
    variance = float(probability) * float(probability.complement)
    if numbers.size and variance * float(numbers.max()) > _LARGEST_TOTAL_VARIANCE:
        raise ParameterError(
            f"Bin({numbers.max()}, {probability}) has a variance above 2^40, which takes too long to draw exactly.",
            trials=numbers.max(),
            probability=probability,
        )
    flat = numbers.ravel()
    out = np.zeros(len(flat), dtype=np.int64)
    for start in range(0, len(flat), _CHUNK):
        chunk, sums = flat[start : start + _CHUNK], out[start : start + _CHUNK]
        for power in range(int(chunk.max()).bit_length()):
            entries = np.flatnonzero(chunk >> power & 1)
            doublings = 0  # a variance too large for one table: sum several draws from the table of a lower power
            while variance * 2.0 ** (power - doublings) > _LARGEST_POWER_VARIANCE:
                doublings += 1
            if len(entries):
                table = power_table(power - doublings, probability)
                for _ in range(1 << doublings):
                    sums[entries] += table.draw(len(entries), source)
    return out.reshape(numbers.shape)


@lru_cache(maxsize=256)
def power_table(power: int, probability: Dyadic) -> InversionTable:
    """Draws of exactly Bin(2^power, probability)."""
    return InversionTable(lambda precision: _cdf_bounds(1 << power, probability, precision))


@lru_cache(maxsize=8)
def _binomial_table(trials: int, probability: Dyadic) -> InversionTable:
    return InversionTable(lambda precision: _cdf_bounds(trials, probability, precision))


def _cdf_bounds(trials: int, probability: Dyadic, precision: int) -> CdfBounds:
    """Bounds from Pr[k + 1] / Pr[k] = (trials - k) success / ((k + 1) failure), which decreases with k."""
    success, failure = probability.numerator, (1 << probability.bits) - probability.numerator
    mode = min(trials, (trials + 1) * success >> probability.bits)
    return unimodal_bounds(lambda k: ((trials - k) * success, (k + 1) * failure), mode, precision)
