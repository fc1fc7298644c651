"""Composition of privacy losses at very small deltas, by one Fourier transform of exponentially tilted masses.

Multiplying the mass of every loss x by e^(tilt x - cumulant) gives a distribution whose sum of all losses lies near
epsilon, if the tilt is the saddle point. Convolving tilted masses and dividing by the same factor is exact, and the
rounding error of the transform is then relative to e^(cumulant - tilt epsilon), which is about delta. The error is
bounded and added: rounding by the error analysis of the fast Fourier transform (Higham 2002, theorem 24.2) and the
inequality of Cauchy and Schwarz, losses beyond the cycle by Chernoff's inequality. What wraps around increases delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON
from shuffledp.privacy.divergence import as_delta, positive_part
from shuffledp.privacy.loss_grid import GridLosses

Floats = NDArray[np.float64]

_TAIL = 45.0  # -ln of the tilted mass beyond the cycle
_UNIT = 2.0**-53
_TRANSFORM = 10.0  # times the unit and log2 of the length: the relative error of a transform, with room
_POWER = 16.0  # units of rounding of a factor in a power
_SPREADS = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)  # of Chernoff's tilt, relative to that of a Gaussian
_STEPS = 60
_CLOSE = 0.01  # standard deviations of the tilted mean from the target
_LARGEST_TILT = 1e3
_MAX_CELLS = 1 << 22
_ROUGH_CELLS = 1 << 12


@dataclass(frozen=True, eq=False)
class _Filled:
    """The finite losses of a grid that have mass; those of a curve of few points are few."""

    cells: Floats
    masses: Floats
    variances: Floats | float = 0.0
    """Of the cells whose mass is at each cell."""

    @classmethod
    def of(cls, losses: GridLosses) -> _Filled:
        filled = np.flatnonzero(positive_part(losses.masses))
        if not len(filled):
            return cls(np.zeros(1), np.full(1, 1e-300))
        return cls(losses.cells[filled], losses.masses[filled])

    def roughly(self) -> _Filled:
        """At most some thousand cells, each with the mass of several."""
        several = -(-len(self.cells) // _ROUGH_CELLS)
        starts = np.arange(0, len(self.cells), several)
        masses = np.add.reduceat(self.masses, starts)
        means = np.add.reduceat(self.masses * self.cells, starts) / masses
        apart = self.cells - np.repeat(means, np.diff(starts, append=len(self.cells)))
        return _Filled(means, masses, np.add.reduceat(self.masses * apart**2, starts) / masses)

    def cumulant(self, tilt: float) -> float:
        """ln E[e^(tilt loss)], in units of the width."""
        exponent = tilt * self.cells
        peak = float(exponent.max())
        return peak + math.log(float((self.masses * np.exp(exponent - peak)).sum()))

    def tilted(self, tilt: float) -> Floats:
        """The masses after tilting, normalized."""
        with np.errstate(under="ignore"):
            exponent = tilt * self.cells
            masses = self.masses * np.exp(exponent - float(exponent.max()))
            tilted: Floats = masses / float(masses.sum())
        return tilted


class TiltedSum:
    """The sum of independent losses on one grid, each with the number of its copies."""

    def __init__(self, parts: Sequence[tuple[GridLosses, int]]) -> None:
        self._width = parts[0][0].width
        self._parts = [(_Filled.of(losses), times) for losses, times in parts]
        self._rough = [(losses.roughly(), times) for losses, times in self._parts]
        finite = math.fsum(times * math.log1p(-min(losses.infinite, 1 - _UNIT)) for losses, times in parts)
        self._infinite = as_delta(-math.expm1(finite) * (1 + 1e-12))
        self._largest = sum(int(losses.cells[-1]) * times for losses, times in self._parts)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the divergence."""
        cells = min(epsilon, LARGEST_EPSILON) / self._width
        if cells >= self._largest:
            return self._infinite
        tilt = _saddle_point(self._mean_and_variance, cells)
        exponent = self._cumulant(tilt) - tilt * cells
        releases = sum(times for _, times in self._parts)
        excess = self._tilted_excess(tilt, cells)
        if excess == math.inf:  # the cycle would be too long; others may have a better bound
            return 1.0
        finite = math.exp(min(exponent, 700.0)) * excess
        return as_delta(finite * (1 + 1e-6 + releases * 1e-9) + self._infinite)

    def _cumulant(self, tilt: float) -> float:
        return math.fsum(times * losses.cumulant(tilt) for losses, times in self._parts)

    def _mean_and_variance(self, tilt: float) -> tuple[float, float]:
        """Of the tilted sum, nearly; they choose the tilt and the ends of the cycle, and every choice is valid."""
        means, variances = [], []
        for losses, times in self._rough:
            masses = losses.tilted(tilt)
            mean = float(masses @ losses.cells)
            means.append(times * mean)
            variances.append(times * float(masses @ ((losses.cells - mean) ** 2 + losses.variances)))
        return math.fsum(means), math.fsum(variances)

    def _tilted_excess(self, tilt: float, cells: float) -> float:
        """Upper bound on the sum over x > epsilon of tilted mass * e^-tilt(x - epsilon) * (1 - e^(epsilon - x)).

        It is infinite if it would take too long to compute.
        """
        tilted = [(losses.tilted(tilt), losses, times) for losses, times in self._parts]
        lowest, highest = self._ends(tilt, cells)
        length = 1 << max(4, (highest - lowest).bit_length())
        if length > _MAX_CELLS:
            return math.inf
        spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
        for masses, losses, times in tilted:
            cycle = np.bincount(losses.cells.astype(np.int64) % length, weights=masses, minlength=length)
            spectrum = spectrum * power(np.fft.rfft(cycle), times)
        sums = np.roll(np.fft.irfft(spectrum, length), -(lowest % length))
        above = np.arange(lowest, lowest + length, dtype=np.float64) - cells
        weights = np.where(above > 0, np.exp(-tilt * np.maximum(above, 0.0)) * -np.expm1(-self._width * above), 0.0)
        per_factor = _UNIT * (_TRANSFORM * math.log2(length) + _POWER)
        norm = max(math.sqrt(float(masses @ masses)) for masses, _, _ in tilted)
        rounding = (
            2 * per_factor * (1 + sum(times for *_, times in tilted)) * norm * math.sqrt(float(weights @ weights))
        )
        return float(weights @ positive_part(sums)) + rounding + math.exp(-_TAIL)

    def _ends(self, tilt: float, cells: float) -> tuple[int, int]:
        """Grid points outside of which the tilted sum has a mass of at most e^-_TAIL each (Chernoff)."""
        variance = self._mean_and_variance(tilt)[1]
        usual = math.sqrt(2 * _TAIL / max(variance, 1e-300))
        here = self._cumulant(tilt)
        ends = []
        for sign in (-1, 1):
            distances = [
                (self._cumulant(tilt + sign * spread * usual) - here + _TAIL) / (spread * usual) for spread in _SPREADS
            ]
            ends.append(sign * min(distance for distance in distances if math.isfinite(distance)))
        return math.floor(min(ends[0], cells)) - 1, math.ceil(max(ends[1], cells)) + 1


