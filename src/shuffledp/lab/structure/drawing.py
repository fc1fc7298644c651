"""Exact sampling from finite distributions with rational probabilities."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from shuffledp.randomness import RandomSource
from shuffledp.randomness.samplers import uniform_below

Outcome = TypeVar("Outcome", bound=Hashable)
Item = TypeVar("Item")


def draw_from(pmf: Mapping[Outcome, Fraction], source: RandomSource) -> Outcome:
    """One outcome, drawn with exactly its probability; the probabilities sum to one."""
    denominator = math.lcm(*(probability.denominator for probability in pmf.values()))
    remaining = uniform_below(denominator, source)
    for outcome, probability in pmf.items():
        remaining -= probability.numerator * (denominator // probability.denominator)
        if remaining < 0:
            return outcome
    raise AssertionError("the probabilities sum to less than one")


def permuted(items: Sequence[Item], source: RandomSource) -> tuple[Item, ...]:
    """The items in a uniformly random order (Fisher and Yates)."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = uniform_below(last + 1, source)
        order[last], order[other] = order[other], order[last]
    return tuple(order)
