"""Privacy loss of shifting a negative binomial number of copies: upper bounds on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON
from shuffledp.errors import ConditionError
from shuffledp.privacy.divergence import MASS_TOLERANCE, check_masses, positive_part
from shuffledp.privacy.incomplete_beta import betainc, betaincc
from shuffledp.privacy.loss_grid import discounted
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Extended = NDArray[np.longdouble]

_ROUNDED_UP = 1e-9  # mass of small losses that are rounded up
_RELATIVE = 1e-17  # what is left out of a sum, relative to it
_SMALL_SHAPE = 100  # at larger ones the terms of the tails may underflow
_SLOW = 0.25  # the terms fall slowly above it
_MAX_TERMS = 10_000
_TERMS = 8  # of a series that are added before the next look at what is left
_INFINITE = 1e-16  # mass of large losses that count as infinite


@dataclass(frozen=True, eq=False)
class Losses:
    """The pmf of a privacy loss: masses at (first, first + 1, ...) times the grid width, and at infinity."""

    masses: Floats
    first: int
    infinite: float

    def __post_init__(self) -> None:
        if not 0 <= self.infinite <= 1 + MASS_TOLERANCE:
            raise ConditionError(f"The mass of an infinite loss must lie between 0 and 1, not {self.infinite}.")
        missing = check_masses(self.masses, left_out=self.infinite)
        if missing > 0:
            object.__setattr__(self, "infinite", self.infinite + missing)

    def and_then(self, other: Losses) -> Losses:
        """The sum of two independent losses."""
        return Losses(
            np.convolve(self.masses, other.masses), self.first + other.first, either(self.infinite, other.infinite)
        )


def either(one: float, other: float) -> float:
    """The probability of at least one of two independent events."""
    return one + other * (1 - one)


NO_LOSS = Losses(np.ones(1), 0, 0.0)


@dataclass(frozen=True)
class NoisyShift:
    """A shift of NB(shape, ratio) copies, and the cells of the grid above 0, of losses of fewer copies."""

    ratio: Dyadic
    copies: int
    cells: int

    def cells_below(self, width: float) -> int:
        """The cells below 0: no loss of fewer copies is less than copies ln(ratio)."""
        least = self.copies * math.log1p(-float(self.ratio.complement))
        return min(self.cells, math.ceil(-least / width) + 1)


def negative_binomial_losses(shape: int, ratio: Dyadic, copies: int, width: float, cells: int) -> tuple[Losses, Losses]:
    """The privacy loss of N + copies against N, and of N against N + copies, for N ~ NB(shape, ratio)."""
    return shift_losses(shape, [NoisyShift(ratio, copies, cells)], width)[0]


def shift_losses(shape: int, shifts: Sequence[NoisyShift], width: float) -> list[tuple[Losses, Losses]]:
    """The privacy losses of N + copies against N, and of N against N + copies, for each shift, all of one shape.

    The loss ln(Pr[N = k] / Pr[N + copies = k]) decreases with k, so a cell of the grid is a range of k. The mass of a
    cell is split between its two ends such that its mass under both distributions is preserved.
    """
    below = [shift.cells_below(width) for shift in shifts]
    counts = [least + shift.cells + 1 for least, shift in zip(below, shifts, strict=True)]
    complement = np.repeat([float(shift.ratio.complement) for shift in shifts], counts)
    copies = np.repeat([float(shift.copies) for shift in shifts], counts)
    edges = np.concatenate(
        [np.arange(-least, shift.cells + 1, dtype=np.float64) for least, shift in zip(below, shifts, strict=True)]
    )
    edges *= width
    last = _last_above(shape, complement, copies, edges)  # per edge, the last k with a loss above it
    stay_tails, moved_tails = tails(shape, complement, last), tails(shape, complement, last - copies)
    losses, start = [], 0
    for least, count in zip(below, counts, strict=True):
        part = slice(start, start + count)
        stay, moved = ((lower[part], upper[part]) for lower, upper in (stay_tails, moved_tails))
        losses.append(losses_of_tails(stay, moved, -least, width))
        start += count
    return losses


def losses_of_tails(
    stay_tails: tuple[Floats, Floats], moved_tails: tuple[Floats, Floats], first: int, width: float
) -> tuple[Losses, Losses]:
    """The losses of more copies, and of fewer, from both tails at the last number with a loss above each edge.

    The edges are (first, first + 1, ...) times the width, and the losses are those of fewer copies. Tails are those of
    the number of copies, and of that number after a shift by more copies.
    """
    stay, moved = _range_masses(*stay_tails), _range_masses(*moved_tails)
    last = first + len(stay.inner)
    down = _in_cells(stay.inner[::-1], moved.inner[::-1], first, width)
    down[0] += stay.above
    up = _in_cells(moved.inner, stay.inner, -last, width)
    up[0] += moved.below
    return Losses(up, -last, moved.above + 1e-15), Losses(down, first, stay.below + 1e-15)


def _last_above(shape: int, complement: Floats, copies: Floats, edges: Floats) -> Floats:
    """The last k with copies ln(ratio) + sum over j < shape of ln((k + j)/(k - copies + j)) > edge; infinite if all.

    The sum lies between those with all j replaced by the least and by the largest j. That gives an interval for k of
    about the length ``shape``, in which k is found by bisection of all edges at once.
    """
    slope = copies * np.log1p(-complement)
    excess = edges - slope
    possible = excess > 0
    growth = np.minimum(np.where(possible, excess, 1.0) / (shape - 1), LARGEST_EPSILON)  # beyond it, the floor is 0
    low = np.floor(copies / np.expm1(growth)) + copies - shape - 2
    low = np.maximum(low, copies - 1)  # below ``copies`` the loss is infinite
    high = low + shape + 5
    for _ in range((shape + 5).bit_length()):
        middle = np.floor((low + high) / 2)
        shifted = middle - copies
        least = np.maximum(shifted, 0.0)
        quotient = np.ones_like(least)
        for j in range(1, shape):
            quotient *= 1 + copies / (least + j)
        above = np.log(quotient) > excess
        above |= shifted < 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(possible, low, np.inf)


@dataclass(frozen=True, eq=False)
class _RangeMasses:
    """Mass below the first edge, between successive edges in order of increasing k, and above the last edge."""

    below: float
    inner: Floats
    above: float


def _range_masses(lower: Floats, upper: Floats) -> _RangeMasses:
    """The masses between points that decrease, from their two tails: differences of the smaller one."""
    lower, upper = lower[::-1], upper[::-1]
    inner = np.where(lower[1:] < 0.5, np.diff(lower), -np.diff(upper))
    return _RangeMasses(float(lower[0]), positive_part(inner), float(upper[-1]))


def tails(shape: int, complement: Floats, k: Floats) -> tuple[Floats, Floats]:
    """Pr[N <= k] and Pr[N > k] for a ratio of 1 - complement.

    The terms ratio^(k + 1) C(k + j, j) complement^j add up to 1 over all j >= 0. Pr[N > k] is the sum of those with
    j < shape, and Pr[N <= k] that of the others, which is 1 - Pr[N > k] unless that would cancel.
    """
    inside = np.isfinite(k) & (k >= 0)
    at = np.where(inside, k, 0.0)
    if shape > _SMALL_SHAPE:
        lower, upper = betainc(shape, at + 1, complement), betaincc(shape, at + 1, complement)
        return np.where(inside, lower, np.where(k < 0, 0.0, 1.0)), np.where(inside, upper, np.where(k < 0, 1.0, 0.0))
    term = np.exp((at + 1) * np.log1p(-complement))
    upper = term.copy()
    for j in range(1, shape):
        term = term * (at + j) / j * complement
        upper += term
    lower = 1 - upper
    small = upper >= 0.5
    slow, fast = np.flatnonzero(small & (complement > _SLOW)), np.flatnonzero(small & (complement <= _SLOW))
    lower[slow] = betainc(shape, at[slow] + 1, complement[slow])
    lower[fast] = _remaining_terms(shape, complement[fast], at[fast], term[fast])
    return np.where(inside, lower, np.where(k < 0, 0.0, 1.0)), np.where(inside, upper, np.where(k < 0, 1.0, 0.0))


def _remaining_terms(shape: int, complement: Floats, k: Floats, term: Floats) -> Floats:
    """The sum of the terms from j = shape on, given those of j = shape - 1, until no double changes."""
    total = np.zeros_like(term)
    for j in range(shape, _MAX_TERMS):
        growth = (k + j) / j * complement  # decreases with j
        term = term * growth
        total += term
        if j % _TERMS == 0 and bool(np.all((growth < 1) & (term * growth <= (1 - growth) * _RELATIVE * total))):
            return total
    raise ConditionError(f"The tail of {_MAX_TERMS:,} terms is not negligible.")


def _in_cells(first: Floats, second: Floats, start: int, width: float) -> Floats:
    """Masses of the first distribution at the edges, from the masses of each cell under both distributions."""
    lower = np.arange(start, start + len(first)) * width
    ratio = np.exp(np.minimum(lower, LARGEST_EPSILON))  # a smaller ratio moves mass upward
    to_upper = np.clip((first - second * ratio) / -math.expm1(-width), 0.0, first)
    masses = np.zeros(len(first) + 1)
    masses[1:] += to_upper
    masses[:-1] += first - to_upper
    return masses


def worst_of(candidates: list[Losses], width: float) -> Losses:
    """A loss pmf whose delta at every edge is the largest of the given ones: connect the dots (Doroshenko 2022)."""
    if len(candidates) == 1:
        return candidates[0]
    first = min(losses.first for losses in candidates)
    last = max(losses.first + len(losses.masses) for losses in candidates)
    return from_deltas(_curves(candidates, first, last, width).max(axis=0), first, width)


def from_deltas(deltas: NDArray[Any], first: int, width: float) -> Losses:
    """The loss pmf with these deltas at multiples of the width from ``first`` on, linear in e^epsilon between them."""
    falls = -np.diff(deltas)
    masses = np.concatenate(([1 - deltas[0]], falls / -math.expm1(-width)))
    masses[:-1] -= falls / math.expm1(width)
    return Losses(positive_part(masses), first, float(deltas[-1]))


def _curves(candidates: list[Losses], first: int, last: int, width: float) -> Extended:
    """The delta of each candidate at each edge: the sum over larger losses of mass * (1 - e^(edge - loss))."""
    masses = np.zeros((len(candidates), last - first), dtype=np.longdouble)
    for row, losses in zip(masses, candidates, strict=True):
        row[losses.first - first : losses.first - first + len(losses.masses)] = losses.masses
    decay = np.exp(-np.arange(last - first) * np.longdouble(width))
    shrunk = masses * decay
    beyond = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1] - masses
    shrunk_beyond = (np.cumsum(shrunk[:, ::-1], axis=1)[:, ::-1] - shrunk) / decay
    infinite = np.array([[losses.infinite] for losses in candidates], dtype=np.longdouble)
    deltas: Extended = np.maximum(beyond - shrunk_beyond, 0) + infinite
    return deltas


def deltas_of(masses: Floats, width: float) -> Floats:
    """The delta at each loss of each row of masses, by sums of positive numbers only.

    With T(i) the mass above loss i, delta(i) = r delta(i + 1) + (1 - r) T(i) for r = e^-width.
    """
    above = np.zeros_like(masses)
    above[:, :-1] = np.cumsum(masses[:, :0:-1], axis=1)[:, ::-1]
    return -math.expm1(-width) * discounted(above, width)


def trimmed(losses: Losses) -> Losses:
    """Without its tails: small losses are rounded up to the least that remains, and rare large ones are infinite."""
    sums = np.cumsum(losses.masses)
    low = min(int(np.searchsorted(sums, _ROUNDED_UP)), len(sums) - 1)
    above = np.cumsum(losses.masses[::-1])[::-1]
    high = max(int(np.searchsorted(-above, -_INFINITE)), low + 1)  # the first of which so little lies above
    masses = losses.masses[low:high].copy()
    masses[0] += float(losses.masses[:low].sum())
    return Losses(masses, losses.first + low, losses.infinite + float(losses.masses[high:].sum()))
