"""Privacy accounting of ``pure-sum``: the certified epsilon of a binary sum with delta = 0.

Each user sends ``size`` bits, size odd: (size - 1)/2 + x ones or, with probability ``mix``, a number of ones drawn
from a distribution that decreases on both sides of size/2 (Ghazi, Golowich, Kumar, Manurangsi, Pagh and Velingker
2020). The analyzer sees the total number T of ones. Every T is possible under both values of the target, so delta is 0
and epsilon is the logarithm of the largest ratio of its two probabilities.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon, check_number_of_users, check_positive_epsilon
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.pure import PureCurve, log_ratio_above
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain
from shuffledp.search import bisect

Extended = NDArray[np.longdouble]

MAX_USERS = 250
"""Maximum number of users; for more, the exact table of T takes too long."""

_BITS = 64
_CELLS = 4  # initial number of ranges of K, over half of its values
_PARTS = 3
_REFINEMENTS = 4
_FEW = 40  # users in the first, rough search
_DECAYS = (0.75, 0.82, 0.88, 0.93)  # to try, as multiples of epsilon
_NOISE_FACTORS = (1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
_MAX_MIX = 0.6
_MAX_OUTCOMES = 4_600
_MAX_CERTIFIED = 1 << 14  # users times weights; the time of certification grows with its square
_LEAST_EPSILON, _MAX_EPSILON = 0.25, 8.0
_SAFE = 1e-9  # relative; sums of positive terms in extended precision are far more accurate


def falling_weights(size: int, decay: float) -> tuple[int, ...]:
    """Weights over 2^64 of 0 .. size ones, symmetric and close to e^(-decay |z - size/2|)."""
    if size < 1 or size % 2 == 0:
        raise ParameterError(f"The number of messages must be odd and positive, not {size}.", size=size)
    if not 0 < decay < 40:
        raise ParameterError(f"The decay must lie between 0 and 40, not {decay}.", decay=decay)
    half = [math.exp(-decay * step) for step in range((size + 1) // 2)]  # from the middle outwards
    total = math.fsum(half)
    weights = [int(share / total * 2 ** (_BITS - 1)) for share in half]
    weights[0] += 2 ** (_BITS - 1) - sum(weights)
    if weights[-1] < 1:
        raise ParameterError(
            f"The outermost of {size} messages would never be drawn at decay {decay}.", size=size, decay=decay
        )
    return (*reversed(weights), *weights)


@dataclass(frozen=True)
class PureSum:
    """``users`` honest users, the weights over 2^64 of the noisy number of ones, and the probability of drawing it."""

    users: int
    weights: tuple[int, ...]
    mix: Dyadic

    def __post_init__(self) -> None:
        if not 2 <= self.users <= MAX_USERS:
            raise ParameterError(
                f"Between 2 and {MAX_USERS} users can be certified, not {self.users:,}.", users=self.users
            )
        if self.users * len(self.weights) > _MAX_CERTIFIED:
            raise ParameterError(
                f"{self.users:,} users with {len(self.weights) - 1:,} messages each have too many outcomes to certify: "
                f"users times (messages + 1) must be at most {_MAX_CERTIFIED:,}.",
                users=self.users,
            )
        if len(self.weights) % 2 or min(self.weights, default=0) < 1 or sum(self.weights) != 1 << _BITS:
            raise ParameterError("The weights must be positive, an even number of them, and sum to 2^64.")
        if self.weights != self.weights[::-1]:
            raise ParameterError("The weights must be symmetric.")
        check_uncertain("mix", self.mix)
        least = self.users * (math.log2(float(self.mix)) + math.log2(min(self.weights)) - _BITS)
        if least < np.finfo(np.longdouble).minexp + 64:
            raise ParameterError(
                f"Some outcomes of {self.users:,} users underflow in the extended precision of this machine.",
                users=self.users,
            )

    @property
    def size(self) -> int:
        """Number of messages per user."""
        return len(self.weights) - 1

    @property
    def local_epsilon(self) -> float:
        """The epsilon of one report without shuffling."""
        noisy = self.mix.numerator * self.weights[self.size // 2]
        return log_ratio_above(noisy + (self.mix.complement.numerator << _BITS), noisy)

    @property
    def certified_epsilon(self) -> float:
        """Upper bound on the pure epsilon, for every number K of ones that the others hold.

        The values of K are divided into cells. Within a cell, the reports of users whose value depends on K are
        revealed; the worst cells are subdivided. K ones are the mirror image of users - 1 - K ones.
        """
        return _certified(self)

    @property
    def variance(self) -> float:
        """The variance of the unbiased estimate of the sum."""
        mix = float(self.mix)
        spread = sum(w * (z - self.size / 2) ** 2 for z, w in enumerate(self.weights)) / 2.0**_BITS
        return self.users * (mix * spread + mix * (1 - mix) / 4) / (1 - mix) ** 2

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta: the largest delta of any mechanism with this pure epsilon."""
        check_epsilon(epsilon)
        return PureCurve(self.certified_epsilon).delta_at(epsilon)


