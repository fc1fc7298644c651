"""Amplification by the privacy blanket: Balle, Bell, Gascon and Nissim (2019).

Each row of a channel is at least gamma w, where w is a distribution common to all values. The reports drawn from w hide
the target. The closed forms hold for every local randomizer; the bounds for a specific channel are much better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.checks import LARGEST_EPSILON, LEAST_EPSILON, check_epsilon, check_number_of_users
from shuffledp.errors import ParameterError
from shuffledp.privacy.amplification.clones import check_clones, fair_mass, probability_at_most
from shuffledp.privacy.amplification.exact import check_channel
from shuffledp.privacy.amplification.positive_part import (
    MAX_POINTS,
    Draws,
    ScaledNoise,
    TooManyPointsError,
    expected_positive_part,
    on_grid,
)
from shuffledp.privacy.binomial import LEAST_PROBABILITY_BITS, Binomial
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.incomplete_beta import betaincc
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

_CUTS = (1e-26, 1e-60, 1e-300)
_MAX_POINTS = 400_000  # beyond, the bound is so small that it need not be sharp
_DIRECT_POINTS = 10_000
_FEW_DIRECT_POINTS = 100  # as fast as a coarse grid
_GRID = 1 << 16  # points of a grid that spans 30 standard deviations
_COARSE_GRID = 1 << 13
_REFINEMENT = 4  # the finest grid has this many times as many points
_MAX_TRIED_PARTS = 4000
_MOST_EXACT_PARTS = 1 << 40
_MAX_COARSENINGS = 8
_WIDEST_NOISE = 5_000  # largest standard deviation of the number of other reports that is enumerated
_TINIEST = 1e-305


def closed_form_delta(epsilon: float, users: int, local_epsilon: float) -> float:
    """Balle et al. (2019), Theorem 5.3: upper bound on delta after shuffling, for any randomizer."""
    trivial = _trivial_delta(epsilon, users, local_epsilon)
    if trivial is not None:
        return trivial
    log_gap, log_width = _log_gap_and_width(epsilon, local_epsilon)
    exponent = (1 - math.exp(-2)) * users * math.exp(min(-local_epsilon, 2 * (log_gap - log_width)))
    return _delta_of_log(2 * log_width - log_gap - math.log(4 * users) - exponent)


def hoeffding_delta(epsilon: float, users: int, local_epsilon: float) -> float:
    """The bound behind Theorem 5.3, by Hoeffding's inequality and the exact number of blanket reports."""
    trivial = _trivial_delta(epsilon, users, local_epsilon)
    if trivial is not None:
        return trivial
    log_gap, log_width = _log_gap_and_width(epsilon, local_epsilon)
    hidden = users * math.log1p(math.exp(-local_epsilon) * math.expm1(-2 * math.exp(2 * (log_gap - log_width))))
    return _delta_of_log(2 * log_width - log_gap - math.log(4 * users) + local_epsilon + hidden)


def bennett_delta(epsilon: float, users: int, local_epsilon: float) -> float:
    """The bound behind Theorem 5.3, by Bennett's inequality (Lemma 5.6, corrected), for any randomizer.

    With the smallest possible blanket, e^-local_epsilon, each term L of ``bennett_expectation`` is at most
    e^local_epsilon - e^epsilon, and its second moment at most e^local_epsilon (1 + e^(2 epsilon)) - 2 e^epsilon.
    """
    trivial = _trivial_delta(epsilon, users, local_epsilon)
    if trivial is not None:
        return trivial
    # in units of e^local_epsilon, to avoid overflow; for epsilon above 30 the bound is trivial
    growth, blanket = math.exp(min(epsilon, 30.0)), math.exp(-local_epsilon)
    gap, largest = math.expm1(min(epsilon, 30.0)), -math.expm1(epsilon - local_epsilon)
    second = 1 + growth**2 - 2 * growth * blanket
    ratio = gap * largest / second if second > 0 else 0.0
    if epsilon > 30 or not ratio > 1e-12:
        return 1.0  # the bound is trivial, or too close to trivial to compute
    exponent = (1 + ratio) * math.log1p(ratio) - ratio
    factor = math.expm1(-(second / largest**2) * blanket * exponent) if largest > 1e-100 else -1.0
    hidden = users * math.log1p(blanket * factor)
    return _delta_of_log(math.log(largest) - math.log(math.log1p(ratio)) + 2 * local_epsilon - math.log(users) + hidden)


