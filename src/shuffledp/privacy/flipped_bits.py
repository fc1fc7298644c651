"""Bits that are flipped with a fixed probability: how private their number is.

Everyone holds bits, each is flipped with probability f, and what is seen is how many ones there
are: of one bit per user (a binary sum), of one labelled bit per category (a histogram), or of
several bits per user without labels (a sum of bounded numbers). The noise depends on the data: K ones among the
N bits of the other users give Bin(N - K, f) - Bin(K, f). The bounds here hold for every K. They
rest on two facts:

* Less noise is worse. Telling the flips of some bits is more than leaving them in, so for all K
  from K1 to K2 the noise Bin(N - K2, f) - Bin(K1, f) is a bound, and few such cells cover all K.
* The number of ones has a likelihood ratio that rises with it (sums of log-concave laws), so the
  divergence is the largest Pr[U >= u] - e^epsilon Pr'[U >= u].
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial, _deviance, _stirling_error
from shuffledp.privacy.divergence import LARGEST_EPSILON, DiscretePair
from shuffledp.privacy.guarantee import PrivacyLaw, check_target
from shuffledp.randomness import Dyadic

__all__ = [
    "LARGEST_FLIP",
    "FlippedCount",
    "FlippedHistogram",
    "FlippedSum",
    "least_count_flip",
    "least_histogram_flip",
    "least_rate",
    "least_sum_flip",
    "paper_count_flip",
    "paper_histogram_flip",
    "paper_sum_flip",
]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

LARGEST_FLIP = 0.4999
"""Beyond this flip probability nothing useful is left of a bit."""

_CUT = 1e-35  # mass that no sum looks at, added to delta
_LOG_CUT = math.log(2 / _CUT)
_ALIAS = 1e-41  # of summing every h-th term, h <= deviation / 5: see _difference_sums
_NODES_PER_DEVIATION = 5
_CELLS = 32  # ranges of K to begin with
_REFINEMENTS = 3
_REFINED = 4  # of the worst are divided
_PARTS = 4
_CELLS_OF_DIRECTIONS = 8
_PAIR_CELLS = 10
_PAIR_REFINEMENTS = 8
_LONG = 500.0  # from this reach on, outcomes are gathered in blocks
_BLOCKS_PER_DEVIATION = 40
_NEGLIGIBLE = 0.02
_RATE_TOLERANCE = 1e-6
_DELTA_TOLERANCE = 1e-4
_MOST_STEPS = 40
_SETTLED = 1e-8  # of L(u): then u is as good as the best
_FAR = 1e3


@dataclass(frozen=True)
class FlippedSum:
    """The number of ones among ``bits`` unlabelled bits of each user, every bit flipped with probability ``flip``."""

    users: int
    flip: Dyadic
    bits: int

    def __post_init__(self) -> None:
        _check(self.users, self.flip)
        if self.bits < 1:
            raise ParameterError(f"A user holds at least one bit, not {self.bits}.", bits=self.bits)

    @property
    def local_epsilon(self) -> float:
        """What holds for all bits of one user even without shuffling."""
        return self.bits * _bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, whatever the others hold.

        The worst replacement is all ones by all zeros; the other direction is the mirror image, in
        which the others hold N - K ones.
        """
        _check_epsilon(epsilon)
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        epsilon = min(epsilon, LARGEST_EPSILON)
        others = (self.users - 1) * self.bits
        starts = _edges(others, _CELLS)
        ends, starts = starts[1:] - 1, starts[:-1]
        bounds = _divergences(starts, others - ends, self.bits, self.flip, epsilon)
        for _ in range(_REFINEMENTS):
            worst = np.argsort(bounds)[-_REFINED:]
            if (starts == ends)[worst[-1]]:
                break  # the largest is no bound but the divergence at one K
            finer = [starts[i] + _edges(int(ends[i] - starts[i]), _PARTS) for i in worst]
            new_starts, new_ends = (
                np.concatenate([edges[:-1] for edges in finer]),
                np.concatenate([edges[1:] - 1 for edges in finer]),
            )
            parts = _divergences(new_starts, others - new_ends, self.bits, self.flip, epsilon)
            starts, ends = np.append(np.delete(starts, worst), new_starts), np.append(np.delete(ends, worst), new_ends)
            bounds = np.append(np.delete(bounds, worst), parts)
        return min(1.0, float(bounds.max()))


