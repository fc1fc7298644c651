"""Bounds of a distribution function from the ratios of neighbouring probabilities alone."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from math import ceil

from shuffledp.randomness.inversion import CdfBounds

_SPARE_BITS = 64  # rounding errors add up to far less than 2^64 units of the weights


def unimodal_bounds(
    ratio: Callable[[int], tuple[int, int]],
    mode: int,
    precision: int,
    *,
    largest_later_ratio: Fraction = Fraction(0),
    unsure: bool = False,
) -> CdfBounds:
    """Bounds of Pr[K <= k] for a distribution on 0, 1, 2, ... whose probabilities fall to both sides of ``mode``.

    ``ratio(k)`` is Pr[k + 1] / Pr[k] as numerator and denominator; a numerator of 0 ends the support.
    The ratios must not rise with k, or must stay at most ``largest_later_ratio`` < 1 where they do.
    Each weight is the one before times a ratio of at most one, rounded down, so it is at most
    (distance to the mode) units too small. Dividing by the sum of all makes them probabilities: no
    normalising constant is needed. ``unsure`` says that the ratios given are so close to the true
    ones that no weight is off by a further unit, whichever way.
    """
    unit = 1 << (precision + _SPARE_BITS)
    upward, downward = [], []
    weight, k = unit, mode
    numerator, denominator = ratio(k)
    while weight and numerator:
        weight = weight * numerator // denominator
        upward.append(weight)
        k += 1
        numerator, denominator = ratio(k)
    complete = numerator == 0
    error = 0
    if not complete:
        error += _bound_beyond(len(upward), max(Fraction(numerator, denominator), largest_later_ratio))
    weight, k = unit, mode
    while weight and k > 0:
        denominator, numerator = ratio(k - 1)
        weight = weight * numerator // denominator
        downward.append(weight)
        k -= 1
    if k > 0:
        denominator, numerator = ratio(k - 1)
        error += _bound_beyond(len(downward), Fraction(numerator, denominator))
    error += len(upward) ** 2 + len(downward) ** 2
    slack = len(upward) + len(downward) + 2 if unsure else 0  # 2 for what lies beyond either end
    bounds = _normalise([*reversed(downward), unit, *upward], error + slack, slack, precision)
    if complete:
        bounds.lower[-1] = bounds.upper[-1] = 1 << precision
    return CdfBounds(mode - len(downward), bounds.lower, bounds.upper)


def _normalise(weights: list[int], missing: int, excess: int, precision: int) -> CdfBounds:
    """Bounds where every sum of weights is at most ``missing`` too small and ``excess`` too large."""
    cumulative = list(accumulate(weights))
    total = cumulative[-1]
    guard = total.bit_length() + 32
    scale_down = (1 << precision + guard) // (total + missing)
    scale_up = (1 << precision + guard) // (total - excess) + 1
    lower = [max(0, value - excess) * scale_down >> guard for value in cumulative]
    upper = [((value + missing) * scale_up >> guard) + 1 for value in cumulative]
    return CdfBounds(0, lower, upper)


def _bound_beyond(distance: int, ratio: Fraction) -> int:
    """Upper bound on all weights past a last one that rounded to zero: a geometric series.

    The true last weight is at most ``distance`` units. Every later ratio is at most ``ratio``, which
    lies below one because the weights have fallen from one unit of probability to nothing.
    """
    return ceil(distance * ratio / (1 - ratio))
