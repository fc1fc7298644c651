"""Weighted sums of noise: their variance, and bounds on their tails.

Two bounds are offered. Bernstein's inequality needs the variance and the heaviest tail only. The other one inverts the
characteristic function: it is nearly exact. It is still an upper bound, because the probability that the Gaussian
smoothing of the sum changes the result is added to the risk, and because the aliasing of the finite Fourier series is
bounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_SMOOTHING = 1 / 150  # standard deviation of the Gaussian variable, relative to that of the sum
_SMOOTHING_REACH = 5.0  # in standard deviations of the Gaussian variable
_SMOOTHING_RISK = 3e-7  # probability that it lies beyond that reach, on one side
_DECAY = 6.5  # the transform is summed until the Gaussian factor is below e^(-_DECAY^2 / 2) < 1e-9
_PERIOD = 40.0  # of the Fourier sum, in standard deviations
_LEAST_RISK = 1e-5  # below, Bernstein's inequality alone is used
_NUMERICAL_ERROR = 1e-7
_MAX_DISTINCT = 1 << 16  # with more distinct coefficients, Bernstein's inequality alone is used
_BLOCK, _PHASES = 1 << 10, 1 << 7  # coefficients and multiples that are computed at once


class Noise(ABC):
    """The noise of the cells of one level, identically distributed, each with mean 0."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of a cell; a sum whose coefficients add up to 0 has this times the sum of their squares."""

    @property
    @abstractmethod
    def tail(self) -> float:
        """Bernstein's constant of a sum with coefficients of at most 1 in absolute value."""

    @abstractmethod
    def log_characteristic(self, t: Floats, coefficients: Floats, copies: NDArray[np.int64]) -> Complexes:
        """The logarithm of the characteristic function of the sum with these coefficients, each ``copies`` times.

        ``t`` are the multiples 1, 2, 3, ... of its first entry.
        """


@dataclass(frozen=True)
class UniformMessages(Noise):
    """``messages`` uniform messages over ``cells`` cells: a multinomial count of each cell, less its mean."""

    messages: float
    """An integer, or its expected value where that is not known yet."""
    cells: int

    @property
    def variance(self) -> float:
        """The variance, for coefficients that add up to 0."""
        return self.messages / self.cells

    @property
    def tail(self) -> float:
        """No message moves the sum by more than 2: the difference of two coefficients."""
        return 2 / 3

    def log_characteristic(self, t: Floats, coefficients: Floats, copies: NDArray[np.int64]) -> Complexes:
        """Each message adds the coefficient of its cell; their mean is 0."""
        one = _sums_of_phases(t, coefficients, copies / self.cells)
        return round(self.messages) * np.log(np.where(one == 0, 1e-300, one))


@dataclass(frozen=True)
class LaplaceCells(Noise):
    """Independent discrete Laplace noise: x has a probability proportional to ratio^|x|.

    With ``shares`` other than 1, the difference of two negative binomial variables of that shape; independent parts of
    the noise, whose ``shares`` add up to 1, have a discrete Laplace sum.
    """

    ratio: Dyadic
    shares: float = 1.0

    @property
    def variance(self) -> float:
        """2 ratio / (1 - ratio)^2 per share."""
        return self.shares * 2 * float(self.ratio) / float(self.ratio.complement) ** 2

    @property
    def tail(self) -> float:
        """Moments of order k of one share are at most k!/2 times the variance times this to the k - 2.

        So its cumulants are bounded as Bernstein's inequality needs them, and those of several shares are multiples.
        """
        return 1 / float(self.ratio.complement)

    def log_characteristic(self, t: Floats, coefficients: Floats, copies: NDArray[np.int64]) -> Complexes:
        """(1 - ratio)^2 / (1 - 2 ratio cos(t) + ratio^2) of each cell."""
        ratio, complement = float(self.ratio), float(self.ratio.complement)
        result = np.zeros(len(t))
        for start in range(0, len(coefficients), _BLOCK):
            angle = np.multiply.outer(t, coefficients[start : start + _BLOCK])
            spread = 4 * ratio * np.sin(angle / 2) ** 2 / complement**2
            result -= np.log1p(spread) @ copies[start : start + _BLOCK]
        return (self.shares * result).astype(np.complex128)


