"""Adaptive composition: a bound for releases whose worst-case data may depend on earlier outcomes.

V(x) is an upper bound on the divergence at epsilon x of all later parts, for any data. If a part with privacy loss L
precedes them, the divergence of both is the mean of V(x - L), and its maximum over the data of that part is the next V.
This is exact if the data are chosen adaptively. Composing the largest privacy curve with itself would be looser, since
it combines losses that do not occur for the same data.
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
"""More releases are composed by their privacy curve, because the time grows with their number."""

_COARSENING = 4  # grid width relative to that of a single pair; the error is of second order in the width
_MAX_POINTS = 1 << 12  # on either side of 0
_TAIL = 1e-15  # probability of losses beyond ``_upper_loss``
_DEVIATIONS = 9.0  # standard deviations of the composed loss that the grid covers
_ROUNDING_PER_STEP = 1e-14  # of the Fourier transforms


@dataclass(frozen=True, eq=False)
class AdaptiveComposition:
    """``releases`` releases of independent parts, each with alternative pairs, one of which dominates for any data."""

    parts: tuple[tuple[DiscretePair, ...], ...]
    releases: int

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; beyond the grid, the bound at its end."""
        check_epsilon(epsilon)
        growths, values = self._curve  # the true curve is convex in e^epsilon, so that chords lie above it
        delta = float(np.interp(math.exp(min(epsilon, LARGEST_EPSILON)) * (1 - 1e-15), growths, values))
        return as_delta(delta * (1 + 1e-6 + self.releases * 1e-9))

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """The points of a grid of epsilons, as e^epsilon, and V at each."""
        pairs = [pair for alternatives in self.parts for pair in alternatives]
        spread = self.releases * math.fsum(max(_upper_loss(pair) for pair in part) for part in self.parts)
        mean_loss = math.fsum(max(_mean_loss(pair) for pair in part) for part in self.parts) * self.releases
        squares = math.fsum(max(_deviation(pair) for pair in part) ** 2 for part in self.parts) * self.releases
        reach = min(
            spread, 2 * mean_loss + _DEVIATIONS * math.sqrt(squares) + spread / self.releases, LARGEST_EPSILON / 2
        )
        width = max(_COARSENING * min(map(grid_width, pairs)), reach / _MAX_POINTS)
        points = max(2, math.ceil(reach / width))
        values = _perfect(points, width)
        steps = [_Step([on_grid(pair, width) for pair in part], points, width) for part in self.parts]
        for _ in range(self.releases):
            values = _before_release(steps, values)
        return np.exp(np.arange(-points, points + 1) * width), values


def _before_release(steps: list[_Step], values: Floats) -> Floats:
    """V of one release and all later ones, given V of the later ones.

    All parts of a release have the same data. Choosing the data of one part after seeing the outcome of another can
    only increase the divergence, in any order of the parts, so the minimum over two orders is a bound. Parts of
    different releases keep their order.
    """
    orders = [steps, steps[::-1]] if len(steps) > 1 else [steps]
    bounds = [reduce(lambda after, step: step.before(after), order, values) for order in orders]
    least: Floats = np.min(bounds, axis=0)
    return least


class _Step:
    """One part of a release; its data are chosen to maximize the divergence together with all later parts."""

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
        """V of this part and all later ones, given V of the later ones.

        Only the excess over the divergence of equal distributions, (1 - e^x)+, is convolved by Fourier transforms,
        which keeps the rounding error small. The excess decreases towards both sides, so its values at the ends of the
        grid bound it beyond.
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


def _within(losses: GridLosses, limit: int) -> tuple[Floats, float]:
    """The masses from -limit to limit; losses above count as infinite, losses below are moved up."""
    masses = np.zeros(2 * limit + 1)
    cells = losses.first + np.arange(len(losses.masses))
    inside = cells <= limit
    np.add.at(masses, np.maximum(cells[inside], -limit) + limit, losses.masses[inside])
    return masses, losses.infinite + float(losses.masses[~inside].sum())


def _upper_loss(pair: DiscretePair) -> float:
    """A loss that is exceeded with probability at most ``_TAIL``."""
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
