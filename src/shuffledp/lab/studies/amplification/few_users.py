"""Comparison of amplification bounds with the exact delta of many channels, by enumeration for few users."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError
from shuffledp.lab.studies.amplification.lower_bounds import other_value_delta, two_users_delta
from shuffledp.lab.studies.checks import Check, at_least
from shuffledp.lab.studies.study import Settings
from shuffledp.privacy.amplification import (
    blanket_delta,
    clones_delta,
    exact_delta,
    response_channel,
    revealed_clones_delta,
    stronger_clones_delta,
)
from shuffledp.privacy.amplification.exact import local_epsilon_of
from shuffledp.randomness import RandomSource, draw_words

Floats = NDArray[np.float64]

_BOUNDS = ("clones", "stronger-clones", "blanket of the channel", "clones of the channel")
"""The bounds that are not trivial for few users; closed forms and concentration inequalities are."""
_ROUNDING = 1e-8
_NEGLIGIBLE = 1e-13
"""A smaller delta is rounding error, so ratios to it are meaningless."""
EXAMPLE_USERS = 5

COUNTEREXAMPLE = np.array([[0.37, 0.08, 0.3, 0.25], [0.08, 0.37, 0.3, 0.25], [0.15, 0.15, 0.08, 0.62]])
"""A channel outside the class for which stronger clones are proved; the first two values are compared."""


@dataclass(frozen=True)
class _Case:
    family: str
    channel: Floats
    users: int


def channel_rows(settings: Settings) -> list[dict[str, Any]]:
    """For channels of several families and few users: the exact delta, and all bounds proved for the channel."""
    cases = list(_cases(settings))
    rows = []
    for case in settings.steps(cases, [case.channel.size for case in cases]):
        local = local_epsilon_of(case.channel)
        for epsilon in settings.pick((0.2,), (0.05, 0.3, 0.8, 1.5)):
            if epsilon < local:
                start = {"family": case.family, "users": case.users, "local_epsilon": local, "epsilon": epsilon}
                exact = exact_delta(case.channel, case.users, epsilon)
                rows.append(start | {"exact": exact} | _bounds(case.channel, case.users, epsilon, local))
    return rows


def _cases(settings: Settings) -> Iterator[_Case]:
    for values, users in settings.pick([(3, 4)], [(2, 5), (3, 2), (3, 5), (4, 3)]):
        for blanket in settings.pick((0.3,), (0.1, 0.4, 0.8)):
            yield _Case("randomized response", response_channel(values, blanket), users)
    for bits, users in settings.pick([(2, 3)], [(2, 2), (2, 4), (3, 3)]):
        for own_one in settings.pick((0.5,), (0.5, 0.75)):
            yield _Case("unary", unary_channel(bits, own_one, 0.2), users)
    for number in range(settings.pick(3, 50)):
        shape = 2 + number % 2, 3 + number % 2
        yield _Case("random", _random_channel(*shape, settings.source), 2 + number % 3)


def unary_channel(values: int, own_one: float, other_one: float) -> Floats:
    """One bit per value: the bit of the user's value is 1 with probability ``own_one``, others with ``other_one``."""
    outputs = (np.arange(1 << values)[:, None] >> np.arange(values)) & 1
    ones = np.where(np.eye(values, dtype=bool), own_one, other_one)
    rows: Floats = np.where(outputs[None], ones[:, None], 1 - ones[:, None]).prod(axis=2)
    return rows


def _random_channel(values: int, outputs: int, source: RandomSource) -> Floats:
    """A random channel in which each value changes the likelihood of each output by one of three factors."""
    base = -np.log1p(-_uniform((outputs,), source)) + 0.02
    strength = 0.5 + 2.5 * float(_uniform((1,), source)[0])
    rows = base * np.exp(strength * np.floor(3 * _uniform((values, outputs), source)) / 4)
    rows[0, 0] *= 1.2  # no two rows alike
    normal: Floats = rows / rows.sum(axis=1, keepdims=True)
    return normal


def _uniform(shape: tuple[int, ...], source: RandomSource) -> Floats:
    words = draw_words(math.prod(shape), np.uint64, source) >> np.uint64(11)
    return words.astype(np.float64).reshape(shape) * 2.0**-53


def _bounds(channel: Floats, users: int, epsilon: float, local: float) -> dict[str, float | None]:
    """The bounds for any channel with this local epsilon, for this channel, and by stronger clones if they hold."""
    try:
        stronger: float | None = stronger_clones_delta(epsilon, users, channel)
    except ConditionError:
        stronger = None
    return {
        "clones": clones_delta(epsilon, users, local),
        "blanket of the channel": blanket_delta(channel, users, epsilon),
        "clones of the channel": max(
            revealed_clones_delta(epsilon, users, local, float(np.abs(row - other).sum() / 2))
            for number, row in enumerate(channel)
            for other in channel[:number]
        ),
        "stronger-clones": stronger,
    }


def few_user_checks(rows: list[dict[str, Any]]) -> list[Check]:
    """For each bound and family of channels: the least ratio of the bound to the exact delta is at least 1."""
    checks = []
    for name in _BOUNDS:
        for family in dict.fromkeys(row["family"] for row in rows):
            chosen = [row for row in rows if row["family"] == family and row[name] is not None]
            ratios = [(row[name] + _NEGLIGIBLE) / (row["exact"] + _NEGLIGIBLE) for row in chosen]
            if ratios:
                checks.append(
                    at_least(
                        f"{name} is not below the exact delta",
                        f"{family} channels, {min(row['users'] for row in chosen)} to "
                        f"{max(row['users'] for row in chosen)} users",
                        min(ratios),
                        1 - _ROUNDING,
                        evidence=f"the least ratio of {len(ratios):,}; the exact delta by enumeration of all multisets",
                    )
                )
    return checks


def example_rows(settings: Settings) -> list[dict[str, Any]]:
    """Two channels in detail: one of the class of stronger clones, and one outside it."""
    points = settings.pick(5, 13)
    inside = response_channel(3, 0.4)
    local, outside_local = local_epsilon_of(inside), local_epsilon_of(COUNTEREXAMPLE)
    rows: list[dict[str, Any]] = []
    for epsilon in np.linspace(0.05, 0.9 * local, points).tolist():
        bounds = _bounds(inside, EXAMPLE_USERS, epsilon, local)
        exact = exact_delta(inside, EXAMPLE_USERS, epsilon)
        rows.append({"example": "inside", "epsilon": epsilon, "exact": exact} | bounds)
    ratio = math.exp(outside_local)
    rate = float(np.abs(COUNTEREXAMPLE[0] - COUNTEREXAMPLE[1]).sum() / 2) / (ratio - 1)
    for epsilon in np.linspace(0.9, 0.98 * outside_local, points).tolist():
        pairs = [two_users_delta(COUNTEREXAMPLE, epsilon, value=0, neighbour=1, other=other) for other in range(3)]
        rows.append(
            {
                "example": "outside",
                "epsilon": epsilon,
                "exact": max(pairs),
                "clones": clones_delta(epsilon, 2, outside_local),
                "clones of the channel": revealed_clones_delta(epsilon, 2, outside_local, rate * (ratio - 1)),
                "2023, from the distance": other_value_delta(epsilon, 2, ratio, rate),
            }
        )
    return rows
