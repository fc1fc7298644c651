"""Parallel composition: releases about disjoint groups of users, whose membership is public.

A user is in one group, and the releases about the other groups do not depend on the user's value. So all releases
together have the worst of their guarantees, not the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shuffledp.errors import ParameterError
from shuffledp.privacy.guarantee import WITHIN_GROUP, Guarantee, PrivacyCurve


@dataclass(frozen=True)
class WorstCurve:
    """The largest delta of several curves at each epsilon: a privacy curve again, as a maximum of convex functions."""

    curves: tuple[PrivacyCurve, ...]

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy."""
        deltas = [curve.delta_at(epsilon) for curve in self.curves]
        return float("nan") if any(delta != delta for delta in deltas) else max(deltas)


def in_parallel(guarantees: Iterable[Guarantee]) -> Guarantee:
    """The guarantee of releases about disjoint groups of users, one per group; users stay in their groups.

    ``users`` and ``honest_users`` are those of the group that needs the fewest; each group needs its own number.
    """
    distinct = list({id(guarantee.curve): guarantee for guarantee in guarantees}.values())
    if not distinct:
        raise ParameterError("A guarantee of groups needs at least one group.")
    for field in ("trust", "neighbours", "releases"):
        if len({getattr(guarantee, field) for guarantee in distinct}) > 1:
            raise ParameterError(f"The guarantees of groups must agree in their {field}.")
    first = min(distinct, key=lambda guarantee: guarantee.users)
    if first.neighbours not in WITHIN_GROUP.values():
        raise ParameterError(f"Parallel composition needs neighbours within a group, not {first.neighbours}.")
    if len(distinct) == 1:
        return first
    theorems = list(dict.fromkeys(guarantee.theorem for guarantee in distinct))
    return replace(
        first,
        epsilon=max(guarantee.epsilon for guarantee in distinct),
        delta=max(guarantee.delta for guarantee in distinct),
        honest_users=min(guarantee.honest_users for guarantee in distinct),
        curve=WorstCurve(tuple(guarantee.curve for guarantee in distinct)),
        theorem=f"parallel composition over groups; {'; '.join(theorems)}",
        local_epsilon=max(guarantee.local_epsilon for guarantee in distinct),
    )