@lru_cache(maxsize=64)
def _certified(curve: PureSum) -> float:
    others = curve.users - 1
    half = others // 2  # larger K are mirror images; the cells may extend past the middle
    edges = np.unique(np.arange(_CELLS + 1) * (half + 1) // _CELLS).tolist()
    worst_first = [(-_cell_epsilon(curve, start, others - end + 1), start, end) for start, end in pairwise(edges)]
    heapq.heapify(worst_first)
    for _ in range(_REFINEMENTS):
        _, start, end = worst_first[0]
        if end - start == 1:
            break  # exact: the epsilon at a single K
        heapq.heappop(worst_first)
        for a, b in pairwise(np.unique(start + np.arange(_PARTS + 1) * (end - start) // _PARTS).tolist()):
            heapq.heappush(worst_first, (-_cell_epsilon(curve, a, others - b + 1), a, b))
    return -worst_first[0][0] * (1 + _SAFE) + _SAFE


def _cell_epsilon(curve: PureSum, ones: int, zeros: int) -> float:
    """The largest |ln(ratio)| over all T, if ``ones`` and ``zeros`` of the other users hold a 1 and a 0."""
    alone = _power(curve.weights, curve.mix, 1)
    noise = np.convolve(_power(curve.weights, curve.mix, zeros), _power(curve.weights, curve.mix, ones)[::-1])
    without, with_one = np.convolve(noise, alone), np.convolve(noise, alone[::-1])
    return float(np.abs(np.log(with_one) - np.log(without)).max())


@lru_cache(maxsize=256)
def _power(weights: tuple[int, ...], mix: Dyadic, users: int) -> Extended:
    """The distribution of the number of ones of ``users`` users who hold a 0, computed with positive terms only."""
    if users == 0:
        return np.ones(1, dtype=np.longdouble)
    if users == 1:
        curve = np.array(weights, dtype=np.longdouble) / np.longdouble(2) ** _BITS * np.longdouble(float(mix))
        curve[len(weights) // 2 - 1] += np.longdouble(float(mix.complement))
        return curve
    half = users // 2
    return np.convolve(_power(weights, mix, half), _power(weights, mix, users - half))


def least_error_sum(users: int, epsilon: float) -> PureSum:
    """Parameters with about the least error whose certified epsilon is at most the given one.

    The probability of noise and its decay are searched with fewer users at K = 0, where epsilon is about the same. Then
    the distribution of all users is certified, with increasing noise until the target is met.
    """
    check_positive_epsilon(epsilon)
    check_number_of_users(users, min_users=2)
    if users > MAX_USERS:
        raise InfeasibleError(
            f"Pure privacy is certified for up to {MAX_USERS} users, not {users:,}: the work for the exact table of "
            "outcomes grows with the square of their number. Choose a protocol with a delta.",
            users=users,
        )
    if not _LEAST_EPSILON <= epsilon <= _MAX_EPSILON:
        raise InfeasibleError(
            f"Pure sums are calibrated for epsilon from {_LEAST_EPSILON:g} to {_MAX_EPSILON:g}, not {epsilon:g}.",
            epsilon=epsilon,
        )
    if users * _messages(users, epsilon) > _MAX_OUTCOMES:
        raise InfeasibleError(
            f"Pure privacy of {users:,} users at epsilon = {epsilon:g} would take tables of more than "
            f"{_MAX_OUTCOMES:,} outcomes to certify. Allow a larger epsilon or choose a protocol with a delta.",
            users=users,
            epsilon=epsilon,
        )
    return _least_error_sum(int(users), float(epsilon))


@lru_cache(maxsize=32)
def _least_error_sum(users: int, epsilon: float) -> PureSum:
    few = min(users, _FEW)
    candidates = [noise for share in _DECAYS if (noise := _least_noisy_users(few, share * epsilon, epsilon))]
    for noisy, decay in sorted(candidates, key=_spread):
        for factor in _NOISE_FACTORS:
            mix = noisy * factor / users
            if mix >= _MAX_MIX:
                break
            curve = PureSum(users, falling_weights(_messages(users, decay), decay), Dyadic.at_least(mix))
            # K = 0 is fast to check, and usually the worst
            if _cell_epsilon(curve, 0, users - 1) <= epsilon and curve.certified_epsilon <= epsilon:
                return curve
    raise InfeasibleError(
        f"{users:,} users are too few for pure privacy at epsilon = {epsilon:g}: each would have to draw noise with a "
        "probability above 1/2. Ask more users or allow a larger epsilon.",
        users=users,
        epsilon=epsilon,
    )


def _spread(noise: tuple[float, float]) -> float:
    """Approximate variance: the number of noisy users times that of a two-sided geometric distribution."""
    noisy, decay = noise
    ratio = math.exp(-decay)
    return noisy * (2 * ratio / (1 - ratio) ** 2 + 0.25)


def _least_noisy_users(users: int, decay: float, epsilon: float) -> tuple[float, float] | None:
    """The least expected number of users who draw noise such that K = 0 meets epsilon, and the decay."""
    weights = falling_weights(_messages(users, decay), decay)

    def enough(noisy: float) -> bool:
        return _cell_epsilon(PureSum(users, weights, Dyadic.at_least(noisy / users)), 0, users - 1) <= epsilon

    low, high = 0.0, min(1.0, _MAX_MIX * users)
    while not enough(high):
        low, high = high, min(1.6 * high, _MAX_MIX * users)
        if low == high:
            return None
    return bisect(enough, low, high, steps=7), decay


def _messages(users: int, decay: float) -> int:
    """An odd number of messages, large enough that truncating the noise hardly matters."""
    return 2 * math.ceil(max(2.5, 4.5 + 2.6 * math.log(users / 100)) / decay) + 1
