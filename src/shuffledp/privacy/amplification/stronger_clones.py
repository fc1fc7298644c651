"""Amplification by stronger clones: Feldman, McMillan and Talwar (2023), only where the theorems are proved.

As published, the theorems do not hold for every local randomizer (see the errata of the paper). They do hold if
R(z)(y) >= (R(x)(y) + R(x')(y)) / (e^local_epsilon + 1) for all values and reports: then each other user is a clone with
probability 2/(e^local_epsilon + 1). Randomized response and all channels on two values satisfy this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.amplification.clones import ClonesCurve, check_clones, fewest_clones
from shuffledp.privacy.amplification.exact import check_channel, local_epsilon_of

_ROUNDING = 1e-12


@dataclass(frozen=True)
class RandomizedResponse:
    """Declares that the channel is randomized response, on any number of values; it is not checked."""

    local_epsilon: float


def check_restriction(channel: ArrayLike | RandomizedResponse) -> float:
    """The local epsilon of a channel that stronger clones are proved for; ConditionError for others."""
    if isinstance(channel, RandomizedResponse):
        return channel.local_epsilon
    rows = check_channel(channel)
    local_epsilon = local_epsilon_of(rows)
    if len(rows) < 2 or local_epsilon == 0:
        raise ParameterError("All rows of the channel are equal: its reports do not depend on the value.")
    if not math.isfinite(local_epsilon):
        raise ConditionError(
            "Stronger clones need a channel that is private on its own; some value cannot produce some output.",
            local_epsilon=local_epsilon,
        )
    order = np.argsort(rows, axis=0)
    columns = np.arange(rows.shape[1])
    needed = (rows[order[-1], columns] + rows[order[-2], columns]) / (math.exp(local_epsilon) + 1)
    least = rows[order[0], columns]
    missing = needed * (1 - _ROUNDING) > least
    if missing.any():
        y = int(np.argmax(np.where(missing, needed - least, -1.0)))
        x, other, z = int(order[-1, y]), int(order[-2, y]), int(order[0, y])
        raise ConditionError(
            f"Stronger clones need R(z)(y) >= (R(x)(y) + R(x')(y)) / (e^local_epsilon + 1) for all x, x', z, y; "
            f"x = {x}, x' = {other}, z = {z}, y = {y} give {least[y]:.6g} < {needed[y]:.6g}. "
            "Use the clones of 2021, which hold for every channel.",
            x=x,
            other=other,
            z=z,
            y=y,
            least=float(least[y]),
            needed=float(needed[y]),
        )
    return local_epsilon


def stronger_clones_curve(users: int, channel: ArrayLike | RandomizedResponse) -> ClonesCurve:
    """The curve in which each other user is a clone with probability 2/(e^local_epsilon + 1)."""
    local_epsilon = check_restriction(channel)
    check_clones(users, local_epsilon)
    small = math.exp(-local_epsilon)
    return fewest_clones(users - 1, 2 * small / (1 + small) * (1 - 2.0**-50), local_epsilon)


def stronger_clones_delta(epsilon: float, users: int, channel: ArrayLike | RandomizedResponse) -> float:
    """Upper bound on delta of shuffling the reports of a channel that passes ``check_restriction``."""
    return stronger_clones_curve(users, channel).delta_at(epsilon)


def stronger_clones_epsilon_closed_form(users: int, channel: ArrayLike | RandomizedResponse, delta: float) -> float:
    """Feldman, McMillan and Talwar (2023), closed form, for a channel that passes ``check_restriction``.

    Condition: local_epsilon <= ln(users / (8 ln(2/delta)) - 1).
    """
    local_epsilon = check_restriction(channel)
    check_clones(users, local_epsilon)
    check_target(1.0, delta)
    ratio, largest_ratio = math.exp(local_epsilon), users / (8 * math.log(2 / delta)) - 1
    if ratio > largest_ratio:
        raise ConditionError(
            f"The closed form needs e^local_epsilon <= users / (8 ln(2/delta)) - 1 = {largest_ratio:.4g}; "
            f"given {ratio:.4g} with {users:,} users. Use the numerical form, which has no such limit.",
            local_epsilon=local_epsilon,
            largest_ratio=largest_ratio,
        )
    spread = 4 * math.sqrt(2 * math.log(4 / delta) / ((ratio + 1) * users)) + 4 / users
    return math.log1p(math.expm1(local_epsilon) * spread)
