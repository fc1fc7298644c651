"""Amplification by shuffling: Erlingsson et al. (2019), for every randomizer, also with adaptive interaction."""

from __future__ import annotations

import math

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError
from shuffledp.privacy.amplification.clones import check_clones


def erlingsson_epsilon(users: int, local_epsilon: float, delta: float) -> float:
    """Erlingsson et al. (2019): epsilon after shuffling.

    Infinite if the bound overflows. It can exceed local_epsilon, which also holds after shuffling.
    """
    check_clones(users, local_epsilon)
    check_target(1.0, delta)
    per_user = 2 * math.exp(min(2 * local_epsilon, 700.0)) * math.expm1(min(local_epsilon, 350.0)) / users
    if per_user > 300:
        return math.inf
    return per_user * math.sqrt(2 * users * math.log(1 / delta)) + users * per_user * math.expm1(per_user)


def erlingsson_simple_epsilon(users: int, local_epsilon: float, delta: float) -> float:
    """Erlingsson et al. (2019), simple form: 12 local_epsilon sqrt(ln(1/delta) / users).

    Conditions: users >= 1000, local_epsilon < 1/2, delta < 1/100.
    """
    check_clones(users, local_epsilon)
    check_target(1.0, delta)
    conditions = (
        (users >= 1000, f"users >= 1000; given {users:,}"),
        (local_epsilon < 0.5, f"local_epsilon < 1/2; given {local_epsilon:g}"),
        (delta < 0.01, f"delta < 1/100; given {delta:g}"),
    )
    for holds, condition in conditions:
        if not holds:
            raise ConditionError(
                f"The simple form needs {condition}. Use the clones bound, which always holds.",
                users=users,
                local_epsilon=local_epsilon,
                delta=delta,
            )
    return 12 * local_epsilon * math.sqrt(math.log(1 / delta) / users)
