"""Exact divergence of shuffled reports by enumeration: for bits, and for any channel with few users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.checks import check_number_of_users
from shuffledp.errors import ParameterError
from shuffledp.privacy.amplification.multisets import Numbering, check_enumerable, data_set_pmfs, extended
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

_CUT = 1e-40


def check_channel(channel: ArrayLike) -> Floats:
    """The matrix whose row x is the distribution of the report on value x, or a ParameterError."""
    rows = np.asarray(channel, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] < 1:
        raise ParameterError("A channel is a matrix with one row for each value.", shape=rows.shape)
    if not (rows >= 0).all() or not np.allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-9):
        raise ParameterError("Each row of a channel must be a distribution: at least 0, and 1 in total.")
    return rows


def local_epsilon_of(channel: ArrayLike) -> float:
    """The least epsilon at which the channel is private on its own; infinite if there is none."""
    rows = check_channel(channel)
    rows = rows[:, rows.max(axis=0) > 0]
    with np.errstate(divide="ignore"):
        return float(np.log(rows.max(axis=0) / rows.min(axis=0)).max())


def response_channel(values: int, blanket: float | Dyadic) -> Floats:
    """The channel that sends a uniformly random value with probability ``blanket``, else the true one."""
    probability = float(blanket)
    return np.full((values, values), probability / values) + (1 - probability) * np.eye(values)


def two_response_delta(users: int, flip: float | Dyadic, epsilon: float, *, ones: int | None = None) -> float:
    """The exact delta of shuffled randomized response on bits, each flipped with probability ``flip``.

    ``ones`` of the others hold a 1; by default all numbers are tried and the worst is used.
    """
    check_number_of_users(users)
    if not 0 <= float(flip) <= 0.5:
        raise ParameterError(f"The flip probability must lie between 0 and 1/2, not {flip}.", flip=flip)
    if ones is not None and not 0 <= ones < users:
        raise ParameterError(f"Between 0 and {users - 1} other users can hold a 1, not {ones}.", ones=ones)
    probability = Dyadic.of(flip)
    # by symmetry, k ones among the others are equivalent to users - 1 - k
    cases = range((users - 1) // 2 + 1) if ones is None else (ones,)
    return max(_two_response_delta(users, probability, epsilon, k) for k in cases)


def _two_response_delta(users: int, flip: Dyadic, epsilon: float, ones: int) -> float:
    pair = _two_response_pair(users, flip, ones)
    return max(pair.delta(epsilon), pair.reversed.delta(epsilon))


@lru_cache(maxsize=512)
def _two_response_pair(users: int, flip: Dyadic, ones: int) -> DiscretePair:
    """The distributions of the number of reported ones if the target holds a 1, and if it holds a 0."""
    others, cut = _sum_of(_window(ones, flip.complement), _window(users - 1 - ones, flip))
    true, flipped = float(flip.complement), float(flip)
    without, shifted = np.append(others, 0.0), np.append(0.0, others)
    return DiscretePair(flipped * without + true * shifted, true * without + flipped * shifted, cut)


def _window(trials: int, probability: Dyadic) -> tuple[Floats, float]:
    """The non-negligible masses of a binomial distribution, and the mass that is left out."""
    if trials == 0 or probability.numerator in (0, 1 << probability.bits):
        return np.array([1.0]), 0.0
    curve = Binomial(trials, probability)
    first = curve.least_with_lower_tail(_CUT)
    last = trials - curve.mirrored.least_with_lower_tail(_CUT)
    return curve.pmf(np.arange(first, last + 1)), 0.0 if (first, last) == (0, trials) else 4 * _CUT


def _sum_of(first: tuple[Floats, float], second: tuple[Floats, float]) -> tuple[Floats, float]:
    return np.convolve(first[0], second[0]), first[1] + second[1]


def exact_delta(channel: ArrayLike, users: int, epsilon: float, *, others: Sequence[int] | None = None) -> float:
    """The exact delta of shuffling the reports of a finite channel, for few users.

    The worst over all values of the other users (or with those given) and all replaced values.
    """
    rows = check_channel(channel)
    check_number_of_users(users)
    if others is not None and len(others) != users - 1:
        raise ParameterError(
            f"{users} users are the target and {users - 1} others, not {len(others)}.", users=users, others=len(others)
        )
    values, outputs = rows.shape
    check_enumerable(
        users=users,
        values=values,
        outcomes=math.comb(users + outputs - 1, users),
        data_sets_compared=math.comb(users + values - 2, users - 1) if others is None else 1,
    )
    numbering = Numbering(outputs, users)
    reports = [{numbering.number((y,)): share for y, share in enumerate(row.tolist()) if share} for row in rows]
    if others is None:
        curves = list(data_set_pmfs(reports, users - 1).values())
    else:
        curves = [reduce(extended, (reports[value] for value in others), {0: 1.0})]
    worst = 0.0
    for curve in curves:
        with_target = [extended(curve, report) for report in reports]
        for first, second in permutations(with_target, 2):
            # multisets that are impossible under the first value contribute nothing
            mass = np.array(list(first.values()))
            pair = DiscretePair(mass, np.array([second.get(key, 0.0) for key in first]))
            worst = max(worst, pair.delta(epsilon))
    return worst
