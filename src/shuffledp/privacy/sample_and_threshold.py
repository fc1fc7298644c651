"""Privacy accounting of ``sample-and-threshold``: sampled counts, of which those below a threshold are withheld.

A trusted counter samples each value with a fixed probability, and a category is released if its sampled count reaches
the threshold (Bharadwaj and Cormode 2022). Users must not sample themselves: dishonest ones would always send.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial, binomial_masses
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.incomplete_beta import betainc
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain
from shuffledp.search import least_integer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_THRESHOLD = 100_000
_MAX_SEARCHED = 1 << 13  # largest threshold of a calibration
_MAX_COUNTS = 1 << 18  # numbers of holders to enumerate
_LEAST_COMPLEMENT_BITS = 40  # of 1 - sampling, so that it has at least ten significant digits
_COUNTS_AT_ONCE = 1 << 14
_ROUNDING = 1e-9
_TINY = 1e-300
_CUT = 1e-25  # mass of outcomes that are left out, added to delta
_LOG_CUT = math.log(2 / _CUT)
_FAR = 20  # times the threshold: larger counts are hardly distinguishable
_CELL_WIDTH = 0.03  # relative width of a range of numbers of holders
_FINE_CELL_WIDTH = 0.015
_MAX_CELLS = 150
_NODES = 60  # of the chords on either side of epsilon
_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005)  # of 1 - e^-epsilon


@dataclass(frozen=True)
class SampleAndThreshold:
    """Counts of users sampled with probability ``sampling``, released if they are at least ``threshold``."""

    sampling: Dyadic
    threshold: int

    def __post_init__(self) -> None:
        check_uncertain("sampling", self.sampling)
        if not 1 <= self.threshold <= MAX_THRESHOLD:
            raise ParameterError(
                f"The threshold must lie between 1 and {MAX_THRESHOLD:,}, not {self.threshold:,}.",
                threshold=self.threshold,
            )
        if self.threshold > _MAX_COUNTS * self.sampling.fraction:
            raise InfeasibleError(
                f"A threshold of {self.threshold:,} at sampling probability {self.sampling} takes too long to "
                f"account for: threshold / sampling must be at most {_MAX_COUNTS:,}.",
                threshold=self.threshold,
                sampling=self.sampling,
            )
        if self.sampling.complement.numerator << _LEAST_COMPLEMENT_BITS < 1 << self.sampling.bits:
            raise ParameterError(f"The sampling probability must be at most 1 - 2^-{_LEAST_COMPLEMENT_BITS}.")

    @property
    def shrinkage(self) -> float:
        """ln(1/(1 - sampling)): adding a user reduces the log-probability of an outcome by at most this."""
        return -math.log(float(self.sampling.complement)) * (1 + 1e-15)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta for replacing a user.

        One count loses a user and another gains one; k and k' other users hold these categories. Given outcome b of the
        second count, with likelihood ratio e^l(b), the divergence of the first count is evaluated at epsilon - l(b).
        The supremum over k is taken inside the mean over b, and the supremum over k' outside.
        """
        check_epsilon(epsilon)
        epsilon = min(epsilon, 600.0)
        return as_delta(max(float(_first_count_delta(self, np.array([epsilon]))[0]), _both_counts_delta(self, epsilon)))

    def delta_add_or_remove(self, epsilon: float) -> float:
        """Upper bound on the least delta if a user is added or removed rather than replaced."""
        check_epsilon(epsilon)
        epsilon = min(epsilon, 600.0)
        removed = float(_first_count_delta(self, np.array([epsilon]))[0])
        added = 0.0 if epsilon >= self.shrinkage else -math.expm1(epsilon - self.shrinkage)
        return as_delta(max(removed, added) * (1 + _ROUNDING))

    def alternatives(self) -> tuple[tuple[DiscretePair, ...], ...]:
        """The category that the user leaves and the one that the user enters, each of any size."""
        left = _pairs_of_any_size(self)
        return tuple(pair.reversed for pair in left), left


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def _first_count_delta(curve: SampleAndThreshold, epsilons: Floats) -> Floats:
    """sup over k of the divergence of k + 1 holders from k, at each epsilon (which may be negative).

    The ratio (k + 1)(1 - p)/(k + 1 - v) increases with the count v, so the divergence is that of the counts from some v
    on, p Pr[Bin(k) = v - 1] - (e^epsilon - 1) Pr[Bin(k) >= v], or of all outcomes. Up to some k, that v is the
    threshold. For larger k the threshold does not matter, and without one the divergence decreases with k (every
    further coin is noise), so one such k covers all larger ones.
    """
    p, tau = float(curve.sampling), curve.threshold
    share = 1 - (1 - p) * np.exp(-epsilons)  # outcome v contributes if v > share (k + 1)
    turning = np.minimum(np.ceil(tau / np.maximum(share, 0.5 * p)), 1e15).astype(np.int64)
    k = np.arange(tau - 1, int(turning.max()) + 1, dtype=np.int64)
    grown = np.expm1(epsilons)[:, None]
    at_threshold = [
        _from_count_on(part[None, :], np.full((1, len(part)), tau), p, grown).max(axis=1)
        for part in np.array_split(k, -(-len(k) // _COUNTS_AT_ONCE))
    ]
    free = np.floor(share * (turning + 1))[:, None].astype(np.int64) + np.arange(0, 3)  # rounding must not decide
    beyond = _from_count_on(turning[:, None], np.clip(free, 1, turning[:, None] + 1), p, grown)
    everything = -np.expm1(epsilons)
    worst = np.maximum(np.maximum(np.max(at_threshold, axis=0), beyond.max(axis=1)), everything)
    return positive_part(worst) * (1 + _ROUNDING) + _TINY


def _from_count_on(k: Integers, v: Integers, p: float, grown: Floats) -> Floats:
    """Pr[Bin(k + 1, p) >= v] - e^epsilon Pr[Bin(k, p) >= v] for 1 <= v <= k + 1, with grown = e^epsilon - 1."""
    tail = np.where(v <= k, betainc(np.minimum(v, np.maximum(k, 1)), np.maximum(k - v + 1, 1), p), 0.0)
    error = 1e-11 + (k + 1) * 2.0**-44
    gained = p * binomial_masses(v - 1, k, p) * (1 + error)
    result: Floats = gained - grown * tail * (1 - np.sign(grown) * error)
    return result


def _both_counts_delta(curve: SampleAndThreshold, epsilon: float) -> float:
    """sup over k' of the mean over outcomes b of Bin(k', p) of the first count's divergence at epsilon - l(b).

    l(b) is the log-likelihood ratio of k' holders against k' + 1. All k' from K to K + w are covered by K: reveal the
    coins of the additional users, of which s are heads; then K holders remain with the threshold tau - s, and a lower
    threshold is worse. Beyond the last K the threshold is 0.
    """
    p, tau = float(curve.sampling), curve.threshold
    deltas = _ChordBound(curve, epsilon)
    starts = _starts(tau, p)
    widths = np.append(np.diff(starts) - 1, 0)
    reach = _reach(starts, p)
    first = np.maximum(0, np.floor(starts * p - reach)).astype(np.int64)
    columns = int(np.minimum(starts - first, np.ceil(2 * reach)).max()) + 1
    v = first[:, None] + np.arange(columns)
    k = starts[:, None]
    inside = v <= k
    mass = np.where(inside, binomial_masses(np.minimum(v, k), k, p), 0.0)
    # outcomes below the threshold are indistinguishable: add their masses under k' and under k' + 1
    ratio = np.where(inside, (k + 1 - v) / ((k + 1) * (1 - p)), 1.0)
    value = mass * deltas.at(epsilon - np.log(ratio))
    shown = np.cumsum(value[:, ::-1], axis=1)[:, ::-1]
    below, below_next = np.cumsum(mass, axis=1), np.cumsum(mass / ratio, axis=1)
    worst = 0.0
    for row, width in enumerate(widths.tolist()):
        mean, far = width * p, float(_reach(width, p))
        lowered = np.arange(max(0, math.floor(mean - far)), min(width, math.ceil(mean + far)) + 1)
        thresholds = np.maximum(tau - lowered, 0) if row < len(starts) - 1 else np.zeros(1, dtype=np.int64)
        weights = Binomial(width, curve.sampling).pmf(lowered) if width else np.ones(1)
        keep = weights > 1e-33
        at = np.clip(thresholds[keep] - int(first[row]), 0, columns)
        hidden, hidden_next = np.append(0.0, below[row])[at], np.append(0.0, below_next[row])[at]
        possible = hidden > 0
        merged = np.zeros(len(at))
        with np.errstate(divide="ignore"):  # underflow counts as an infinite loss
            merged[possible] = hidden[possible] * deltas.at(epsilon - np.log(hidden[possible] / hidden_next[possible]))
        means = np.append(shown[row], 0.0)[at] + merged
        worst = max(worst, as_delta(float(weights[keep] @ means)))
    return worst * (1 + _ROUNDING) + 3 * _CUT + 1e-28


def _pairs_of_any_size(curve: SampleAndThreshold) -> tuple[DiscretePair, ...]:
    """k + 1 holders against k of one category, for ranges of k that cover all: see ``_both_counts_delta``."""
    p, tau = float(curve.sampling), curve.threshold
    cell_width = _FINE_CELL_WIDTH
    while len(starts := _starts(tau, p, cell_width)) > _MAX_CELLS:
        cell_width *= 1.5
    pairs = []
    for k, following in itertools.zip_longest(starts.tolist(), starts[1:].tolist()):
        reach = float(_reach(k, p)) + 1
        v = np.arange(max(0, math.floor(k * p - reach)), min(k + 1, math.ceil(k * p + reach)) + 1, dtype=np.int64)
        more = binomial_masses(v, np.full_like(v, k + 1), p)
        fewer = more * (k + 1 - v) / ((k + 1) * (1 - p))
        if following is None:  # the threshold no longer matters
            pairs.append(DiscretePair(more, fewer, cut=2 * _CUT))
            continue
        width = following - 1 - k
        coins = Binomial(width, curve.sampling).pmf(np.arange(width + 1)) if width else np.ones(1)
        thresholds = tau - np.arange(width + 1)  # of the k holders, given the coins of the others
        at = np.clip(thresholds - int(v[0]), 0, len(v))
        shown = np.append(np.cumsum(coins[::-1])[::-1], 0.0)[np.clip(tau - v, 0, width + 1)]
        hidden = [coins * np.append(0.0, np.cumsum(masses))[at] for masses in (more, fewer)]
        pairs.append(
            DiscretePair(np.append(more * shown, hidden[0]), np.append(fewer * shown, hidden[1]), cut=2 * _CUT)
        )
    return tuple(pairs)


def _starts(tau: int, p: float, cell_width: float = _CELL_WIDTH) -> Integers:
    """The numbers k' of other holders to evaluate, which cover all: below tau - 1 the category is never released.

    For the last one nearly all counts reach the threshold, so that it no longer matters and more holders only help.
    """
    starts = [tau - 1]
    while starts[-1] < _FAR * tau / p and starts[-1] * p - _reach(starts[-1], p) <= tau:
        starts.append(starts[-1] + 1 + int(cell_width * starts[-1]))
    return np.array(starts, dtype=np.int64)


def _reach(k: Integers | int, p: float) -> Floats:
    """A distance from the mean beyond which Bin(k, p) has a mass of at most _CUT (Bernstein 1924)."""
    result: Floats = _LOG_CUT / 3 + np.sqrt(_LOG_CUT**2 / 9 + 2 * _LOG_CUT * k * p * (1 - p))
    return result


class _ChordBound:
    """Upper bound on the first count's divergence around epsilon, by chords: it is convex in e^epsilon."""

    def __init__(self, curve: SampleAndThreshold, epsilon: float) -> None:
        reach = curve.shrinkage * (1 + 1e-9) + 1e-9
        below = epsilon - reach * np.linspace(1, 0, _NODES) ** 2  # dense at epsilon, where most of the mass is
        above = epsilon + np.linspace(0, 1, _NODES)[1:] ** 2
        self._nodes = np.concatenate((below, above))
        self._values = _first_count_delta(curve, self._nodes)
        self._growths = np.exp(self._nodes)

    def at(self, epsilons: Floats) -> Floats:
        """Upper bounds at these epsilons; beyond the last node its value is used, since the curve decreases."""
        growths = np.exp(np.minimum(epsilons, self._nodes[-1]))
        result: Floats = np.interp(growths, self._growths, self._values) * (1 + _ROUNDING)
        return result


# --- calibration of sampling ----------------------------------------------------------------------------


def least_threshold(sampling: Dyadic, epsilon: float, delta: float) -> int:
    """The least threshold at which counts with this sampling probability are (epsilon, delta)-private."""
    check_target(epsilon, delta)
    if epsilon <= -math.log(float(sampling.complement)):
        raise InfeasibleError(
            f"No threshold makes the sampling probability {sampling} private at epsilon = {epsilon:g}: the "
            f"probability must be below 1 - e^-epsilon = {-math.expm1(-epsilon):.4g}.",
            sampling=sampling,
            epsilon=epsilon,
        )
    at_least = least_integer(
        lambda tau: bool(_first_count_delta(SampleAndThreshold(sampling, tau), np.array([epsilon]))[0] <= delta),
        limit=_MAX_SEARCHED,
    )
    threshold = at_least and _least_falling(
        lambda tau: SampleAndThreshold(sampling, tau).delta_at(epsilon), delta, below=at_least - 1
    )
    if threshold is None:
        raise InfeasibleError(
            f"A threshold above {_MAX_SEARCHED:,} would be needed at sampling probability {sampling}, "
            f"epsilon = {epsilon:g} and delta = {delta:g}. Sample fewer users.",
            sampling=sampling,
            epsilon=epsilon,
            delta=delta,
        )
    return threshold


def _least_falling(delta_of: Callable[[int], float], delta: float, *, below: int) -> int | None:
    """The least integer above ``below`` with delta_of <= delta; delta_of decreases about geometrically."""
    low, high = below, _MAX_SEARCHED + 1
    at, fall = below + 1, 0.2
    before: tuple[int, float] | None = None
    while high - low > 1:
        excess = math.log(max(delta_of(at), _TINY)) - math.log(delta)
        if excess > 0:
            low = at
        else:
            high = at
        if before is not None and before[0] != at:
            fall = min(max((before[1] - excess) / (at - before[0]), 0.01), 10.0)
        before = at, excess
        at = min(max(at + math.ceil(min(max(excess / fall, -1e3), 1e3)), low + 1), high - 1)
    return None if high > _MAX_SEARCHED else high


@lru_cache(maxsize=4096)
def sampled_error(sampling: Dyadic, threshold: int, count: int) -> float:
    """The root mean squared error of the estimate for ``count`` users; a withheld category is estimated as 0."""
    if count == 0:
        return 0.0
    curve = Binomial(count, sampling)
    reach = 40 + 12 * curve.deviation
    v = np.arange(max(0, math.floor(curve.mean - reach)), min(count, math.ceil(curve.mean + reach)) + 1, dtype=np.int64)
    estimate = np.where(v >= threshold, v / float(sampling), 0.0)
    return math.sqrt(float(curve.pmf(v) @ (estimate - count) ** 2))


def best_sampling(epsilon: float, delta: float, count: int) -> SampleAndThreshold:
    """The sampling probability with its least threshold that has the least error for a category of ``count`` users."""
    check_target(epsilon, delta)
    best: tuple[float, SampleAndThreshold] | None = None
    for share in _SHARES:
        sampling = Dyadic.of(round(-math.expm1(-epsilon) * share * 2**32) / 2**32)
        if sampling.numerator == 0:
            continue
        without_threshold = math.sqrt(count * float(sampling.complement) / float(sampling))
        if best is not None and min(count, without_threshold) > best[0]:
            continue
        try:
            threshold = least_threshold(sampling, epsilon, delta)
        except InfeasibleError:
            continue
        error = sampled_error(sampling, threshold, count)
        if best is None or error < best[0]:
            best = error, SampleAndThreshold(sampling, threshold)
    if best is None:
        raise InfeasibleError(
            f"No sampling probability and threshold up to {_MAX_SEARCHED:,} meet epsilon = {epsilon:g} and "
            f"delta = {delta:g}.",
            epsilon=epsilon,
            delta=delta,
        )
    return best[1]


def paper_sampling(epsilon: float, delta: float) -> SampleAndThreshold:
    """The paper's threshold, ceil(3 + ln(1/delta)), and sampling probability, (1 - e^-epsilon) / threshold."""
    check_target(epsilon, delta)
    threshold = math.ceil(3 + math.log(1 / delta))
    rate = -math.expm1(-epsilon) / threshold
    curve = SampleAndThreshold(Dyadic.at_least(Fraction(rate) * (1 - Fraction(1, 2**50))), threshold)
    if curve.delta_at(epsilon) > delta:
        raise ConditionError(
            f"At epsilon = {epsilon:g} and delta = {delta:g} the theorem's constants are not private when a user is "
            "replaced. Use the tight calibration.",
            epsilon=epsilon,
            delta=delta,
        )
    return curve