def power(spectrum: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """The power by repeated squaring, several times faster than ``**``.

    A product of complex numbers has a relative error of at most sqrt(5) units, so a power has less than 2.3 ``times``.
    """
    result = np.ones_like(spectrum)
    while times:
        if times & 1:
            result = result * spectrum
        times >>= 1
        if times:
            spectrum = spectrum * spectrum
    return result


def _saddle_point(moments: Callable[[float], tuple[float, float]], target: float) -> float:
    """A tilt of at least 0 at which the mean of the tilted sum is about ``target``; every tilt gives a valid bound.

    By Newton's method, since the variance is the derivative of the mean; steps out of the bracket halve it.
    """
    low, high, tilt = 0.0, math.inf, 0.0
    for _ in range(_STEPS):
        mean, variance = moments(tilt)
        low, high = (tilt, high) if mean < target else (low, tilt)
        if low == high == 0 or abs(mean - target) <= _CLOSE * math.sqrt(variance) or high - low < 1e-4 * high < 0.1:
            break
        step = tilt + (target - mean) / max(variance, 1e-300)
        inside = low < step < min(high, _LARGEST_TILT)
        tilt = step if inside else (low + high) / 2 if high < math.inf else min(max(2 * low, 1e-6), _LARGEST_TILT)
        if tilt == low:
            break
    return tilt


def connected(width: float, first: int, deltas: Floats) -> GridLosses:
    """The losses whose divergence at (first, first + 1, ...) * width is ``deltas``, and linear in e^epsilon between.

    ``deltas`` must decrease and be convex in e^epsilon, as those of every pair of distributions are. In the tail,
    masses keep the relative accuracy of the deltas, since only deltas of similar size are subtracted.
    """
    values = np.asarray(deltas, dtype=np.longdouble)
    falls = -np.diff(values)
    step = np.longdouble(width)
    masses = np.zeros(len(values), dtype=np.longdouble)
    masses[1:] = falls / -np.expm1(-step)
    masses[1:-1] -= falls[1:] / np.expm1(step)
    masses[0] = 1 - values[-1] - positive_part(masses[1:].astype(np.float64)).sum()
    return GridLosses(first, positive_part(masses.astype(np.float64)), float(values[-1]), width)
