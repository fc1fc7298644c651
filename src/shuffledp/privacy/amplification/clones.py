"""Hiding among clones: amplification by users who send what the target might have sent.

Feldman, McMillan and Talwar (2021): each other user is, with some probability, a clone of the target, that is, sends
one of the target's two possible messages with probability 1/2 each. The same distribution describes uniform blanket
messages exactly (Luo, Wang and Yi 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon, check_local_epsilon, check_number_of_users, check_target
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.binomial import MAX_TRIALS, Binomial, deviance, stirling_error
from shuffledp.privacy.divergence import DiscretePair, as_delta, positive_part
from shuffledp.privacy.incomplete_beta import betainc
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MAX_CLONES = 1 << 50
_CUTS = (1e-20, 1e-50, 1e-305)
_UPPER_CUT = 1e-12  # mass of the largest counts, which are replaced by the least of them
_COARSENESS = 1e-6  # width of a block of clone counts, relative to the count
_BLOCKS_PER_DEVIATION = 100
_LONGEST_SUM = 8  # masses of longer blocks are computed as differences of tails
_CHUNK = 64
_CHUNKS_FROM = 10_000
_DIRECT_PRODUCTS = 10**7
_TINIEST = 1e-305
_BLOCKS_OF_PAIR = 512
_MAX_OUTCOMES_OF_PAIR = 1 << 21
_FEWEST_BLOCKS = 16
_MAX_CLONES_OF_PAIR = 1 << 24


@dataclass(frozen=True)
class ClonesCurve:
    """The privacy curve of a target among C clones: the analyzer sees C + 1 messages of two types.

    C is ``sure`` plus the sum of the independent binomials ``clones`` (a trial is a user who may be a clone). Each
    clone is of either type with probability 1/2, and the target is of its own type with probability ``alpha``. All this
    happens with probability ``weight``; otherwise the messages do not depend on the target.
    """

    clones: tuple[Binomial, ...]
    alpha: float | Dyadic = 1.0
    weight: float = 1.0
    sure: int = 0

    def __post_init__(self) -> None:
        if not 0.5 <= float(self.alpha) <= 1:
            raise ParameterError(f"alpha must lie between 1/2 and 1, not {self.alpha}.", alpha=self.alpha)
        if not 0 <= self.weight <= 1:
            raise ParameterError(f"The weight must be a probability, not {self.weight}.", weight=self.weight)
        if self.sure < 0:
            raise ParameterError(f"The number of sure clones must be at least 0, not {self.sure}.", sure=self.sure)
        if self.sure > _MAX_CLONES:
            # the count would overflow; fewer clones are worse
            object.__setattr__(self, "sure", _MAX_CLONES)

    @property
    def theorem(self) -> str:
        """The proof."""
        return "hiding among clones, summed exactly over their number (Feldman, McMillan and Talwar 2021)"

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy of the target.

        Exact except for rounding up to about a million clones. Beyond, clone counts are grouped into blocks of a
        relative width of 1e-6, and each is replaced by the smallest of its block: fewer clones are worse, because
        anyone can simulate another clone by a fair coin.
        """
        check_epsilon(epsilon)
        alpha = Dyadic.of(self.alpha)
        growth = math.exp(min(epsilon, LARGEST_EPSILON))
        edge, edge_error = _edge(alpha, growth)
        if edge < -edge_error:
            return 0.0
        delta = 1.0
        for cut in self._cuts(alpha, growth):
            counts = clone_counts(self.clones, self.sure, cut)
            deltas = _two_types_delta(counts.least, alpha, growth)
            delta = counts.expectation(deltas)
            if counts.slack * float(deltas.sum()) > 1e-7 * delta:  # below the resolution of the Fourier transform
                delta = clone_counts(self.clones, self.sure, cut, direct=True).expectation(deltas)
            delta += counts.left_out * (max(edge, 0.0) + edge_error)
            if delta > 1e6 * cut:
                break
        return as_delta(self.weight * delta * (1 + 1e-12) + _TINIEST)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """One pair, since exchanging the two types exchanges its distributions; none if it has too many outcomes."""
        counts = clone_counts(self.clones, self.sure, cut)
        blocks = min(_BLOCKS_OF_PAIR, len(counts.least))
        if counts.slack > 0 or blocks * (2 * _reach(counts, cut) + 1) > _MAX_OUTCOMES_OF_PAIR:
            return ()
        return ((self._pair(counts.coarsened(_BLOCKS_OF_PAIR), cut),),)

    def pair_of_about(self, outcomes: int, cut: float) -> DiscretePair:
        """A pair with about ``outcomes`` outcomes; if there are too many clones, the pair of fewer, which is worse."""
        counts = clone_counts(self._bounded_clones, min(self.sure, _MAX_CLONES_OF_PAIR), cut, direct=True)
        return self._pair(counts.coarsened(max(_FEWEST_BLOCKS, outcomes // (2 * _reach(counts, cut) + 1))), cut)

    @property
    def _bounded_clones(self) -> tuple[Binomial, ...]:
        """The binomials with the number of trials limited such that the means are bounded; fewer clones are worse."""
        limits = [math.ceil(_MAX_CLONES_OF_PAIR / part.probability.fraction) for part in self.clones]
        return tuple(
            replace(part, trials=min(part.trials, limit)) for part, limit in zip(self.clones, limits, strict=True)
        )

    def _pair(self, counts: CloneCounts, cut: float) -> DiscretePair:
        """An outcome is a block of clone counts, taken as its least one, and the number of first-type messages."""
        fair = fair_masses_near_half(counts.least, _reach(counts, cut))
        with_target, without = fair[:, :-1], fair[:, 1:]  # heads + 1 or heads messages are of the first type
        own, other = float(Dyadic.of(self.alpha)), float(Dyadic.of(self.alpha).complement)
        masses = self.weight * counts.mass[:, None]
        p = (masses * (own * with_target + other * without)).ravel()
        q = (masses * (own * without + other * with_target)).ravel()
        keep = (p > 0) | (q > 0)
        if not keep.all():
            p, q = p[keep], q[keep]
        if self.weight < 1:  # what does not depend on the target has the same mass under both
            p, q = np.append(p, 1 - self.weight), np.append(q, 1 - self.weight)
        return DiscretePair(p, q, counts.left_out + 2 * cut)

    def _cuts(self, alpha: Dyadic, growth: float) -> tuple[float, ...]:
        """Masses to leave out, in the order to try; without those far above the divergence at the mean count."""
        mean = self.sure + sum(part.mean for part in self.clones)
        typical = float(_two_types_delta(np.array([round(mean)]), alpha, growth)[0])
        return tuple(cut for cut in _CUTS[:-1] if typical > cut**2) + _CUTS[-1:]


@dataclass(frozen=True, eq=False)
class CloneCounts:
    """The distribution of the number of clones in blocks: the least count of each block, and a bound on its mass."""

    least: Integers
    mass: Floats
    slack: float
    """Bound on the absolute error of each mass."""
    left_out: float
    """Mass of counts below the first block."""

    def expectation(self, values: Floats) -> float:
        """Upper bound on the expected value of a function of the count that decreases with it."""
        return float((self.mass * values).sum()) + self.slack * float(values.sum())

    def coarsened(self, max_blocks: int) -> CloneCounts:
        """The same distribution with adjacent blocks merged into at most ``max_blocks``."""
        starts = np.arange(0, len(self.least), -(-len(self.least) // max_blocks))
        return replace(self, least=self.least[starts], mass=np.add.reduceat(self.mass, starts))


def _reach(counts: CloneCounts, cut: float) -> int:
    """A distance from its mean that Bin(clones, 1/2) exceeds with probability at most ``cut`` (Hoeffding)."""
    return math.ceil(math.sqrt(int(counts.least[-1]) * math.log(2 / cut) / 2)) + 2


@lru_cache(maxsize=8)
def clone_counts(
    clones: tuple[Binomial, ...],
    sure: int,
    cut: float,
    *,
    direct: bool = False,
    coarseness: float = _COARSENESS,
    blocks_per_deviation: int = _BLOCKS_PER_DEVIATION,
) -> CloneCounts:
    """The number of clones, of which counts of a total mass of at most ``cut`` per part are left out."""
    if not clones:
        return CloneCounts(np.array([sure]), np.array([1.0]), 0.0, 0.0)
    mean = sure + sum(part.mean for part in clones)
    deviation = math.sqrt(sum(part.variance for part in clones))
    step = max(1, min(int(mean * coarseness), int(deviation / blocks_per_deviation)) // len(clones))
    first, mass, slack, left_out = sure, np.array([1.0]), 0.0, 0.0
    for part in clones:
        start, part_mass, part_left_out = _blocks(part, step, cut)
        first += start
        left_out += part_left_out
        mass, slack = _convolved(mass, part_mass, slack, direct=direct)
    return CloneCounts(first + step * np.arange(len(mass)), mass, slack, left_out)


def _blocks(part: Binomial, step: int, cut: float) -> tuple[int, Floats, float]:
    """The start of the first block of ``step`` outcomes, bounds on the masses of blocks, and the mass below them."""
    first = part.least_with_lower_tail(cut / 4)
    last = part.trials - part.mirrored.least_with_lower_tail(_UPPER_CUT)
    nodes = np.arange(first, max(first, last) + 1, step, dtype=np.int64)
    error = part.tail_error(nodes)
    if step <= _LONGEST_SUM:
        points = nodes[0] + np.arange(len(nodes) * step)
        mass = part.pmf(points).reshape(-1, step).sum(axis=1) * (1 + error + step * 2.0**-52)
        mass[-1] = float(part.upper_tail(nodes[-1])) * (1 + error[-1])
    else:
        mass = _block_masses(part, nodes, error)
    return first, mass, cut if first > 0 else 0.0


def _block_masses(part: Binomial, nodes: Integers, error: Floats) -> Floats:
    """Pr[node <= N < next node], and Pr[N >= node] for the last node, as differences of the smaller tails."""
    below = nodes <= part.mean
    tail = np.concatenate((part.lower_tail(nodes[below] - 1), part.upper_tail(nodes[~below])))
    signed = np.append(np.where(below, tail, -tail), 0.0)
    crossing = np.append(below[:-1] & ~below[1:], below[-1])
    slack = tail * error
    mass: Floats = np.diff(signed) + crossing + slack + np.append(slack[1:], 0.0) + 2.0**-50 * crossing
    return positive_part(mass)


def _convolved(first: Floats, second: Floats, slack: float, *, direct: bool) -> tuple[Floats, float]:
    """The masses of a sum, and a bound on their absolute error besides relative rounding errors."""
    slack *= float(second.sum())
    if direct or len(first) * len(second) <= _DIRECT_PRODUCTS:
        return np.convolve(first, second) * (1 + 1e-12), slack
    size = len(first) + len(second) - 1
    length = 1 << (size - 1).bit_length()
    mass = np.fft.irfft(np.fft.rfft(first, length) * np.fft.rfft(second, length), length)[:size]
    # the error of a fast Fourier transform is a few times log2(length) units of the Euclidean norms
    error = 10 * math.log2(length) * 2.0**-53 * float(np.linalg.norm(first) * np.linalg.norm(second))
    return positive_part(mass), slack + error


def _edge(alpha: Dyadic, growth: float) -> tuple[float, float]:
    """alpha - e^epsilon (1 - alpha), the divergence without clones, and a bound on its rounding error."""
    own, other = float(alpha), growth * float(alpha.complement)
    return own - other, 2.0**-50 * (own + other)


def _two_types_delta(clones: Integers, alpha: Dyadic, growth: float) -> Floats:
    """Upper bound on the divergence, given the number of clones.

    Of t = clones + 1 messages, a are of the first type. The likelihood ratio increases with a and exceeds e^epsilon
    from a* on, so the divergence is, with A ~ Bin(clones, 1/2), (alpha - e^epsilon (1 - alpha)) Pr[A = a* - 1] -
    (e^epsilon - 1) Pr[A >= a*].
    """
    own, other = float(alpha), float(alpha.complement)
    share = (own - other / growth) / max((own - other) * (1 + 1 / growth), _TINIEST)
    turning = np.minimum(np.floor((clones + 1) * min(share, 2.0)), clones).astype(np.int64) + 1
    edge, edge_error = _edge(alpha, growth)
    error = 1e-12 + np.abs(turning - clones / 2) * 2.0**-46
    mass = fair_mass(turning - 1, clones)
    gained = (max(edge, 0.0) + edge_error) * mass
    paid = (growth - 1) * _fair_upper_tails(turning, clones, mass)
    return positive_part(gained * (1 + error) - paid * (1 - error))


def fair_mass(k: Integers, trials: Integers) -> Floats:
    """Pr[Bin(trials, 1/2) = k] for many numbers of trials, by the saddle point of Loader (2000)."""
    n = np.maximum(trials, 1)
    sides = np.stack((k, n - k))
    excess = k - n / 2
    log_mass = -deviance(sides, n / 2, np.stack((excess, -excess))).sum(axis=0)
    log_mass += stirling_error(n) - stirling_error(sides).sum(axis=0)
    product = np.maximum(sides[0], 1) * (np.maximum(sides[1], 1) / n)
    log_mass -= 0.5 * np.log(2 * math.pi * product) * (sides > 0).all(axis=0)
    mass: Floats = np.where(trials > 0, np.exp(log_mass), (k == 0).astype(np.float64))
    return mass


def fair_masses_near_half(trials: Integers, reach: int) -> Floats:
    """Pr[Bin(n, 1/2) = k] for k from n // 2 - reach - 1 to n // 2 + reach: one row per number n of trials.

    Only Pr[k = n // 2] is computed by itself: the quotient of successive masses is (n - k) / (k + 1), and masses at
    equal distances from n / 2 are equal. The relative error grows by at most 2^-52 per step.
    """
    middle = trials // 2
    k = middle[:, None] + np.arange(reach + 2, dtype=np.float64)
    upper = np.empty((len(trials), reach + 3))  # from k = n // 2 on
    upper[:, 0] = fair_mass(middle, trials)
    np.maximum((trials[:, None] - k) / (k + 1), 0.0, out=upper[:, 1:])  # 0 beyond n
    np.cumprod(upper, axis=1, out=upper)
    masses = np.empty((len(trials), 2 * reach + 2))
    masses[:, reach + 1 :] = upper[:, : reach + 1]
    for odd in (0, 1):  # k and n - k are n // 2 - i and n // 2 + i, plus 1 if n is odd
        rows = trials % 2 == odd
        masses[rows, : reach + 1] = upper[rows, reach + 1 + odd : odd : -1]
    return masses


def _fair_upper_tails(k: Integers, trials: Integers, mass: Floats) -> Floats:
    """Pr[Bin(trials, 1/2) >= k], where ``mass`` is Pr[Bin(trials, 1/2) = k - 1].

    For successive numbers of trials most tails follow from the preceding one:
    Pr[A' >= k] = Pr[A >= k] + mass / 2 with one more trial, minus Pr[A' = k] = mass (trials + 1) / (2 k) if k rises.
    """
    chunks = len(trials) // _CHUNK
    if chunks < 2 or trials[0] < _CHUNKS_FROM or trials[1] - trials[0] != 1:
        return fair_upper_tail(k, trials)
    full = chunks * _CHUNK
    rise = np.diff(k[:full], append=k[full - 1])
    step = (mass[:full] / 2 * (1 - rise * ((trials[:full] + 1) / k[:full]))).reshape(chunks, _CHUNK)
    tails = np.empty((chunks, _CHUNK))
    tails[:, 0] = fair_upper_tail(k[:full:_CHUNK], trials[:full:_CHUNK])
    tails[:, 1:] = tails[:, :1] + np.cumsum(step[:, :-1], axis=1)
    tails -= _CHUNK * 2.0**-52 * tails.max(axis=1, keepdims=True)  # round down: these tails are subtracted
    return np.concatenate((positive_part(tails.ravel()), fair_upper_tail(k[full:], trials[full:])))


def fair_upper_tail(k: Integers, trials: Integers) -> Floats:
    """Pr[Bin(trials, 1/2) >= k] for many numbers of trials; k is at least 1."""
    inner = np.clip(k, 1, np.maximum(trials, 1)).astype(np.float64)
    tail: Floats = np.where(k > trials, 0.0, betainc(inner, np.maximum(trials - inner + 1, 1.0), 0.5))
    return tail


def probability_at_most(value: float | Fraction, *, bits: int = 96) -> Dyadic:
    """A multiple of ``2**-bits`` that is <= ``value`` and exact as a float: the largest such probability."""
    if not 0 <= value <= 1:
        raise ParameterError(f"{value} is not a probability between 0 and 1.", value=value)
    scaled = Fraction(value) * (1 << bits)
    numerator = scaled.numerator // scaled.denominator
    excess = max(0, numerator.bit_length() - 53)
    return Dyadic(numerator >> excess << excess, bits)


def check_clones(users: int, local_epsilon: float) -> None:
    """Reject a number of users or a local epsilon outside the valid range."""
    check_number_of_users(users, max_users=_MAX_CLONES)
    check_local_epsilon(local_epsilon)


def clones_curve(users: int, local_epsilon: float) -> ClonesCurve:
    """The curve that bounds every local randomizer: each other user is a clone with probability e^-local_epsilon.

    Feldman, McMillan and Talwar (2021), in its numerical form. Valid for any randomizer that is local_epsilon-private
    on its own.
    """
    check_clones(users, local_epsilon)
    return fewest_clones(users - 1, math.exp(-local_epsilon) * (1 - 2.0**-50), local_epsilon)


def fewest_clones(others: int, rate: float | Fraction, local_epsilon: float, *, weight: float = 1.0) -> ClonesCurve:
    """Bin(others, rate) clones and alpha = 1/(1 + e^-local_epsilon), rounded so that privacy is not overstated."""
    alpha = min(1.0, 1 / (1 + math.exp(-local_epsilon)) * (1 + 2.0**-50))
    probability = probability_at_most(rate)
    if probability.numerator == 1 << probability.bits:
        return ClonesCurve((), alpha, weight, sure=others)
    has_clones = others > 0 and probability.numerator > 0
    return ClonesCurve((Binomial(min(others, MAX_TRIALS), probability),) if has_clones else (), alpha, weight)


def clones_delta(epsilon: float, users: int, local_epsilon: float) -> float:
    """Upper bound on delta of shuffling the reports of any local_epsilon-private randomizer."""
    return clones_curve(users, local_epsilon).delta_at(epsilon)


def clones_epsilon_closed_form(users: int, local_epsilon: float, delta: float) -> float:
    """Feldman, McMillan and Talwar (2021), closed form: epsilon after shuffling, for any randomizer.

    Condition: local_epsilon <= ln(users / (16 ln(2/delta))).
    """
    check_clones(users, local_epsilon)
    check_target(1.0, delta)
    ratio = math.exp(local_epsilon)
    if ratio > users / (16 * math.log(2 / delta)):
        largest = math.log(max(users / (16 * math.log(2 / delta)), 1e-300))
        raise ConditionError(
            f"The closed form needs local_epsilon <= ln(users / (16 ln(2/delta))) = {largest:.4g}; "
            f"given {local_epsilon:g} with {users:,} users. Use the numerical form, which has no such limit.",
            local_epsilon=local_epsilon,
            largest=largest,
        )
    spread = 8 * math.sqrt(ratio * math.log(4 / delta) / users) + 8 * ratio / users
    return math.log1p(math.tanh(local_epsilon / 2) * spread)


def revealed_clones_delta(epsilon: float, users: int, local_epsilon: float, distance: float) -> float:
    """Upper bound on delta for two values whose reports have this total variation distance.

    It is revealed whether a report is drawn from the common part of the two distributions; only other reports hide
    among clones. The bound is not monotone in the distance: evaluate it for every pair of values and take the largest.
    """
    check_clones(users, local_epsilon)
    largest = math.tanh(local_epsilon / 2)
    if not 0 <= distance <= largest * (1 + 1e-9):
        raise ParameterError(
            f"The distance must lie between 0 and {largest:.6g}, which local_epsilon = {local_epsilon:g} allows; "
            f"given {distance}.",
            distance=distance,
        )
    rate = min(distance, largest) / math.expm1(local_epsilon)
    weight = min(1.0, rate * (1 + math.exp(local_epsilon)) * (1 + 1e-12))
    curve = fewest_clones(users - 1, min(1.0, 2 * rate * (1 - 1e-12)), local_epsilon, weight=weight)
    return curve.delta_at(epsilon)