@dataclass(frozen=True)
class FlippedCount:
    """The number of ones among one bit per user: the binary sum of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019)."""

    users: int
    flip: Dyadic

    def __post_init__(self) -> None:
        _check(self.users, self.flip)

    @property
    def local_epsilon(self) -> float:
        """What holds for one user even without shuffling."""
        return _bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, whatever the others hold."""
        return FlippedSum(self.users, self.flip, 1).delta_at(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per cell of K and direction of the replacement, one pair that is at least as telling as the truth."""
        starts = _edges(self.users - 1, _CELLS_OF_DIRECTIONS)
        cells = [_coordinate(start, self.users - end, self.flip) for start, end in pairwise(starts.tolist())]
        return tuple((cell.pair(cut),) for cell in cells) + tuple((cell.reversed_pair(cut),) for cell in cells)


@dataclass(frozen=True)
class FlippedHistogram:
    """One labelled bit per category and user: of each category it is seen how many ones there are.

    Replacing a user moves two categories in opposite directions. K and K' of the others hold these
    two, K + K' <= users - 1, and the worst pair is sought over all of them: cells of pairs are
    bounded by the least noise in them, and the worst cells are divided.
    """

    users: int
    flip: Dyadic

    def __post_init__(self) -> None:
        _check(self.users, self.flip)

    @property
    def local_epsilon(self) -> float:
        """What holds for the two bits of one user that change even without shuffling."""
        return 2 * _bit_epsilon(self.flip)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, whatever the others hold."""
        _check_epsilon(epsilon)
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        epsilon = min(epsilon, LARGEST_EPSILON)
        others = self.users - 1
        edges = list(pairwise(_edges(others, _PAIR_CELLS).tolist()))
        cells = [(*first, *second) for first in edges for second in edges if first[0] + second[0] <= others]
        worst_first = [(-self._cell_delta(cell, epsilon), cell) for cell in cells]
        heapq.heapify(worst_first)
        for _ in range(_PAIR_REFINEMENTS):
            parts = _divided(worst_first[0][1], others)
            if len(parts) == 1:
                break  # the largest is no bound but the divergence at one (K, K')
            heapq.heappop(worst_first)
            for part in parts:
                heapq.heappush(worst_first, (-self._cell_delta(part, epsilon), part))
        return min(1.0, -worst_first[0][0])

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per cell of (K, K'), two independent pairs that are at least as telling as the truth."""
        others = self.users - 1
        edges = list(pairwise(_edges(others, _CELLS_OF_DIRECTIONS).tolist()))
        cells = [_coordinate(start, others - end + 1, self.flip) for start, end in edges]
        return tuple(
            (cells[i].pair(cut), cells[j].reversed_pair(cut))
            for i in range(len(edges))
            for j in range(len(edges))
            if edges[i][0] + edges[j][0] <= others
        )

    def _cell_delta(self, cell: tuple[int, int, int, int], epsilon: float) -> float:
        start, end, other_start, other_end = cell
        others = self.users - 1
        first = _coordinate(start, others - end + 1, self.flip)
        second = _coordinate(other_start, others - other_end + 1, self.flip)
        return first.delta_against(second, epsilon)


def _divided(cell: tuple[int, int, int, int], others: int) -> list[tuple[int, int, int, int]]:
    """The cell in parts; those that no data can reach are left out."""
    first = pairwise((cell[0] + _edges(cell[1] - cell[0] - 1, _PARTS)).tolist())
    second = list(pairwise((cell[2] + _edges(cell[3] - cell[2] - 1, _PARTS)).tolist()))
    return [(*a, *b) for a in first for b in second if a[0] + b[0] <= others]


