"""Privacy losses of a pair of distributions on a grid, rounded so that every divergence becomes an upper bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.divergence import DiscretePair, positive_part

_CELLS_PER_DEVIATION = 250
_MAX_CELLS = 200_000
_LARGEST_EXPONENT = 200.0


@dataclass(frozen=True, eq=False)
class GridLosses:
    """The pmf of a loss on a grid: ``masses[i]`` at (first + i) * width, and ``infinite`` at infinity."""

    first: int
    masses: NDArray[np.float64]
    infinite: float
    width: float

    @cached_property
    def cells(self) -> NDArray[np.float64]:
        """The losses as multiples of the width."""
        return np.arange(self.first, self.first + len(self.masses), dtype=np.float64)

    def cumulant(self, tilt: float) -> float:
        """ln E[e^(tilt loss)] of the finite losses, in units of the width."""
        exponent = tilt * self.cells
        peak = float(exponent.max())
        return peak + math.log(float((self.masses * np.exp(exponent - peak)).sum()))

    def compose(self, other: GridLosses) -> GridLosses:
        """The distribution of the sum of two independent losses."""
        from scipy.signal import fftconvolve

        masses = positive_part(fftconvolve(self.masses, other.masses))
        infinite = self.infinite + other.infinite * (1 - self.infinite)
        return GridLosses(self.first + other.first, masses, infinite, self.width)

    def deltas(self, reach: int) -> NDArray[np.float64]:
        """The divergence at all multiples of the width from -reach to reach.

        With T(i) the mass above cell i, the divergence D is infinite + d with d(i) = r d(i + 1) + (1 - r) T(i) for
        r = e^-width: a sum of positive numbers, so that nothing cancels.
        """
        above = np.cumsum(self.masses[::-1])[::-1]
        first, last = min(self.first, -reach), max(self.first + len(above), reach) + 1
        tail = np.zeros(last - first)  # T of first .. last - 1
        tail[: self.first - first] = above[0]
        tail[self.first - first : self.first - first + len(above) - 1] = above[1:]
        excess = -math.expm1(-self.width) * discounted(tail, self.width)
        return self.infinite + excess[-reach - first : reach - first + 1]

    def distribution(self) -> Any:
        """The same distribution as an object of dp-accounting."""
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        grid = {self.first + int(i): float(self.masses[i]) for i in np.flatnonzero(self.masses)}
        return PrivacyLossDistribution.create_from_rounded_probability(
            grid, self.infinite, self.width, pessimistic_estimate=True
        )


def discounted(values: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """For each i, the sum over k >= i of e^(-width (k - i)) times the k-th value, along the last axis.

    Values are at least 0, so that nothing cancels. They are added from the last one on, in blocks in which the factors
    e^(-width k) differ by at most e^200: with n values in a block, the relative error is below (n + 400) 2^-52 for each
    block within the reach of i, and less for farther ones.
    """
    size = values.shape[-1]
    block = max(1, min(size, int(_LARGEST_EXPONENT / width)))
    sums = np.empty_like(values)
    carried = np.zeros(values.shape[:-1])
    for last in range(size, 0, -block):
        part = values[..., max(last - block, 0) : last]
        decay = np.exp(-width * np.arange(part.shape[-1] + 1))
        scaled = part * decay[:-1]
        scaled[..., -1] += carried * decay[-1]
        part_sums = np.cumsum(scaled[..., ::-1], axis=-1)[..., ::-1] / decay[:-1]
        sums[..., max(last - block, 0) : last] = part_sums
        carried = part_sums[..., 0]
    return sums


def largest_loss(pair: DiscretePair) -> float:
    """The largest absolute value of a finite loss."""
    loss = pair.loss
    return float(np.abs(loss[np.isfinite(loss)]).max(initial=0.0))


def grid_width(pair: DiscretePair) -> float:
    """A width much smaller than the standard deviation of the loss, with a bounded number of cells."""
    loss = pair.loss
    finite = np.isfinite(loss)
    weight = pair.p[finite] + pair.q[finite]
    if not weight.sum() > 0:  # every outcome identifies its distribution
        return 1.0
    mean = float(np.average(loss[finite], weights=weight))
    deviation = math.sqrt(float(np.average((loss[finite] - mean) ** 2, weights=weight)))
    return max(deviation / _CELLS_PER_DEVIATION, largest_loss(pair) / _MAX_CELLS, 1e-9)


def on_grid(pair: DiscretePair, width: float) -> GridLosses:
    """Split each outcome between the two grid points around its loss, with its mass under p and under q unchanged.

    That spreads the likelihood ratio, so every divergence becomes an upper bound (Doroshenko et al. 2022, "Connect the
    dots"), with an error of second order in the width.
    """
    loss, p = pair.finite_losses
    infinite_mass = float(pair.p[pair.q == 0].sum()) + pair.cut
    cell, share_up = split_on_grid(loss, width)
    first, last = (int(cell.min()), int(cell.max())) if len(cell) else (0, 0)
    cell -= first
    masses = np.bincount(cell, weights=p * (1 - share_up), minlength=last - first + 2)
    masses[1:] += np.bincount(cell, weights=p * share_up, minlength=len(masses) - 1)
    return GridLosses(first, masses.astype(np.float64, copy=False), infinite_mass, width)


def split_on_grid(loss: NDArray[np.float64], width: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each loss, the grid point below it, and the share of its mass that belongs to the grid point above it."""
    cell = np.floor(loss / width).astype(np.int64)
    return cell, np.clip(np.expm1(cell * width - loss) / math.expm1(-width), 0.0, 1.0)