def bennett_expectation(count: int, *, gap: float, largest: float, second_moment: float) -> float:
    """Upper bound on E[max(L_1 + ... + L_count, 0)] for independent L of mean -gap, at most ``largest``.

    Balle et al. (2019), Lemma 5.6, whose printed form has an extra factor 1/(gap count) and is not a valid bound.
    """
    ratio = gap * largest / second_moment
    exponent = (1 + ratio) * math.log1p(ratio) - ratio
    return largest / math.log1p(ratio) * math.exp(-count * (second_moment / largest / largest) * exponent)


def _log_gap_and_width(epsilon: float, local_epsilon: float) -> tuple[float, float]:
    """ln(e^epsilon - 1) and ln((e^epsilon + 1) (e^local_epsilon - e^-local_epsilon))."""
    log_gap = epsilon + math.log(-math.expm1(-epsilon))
    return log_gap, epsilon + math.log1p(math.exp(-epsilon)) + local_epsilon + math.log(-math.expm1(-2 * local_epsilon))


def _delta_of_log(logarithm: float) -> float:
    """A bound on delta from its logarithm, rounded up."""
    return as_delta(math.exp(min(logarithm, 0.0)) * (1 + 1e-9) + _TINIEST)


def _trivial_delta(epsilon: float, users: int, local_epsilon: float) -> float | None:
    """Check the arguments; the bound is 0 from the local epsilon on and 1 at epsilon 0, else None is returned."""
    check_clones(users, local_epsilon)
    check_epsilon(epsilon)
    if epsilon >= local_epsilon:
        return 0.0
    return 1.0 if epsilon == 0 else None


