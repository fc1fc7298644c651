"""Privacy loss of many independent copies of a pair of distributions and its mirror image, by one Fourier transform.

The losses are moved to a grid from above ("connect the dots", Doroshenko et al. 2022), the grid is taken round
in a circle, and the transform is raised to the number of copies. Mass that goes round the circle only adds; what
lies beyond its end is bounded by Chernoff's inequality and counts in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part

Floats = NDArray[np.float64]

_CELLS_PER_DEVIATION = 100
_MOST_CELLS = 1 << 20
_MOST_CELLS_OF_ONE = 1 << 17  # where rare losses lie thousands of deviations apart, which next to no noise makes
_TAIL = math.log(1e16)  # of the loss, beyond either end of the circle
_LEAST_FINITE = 1e-9  # of the mass, below which no loss is finite for practical purposes
_TILTS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)


@dataclass(frozen=True, eq=False)
class MirroredComposition:
    """``times`` copies of (p, q), and as many of (q, p), all independent: two cells of each row of a sketch."""

    pair: DiscretePair
    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ParameterError(f"At least one copy is needed, not {self.times}.", times=self.times)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the divergence of all first distributions from all second ones."""
        check_epsilon(epsilon)
        losses, masses, missing = self._composed
        beyond = losses > min(epsilon, LARGEST_EPSILON)
        found = float((masses[beyond] * -np.expm1(min(epsilon, LARGEST_EPSILON) - losses[beyond])).sum())
        return as_delta(found * (1 + 1e-6) + missing)

    @cached_property
    def _composed(self) -> tuple[Floats, Floats, float]:
        """Losses, their masses from above, and a bound on mass elsewhere and on rounding."""
        sides = self.pair, self.pair.reversed
        if any(float(side.p[side.q > 0].sum()) < _LEAST_FINITE for side in sides):  # nearly nothing is hidden
            return np.zeros(1), np.zeros(1), 1.0
        width = min(_deviation(side) for side in sides) / _CELLS_PER_DEVIATION
        width = max(width, max(_span(side) for side in sides) * math.sqrt(2 * self.times) / _MOST_CELLS, 1e-12)
        width = max(width, max(_range(side) for side in sides) / _MOST_CELLS_OF_ONE)
        parts = [_on_grid(side, width) for side in sides]
        lowest, highest = _ends(parts, self.times)
        length = 1 << max(4, (highest - lowest).bit_length())
        spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
        for part in parts:
            spectrum = spectrum * np.fft.rfft(_around(part, length))
        masses = np.roll(np.fft.irfft(spectrum**self.times, length), -(lowest % length))
        # each transform errs by about a unit of log2(length) relative to the Euclidean norm of what it transforms,
        # a power by as many times that, and a sum over a circle by the root of its length
        norm = max(math.sqrt(float((part.masses**2).sum())) for part in parts)
        rounding = 2 * self.times * 2.0**-53 * math.log2(length) * math.sqrt(length) * norm
        finite = self.times * sum(math.log1p(-min(part.infinite, 1 - 2.0**-53)) for part in parts)
        missing = -math.expm1(finite) * (1 + 1e-12) + math.exp(-_TAIL) + rounding
        losses: Floats = np.arange(lowest, lowest + length, dtype=np.float64) * width
        return losses, positive_part(masses), missing


@dataclass(frozen=True, eq=False)
class _GridLosses:
    """Masses at (first, first + 1, ...) cells, and at infinity."""

    first: int
    masses: Floats
    infinite: float

    @cached_property
    def cells(self) -> Floats:
        return np.arange(self.first, self.first + len(self.masses), dtype=np.float64)

    def cumulant(self, tilt: float) -> float:
        """ln E[e^(tilt loss)] in cells, of the finite losses."""
        exponent = tilt * self.cells
        most = float(exponent.max())
        return most + math.log(float((self.masses * np.exp(exponent - most)).sum()))


def _on_grid(pair: DiscretePair, width: float) -> _GridLosses:
    """Each outcome moved to the two grid points around its loss so that its mass under both distributions stays."""
    loss = pair.loss
    finite = np.isfinite(loss)
    p, loss = pair.p[finite], loss[finite]
    cell = np.floor(loss / width)
    share_up = np.clip(np.expm1(cell * width - loss) / math.expm1(-width), 0.0, 1.0)
    first = int(cell.min())
    place = (cell - first).astype(np.int64)
    size = int(place.max()) + 2
    masses = np.bincount(place, weights=p * (1 - share_up), minlength=size)
    masses = masses + np.bincount(place + 1, weights=p * share_up, minlength=size)
    return _GridLosses(first, masses.astype(np.float64), float(pair.p[pair.q == 0].sum()) + pair.cut)


def _around(part: _GridLosses, length: int) -> Floats:
    """The masses on a circle of so many cells."""
    place = np.arange(part.first, part.first + len(part.masses)) % length
    return np.asarray(np.bincount(place, weights=part.masses, minlength=length), dtype=np.float64)


def _ends(parts: list[_GridLosses], times: int) -> tuple[int, int]:
    """Cells between which all losses together lie, but for e^-_TAIL on either side (Chernoff 1952)."""
    variance = times * sum(_variance(part) for part in parts)
    usual = math.sqrt(2 * _TAIL / max(variance, 1e-300))
    highest, lowest = (
        min(
            (times * sum(part.cumulant(sign * tilt * usual) for part in parts) + _TAIL) / (tilt * usual)
            for tilt in _TILTS
        )
        for sign in (1, -1)
    )
    return -math.ceil(lowest) - 1, math.ceil(highest) + 1


def _variance(part: _GridLosses) -> float:
    mean = float(part.masses @ part.cells) / float(part.masses.sum())
    return max(float(part.masses @ (part.cells - mean) ** 2), 1.0)


def _deviation(pair: DiscretePair) -> float:
    loss = pair.loss
    finite = np.isfinite(loss) & (pair.p > 0)
    weights = pair.p[finite]
    mean = float(np.average(loss[finite], weights=weights))
    return math.sqrt(float(np.average((loss[finite] - mean) ** 2, weights=weights)))


def _range(pair: DiscretePair) -> float:
    """From the least finite loss to the largest."""
    loss = pair.loss[np.isfinite(pair.loss)]
    return float(np.ptp(loss)) if len(loss) else 0.0


def _span(pair: DiscretePair) -> float:
    """The part of the loss that matters for the number of cells: a few deviations."""
    return 2 * math.sqrt(2 * _TAIL) * _deviation(pair)
