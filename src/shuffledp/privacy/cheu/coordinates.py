"""One category of flipped bits: tables of the number of its ones, with and without the user's own bit."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.cheu.cells import reach
from shuffledp.privacy.divergence import DiscretePair, check_masses, positive_part
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

CUTS = (1e-24, 1e-50, 1e-110, 1e-280)
"""Masses to leave out of sums, in the order to try; what is left out is added to delta."""
_USUAL_CUT = 1e-35
_LONG = 500.0  # from this reach on, outcomes are grouped into blocks
_BLOCKS_PER_DEVIATION = 32
_BLOCKS_PER_NARROW_DEVIATION = 2.5  # of the part with fewer trials: skipping terms errs by e^(-2 pi^2 2.5^2) = 1e-53
_NEGLIGIBLE = 0.0008  # a part of the noise with fewer trials, relative to the other part, is omitted


class Coordinate:
    """The distributions of one category with the user's bit set (p) or not (q), in increasing order of p/q.

    ``missing`` bounds the mass that is left out and ``error`` the relative error of each mass.
    """

    def __init__(self, p: Floats, q: Floats, missing: float, error: Floats) -> None:
        missing += check_masses(p, left_out=missing)
        missing += check_masses(q, left_out=missing)
        self.p, self.q, self.missing, self.error = p, q, missing, error

    @cached_property
    def _loss(self) -> Floats:
        loss: Floats = np.log(self.p) - np.log(self.q)
        return loss

    @cached_property
    def _upper_sums(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of p and q, and of the errors of both."""
        p, q = self.p, self.q
        return _upper_sums(p), _upper_sums(q), _upper_sums(p * self.error), _upper_sums(q * self.error)

    def delta_against(self, other: Coordinate, epsilon: float) -> float:
        """Upper bound on the divergence of (p, other.q) from (q, other.p)."""
        upper_p, upper_q, upper_p_error, upper_q_error = self._upper_sums
        start = np.searchsorted(self._loss, other._loss + epsilon, side="right")
        grown = math.exp(epsilon) * other.p
        gained, lost = other.q * upper_p[start], grown * upper_q[start]
        rounding = (gained + lost) * other.error
        rounding += other.q * upper_p_error[start] + grown * upper_q_error[start]
        divergence = float(positive_part(positive_part(gained - lost) + rounding).sum())
        return divergence + self.missing + other.missing

    def pair(self, cut: float) -> DiscretePair:
        """A pair that bounds p against q; mass that the table lacks is cut off."""
        return DiscretePair(self.p * (1 + 2 * self.error), self.q, max(cut, self.missing))

    def reversed_pair(self, cut: float) -> DiscretePair:
        """A pair that bounds q against p."""
        return DiscretePair(self.q * (1 + 2 * self.error), self.p, max(cut, self.missing))


def _upper_sums(masses: Floats) -> Floats:
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


@lru_cache(maxsize=1024)
def coordinate(ones: int, zeros: int, flip: Dyadic, cut: float = _USUAL_CUT) -> Coordinate:
    """The distributions of the ones of a category, with noise from ``ones`` ones and ``zeros`` zeros of other users."""
    f = float(flip)
    narrow, wide = sorted((ones, zeros))
    if reach(wide * f * (1 - f), _USUAL_CUT) > _LONG:
        if narrow < _NEGLIGIBLE * wide:
            ones, zeros = (0, zeros) if ones < zeros else (ones, 0)
        return wide_coordinate(ones, zeros, flip, cut)
    noise = np.convolve(_lattice(zeros, flip, 1, cut), _lattice(ones, flip, 1, cut)[::-1])
    significant = np.flatnonzero(noise > cut)
    noise = noise[significant[0] : significant[-1] + 1]
    stay, shifted = np.append(noise, 0.0), np.append(0.0, noise)
    missing = 4 * cut * len(noise)
    error = np.full(len(stay), 1e-11)
    return Coordinate(f * stay + (1 - f) * shifted, (1 - f) * stay + f * shifted, missing, error)


def wide_coordinate(ones: int, zeros: int, flip: Dyadic, cut: float = _USUAL_CUT) -> Coordinate:
    """As ``coordinate``, with outcomes grouped into blocks of h; computed from every h-th outcome.

    With W the noise, p - q of a block is exactly (1 - 2 f) (W(first - 1) - W(last)). Its mass is computed by the
    Euler-Maclaurin formula, whose next term is (h z / s)^4 / 720 at z standard deviations s. The masses of a block are
    moved to the ratios at its ends such that both are preserved. That spreads the ratio, so every divergence becomes an
    upper bound.
    """
    f = float(flip)
    narrow, wide = (math.sqrt(trials * f * (1 - f)) for trials in sorted((ones, zeros)))
    longest = wide / _BLOCKS_PER_DEVIATION
    step = max(1, math.floor(min(longest, narrow / _BLOCKS_PER_NARROW_DEVIATION) if narrow > 0 else longest))
    if zeros == 0:
        here, previous = _lattice(ones, flip, step, cut)[::-1], _lattice(ones, flip, step, cut, shift=1)[::-1]
    else:
        minus = _lattice(ones, flip, step, cut)[::-1] * (step if ones else 1)
        here, previous = (np.convolve(_lattice(zeros, flip, step, cut, shift=shift), minus) for shift in (0, -1))
    significant = np.flatnonzero(here > cut)
    here, previous = here[significant[0] : significant[-1] + 1], previous[significant[0] : significant[-1] + 1]
    slope = here - previous
    mass = step / 2 * (here[:-1] + here[1:]) - (step**2 - 1) / 12 * np.diff(slope) - np.diff(here) / 2
    shifted = mass - np.diff(previous)
    p, q = f * mass + (1 - f) * shifted, (1 - f) * mass + f * shifted
    ratio = (f * here + (1 - f) * previous) / ((1 - f) * here + f * previous)
    low, high = ratio[:-1], ratio[1:]
    to_high = np.clip((p - low * q) / np.maximum(high - low, 1e-300), 0.0, q)
    spread_q = np.stack((q - to_high, to_high), axis=1).ravel()
    spread_p = spread_q * np.stack((low, high), axis=1).ravel()
    inside = spread_q > 0
    deviations = (np.arange(len(here)) - here.argmax()) * (step / math.sqrt((ones + zeros) * f * (1 - f)))
    next_term = ((np.abs(deviations) + 1) / _BLOCKS_PER_DEVIATION) ** 4 / 360
    error = np.repeat(np.maximum(next_term[:-1], next_term[1:]) + 1e-10, 2)
    return Coordinate(spread_p[inside], spread_q[inside], 4 * cut * len(here) * step, error[inside])


@lru_cache(maxsize=512)
def _lattice(trials: int, flip: Dyadic, step: int, cut: float, *, shift: int = 0) -> Floats:
    """Pr[Bin(trials, f) = k + shift] for every step-th k of non-negligible mass."""
    if trials == 0:
        return np.ones(1)
    mean = trials * float(flip)
    width = float(reach(mean * (1 - float(flip)), cut))
    first, last = max(0, math.floor(mean - width)), min(trials, math.ceil(mean + width))
    return Binomial(trials, flip).pmf(np.arange(first, last + 1, step, dtype=np.int64) + shift)
