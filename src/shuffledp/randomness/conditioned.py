"""Exact sampling of discrete Laplace noise on many numbers, conditioned on a total of 0, in linear time.

A discrete Laplace number is the difference of two geometric ones. Given that all differences sum to 0, the geometric
numbers of both sides have the same total T, with Pr[T] proportional to (C(T + n - 1, n - 1) ratio^T)^2; and given T,
each side is a uniform composition of T into n parts.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.dyadic import Dyadic, Probability, check_uncertain
from shuffledp.randomness.inversion import InversionTable
from shuffledp.randomness.samplers import integers
from shuffledp.randomness.source import SYSTEM, RandomSource, number_of_draws
from shuffledp.randomness.unimodal import unimodal_bounds

LARGEST_VARIANCE = 1 << 28
"""Largest variance of the total of one side: its table is about 30 standard deviations long, half a million entries."""
_LARGEST_TOTAL = 1 << 40
_LONGEST_BITMAP = 1 << 26


def variance_of_total(ratio: Probability, size: int) -> float:
    """About the variance of the total of one side: half of that of ``size`` geometric numbers."""
    exact = Dyadic.of(ratio)
    return size * float(exact) / float(exact.complement) ** 2 / 2


def conditioned_laplace(ratio: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``size`` numbers X that sum to 0, with Pr[X = x] proportional to the product of ratio^|x_i| exactly."""
    exact = Dyadic.of(ratio)
    check_uncertain("ratio", exact)
    size = number_of_draws(size)
    if variance_of_total(exact, size) > LARGEST_VARIANCE:
        raise ParameterError(
            f"{size:,} numbers with the ratio {exact} have a total of too many likely values to draw exactly; use "
            "fewer numbers or less noise.",
            size=size,
            ratio=exact,
        )
    if size < 2:
        return np.zeros(size, dtype=np.int64)
    total = int(_total_table(exact, size).draw(1, source)[0])
    return uniform_composition(total, size, source) - uniform_composition(total, size, source)


def uniform_composition(total: int, parts: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """``parts`` integers from 0 on that sum to ``total``, each sequence equally likely.

    They are the gaps between parts - 1 bars, a uniform subset of total + parts - 1 positions.
    """
    if not 0 <= total <= _LARGEST_TOTAL or parts < 1:
        raise ParameterError(
            f"The total must lie between 0 and 2^40, and parts must be at least 1; got {total} and {parts}.",
            total=total,
        )
    bars = uniform_subset(total + parts - 1, parts - 1, source)
    return np.diff(bars, prepend=-1, append=total + parts - 1) - 1


def uniform_subset(population: int, size: int, source: RandomSource = SYSTEM) -> NDArray[np.int64]:
    """A uniform subset of ``size`` of the integers below ``population``, in increasing order.

    As many integers as are missing are drawn, and those that are new are added; so the subset never becomes too large,
    and by symmetry all subsets of a size are equally likely. Of a large subset the complement is drawn.
    """
    if 2 * size > population:
        inside = np.ones(population, dtype=np.bool_)
        inside[uniform_subset(population, population - size, source)] = False
        return np.flatnonzero(inside)
    if population > _LONGEST_BITMAP:
        drawn = np.zeros(0, dtype=np.int64)
        while len(drawn) < size:
            drawn = np.unique(np.concatenate((drawn, _drawn_below(population, size - len(drawn), source))))
        return drawn
    inside = np.zeros(population, dtype=np.bool_)
    missing = size
    while missing:
        inside[_drawn_below(population, missing, source)] = True
        missing = size - int(np.count_nonzero(inside))
    return np.flatnonzero(inside)


def _drawn_below(bound: int, size: int, source: RandomSource) -> NDArray[np.int64]:
    return integers(bound, size, source).view(np.int64)


@lru_cache(maxsize=8)
def _total_table(ratio: Dyadic, size: int) -> InversionTable:
    """Draws of T: Pr[T + 1] / Pr[T] = ((T + size) ratio / (T + 1))^2, which decreases with T."""
    mode = max(0, (size * ratio.numerator - (1 << ratio.bits)) // ratio.complement.numerator + 1)
    return InversionTable(
        lambda precision: unimodal_bounds(
            lambda k: (((k + size) * ratio.numerator) ** 2, ((k + 1) << ratio.bits) ** 2), mode, precision
        )
    )