class _Coordinate:
    """One category with the user's bit set (p) or not (q), in increasing order of p/q, with its upper sums.

    ``missing`` bounds the mass that is left out and ``error`` the relative error of each mass.
    """

    def __init__(self, p: Floats, q: Floats, missing: float, error: Floats) -> None:
        self.p, self.q, self.missing, self.error = p, q, missing, error
        self.loss = np.log(p) - np.log(q)
        self.upper_p, self.upper_q = _upper_sums(p), _upper_sums(q)
        self.upper_error = _upper_sums(p * error), _upper_sums(q * error)

    def delta_against(self, other: _Coordinate, epsilon: float) -> float:
        """Upper bound on the divergence of (p, other.q) from (q, other.p)."""
        start = np.searchsorted(self.loss, other.loss + epsilon, side="right")
        grown = math.exp(epsilon) * other.p
        gained, lost = other.q * self.upper_p[start], grown * self.upper_q[start]
        rounding = (gained + lost) * other.error
        rounding += other.q * self.upper_error[0][start] + grown * self.upper_error[1][start]
        found = float((np.maximum(gained - lost, 0.0) + rounding).sum())
        return found + self.missing + other.missing

    def pair(self, cut: float) -> DiscretePair:
        """p against q, from above; what the table lacks is cut off."""
        return DiscretePair(self.p * (1 + 2 * self.error), self.q, max(cut, self.missing))

    def reversed_pair(self, cut: float) -> DiscretePair:
        """q against p, from above."""
        return DiscretePair(self.q * (1 + 2 * self.error), self.p, max(cut, self.missing))


def _upper_sums(masses: Floats) -> Floats:
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


@lru_cache(maxsize=1024)
def _coordinate(ones: int, zeros: int, flip: Dyadic) -> _Coordinate:
    """The laws of the ones of a category, if ``ones`` and ``zeros`` of the others' flips are unknown."""
    f = float(flip)
    narrow, wide = sorted((ones, zeros))
    if _reach(wide * f * (1 - f)) > _LONG:
        if narrow < _NEGLIGIBLE * wide:  # so little noise is given away
            ones, zeros = (0, zeros) if ones < zeros else (ones, 0)
        return _wide_coordinate(ones, zeros, flip)
    noise = np.convolve(_lattice(zeros, flip, 1), _lattice(ones, flip, 1)[::-1])
    kept = np.flatnonzero(noise > _CUT)
    noise = noise[kept[0] : kept[-1] + 1]
    stay, shifted = np.append(noise, 0.0), np.append(0.0, noise)
    missing = 4 * _CUT * len(noise)
    error = np.full(len(stay), 1e-11)
    return _Coordinate(f * stay + (1 - f) * shifted, (1 - f) * stay + f * shifted, missing, error)


def _wide_coordinate(ones: int, zeros: int, flip: Dyadic) -> _Coordinate:
    """The same from every h-th outcome, in blocks between them.

    With W the noise, p - q of a block is (1 - 2 f) (W(first - 1) - W(last)), exactly. Its mass is that
    of Euler's and Maclaurin's formula, whose next term is (h z / s)^4 / 720 at z deviations s. A
    block's masses are moved to the ratios at its ends so that both stay the same: that spreads the
    ratio, so every divergence becomes an upper bound.
    """
    f = float(flip)
    step = max(1, math.floor(math.sqrt(max(ones, zeros) * f * (1 - f)) / _BLOCKS_PER_DEVIATION))
    if zeros == 0:
        here, previous = _lattice(ones, flip, step)[::-1], _lattice(ones, flip, step, shift=1)[::-1]
    else:
        minus = _lattice(ones, flip, step)[::-1] * (step if ones else 1)
        here, previous = (np.convolve(_lattice(zeros, flip, step, shift=shift), minus) for shift in (0, -1))
    kept = np.flatnonzero(here > _CUT)
    here, previous = here[kept[0] : kept[-1] + 1], previous[kept[0] : kept[-1] + 1]
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
    return _Coordinate(spread_p[inside], spread_q[inside], 4 * _CUT * len(here) * step, error[inside])


