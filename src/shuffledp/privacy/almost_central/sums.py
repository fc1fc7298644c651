"""Deltas of sums of independent privacy losses: many sums of the same few losses at once, by Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from shuffledp.privacy.almost_central.losses import NO_LOSS, Losses, deltas_of, either, from_deltas, trimmed
from shuffledp.privacy.divergence import positive_part

Floats = NDArray[np.float64]
Sums = Sequence[Sequence[Losses]]

_ENTRIES = 1 << 18  # of the arrays of one block


def range_of(sums: Sums) -> tuple[int, int]:
    """The least and the largest finite loss of any of these sums, in cells of the grid."""
    return (
        min(sum(losses.first for losses in each) for each in sums),
        max(sum(losses.first + len(losses.masses) - 1 for losses in each) for each in sums),
    )


def curves(sums: Sums, window: tuple[int, int], width: float) -> Iterator[Floats]:
    """The deltas of each sum at the losses of the window: blocks of rows.

    Losses below the window are rounded up to its first loss. The mass of losses above it is split between its last loss
    and infinity, so that the sum of its masses under the second distribution remains the same.
    """
    first, last = range_of(sums)
    length = _fast_length(last - first + 1)
    row: dict[Losses, int] = {NO_LOSS: 0}
    for each in sums:
        for losses in each:
            row.setdefault(losses, len(row))
    around_zero = np.zeros((len(row), length))  # a negative loss is at the end
    for losses, place in row.items():
        around_zero[place, np.arange(losses.first, losses.first + len(losses.masses)) % length] = losses.masses
    spectra = np.fft.rfft(around_zero)
    most = max(len(each) for each in sums)
    index = np.array([[row[losses] for losses in each] + [0] * (most - len(each)) for each in sums])
    infinite = np.array([reduce(either, (losses.infinite for losses in each), 0.0) for each in sums])
    rows = max(1, _ENTRIES // length)
    for start in range(0, len(sums), rows):
        block = index[start : start + rows]
        product = spectra[block[:, 0]]
        for column in block[:, 1:].T:
            product *= spectra[column]
        masses = positive_part(np.roll(np.fft.irfft(product, length), -first, axis=1)[:, : last - first + 1])
        masses, above = _within(masses, first, window, width)
        yield deltas_of(masses, width) + (infinite[start : start + rows] + above)[:, None]


def _within(masses: Floats, first: int, window: tuple[int, int], width: float) -> tuple[Floats, Floats]:
    """The masses at the losses of the window, and at infinity."""
    low, high = window
    last = first + masses.shape[1] - 1
    if (first, last) == window:
        return masses, np.zeros(len(masses))
    result = np.zeros((len(masses), high - low + 1))
    start, stop = max(first, low), min(last, high) + 1
    if start < stop:
        result[:, start - low : stop - low] = masses[:, start - first : stop - first]
    result[:, 0] += masses[:, : max(0, min(low - first, masses.shape[1]))].sum(axis=1)
    above = masses[:, max(0, high + 1 - first) :]
    finite = np.exp((high - np.arange(max(first, high + 1), last + 1)) * width)
    result[:, -1] += above @ finite
    return result, above @ (1 - finite)


def worst_of_sums(sums: Sums, width: float) -> Losses:
    """The worst of several sums of independent losses."""
    first, last = range_of(sums)
    worst = np.zeros(last - first + 1)
    for deltas in curves(sums, (first, last), width):
        worst = np.maximum(worst, deltas.max(axis=0))
    return trimmed(from_deltas(worst, first, width))


def _fast_length(least: int) -> int:
    """The least length from ``least`` on for which Fourier transforms are fast: 2^a times 1, 3, 5, 9, 15, 25 or 27."""
    return min(odd << max(0, (-(-least // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15, 25, 27))
