"""Privacy accounting of ``pure-sum``: the certified epsilon of a binary sum with delta = 0.

Each user sends ``size`` bits, size odd: (size - 1)/2 + x ones or, with probability ``mix``, a number of ones drawn
from a distribution that is symmetric about size/2 (Ghazi, Golowich, Kumar, Manurangsi, Pagh and Velingker 2020). The
analyzer sees the total number T of ones. Every T is possible under both values of the target, so delta is 0 and epsilon
is the logarithm of the largest ratio of its two probabilities. ``pure_sum_search`` chooses the distribution.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.pure import PureCurve, log_ratio_above
from shuffledp.privacy.pure_sum_slots import SlotCertificate
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain

Extended = NDArray[np.longdouble]

MAX_ENUMERATED = 250
"""Up to as many users, the exact distribution of T is also computed as a whole, and the lower bound counts."""

MAX_WEIGHTS = 640
"""Maximum number of weights, which bounds the work of a certificate; a few users may send more messages."""

_BITS = 64
_CELLS = 4  # initial number of ranges of K, over half of its values
_PARTS = 3
_REFINEMENTS = 4
_MAX_OUTCOMES = 4_900  # users times weights; the time of enumeration grows with its square
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
        if self.users < 2:
            raise ParameterError(f"At least 2 users are needed, not {self.users:,}.", users=self.users)
        if len(self.weights) > max(MAX_WEIGHTS, _MAX_OUTCOMES // self.users if self.users <= MAX_ENUMERATED else 0):
            raise ParameterError(
                f"{len(self.weights) - 1:,} messages per user are too many to certify; {self.users:,} users may send "
                f"at most {MAX_WEIGHTS - 1:,}.",
                users=self.users,
            )
        if len(self.weights) % 2 or min(self.weights, default=0) < 1 or sum(self.weights) != 1 << _BITS:
            raise ParameterError("The weights must be positive, an even number of them, and sum to 2^64.")
        if self.weights != self.weights[::-1]:
            raise ParameterError("The weights must be symmetric.")
        check_uncertain("mix", self.mix)

    @property
    def _can_be_enumerated(self) -> bool:
        """Whether T has few enough outcomes, none of which underflows in the extended precision of this machine."""
        if self.users > MAX_ENUMERATED or self.users * len(self.weights) > _MAX_OUTCOMES:
            return False
        least = self.users * (math.log2(float(self.mix)) + math.log2(min(self.weights)) - _BITS)
        return least >= np.finfo(np.longdouble).minexp + 64

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
        """Upper bound on the pure epsilon, for every number K of ones that the others hold."""
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
    """The lower one of two upper bounds, the second of which is for few users only."""
    half = np.array(curve.weights[len(curve.weights) // 2 :], dtype=np.float64) / 2.0**_BITS
    bound = SlotCertificate(curve.users - 1, half).epsilon(float(curve.mix))
    bound = min(bound, _enumerated(curve)) if curve._can_be_enumerated else bound
    if not bound < math.inf:
        raise ConditionError(
            f"No epsilon can be certified for {curve.users:,} users who draw noise with probability "
            f"{float(curve.mix):.3g}. Use more noise, or more messages per user.",
            users=curve.users,
        )
    return bound


def _enumerated(curve: PureSum) -> float:
    """Upper bound on epsilon by the whole distribution of T.

    The values of K are divided into cells. Within a cell, the reports of users whose value depends on K are revealed;
    the worst cells are subdivided. K ones are the mirror image of users - 1 - K ones.
    """
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
