"""Bounds on a cumulative distribution function, computed from ratios of neighbouring probabilities."""

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
    approximate: bool = False,
) -> CdfBounds:
    """Bounds on Pr[K <= k] for a distribution on 0, 1, 2, ... whose probabilities decrease on both sides of ``mode``.

    ``ratio(k)`` is Pr[k + 1] / Pr[k] as numerator and denominator; a numerator of 0 ends the support.
    The ratios must not increase with k, or must stay at most ``largest_later_ratio`` < 1 where they do.
    Each weight is the previous one times a ratio of at most one, rounded down, so at distance n from
    the mode it is at most n units too small. The weights are divided by their sum, so no normalising
    constant is needed. ``approximate`` says that the ratios are approximate, and that this changes no
    weight by more than one further unit in either direction.
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
    slack = len(upward) + len(downward) + 2 if approximate else 0  # 2 for the weights beyond either end
    bounds = _normalise([*reversed(downward), unit, *upward], error + slack, slack, precision)
    if complete:
        bounds.lower[-1] = bounds.upper[-1] = 1 << precision
    return CdfBounds(mode - len(downward), bounds.lower, bounds.upper)


def _normalise(weights: list[int], missing: int, excess: int, precision: int) -> CdfBounds:
    """Normalized bounds, if every sum of weights is at most ``missing`` too small and at most ``excess`` too large."""
    cumulative = list(accumulate(weights))
    total = cumulative[-1]
    guard = total.bit_length() + 32
    scale_down = (1 << precision + guard) // (total + missing)
    scale_up = (1 << precision + guard) // (total - excess) + 1
    lower = [max(0, value - excess) * scale_down >> guard for value in cumulative]
    upper = [((value + missing) * scale_up >> guard) + 1 for value in cumulative]
    return CdfBounds(0, lower, upper)


def _bound_beyond(distance: int, ratio: Fraction) -> int:
    """Upper bound, by a geometric series, on the sum of all weights after the first one that rounded to zero.

    The true value of that weight is at most ``distance`` units. Every later ratio is at most ``ratio``,
    which is below one because the weights have decreased from one unit of probability to zero.
    """
    return ceil(distance * ratio / (1 - ratio))