def _lattice(trials: int, flip: Dyadic, step: int, *, shift: int = 0) -> Floats:
    """Pr[Bin(trials, f) = k + shift] for every step-th k that matters."""
    if trials == 0:
        return np.ones(1)
    mean = trials * float(flip)
    reach = float(_reach(mean * (1 - float(flip))))
    first, last = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    return Binomial(trials, flip).pmf(np.arange(first, last + 1, step, dtype=np.int64) + shift)


def _check(users: int, flip: Dyadic) -> None:
    if users < 2:
        raise ParameterError(f"At least 2 users are needed, not {users}.", users=users)
    if not 0 < flip.numerator <= 1 << (flip.bits - 1):
        raise ParameterError(f"The flip probability must lie above 0 and at most at 1/2, not {flip}.", flip=flip)


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)


def _bit_epsilon(flip: Dyadic) -> float:
    return math.log(float(flip.complement)) - math.log(float(flip))


# --- the cells of K -------------------------------------------------------------------------------


def _edges(last: int, parts: int) -> Whole:
    """Starts of about equal ranges that cover 0 .. last, and last + 1."""
    return np.unique(np.arange(parts + 1) * (last + 1) // parts)


# --- the divergence of one cell, for many cells at once ---------------------------------------------


def _divergences(ones: Whole, zeros: Whole, bits: int, flip: Dyadic, epsilon: float) -> Floats:
    """Upper bounds on the divergence of a target's ``bits`` ones from as many zeros, one per cell.

    U is the number of ones less ``ones``: under P bits - Bin(ones + bits) + Bin(zeros), under Q
    Bin(zeros + bits) - Bin(ones). With L(u) = ln P(u)/Q(u) - epsilon, which rises, the divergence is
    D(u) = Pr[U >= u] - e^epsilon Pr'[U >= u] at the first u with L(u) > 0. It is bracketed from its
    saddle point. At an earlier u the divergence is at most D(u) + (e^-L(u) - 1) Pr[U >= u].
    """
    with_ones = _Difference(zeros, ones + bits, bits, flip)
    with_zeros = _Difference(zeros + bits, ones, 0, flip)
    guess, slope, middle = _saddle_point(ones, zeros, bits, float(flip), epsilon)
    low, at_low = -ones - 1, np.full(len(ones), -np.inf)
    high = zeros + bits  # where L is the local epsilon less epsilon, above 0
    u = np.clip(np.round(guess), low + 1, high).astype(np.int64)
    for _ in range(_MOST_STEPS):
        here = _log_ratio(with_ones.mass(u), with_zeros.mass(u), above=u > middle) - epsilon
        low, at_low = np.where(here <= 0, u, low), np.where(here <= 0, here, at_low)
        high = np.where(here > 0, np.minimum(u, high), high)
        if ((high - low <= 1) | (at_low > -_SETTLED)).all():
            break
        newton = u - np.sign(here) * np.maximum(np.round(np.abs(here) / slope), 1.0)
        halved = (np.maximum(low, np.minimum(np.floor(middle), high - 1)) + high) // 2
        u = np.where(np.abs(here) > _FAR, halved, np.clip(newton, low + 1, high)).astype(np.int64)
        u = np.where(high - low <= 1, high, np.minimum(np.maximum(u, low + 1), np.maximum(high - 1, low + 1)))
    found = (high - low <= 1) | ~np.isfinite(at_low)
    last = np.where(found, high, low)
    p, q = with_ones.upper_tail(last), with_zeros.upper_tail(last)
    growth = math.exp(epsilon)
    slack = np.where(found, 0.0, np.expm1(np.minimum(-at_low, 700.0))) * p
    slack = np.where((high - low > 1) & ~np.isfinite(at_low), 1.0, slack)
    error = with_ones.error(last) + with_zeros.error(last)
    aliased = np.where(with_ones.step * with_zeros.step > 1, _ALIAS * (1 + growth), 0.0)
    return np.maximum(p - growth * q, 0.0) + slack + error * (p + growth * q) + aliased + 2 * _CUT


def _saddle_point(ones: Whole, zeros: Whole, bits: int, f: float, epsilon: float) -> tuple[Floats, Floats, Floats]:
    """About where L(u) = 0, its slope there, and the middle between the two means.

    Both laws are tilted by e^(theta u) such that their normalisations differ by e^epsilon.
    """
    growth = math.exp(epsilon / bits)
    x = (growth * (1 - f) - f) / max((1 - f) - growth * f, 1e-300)  # e^theta
    up, down = f * x / (1 - f + f * x), f / ((1 - f) * x + f)
    kept = (1 - f) * x / ((1 - f) * x + f)
    guess = zeros * up - ones * down + bits * (kept + up) / 2
    variance = zeros * up * (1 - up) + ones * down * (1 - down) + bits * (kept * (1 - kept) + up * (1 - up)) / 2
    slope: Floats = np.maximum(bits * (kept - up) / np.maximum(variance, 1e-9), 1e-300)
    middle: Floats = (zeros - ones).astype(np.float64) * f + bits / 2
    return guess, slope, middle


def _log_ratio(p: Floats, q: Floats, *, above: NDArray[np.bool_]) -> Floats:
    """ln p/q; where masses are too small for a float, a large number of the right sign."""
    tiny = (p < 1e-290) | (q < 1e-290)
    ratio = np.log(np.where(tiny, 1.0, p)) - np.log(np.where(tiny, 1.0, q))
    result: Floats = np.where(tiny, np.where(above, 1e4, -1e4), ratio)
    return result


class _Difference:
    """offset + Bin(plus, f) - Bin(minus, f), for many (plus, minus) at once.

    Sums run over the one with fewer trials. If its deviation s is large, only every h-th term is
    taken, h <= s/5: by Poisson's summation formula the error is at most about
    exp(-s^2 (1 - cos(pi/h))) < 1e-43, because the characteristic function of a binomial law is below
    exp(-s^2 (1 - cos t)) and one of the two factors is taken at a frequency of pi/h or beyond.
    """

    def __init__(self, plus: Whole, minus: Whole, offset: int, flip: Dyadic) -> None:
        self._f = float(flip)
        self._offset = offset
        self._plus_is_wide = (plus >= minus)[:, None]
        self._wide, narrow = np.maximum(plus, minus)[:, None], np.minimum(plus, minus)[:, None]
        variance = narrow * (self._f * (1 - self._f))
        step = np.maximum(1, np.floor(np.sqrt(variance) / _NODES_PER_DEVIATION)).astype(np.int64)
        reach = _reach(variance)
        first = np.maximum(0, np.floor(narrow * self._f - reach)).astype(np.int64)
        last = np.minimum(narrow, np.ceil(narrow * self._f + reach)).astype(np.int64)
        points = int(((last - first) // step).max()) + 2
        self._nodes = first + np.arange(points) * step
        inside = self._nodes <= np.minimum(narrow, last + step)
        self._weights = np.where(inside, _masses(np.minimum(self._nodes, narrow), narrow, self._f), 0.0) * step
        self.step: Whole = step[:, 0]

    def _other(self, u: Whole) -> Whole:
        """What the wide one must be for the difference to be u."""
        v = u[:, None] - self._offset
        return np.where(self._plus_is_wide, self._nodes + v, self._nodes - v)

    def mass(self, u: Whole) -> Floats:
        """Pr[difference = u]."""
        k = self._other(u)
        inside = (k >= 0) & (k <= self._wide)
        masses = _masses(np.minimum(np.maximum(k, 0), self._wide), self._wide, self._f)
        total: Floats = (self._weights * np.where(inside, masses, 0.0)).sum(axis=1)
        return total

    def upper_tail(self, u: Whole) -> Floats:
        """Pr[difference >= u]: the wide one is at least k, or at most k if it is subtracted."""
        from scipy.special import betainc, betaincc  # not at import time: a device needs no SciPy

        k = self._other(u)
        least = np.where(self._plus_is_wide, k, k + 1)  # between least - 1 and least the tails divide
        trials = np.broadcast_to(self._wide, least.shape)
        inner = np.clip(least, 1, trials)
        counts = self._weights > _CUT / 1e4
        above_mean = inner > trials * self._f
        upper, lower = np.zeros(least.shape), np.zeros(least.shape)
        sides = (above_mean & counts, betainc, upper, lower), (~above_mean & counts, betaincc, lower, upper)
        for side, function, small, large in sides:
            a, b = inner[side].astype(np.float64), (trials[side] - inner[side] + 1).astype(np.float64)
            small[side] = function(a, b, self._f)
            large[side] = 1.0 - small[side]
        upper = np.where(least <= 0, 1.0, np.where(least > trials, 0.0, upper))
        lower = np.where(least <= 0, 0.0, np.where(least > trials, 1.0, lower))
        total: Floats = (self._weights * np.where(self._plus_is_wide, upper, lower)).sum(axis=1)
        return total

    def error(self, u: Whole) -> Floats:
        """Bound on the relative error of mass and tail, in the manner of Binomial.tail_error."""
        spread = np.abs(u - self._offset) + _reach(self._wide[:, 0] * self._f)
        return 4e-12 + spread * 2.0**-45


def _reach(variance: Floats | float) -> Floats:
    """Bernstein (1924): a binomial law has at most _CUT of its mass farther than this from its mean."""
    result: Floats = _LOG_CUT / 3 + np.sqrt(_LOG_CUT**2 / 9 + 2 * _LOG_CUT * variance)
    return result


def _masses(k: Whole, trials: Whole, f: float) -> Floats:
    """Pr[Bin(trials, f) = k] for 0 <= k <= trials, with trials an array, by Loader's saddle point."""
    others = trials - k
    mean = np.maximum(trials * f, 1e-300)  # no trials: k = 0 with certainty
    excess = k - mean
    log_mass = -_deviance(k, mean, excess) - _deviance(others, np.maximum(trials - mean, 1e-300), -excess)
    log_mass += _stirling_error(trials) - _stirling_error(k) - _stirling_error(others)
    edge = (k > 0) & (others > 0)
    product = np.maximum(k, 1) * (np.maximum(others, 1) / np.maximum(trials, 1))
    result: Floats = np.exp(log_mass - 0.5 * np.log(2 * math.pi * product) * edge)
    return result


# --- calibration --------------------------------------------------------------------------------------


def least_count_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which a count is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedCount(users, flip), users, epsilon, delta, bits=1)


def least_histogram_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which a histogram of labelled bits is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedHistogram(users, flip), users, epsilon, delta, bits=1)


def least_sum_flip(users: int, bits: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which the sum of ``bits`` unlabelled bits per user is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedSum(users, flip, bits), users, epsilon, delta, bits=bits)


def _least_flip(
    law_of: Callable[[Dyadic], PrivacyLaw], users: int, epsilon: float, delta: float, *, bits: int
) -> Dyadic:
    check_target(epsilon, delta)
    variance = 2 * math.log(1.25 / delta) / epsilon**2 + math.log(1 / delta)  # about that of Gaussian noise
    found = least_rate(law_of, epsilon, delta, guess=variance * bits / users, highest=LARGEST_FLIP)
    if found is None:
        raise InfeasibleError(
            f"{users:,} users are too few for epsilon = {epsilon:g} and delta = {delta:g}: bits would have to be "
            f"flipped with probability above {LARGEST_FLIP}. Ask more users or allow a larger epsilon.",
            users=users,
            epsilon=epsilon,
            delta=delta,
        )
    return found


def least_rate(
    law_of: Callable[[Dyadic], PrivacyLaw], epsilon: float, delta: float, *, guess: float, highest: float
) -> Dyadic | None:
    """The least rate up to ``highest`` whose law meets the target, to about five digits; None if none does.

    The law is checked at just the probability that is returned.
    """

    def excess(log_rate: float) -> float:
        achieved = law_of(Dyadic.at_least(math.exp(log_rate))).delta_at(epsilon)
        difference = math.log(max(achieved, 1e-300)) - math.log(delta)
        return max(difference, 1e-12) if achieved > delta else min(difference, 0.0)

    top = math.log(highest)
    x = min(max(math.log(guess), -40.0), top - 0.01)
    y = excess(x)
    low = high = (x, y)
    step = 0.4
    while low[1] <= 0 and low[0] > -43:
        high, low = low, (low[0] - step, excess(low[0] - step))
        step *= 1.5
    while high[1] > 0:
        if high[0] >= top:
            return None
        further = min(high[0] + step, top)
        low, high = high, (further, excess(further))
        step *= 1.5
    return Dyadic.at_least(math.exp(_crossing(excess, low, high)))


def _crossing(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> float:
    """Where the excess comes down to 0, from the side that is feasible (Illinois method)."""
    last_moved = 0
    weights = [low[1], high[1]]
    for _ in range(60):
        if high[0] - low[0] < _RATE_TOLERANCE or low[1] <= 0 or high[1] > -_DELTA_TOLERANCE:
            break
        share = weights[0] / (weights[0] - weights[1]) if weights[0] > weights[1] else 0.5
        x = low[0] + min(max(share, 0.001), 0.999) * (high[0] - low[0])
        y = excess(x)
        if y > 0:
            low, weights = (x, y), [y, weights[1] / 2 if last_moved > 0 else weights[1]]
            last_moved = 1
        else:
            high, weights = (x, y), [weights[0] / 2 if last_moved < 0 else weights[0], y]
            last_moved = -1
    return high[0]


def paper_count_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """Half the lambda/n of Lemma 4.8 of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019)."""
    check_target(epsilon, delta)
    return Dyadic.at_least(_lemma_4_8(users, epsilon, delta, "Lemma 4.8") / (2 * users))


def paper_histogram_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """The same at (epsilon/2, delta/2), since two bits of a user change (their section 6.2.2)."""
    check_target(epsilon, delta)
    return Dyadic.at_least(_lemma_4_8(users, epsilon / 2, delta / 2, "Lemma 4.8 for each bit") / (2 * users))


def paper_sum_flip(users: int, bits: int, epsilon: float, delta: float) -> Dyadic:
    """The same for each of ``bits`` bits, put together by advanced composition (their section 5)."""
    check_target(epsilon, delta)
    each = epsilon / math.sqrt(8 * bits * math.log(2 / delta)), delta / (2 * bits)
    return Dyadic.at_least(_lemma_4_8(users, *each, "Lemma 4.8 for each bit") / (2 * users))


def _lemma_4_8(users: int, epsilon: float, delta: float, theorem: str) -> float:
    """lambda, the expected number of users who send a fair coin."""
    logarithm = math.log(4 / delta)
    if users < 14 * logarithm:
        raise ConditionError(
            f"{theorem} needs n >= 14 ln(4/delta) = {math.ceil(14 * logarithm):,} users for delta = {delta:g}; "
            f"given {users:,}. The tight calibration has no such limit.",
            users=users,
            needed=math.ceil(14 * logarithm),
        )
    least = math.sqrt(3456) / users * logarithm
    if not least < epsilon < 1:
        raise ConditionError(
            f"{theorem} needs {least:.4g} = sqrt(3456) ln(4/delta) / n < epsilon < 1; given {epsilon:g}. "
            "The tight calibration has no such limit.",
            epsilon=epsilon,
            least=least,
        )
    if epsilon >= math.sqrt(192 * logarithm / users):
        return 64 * logarithm / epsilon**2
    return users - epsilon * math.sqrt(users**3 / (432 * logarithm))