@dataclass(frozen=True)
class WeightedNoise:
    """A sum of coefficients times the noise of all cells, level by level."""

    noises: tuple[Noise, ...]
    coefficients: Sequence[Floats]

    @cached_property
    def variance(self) -> float:
        """The variance of the sum."""
        parts = zip(self.noises, self.coefficients, strict=True)
        return math.fsum(noise.variance * float((c**2).sum()) for noise, c in parts)

    def radius(self, risk: float) -> float:
        """The sum exceeds this with probability at most risk / 2, and is below minus this with at most risk / 2."""
        deviation = math.sqrt(self.variance)
        if deviation == 0:
            return 0.0
        wide = float(bernstein_radius(np.array(self.variance), max(noise.tail for noise in self.noises), risk))
        grouped = [_grouped(coefficients) for coefficients in self.coefficients]
        if risk < _LEAST_RISK or sum(len(distinct) for distinct, _ in grouped) > _MAX_DISTINCT:
            return wide
        points, risks = self._risks(deviation, grouped)
        enough = np.flatnonzero(risks <= risk / 2)
        return min(wide, float(points[enough[0]])) if len(enough) else wide

    def _risks(self, deviation: float, grouped: list[tuple[Floats, NDArray[np.int64]]]) -> tuple[Floats, Floats]:
        """Increasing distances, and upper bounds on the probability that the sum is farther from 0 on one side."""
        smoothing = _SMOOTHING * deviation
        step = 2 * math.pi / (_PERIOD * deviation)
        count = 1 << math.ceil(math.log2(_DECAY / smoothing / step))
        t: Floats = step * np.arange(1, count, dtype=np.float64)
        log_transform = -0.5 * (smoothing * t) ** 2 + 0j
        for noise, (distinct, copies) in zip(self.noises, grouped, strict=True):
            log_transform += noise.log_characteristic(t, distinct, copies)
        # masses of the smoothed sum in cells of a period, by the Fourier series of its density
        transform = np.concatenate(([1.0 + 0j], np.exp(log_transform), [0j]))
        cells = 2 * count
        width = _PERIOD * deviation / cells
        inner = np.sinc(np.arange(count + 1) / cells)  # of the uniform density on a cell
        masses = np.fft.irfft(np.conj(transform) * inner, cells)  # of cells around multiples of the width
        masses = np.maximum(masses, 0.0)
        above, below = masses[1 : count + 1], masses[: count - 1 : -1]  # at 1, 2, ... cells from 0, on either side
        beyond = np.maximum(_sums_to_end(above), _sums_to_end(below))
        points: Floats = (np.arange(count, dtype=np.float64) + 0.5) * width + _SMOOTHING_REACH * smoothing
        folded = _tail_beyond(self.variance, max(noise.tail for noise in self.noises), (_PERIOD / 2) * deviation)
        return points, beyond + _SMOOTHING_RISK + _NUMERICAL_ERROR + folded


def _sums_of_phases(t: Floats, coefficients: Floats, weights: Floats) -> Complexes:
    """The sum of weights * e^(i t coefficients) at each of the multiples ``t`` of its first entry.

    The phase of a multiple is the product of two others, so that all sums are products of small matrices.
    """
    starts = t[0] * np.arange(0, len(t), _PHASES, dtype=np.float64)
    sums = np.zeros((len(starts), min(_PHASES, len(t))), dtype=np.complex128)
    for start in range(0, len(coefficients), _BLOCK):
        part = coefficients[start : start + _BLOCK]
        first = np.exp(1j * np.multiply.outer(starts, part)) * weights[start : start + _BLOCK]
        sums += first @ np.exp(1j * np.multiply.outer(part, t[:_PHASES]))
    return sums.ravel()[: len(t)]


def _sums_to_end(masses: Floats) -> Floats:
    """For each position, the sum of the masses from there to the end."""
    sums: Floats = np.cumsum(masses[::-1])[::-1]
    return sums


def _grouped(coefficients: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Distinct coefficients, rounded to 12 digits, and how often each occurs."""
    distinct, copies = np.unique(np.round(coefficients, 12), return_counts=True)
    return distinct, copies.astype(np.int64)


def bernstein_radius(variance: Floats, tail: float, risk: float) -> Floats:
    """A sum with this variance exceeds the radius with probability at most risk / 2, and so does its negative."""
    level = math.log(2 / risk)
    radius: Floats = tail * level + np.sqrt((tail * level) ** 2 + 2 * variance * level)
    return radius


def _tail_beyond(variance: float, tail: float, distance: float) -> float:
    """Bernstein's bound on the probability of a sum farther from 0 than the distance."""
    return 2 * math.exp(-(distance**2) / (2 * (variance + tail * distance)))
