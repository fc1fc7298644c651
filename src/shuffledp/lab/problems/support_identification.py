"""Support identification: Definition 13 of Balcer and Cheu (2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shuffledp.errors import ParameterError
from shuffledp.lab.problems.problem import (
    MAX_LISTED_DIGITS,
    MAX_SUPPORT,
    check_index,
    check_integer,
    check_listed,
)
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.randomness.samplers import uniform_below
from shuffledp.shuffling import permute


@dataclass(frozen=True)
class SupportIdentification:
    """The (h, d)-problem: find the h items that users hold; items are the numbers from 0 to d - 1."""

    name: ClassVar[str] = "support"

    support_size: int
    size: int
    """The number of items in the domain, d in the paper, of any size."""

    def __post_init__(self) -> None:
        check_integer("The size of the support (h)", self.support_size, maximum=MAX_SUPPORT)
        check_integer("The size of the domain (d)", self.size)
        if self.support_size > self.size:
            raise ParameterError(
                f"A support of h = {self.support_size:,} items does not fit a domain of d = {self.size:,}; "
                "h may be at most d.",
                support_size=self.support_size,
                domain_size=self.size,
            )

    @property
    def needed(self) -> int:
        """All items of the support determine the answer."""
        return self.support_size

    @property
    def log_domain_size(self) -> float:
        """ln d."""
        return math.log(self.size)

    @property
    def domain_size(self) -> int | None:
        """d, if it has at most twenty digits."""
        return self.size if self.size < 10**MAX_LISTED_DIGITS else None

    def parameters(self) -> dict[str, int]:
        """h and d."""
        return {"support_size": self.support_size, "domain_size": self.size}

    def describe(self) -> str:
        """A short description of the problem."""
        return f"support identification with h = {self.support_size:,}"

    def instance(self, source: RandomSource = SYSTEM) -> SupportInstance:
        """A uniformly random support."""
        return SupportInstance(self, _uniform_subset(self.size, self.support_size, source))

    def random_item(self, source: RandomSource = SYSTEM) -> int:
        """A uniform item of the domain."""
        return uniform_below(self.size, source)

    def item(self, index: int) -> int:
        """Items are their own indices."""
        check_index(index, check_listed(self))
        return index

    def index(self, item: int) -> int:
        """Items are their own indices."""
        check_index(item, check_listed(self))
        return item


@dataclass(frozen=True)
class SupportInstance:
    """A support, to be identified."""

    problem: SupportIdentification
    support: tuple[int, ...]

    def __post_init__(self) -> None:
        distinct = set(self.support)
        if len(distinct) != len(self.support) or len(distinct) != self.problem.support_size:
            raise ParameterError(
                f"A support needs {self.problem.support_size:,} different items; "
                f"given {len(self.support):,}, of which {len(distinct):,} are distinct."
            )
        for extreme in (min(distinct), max(distinct)):
            check_index(extreme, self.problem.size)

    @property
    def answer(self) -> tuple[int, ...]:
        """The support in increasing order."""
        return tuple(sorted(self.support))

    def answer_from(self, reported: Sequence[int]) -> tuple[int, ...] | None:
        """The reported items, if their number is h."""
        items = sorted(set(reported))
        return tuple(items) if len(items) == self.problem.support_size else None


def _uniform_subset(bound: int, number: int, source: RandomSource) -> tuple[int, ...]:
    """A uniform set of ``number`` different integers below the bound."""
    if bound <= 4 * number:
        everything = np.arange(bound)
        permute(everything, source)
        return tuple(sorted(everything[:number].tolist()))
    chosen: set[int] = set()
    while len(chosen) < number:
        chosen.add(uniform_below(bound, source))
    return tuple(sorted(chosen))
