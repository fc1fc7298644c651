"""Composition where the worst data differ from outcome to outcome: each choice may follow what was seen before.

Let V(x) bound the divergence at epsilon x of all that is still to come, whatever the data. If a part comes before it
whose privacy loss is L, the divergence of both is the mean of V(x - L), and the largest of these over the data of the
part is the next V. That is exact for data that are chosen adaptively. To compose the largest privacy curve with itself
instead would add losses of data that no part has at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.loss_grid import GridLosses, grid_width, on_grid

Floats = NDArray[np.float64]

MAX_ADAPTIVE_RELEASES = 32
"""The work grows with their number; more are composed by their privacy curve."""

_COARSER = 4  # than the grid of a single pair: its error is of second order
_MAX_POINTS = 1 << 12  # on either side of 0
_TAIL = 1e-15
_DEVIATIONS = 9.0
_ROUNDING_PER_STEP = 1e-14  # of the Fourier transforms


@dataclass(frozen=True, eq=False)
class AdaptiveComposition:
    """``releases`` releases of independent parts, each with alternative pairs, one of which dominates for any data."""

    parts: tuple[tuple[DiscretePair, ...], ...]
    releases: int

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; past the grid it is that at its end."""
        check_epsilon(epsilon)
        growths, values = self._curve  # the true curve is convex in e^epsilon, so that chords lie above it
        delta = float(np.interp(math.exp(min(epsilon, LARGEST_EPSILON)) * (1 - 1e-15), growths, values))
        return as_delta(delta * (1 + 1e-6 + self.releases * 1e-9))

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """The points of a grid of epsilons, as e^epsilon, and V at each."""
        pairs = [pair for alternatives in self.parts for pair in alternatives]
        spread = self.releases * math.fsum(max(_upper_loss(pair) for pair in part) for part in self.parts)
        normal = math.fsum(max(_mean_loss(pair) for pair in part) for part in self.parts) * self.releases
        squares = math.fsum(max(_deviation(pair) for pair in part) ** 2 for part in self.parts) * self.releases
        reach = min(spread, 2 * normal + _DEVIATIONS * math.sqrt(squares) + spread / self.releases, LARGEST_EPSILON / 2)
        width = max(_COARSER * min(map(grid_width, pairs)), reach / _MAX_POINTS)
        points = max(2, math.ceil(reach / width))
        values = _perfect(points, width)
        steps = [_Step([on_grid(pair, width) for pair in part], points, width) for part in self.parts]
        for _ in range(self.releases):
            values = _before_release(steps, values)
        return np.exp(np.arange(-points, points + 1) * width), values


def _before_release(steps: list[_Step], values: Floats) -> Floats:
    """V of one release and of what follows it.

    The data of all parts are chosen at once. To choose those of later parts for the outcomes of earlier ones can only
    raise the divergence, whatever the order. But no part of a later release may come before a part of this one.
    """
    orders = [steps, steps[::-1]] if len(steps) > 1 else [steps]
    bounds = [reduce(lambda after, step: step.before(after), order, values) for order in orders]
    least: Floats = np.min(bounds, axis=0)
    return least


class _Step:
    """One part of a release, whose data are chosen for what follows it."""

    def __init__(self, alternatives: Iterable[GridLosses], points: int, width: float) -> None:
        self._points = points
        self._perfect = _perfect(points, width)
        within = [_within(losses, 2 * points) for losses in alternatives]
        self._size = 1 << (6 * points).bit_length()
        self._transforms = [np.fft.rfft(masses, self._size) for masses, _ in within]
        self._alone = [
            np.minimum(GridLosses(-2 * points, masses, infinite, width).deltas(points), 1.0)
            for masses, infinite in within
        ]

    def before(self, values: Floats) -> Floats:
        """V of this part and of what follows it, from V of what follows.

        What lies above the divergence of equal distributions, (1 - e^x)+, is convolved by Fourier transforms, so that
        their rounding is small. It falls towards both sides, so that its last values bound it beyond the grid.
        """
        points = self._points
        excess = positive_part(values - self._perfect)
        extended = np.concatenate((np.full(2 * points, excess[0]), excess, np.full(2 * points, excess[-1])))
        transform = np.fft.rfft(extended, self._size)
        worst = values
        for alone, masses in zip(self._alone, self._transforms, strict=True):
            convolved = np.fft.irfft(transform * masses, self._size)[4 * points : 6 * points + 1]
            worst = np.maximum(worst, alone + positive_part(convolved))
        bounded: Floats = np.minimum(np.minimum.accumulate(worst + _ROUNDING_PER_STEP), 1.0)
        return bounded


def _perfect(points: int, width: float) -> Floats:
    """The divergence of equal distributions at the points of the grid."""
    return positive_part(-np.expm1(np.arange(-points, points + 1) * width))


def _within(losses: GridLosses, most: int) -> tuple[Floats, float]:
    """The masses from -most to most; losses above count as infinite, those below are moved up."""
    masses = np.zeros(2 * most + 1)
    cells = losses.first + np.arange(len(losses.masses))
    kept = cells <= most
    np.add.at(masses, np.maximum(cells[kept], -most) + most, losses.masses[kept])
    return masses, losses.infinite + float(losses.masses[~kept].sum())


def _upper_loss(pair: DiscretePair) -> float:
    """Larger losses have next to no mass."""
    loss = pair.loss
    finite = np.isfinite(loss)
    order = np.argsort(loss[finite])[::-1]
    above = np.cumsum(pair.p[finite][order])
    reached = np.flatnonzero(above > _TAIL)
    return float(loss[finite][order][reached[:1]].max(initial=0.0))


def _mean_loss(pair: DiscretePair) -> float:
    finite = np.isfinite(pair.loss)
    return abs(float(pair.p[finite] @ pair.loss[finite]))


def _deviation(pair: DiscretePair) -> float:
    finite = np.isfinite(pair.loss)
    return math.sqrt(float(pair.p[finite] @ pair.loss[finite] ** 2))
