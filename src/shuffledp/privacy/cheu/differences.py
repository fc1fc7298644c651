"""The divergence of flipped ones from flipped zeros among unlabelled bits, for many cells of K at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.binomial import binomial_masses
from shuffledp.privacy.cheu.cells import reach
from shuffledp.privacy.divergence import positive_part
from shuffledp.privacy.incomplete_beta import betainc, betaincc
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MAX_STEPS = 40
_TOLERANCE = 1e-8  # once |L(u)| is below this, u is accurate enough
_LARGE_RATIO = 1e3


@dataclass(frozen=True)
class Precision:
    """Precision of the sums."""

    cut: float
    """Mass that is left out of sums, added to delta."""
    nodes: int
    """Terms per standard deviation."""
    alias: float
    """Bound on the error of skipping terms: a hundred times e^(-4 nodes^2)."""


USUAL = Precision(1e-22, 4, 2e-26)
FINE = Precision(1e-35, 5, 1e-41)
FINER = Precision(1e-105, 8, 1e-109)
FINEST = Precision(1e-280, 14, 1e-280)
PRECISIONS = (USUAL, FINE, FINER, FINEST)
"""In the order to try: each is enough for a divergence that exceeds a million times its cut."""


def divergences(
    ones: Integers, zeros: Integers, bits: int, flip: Dyadic, epsilon: float, precision: Precision = FINE
) -> Floats:
    """Upper bounds on the divergence of a target's ``bits`` ones from as many zeros, one per cell.

    U is the number of ones less ``ones``: under P bits - Bin(ones + bits) + Bin(zeros), under Q
    Bin(zeros + bits) - Bin(ones). With L(u) = ln P(u)/Q(u) - epsilon, which increases, the divergence is
    D(u) = Pr[U >= u] - e^epsilon Pr'[U >= u] at the first u with L(u) > 0, which is bracketed starting from the saddle
    point. At a smaller u the divergence is at most D(u) + (e^-L(u) - 1) Pr[U >= u].
    """
    with_ones = _Difference(zeros, ones + bits, bits, flip, precision)
    with_zeros = _Difference(zeros + bits, ones, 0, flip, precision)
    guess, slope, middle = _saddle_point(ones, zeros, bits, float(flip), epsilon)
    low, at_low = -ones - 1, np.full(len(ones), -np.inf)
    high = zeros + bits  # here L is the local epsilon minus epsilon, which is above 0
    u = np.clip(np.round(guess), low + 1, high).astype(np.int64)
    for step in range(_MAX_STEPS):
        excess = _log_ratio(with_ones.mass(u), with_zeros.mass(u), above=u > middle) - epsilon
        low, at_low = np.where(excess <= 0, u, low), np.where(excess <= 0, excess, at_low)
        high = np.where(excess > 0, np.minimum(u, high), high)
        if ((high - low <= 1) | (at_low > -_TOLERANCE)).all():
            break
        newton = u - np.sign(excess) * np.maximum(np.round(np.abs(excess) / slope), 1.0)
        halved = (np.maximum(low, np.minimum(np.floor(middle), high - 1)) + high) // 2
        u = np.where((np.abs(excess) > _LARGE_RATIO) | (step % 4 == 3), halved, np.clip(newton, low + 1, high)).astype(
            np.int64
        )
        u = np.where(high - low <= 1, high, np.minimum(np.maximum(u, low + 1), np.maximum(high - 1, low + 1)))
    exact = (high - low <= 1) | ~np.isfinite(at_low)
    last = np.where(exact, high, low)
    p, q = with_ones.upper_tail(last), with_zeros.upper_tail(last)
    growth = math.exp(epsilon)
    slack = np.where(exact, 0.0, np.expm1(np.minimum(-at_low, 700.0))) * p
    slack = np.where((high - low > 1) & ~np.isfinite(at_low), 1.0, slack)
    error = with_ones.error(last) + with_zeros.error(last)
    aliased = np.where(with_ones.step * with_zeros.step > 1, precision.alias * (1 + growth), 0.0)
    return positive_part(p - growth * q) + slack + error * (p + growth * q) + aliased + 2 * precision.cut


def _saddle_point(
    ones: Integers, zeros: Integers, bits: int, f: float, epsilon: float
) -> tuple[Floats, Floats, Floats]:
    """Approximately the zero of L, the slope of L there, and the midpoint of the two means.

    Both distributions are tilted by e^(theta u) such that their normalisations differ by e^epsilon.
    """
    growth = math.exp(epsilon / bits)
    x = (growth * (1 - f) - f) / max((1 - f) - growth * f, 1e-300)  # e^theta
    up, down = f * x / (1 - f + f * x), f / ((1 - f) * x + f)
    stays = (1 - f) * x / ((1 - f) * x + f)
    guess = zeros * up - ones * down + bits * (stays + up) / 2
    variance = zeros * up * (1 - up) + ones * down * (1 - down) + bits * (stays * (1 - stays) + up * (1 - up)) / 2
    slope: Floats = np.maximum(bits * (stays - up) / np.maximum(variance, 1e-9), 1e-300)
    middle: Floats = (zeros - ones).astype(np.float64) * f + bits / 2
    return guess, slope, middle


def _log_ratio(p: Floats, q: Floats, *, above: NDArray[np.bool_]) -> Floats:
    """ln(p/q); if a mass underflows, a large number of the right sign."""
    tiny = (p < 1e-290) | (q < 1e-290)
    ratio = np.log(np.where(tiny, 1.0, p)) - np.log(np.where(tiny, 1.0, q))
    result: Floats = np.where(tiny, np.where(above, 1e4, -1e4), ratio)
    return result


class _Difference:
    """offset + Bin(plus, f) - Bin(minus, f), for many (plus, minus) at once.

    Sums run over the variable with fewer trials. If its standard deviation s is large, only every h-th term is used, h
    <= s/nodes. By Poisson's summation formula the error is at most about exp(-s^2 (1 - cos(pi/h))): the characteristic
    function of a binomial distribution is below exp(-s^2 (1 - cos t)), and one of the two factors is evaluated at a
    frequency of pi/h or more. The worst case is h = 2, with exp(-4 nodes^2).
    """

    def __init__(self, plus: Integers, minus: Integers, offset: int, flip: Dyadic, precision: Precision) -> None:
        self._f = float(flip)
        self._offset = offset
        self._cut = precision.cut
        self._plus_is_wide = (plus >= minus)[:, None]
        self._wide, narrow = np.maximum(plus, minus)[:, None], np.minimum(plus, minus)[:, None]
        variance = narrow * (self._f * (1 - self._f))
        step = np.maximum(1, np.floor(np.sqrt(variance) / precision.nodes)).astype(np.int64)
        width = reach(variance, precision.cut)
        first = np.maximum(0, np.floor(narrow * self._f - width)).astype(np.int64)
        last = np.minimum(narrow, np.ceil(narrow * self._f + width)).astype(np.int64)
        points = int(((last - first) // step).max()) + 2
        self._nodes = first + np.arange(points) * step
        inside = self._nodes <= np.minimum(narrow, last + step)
        self._weights = np.where(inside, binomial_masses(np.minimum(self._nodes, narrow), narrow, self._f), 0.0) * step
        self.step: Integers = step[:, 0]

    def _other(self, u: Integers) -> Integers:
        """The value of the variable with more trials for which the difference is u."""
        v = u[:, None] - self._offset
        return np.where(self._plus_is_wide, self._nodes + v, self._nodes - v)

    def mass(self, u: Integers) -> Floats:
        """Pr[difference = u]."""
        k = self._other(u)
        inside = (k >= 0) & (k <= self._wide)
        masses = binomial_masses(np.minimum(np.maximum(k, 0), self._wide), self._wide, self._f)
        total: Floats = (self._weights * np.where(inside, masses, 0.0)).sum(axis=1)
        return total

    def upper_tail(self, u: Integers) -> Floats:
        """Pr[difference >= u]: the variable with more trials is at least k, or at most k if it is subtracted."""
        k = self._other(u)
        least = np.where(self._plus_is_wide, k, k + 1)  # the boundary between the two tails
        trials = np.broadcast_to(self._wide, least.shape)
        inner = np.clip(least, 1, trials)
        counts = self._weights > self._cut / 1e4
        above_mean = inner > trials * self._f
        upper, lower = np.zeros(least.shape), np.zeros(least.shape)
        sides = (above_mean & counts, betainc, upper, lower), (~above_mean & counts, betaincc, lower, upper)
        for side, function, small, large in sides:
            a, b = inner[side].astype(np.float64), (trials[side] - inner[side] + 1).astype(np.float64)
            small[side] = function(a, b, self._f)
            large[side] = 1.0 - small[side]
        upper = np.where(least <= 0, 1.0, np.where(least > trials, 0.0, upper))
        lower = np.where(least <= 0, 0.0, np.where(least > trials, 1.0, lower))
        total: Floats = (self._weights * np.where(self._plus_is_wide, upper, lower)).sum(axis=1)
        return total

    def error(self, u: Integers) -> Floats:
        """Bound on the relative error of masses and tails, like ``Binomial.tail_error``."""
        spread = np.abs(u - self._offset) + reach(self._wide[:, 0] * self._f, self._cut)
        return 4e-12 + spread * 2.0**-45
