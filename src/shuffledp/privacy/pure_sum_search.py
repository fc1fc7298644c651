"""Calibration of ``pure-sum``: the distribution of noisy reports with about the least error for a pure epsilon.

The probabilities of size/2 + 1/2, size/2 + 3/2, ... ones are a mixture of two decreasing sequences: one for the error,
whose first two terms are free and whose other terms are geometric, and a flat one of small mass. The flat one makes far
totals likely enough: there the ratio of probabilities grows unless the target's own noise covers it, which takes about
ln(users)/epsilon messages. Sequences, mass and probability of noise are found by a pattern search, starting from good
ones for a million users.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_number_of_users, check_positive_epsilon
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.privacy.pure_sum import PureSum
from shuffledp.privacy.pure_sum_slots import SlotCertificate
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Shape = tuple[float, float, float, float, float]
"""ln(p2/p1), ln(p3/p2), the decay from p3 on, ln of the mass of the flat sequence, the decay of that sequence."""

_STARTS: dict[float, Shape] = {  # by epsilon
    0.25: (0.441, -1.072, 0.466, -3.48, 0.151),
    0.5: (0.210, -1.244, 0.746, -5.05, 0.225),
    1.0: (0.329, -1.702, 1.333, -5.73, 0.368),
    2.0: (0.129, -2.707, 2.474, -5.45, 0.707),
    3.0: (0.052, -3.731, 3.769, -4.96, 1.079),
    4.0: (0.292, -5.014, 5.518, -1.79, 1.760),
    6.0: (1.712, -7.497, 7.644, -0.83, 2.919),
    8.0: (1.625, -7.348, 7.144, -0.90, 5.414),
}
_STEPS = (0.25, 0.25, 0.15, 1.0, 0.12)  # of a shape, those of decays relative to epsilon
_LEAST_STEP = 0.12  # relative to the first ones
_LEAST_TRIED, _MAX_TRIED = 40, 160
_WORK = 6_000  # shapes times the reach
_LEAST_WEIGHT = 2.0**-56
_MAX_MIX = 0.6
_MAX_NOISY = 80.0
_PRECISION = 1e-4  # relative, of the probability of noise
_PRECISION_IN_SEARCH = 2e-3
_MARGINS = (1.0, 1.0002, 1.001, 1.002, 1.004, 1.008, 1.015, 1.03, 1.06, 1.1, 1.2)  # more noise, for data of both values
_LEAST_EPSILON, _MAX_EPSILON = 0.25, 8.0
_MAX_USERS = 10**9  # with more, the guarantee of as many users holds
_FEW = 10  # up to as many users, several numbers of messages are tried


def least_error_sum(users: int, epsilon: float) -> PureSum:
    """Parameters with about the least error whose certified epsilon is at most the given one.

    They are for ``users`` users, or for 10^9 if there are more: further reports are independent of the replaced user's,
    so that the guarantee holds for more users too.
    """
    check_positive_epsilon(epsilon)
    check_number_of_users(users, min_users=2)
    if not _LEAST_EPSILON <= epsilon <= _MAX_EPSILON:
        raise InfeasibleError(
            f"Pure sums are calibrated for epsilon from {_LEAST_EPSILON:g} to {_MAX_EPSILON:g}, not {epsilon:g}.",
            epsilon=epsilon,
        )
    return _least_error_sum(min(int(users), _MAX_USERS), float(epsilon))


@lru_cache(maxsize=32)
def _least_error_sum(users: int, epsilon: float) -> PureSum:
    reach = _reach(users, epsilon)
    reaches = range(reach + 2) if users <= _FEW else (reach,)
    candidates = sorted(filter(None, (_best_noise(users, epsilon, tried) for tried in reaches)))
    for _, half in candidates:
        curve = _certified_curve(users, epsilon, np.array(half))
        if curve is not None:
            return curve
    raise InfeasibleError(
        f"{users:,} users are too few for pure privacy at epsilon = {epsilon:g}: each would have to draw noise with a "
        "probability above 1/2. Ask more users or allow a larger epsilon.",
        users=users,
        epsilon=epsilon,
    )


def _reach(users: int, epsilon: float) -> int:
    """How far from size/2 noisy numbers of ones are: enough that more would hardly lower the error."""
    size = math.log(users)
    return max(1, math.ceil((2.0 + 2.1 * size) / epsilon + 0.15 * max(0.0, size - 14.0)))


def _best_noise(users: int, epsilon: float, reach: int) -> tuple[float, tuple[float, ...]] | None:
    """The variance and the probabilities above size/2 of the best shape that is found; None if none is private."""
    tried: dict[Shape, tuple[float, tuple[float, ...]]] = {}

    def variance_of(shape: Shape) -> float:
        if shape not in tried:
            half = _probabilities(shape, reach)
            mix = _least_mix(SlotCertificate(users - 1, half), users, epsilon, _PRECISION_IN_SEARCH)
            tried[shape] = (math.inf, ()) if mix is None else (_variance(users, half, mix), tuple(half.tolist()))
        return tried[shape][0]

    best = min(_starts(epsilon), key=variance_of)
    step, limit = 1.0, min(max(_WORK // (reach + 1), _LEAST_TRIED), _MAX_TRIED)
    while step > _LEAST_STEP and len(tried) < limit:
        nearest = min(_neighbours(best, epsilon, step), key=variance_of)
        if variance_of(nearest) < variance_of(best) * (1 - 1e-6):
            best = nearest
        else:
            step /= 2
    return tried[best] if math.isfinite(variance_of(best)) else None


def _starts(epsilon: float) -> Iterator[Shape]:
    """Shapes to start with: an interpolated one, with its mass of the flat sequence and with larger ones."""
    keys = np.log(list(_STARTS))
    columns = np.array(list(_STARTS.values())).T
    first, second, decay, mass, slow = (float(np.interp(math.log(epsilon), keys, column)) for column in columns)
    for tried in (mass, -3.0, -1.5):
        yield first, second, decay, tried, slow


def _neighbours(shape: Shape, epsilon: float, step: float) -> Iterator[Shape]:
    for index, unit in enumerate(_STEPS):
        size = step * unit * (1.0 if index == 3 else epsilon)
        for sign in (1, -1):
            moved = list(shape)
            moved[index] += sign * size
            first, second, decay, mass, slow = moved
            yield first, second, max(decay, 0.0), min(mass, -0.3), max(slow, 0.0)


def _probabilities(shape: Shape, reach: int) -> Floats:
    """Probabilities of size/2 + 1/2, ..., size/2 + 1/2 + reach ones, which sum to 1/2."""
    second, third, decay, mass, slow = shape
    logarithms = np.concatenate(([0.0, second], second + third - decay * np.arange(reach + 1)))[: reach + 1]
    main, flat = np.exp(logarithms), np.exp(-slow * np.arange(reach + 1))
    mixture = (1 - math.exp(mass)) * main / main.sum() + math.exp(mass) * flat / flat.sum()
    enough = np.maximum(mixture, _LEAST_WEIGHT)
    half: Floats = enough / enough.sum() / 2
    return half


def _least_mix(certificate: SlotCertificate, users: int, epsilon: float, precision: float) -> float | None:
    """The least probability of noise with this epsilon if all others hold the same value; None if it is too large."""
    largest = min(_MAX_MIX, _MAX_NOISY / users)

    def enough(mix: float) -> bool:
        return certificate.epsilon(mix, ones=(0,)) <= epsilon

    low = high = min(1.5 / epsilon**2 / users, largest)
    if enough(high):
        while enough(low):
            low, high = low / 1.6, low
            if low * users < 1e-6:
                return None
    else:
        while not enough(high):
            if high >= largest:
                return None
            low, high = high, min(1.6 * high, largest)
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _variance(users: int, half: Floats, mix: float) -> float:
    spread = 2 * float(half @ (np.arange(len(half)) + 0.5) ** 2)
    return users * (mix * spread + mix * (1 - mix) / 4) / (1 - mix) ** 2


def _certified_curve(users: int, epsilon: float, half: Floats) -> PureSum | None:
    """The curve with about the least probability of noise that is certified for all data; None if there is none."""
    mix = _least_mix(SlotCertificate(users - 1, half), users, epsilon, _PRECISION)
    if mix is None:
        return None
    weights = [int(share * 2.0**64) for share in half]
    weights[0] += (1 << 63) - sum(weights)
    for margin in _MARGINS:
        if mix * margin > _MAX_MIX:
            break
        curve = PureSum(users, (*reversed(weights), *weights), Dyadic.at_least(mix * margin))
        try:
            if curve.certified_epsilon <= epsilon:
                return curve
        except ConditionError:
            continue
    return None
