"""Composition of independent copies of pairs of distributions by one Fourier transform, in NumPy alone.

The losses are discretized on a grid such that every divergence is an upper bound ("connect the dots", Doroshenko et al.
2022). The cyclic Fourier transform of the masses is raised to the number of copies. Mass that wraps around only
increases the result; losses outside of the cycle are bounded by Chernoff's inequality and count in full. Deltas that
are lost in its rounding are computed by ``tilted_composition``.
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
from shuffledp.privacy.loss_grid import GridLosses, on_grid
from shuffledp.privacy.tilted_composition import TiltedSum, power

Floats = NDArray[np.float64]

CERTIFIED_DOWN_TO = 1e-12
"""Least delta of pairs whose left-out mass is of that order: smaller ones are below the rounding error."""

_ACCURATE = 300.0  # deltas below so many times the rounding error are computed with tilted losses too
_CELLS_PER_DEVIATION = 100
_MAX_CELLS = 1 << 20
_MAX_CELLS_OF_PAIR = 1 << 17  # rare losses may lie thousands of deviations apart if there is hardly any noise
_TAIL = math.log(1e16)  # -ln of the mass of losses beyond either end of the cycle
_LEAST_FINITE = 1e-9  # with less mass on finite losses, all losses count as infinite
_TILTS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)


@dataclass(frozen=True, eq=False)
class MirroredComposition:
    """``times`` independent copies of (p, q) and of (q, p), such as two cells in each row of a sketch."""

    pair: DiscretePair
    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ParameterError(f"At least one copy is needed, not {self.times}.", times=self.times)

    @cached_property
    def _all(self) -> IndependentComposition:
        return IndependentComposition(((self.pair, self.times), (self.pair.reversed, self.times)))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the divergence of all first distributions from all second ones."""
        return self._all.delta_at(epsilon)


@dataclass(frozen=True, eq=False)
class IndependentComposition:
    """Independent copies of several pairs (p, q), each with the number of its copies."""

    pairs: tuple[tuple[DiscretePair, int], ...]

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the divergence of all first distributions from all second ones."""
        check_epsilon(epsilon)
        losses, masses, missing = self._composed
        beyond = losses > min(epsilon, LARGEST_EPSILON)
        divergence = float((masses[beyond] * -np.expm1(min(epsilon, LARGEST_EPSILON) - losses[beyond])).sum())
        delta = as_delta(divergence * (1 + 1e-6) + missing)
        return min(delta, self._tilted.delta_at(epsilon)) if delta < _ACCURATE * missing < 1 else delta

    @cached_property
    def _tilted(self) -> TiltedSum:
        return TiltedSum(list(zip(self._on_grid, self._copies, strict=True)))

    @property
    def _copies(self) -> list[int]:
        return [times for _, times in self.pairs]

    @cached_property
    def _on_grid(self) -> list[GridLosses]:
        """The losses of each pair on one grid."""
        sides = [pair for pair, _ in self.pairs]
        deviations = [_deviation(side) for side in sides]
        span = 2 * math.sqrt(2 * _TAIL) * max(deviations)  # so many deviations determine the number of grid points
        width = max(min(deviations) / _CELLS_PER_DEVIATION, span * math.sqrt(sum(self._copies)) / _MAX_CELLS, 1e-12)
        width = max(width, max(_range(side) for side in sides) / _MAX_CELLS_OF_PAIR)
        return [on_grid(side, width) for side in sides]

    @cached_property
    def _composed(self) -> tuple[Floats, Floats, float]:
        """Losses, upper bounds on their masses, and a bound on the mass elsewhere and on the rounding error."""
        if any(float(side.finite_losses[1].sum()) < _LEAST_FINITE for side, _ in self.pairs):
            return np.zeros(1), np.zeros(1), 1.0  # nearly every outcome reveals the value
        parts, copies = self._on_grid, self._copies
        width = parts[0].width
        lowest, highest = _ends(parts, copies)
        length = 1 << max(4, (highest - lowest).bit_length())
        spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
        for part, times in zip(parts, copies, strict=True):
            spectrum = spectrum * power(np.fft.rfft(_wrapped(part, length)), times)
        masses = np.roll(np.fft.irfft(spectrum, length), -(lowest % length))
        # the relative error of a transform is about log2(length) units of the Euclidean norm of its input; a power
        # multiplies it by the exponent, and a sum over the cycle by the square root of the length
        norm = max(math.sqrt(float((part.masses**2).sum())) for part in parts)
        rounding = sum(copies) * 2.0**-53 * math.log2(length) * math.sqrt(length) * norm
        finite = math.fsum(
            times * math.log1p(-min(part.infinite, 1 - 2.0**-53)) for part, times in zip(parts, copies, strict=True)
        )
        missing = -math.expm1(finite) * (1 + 1e-12) + math.exp(-_TAIL) + rounding
        losses: Floats = np.arange(lowest, lowest + length, dtype=np.float64) * width
        return losses, positive_part(masses), missing


def _wrapped(part: GridLosses, length: int) -> Floats:
    """The masses on a cycle of ``length`` grid points."""
    index = np.arange(part.first, part.first + len(part.masses)) % length
    return np.asarray(np.bincount(index, weights=part.masses, minlength=length), dtype=np.float64)


def _ends(parts: list[GridLosses], copies: list[int]) -> tuple[int, int]:
    """Bounds on the composed loss, in grid points, each exceeded with a probability of at most e^-_TAIL (Chernoff)."""
    counted = list(zip(parts, copies, strict=True))
    variance = sum(times * _variance(part) for part, times in counted)
    usual = math.sqrt(2 * _TAIL / max(variance, 1e-300))
    highest, lowest = (
        min(
            (sum(times * part.cumulant(sign * tilt * usual) for part, times in counted) + _TAIL) / (tilt * usual)
            for tilt in _TILTS
        )
        for sign in (1, -1)
    )
    return -math.ceil(lowest) - 1, math.ceil(highest) + 1


def _variance(part: GridLosses) -> float:
    mean = float(part.masses @ part.cells) / float(part.masses.sum())
    return max(float(part.masses @ (part.cells - mean) ** 2), 1.0)


def _deviation(pair: DiscretePair) -> float:
    loss, weights = pair.finite_losses
    mean = float(np.average(loss, weights=weights))
    return math.sqrt(float(np.average((loss - mean) ** 2, weights=weights)))


def _range(pair: DiscretePair) -> float:
    """The largest finite loss minus the least one."""
    loss, _ = pair.finite_losses
    return float(np.ptp(loss)) if len(loss) else 0.0