@dataclass(frozen=True)
class BlanketCurve:
    """Shuffled randomized response: each user sends one of ``values`` at random with probability ``blanket``.

    Otherwise the user sends the true value. The bound of Balle et al. (2019), Lemma 5.3, evaluated exactly.
    """

    users: int
    blanket: Dyadic
    values: int

    def __post_init__(self) -> None:
        check_number_of_users(self.users)
        if self.values < 1:
            raise ParameterError(f"At least one value is needed, not {self.values}.", values=self.values)
        for side in (self.blanket.numerator, self.blanket.complement.numerator):
            if 0 < side << LEAST_PROBABILITY_BITS < 1 << self.blanket.bits:
                raise ParameterError(
                    f"The blanket must be 0, 1, or at least 2^-{LEAST_PROBABILITY_BITS} away from both, so that "
                    "a double represents it."
                )

    @property
    def theorem(self) -> str:
        """The proof."""
        return "privacy blanket, summed exactly (Balle, Bell, Gascon and Nissim 2019, Lemma 5.3)"

    @property
    def local_epsilon(self) -> float:
        """The epsilon of one report without shuffling."""
        if self.blanket.numerator == 0:
            return math.inf
        return math.log1p(float(self._other_ratio))

    @property
    def _other_ratio(self) -> Fraction:
        """e^local_epsilon - 1: the likelihood ratio of the true value to another one, minus 1."""
        return self.values * (1 - self.blanket.fraction) / self.blanket.fraction

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy.

        With (a, b, c) the blanket reports on the old value, the new one and all others, it is
        E[max((r - 1)(a - e^epsilon b) - (e^epsilon - 1)(a + b + c), 0)] / users, r = e^local_epsilon.
        """
        return self._delta_at(epsilon, _GRID)

    def rough_delta_at(self, epsilon: float) -> float:
        """A looser bound that is faster to compute, for the start of a search."""
        return self._delta_at(epsilon, _COARSE_GRID)

    def delta_to_check(self, epsilon: float, claimed: float) -> float:
        """``delta_at``, or the looser bound if it is at most ``claimed``."""
        rough = self.quick_delta_at(epsilon)
        return rough if rough <= claimed else self.delta_at(epsilon)

    def quick_delta_at(self, epsilon: float) -> float:
        """A looser bound than ``delta_at``, on a coarse grid."""
        return self._delta_at(epsilon, _COARSE_GRID, direct_points=_FEW_DIRECT_POINTS)

    def likely_epsilon(self, delta: float) -> float:
        """An epsilon in the vicinity of the least one: as if the sum in the bound were normal."""
        if self.values == 1 or self.blanket.numerator == 0:
            return 1.0
        mean = max(self.users * float(self.blanket) / self.values, 1e-300)
        reward = float(self._other_ratio)
        quantile = math.sqrt(2 * math.log(max(math.e, reward * math.sqrt(2 * mean) / self.users / delta)))
        likely = math.log1p(quantile * reward * math.sqrt(2 / mean) / self.values)
        return min(max(likely, LEAST_EPSILON), LARGEST_EPSILON)

    def _delta_at(self, epsilon: float, grid: int, *, direct_points: int = _DIRECT_POINTS) -> float:
        check_epsilon(epsilon)
        if self.values == 1 or self.blanket.numerator == 1 << self.blanket.bits:
            return 0.0  # every report is the same, or independent of the value
        if self.blanket.numerator == 0:
            return 1.0
        gap = math.expm1(min(epsilon, LARGEST_EPSILON))
        if gap > float(self._other_ratio) * (1 + 1e-12):
            return 0.0
        sums = _ResponseSums(self, gap)
        total = sums.direct() if sums.direct_points() <= direct_points else sums.on_grid(grid)
        return as_delta(total * (1 + 1e-9) / self.users + _TINIEST)


class _ResponseSums:
    """The expectation in the bound for randomized response, at one epsilon."""

    def __init__(self, curve: BlanketCurve, gap: float) -> None:
        value_rate = curve.blanket.fraction / curve.values
        self.users, self.gap, self.growth = curve.users, gap, 1 + gap
        self.value_rate = float(value_rate)
        self.reward = float(curve._other_ratio)  # r - 1
        self.largest = max(self.reward - gap, 0.0) + 1e-12 * self.reward  # of one report, r - e^epsilon
        self.pairs = Binomial(curve.users, probability_at_most(2 * value_rate, bits=160))
        # the probability of a blanket report on another value, for users without one on the old or the new value
        self.other_rate = (curve.blanket.fraction - 2 * value_rate) / (1 - 2 * value_rate)

    def _reach(self, cut: float) -> tuple[int, int, float]:
        """The range of a + b with non-negligible mass, and that of a around (a + b) / 2, in units of sqrt(a + b)."""
        share = cut / max(1.0, self.largest * self.users)
        first = self.pairs.least_with_lower_tail(max(share, _TINIEST))
        last = self.users - self.pairs.mirrored.least_with_lower_tail(max(share, _TINIEST))
        return first, last, math.sqrt(-math.log(max(share, _TINIEST)) / 2)

    def direct_points(self) -> float:
        """Approximate number of terms of the direct sum."""
        mean = 2 * self.value_rate * self.users
        spread = 22 * math.sqrt(mean) + 30
        return spread * (max(0.0, 5.8 * math.sqrt(mean) - mean * self.gap / (2 * self.growth)) + 8)

    def direct(self) -> float:
        """The sum over a + b and a, with a closed form for the sum over c."""
        total = 0.0
        for cut in _CUTS:
            first, last, reach = self._reach(cut)
            both = np.arange(first, last + 1, dtype=np.int64)
            mass = self.pairs.pmf(both) * (1 + self.pairs.tail_error(both))
            total = self._given(both, mass, reach) + 4 * max(cut, _TINIEST * self.largest * self.users)
            points = len(both) * (reach * math.sqrt(last + 1) + 1)
            if total / self.users > 1e6 * cut or points > _MAX_POINTS:
                break
        return total

    def _given(self, both: NDArray[np.int64], mass: Floats, reach: float) -> float:
        """The sum over a, given the masses of a + b; terms of a beyond the reach weigh less than the cut."""
        share = (self.growth * self.reward + self.gap) / ((1 + self.growth) * self.reward)
        lowest = np.floor(both * min(share, 2.0) * (1 - 1e-12)).astype(np.int64)
        highest = np.minimum(both, np.ceil(both / 2 + reach * np.sqrt(both)).astype(np.int64))
        counts = np.maximum(highest - lowest + 1, 0)
        if counts.sum() == 0:
            return 0.0
        row = np.repeat(np.arange(len(both)), counts)
        first = lowest[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs = both[row]
        height = self.reward * (first - self.growth * (pairs - first)) - self.gap * pairs
        relevant = height > -1e-9 * self.reward * pairs
        first, pairs, height, row = first[relevant], pairs[relevant], np.maximum(height[relevant], 0.0), row[relevant]
        rounding = 1e-14 * self.reward * self.growth * pairs  # of the height, in which the expectation increases
        terms = mass[row] * fair_mass(first, pairs) * self._above_others(height + rounding, pairs)
        return float(terms.sum()) * (1 + 1e-11)

    def _above_others(self, height: Floats, pairs: NDArray[np.int64]) -> Floats:
        """Upper bound on E[max(height - gap c, 0)] with c ~ Bin(users - pairs, other_rate)."""
        if self.gap == 0 or self.other_rate == 0:
            return height
        remaining = (self.users - pairs).astype(np.float64)
        rate = float(self.other_rate)
        with np.errstate(over="ignore"):
            count = np.floor(np.minimum(height / self.gap, remaining))
        at_least_one = np.maximum(remaining, 1.0)
        inside = np.where(count >= remaining, 1.0, betaincc(count + 1, np.maximum(remaining - count, 0.5), rate))
        fewer = np.where(
            count >= remaining,
            1.0,
            np.where(count > 0, betaincc(np.maximum(count, 0.5), np.maximum(at_least_one - count, 0.5), rate), 0.0),
        )
        positive, negative = height * inside, self.gap * remaining * rate * fewer
        error = 1e-12 + np.abs(count - remaining * rate) * 2.0**-46
        value: Floats = np.clip(positive * (1 + error) - negative * (1 - error), 0.0, height)
        return value

    def on_grid(self, grid: int = _GRID) -> float:
        """By Fourier transform; a + b and c are decoupled if that loses less accuracy than the grid."""
        rewards = np.array([self.reward - self.gap, -self.growth * self.reward - self.gap])
        deviation = math.sqrt(self.users * self.value_rate * float(rewards @ rewards))
        finest = 30 * deviation / (_REFINEMENT * grid)
        coupled = decoupled = math.inf
        coupled_width, decoupled_width = self.gap, finest
        variance = self.value_rate * float(rewards @ rewards)
        if self.gap >= finest:
            coupled_width, cost = _best_width(self.gap, rewards, max(30 * deviation / grid, finest), finest)
            coupled = self.value_rate * cost / variance
        mean = 2 * self.value_rate * self.users
        fewest = max(0, math.floor(mean - 13 * math.sqrt(mean)))
        shifted = rewards + self.gap * float(self.other_rate)
        decoupled_width, cost = _best_width(abs(float(shifted[0])) or finest, shifted, 30 * deviation / grid, finest)
        decoupled = self.value_rate * cost / variance
        rate = float(self.other_rate)
        decoupled += self.gap**2 * rate * (1 - rate) * (mean - fewest) / (self.users * variance)
        if coupled <= decoupled or self.other_rate == 0:
            return self._coarsened(self._coupled, coupled_width if coupled < math.inf else finest)
        if math.sqrt(self.users * rate * (1 - rate)) > _WIDEST_NOISE:
            return self._coarsened(self._coupled, finest)
        return self._coarsened(lambda width: self._decoupled(shifted, width), decoupled_width)

    def _coarsened(self, sum_of: Callable[[float], float], width: float) -> float:
        """The sum on a grid of this width, or of a wider one if that has too many points; at most the trivial bound.

        Where steps are smaller than the grid, the number of points falls with the square root of the width only.
        """
        for _ in range(_MAX_COARSENINGS):
            try:
                return sum_of(width)
            except TooManyPointsError as error:
                width *= max(2.0, min(error.points / MAX_POINTS, 1e6) ** 2)
        return float(self.users)

    def _coupled(self, width: float) -> float:
        """All reports on the grid, relative to the more frequent of reports on other values and true reports."""
        others = float(self.other_rate) * (1 - 2 * self.value_rate)
        rewards = np.array([self.reward - self.gap, -self.growth * self.reward - self.gap, -self.gap])
        mass, offset = np.array([self.value_rate, self.value_rate, others]), 0.0
        if others > 0.5:
            offset = -self.gap
            rewards, mass = (
                rewards - offset,
                np.array([self.value_rate, self.value_rate, max(0.0, 1 - others - 2 * self.value_rate)]),
            )
            rewards[2] = -offset
        steps, masses = on_grid(rewards, mass, width)
        return expected_positive_part(Draws(self.users, steps, masses), self.users * offset / width) * width

    def _decoupled(self, shifted: Floats, width: float) -> float:
        """With c replaced by its mean given a + b, plus independent noise with at least the same spread.

        Given a + b = j, c is Bin(n - j, p). Its mean is added to the rewards; its deviation from the mean is a sum of
        n - j independent centred coins. More coins only increase the expectation, so their number for the smallest j is
        used. Values of j below that are accounted for by their probability.
        """
        tiny = 1e-34 / max(1.0, self.largest * self.users)
        fewest = self.pairs.least_with_lower_tail(tiny)
        steps, mass = on_grid(shifted, np.array([self.value_rate, self.value_rate]), width)
        coins = Binomial(self.users - fewest, probability_at_most(self.other_rate, bits=160))
        noise = ScaledNoise(coins, self.gap / width)
        offset = -self.gap * float(self.other_rate) * self.users / width
        total = expected_positive_part(Draws(self.users, steps, mass), offset, noise) * width
        return total + (tiny + noise.left_out) * self.largest * self.users


def _best_width(unit: float, values: Floats, wanted: float, finest: float) -> tuple[float, float]:
    """The grid width unit/m near the wanted one that spreads the values least, and the variance that it adds.

    If so many parts would be needed that no number of them is nearly exact, the width is the wanted one.
    """
    least = max(1, math.ceil(unit / wanted))
    most = min(4 * least + 8, math.floor(unit / finest), least + _MAX_TRIED_PARTS - 1)
    exact = least <= _MOST_EXACT_PARTS
    parts = np.arange(least, max(least, most) + 1, dtype=np.float64) if exact else np.array([unit / wanted])
    widths = unit / parts
    scaled = values[:, None] / widths
    share = scaled - np.floor(scaled + 1e-9)
    cost = (np.clip(share * (1 - share), 0.0, None)).sum(axis=0) * widths**2
    best = int(np.argmin(cost * (1 + 1e-3 * parts / parts[0])))
    return float(widths[best]), float(cost[best])


def blanket_delta(channel: ArrayLike, users: int, epsilon: float) -> float:
    """Upper bound on delta of shuffling the reports of a finite channel, for the worst pair of values.

    Outputs that some value cannot produce are not part of the blanket; their mass counts in full.
    """
    rows = check_channel(channel)
    check_number_of_users(users)
    check_epsilon(epsilon)
    growth = math.exp(min(epsilon, LARGEST_EPSILON))
    common = rows.min(axis=0)
    if common.sum() <= 0:
        return 1.0
    worst = 0.0
    for x in range(len(rows)):
        for other in range(len(rows)):
            if x != other:
                worst = max(worst, as_delta(_pair_delta(rows[x], rows[other], common, users, growth)))
    return as_delta(worst * (1 + 1e-9) + _TINIEST)


def _pair_delta(first: Floats, second: Floats, common: Floats, users: int, growth: float) -> float:
    """R(x)(B) + E[max(sum of (R(x) - e^epsilon R(x')) / common over the blanket's reports, 0)] / users.

    B is the set of outputs that some value cannot produce.
    """
    inside = common > 0
    outside = float(first[~inside].sum())
    values = (first[inside] - growth * second[inside]) / common[inside]
    if (values <= 0).all():
        return outside
    mass = common[inside]
    # shift the most frequent value to 0, so that it lies on the grid
    values, mass = np.append(values, 0.0), np.append(mass, max(0.0, 1 - float(mass.sum())))
    shift = float(values[np.argmax(mass)])
    values = values - shift
    moving = (values != 0) & (mass > 0)
    if not moving.any():
        return outside + max(0.0, shift)
    spread = math.sqrt(users * float(mass[moving] @ values[moving] ** 2))
    width = max(30 * spread, float(np.abs(values).max())) / (_REFINEMENT * _GRID)
    steps, masses = on_grid(values[moving], mass[moving], width)
    steps, inverse = np.unique(steps, return_inverse=True)
    draws = Draws(users, steps, np.asarray(np.bincount(inverse, weights=masses), dtype=np.float64))
    return outside + expected_positive_part(draws, users * shift / width) * width / users
