"""Pointer chasing PC(k, l): Definition 15 of Balcer and Cheu (2020).

Every user independently holds (1, a) or (2, b) with probability 1/2 each, where a and b are permutations of 1 .. l.
The answer is the k-th number of a_1, b_{a_1}, a_{b_{a_1}}, ... There are 2 l! possible items, but the support has only
two: with the Balcer-Cheu histogram the number of samples depends on neither k nor l. For k = 2, non-interactive local
protocols need a number of samples that grows with l (Joseph, Mao and Roth 2020).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.errors import ParameterError
from shuffledp.lab.problems.problem import MAX_LISTED_DIGITS, check_index, check_integer, check_listed
from shuffledp.randomness import SYSTEM, RandomSource, bernoulli
from shuffledp.randomness.dyadic import Dyadic
from shuffledp.shuffling import permute

_MAX_LENGTH = 1 << 27
_HALF = Dyadic(1, 1)


@dataclass(frozen=True, eq=False)
class TaggedPermutation:
    """An item: the tag 1 or 2, and a permutation of 1 .. l. Items are compared by value."""

    tag: int
    permutation: NDArray[np.uint32]

    def __post_init__(self) -> None:
        if self.tag not in (1, 2):
            raise ParameterError(f"An item of pointer chasing has the tag 1 or 2, not {self.tag!r}.", tag=self.tag)
        object.__setattr__(self, "permutation", _checked(self.permutation))

    def at(self, position: int) -> int:
        """The number at a position, counted from 1."""
        return int(self.permutation[position - 1])

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.blake2b(self.permutation.data, digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaggedPermutation):
            return NotImplemented
        return self.tag == other.tag and np.array_equal(self.permutation, other.permutation)

    def __hash__(self) -> int:
        return hash((self.tag, self._digest))


@dataclass(frozen=True)
class PointerChasing:
    """The problem PC(k, l)."""

    name: ClassVar[str] = "pointer-chasing"
    support_size: ClassVar[int] = 2

    steps: int
    """The position of the answer in the sequence, k in the paper."""
    length: int
    """The length of the permutations, l in the paper."""

    def __post_init__(self) -> None:
        check_integer("The number of steps (k)", self.steps)
        check_integer("The length of the permutations (l)", self.length)

    @property
    def needed(self) -> int:
        """The number of needed items: for k = 1 the answer is a_1, so the second permutation is not needed."""
        return 1 if self.steps == 1 else 2

    @property
    def log_domain_size(self) -> float:
        """ln(2 l!)."""
        return math.log(2) + math.lgamma(self.length + 1)

    @property
    def domain_size(self) -> int | None:
        """2 l!, if it has at most twenty digits."""
        size = 2 * math.factorial(self.length) if self.length <= MAX_LISTED_DIGITS else 10**MAX_LISTED_DIGITS
        return size if size < 10**MAX_LISTED_DIGITS else None

    def parameters(self) -> dict[str, int]:
        """k and l."""
        return {"steps": self.steps, "length": self.length}

    def describe(self) -> str:
        """A short description of the problem."""
        return f"pointer chasing with k = {self.steps:,} and l = {self.length:,}"

    def instance(self, source: RandomSource = SYSTEM) -> PointerChasingInstance:
        """Two uniformly random permutations."""
        first, second = (self._random_permutation(source) for _ in range(2))
        return PointerChasingInstance(self, TaggedPermutation(1, first), TaggedPermutation(2, second))

    def instance_of(self, first: ArrayLike, second: ArrayLike) -> PointerChasingInstance:
        """The instance of two given permutations of 1 .. l."""
        return PointerChasingInstance(
            self, TaggedPermutation(1, np.asarray(first)), TaggedPermutation(2, np.asarray(second))
        )

    def random_item(self, source: RandomSource = SYSTEM) -> TaggedPermutation:
        """A uniform item of the domain."""
        tag = 1 + int(bernoulli(_HALF, 1, source)[0])
        return TaggedPermutation(tag, self._random_permutation(source))

    def item(self, index: int) -> TaggedPermutation:
        """The item with this index: by tag, then in lexicographic order of the permutations."""
        check_index(index, check_listed(self))
        tag, rank = divmod(index, math.factorial(self.length))
        left, permutation = list(range(1, self.length + 1)), []
        for remaining in range(self.length - 1, -1, -1):
            position, rank = divmod(rank, math.factorial(remaining))
            permutation.append(left.pop(position))
        return TaggedPermutation(tag + 1, np.array(permutation))

    def index(self, item: TaggedPermutation) -> int:
        """The index of an item: by tag, then in lexicographic order of the permutations."""
        check_listed(self)
        left, rank = list(range(1, self.length + 1)), 0
        for remaining, value in zip(range(self.length - 1, -1, -1), item.permutation.tolist(), strict=True):
            position = left.index(value)
            left.pop(position)
            rank += position * math.factorial(remaining)
        return (item.tag - 1) * math.factorial(self.length) + rank

    def _random_permutation(self, source: RandomSource) -> NDArray[np.uint32]:
        if self.length > _MAX_LENGTH:
            raise ParameterError(
                f"Permutations of {self.length:,} numbers do not fit the memory; l can be at most {_MAX_LENGTH:,}.",
                length=self.length,
            )
        permutation = np.arange(1, self.length + 1, dtype=np.uint32)
        permute(permutation, source)
        return permutation


@dataclass(frozen=True)
class PointerChasingInstance:
    """Two permutations."""

    problem: PointerChasing
    first: TaggedPermutation
    second: TaggedPermutation

    def __post_init__(self) -> None:
        if (self.first.tag, self.second.tag) != (1, 2):
            raise ParameterError(f"The tags must be 1 and 2, not {self.first.tag} and {self.second.tag}.")
        for item in self.support:
            if len(item.permutation) != self.problem.length:
                raise ParameterError(
                    f"Permutations must have length l = {self.problem.length:,}; got {len(item.permutation):,}."
                )

    @property
    def support(self) -> tuple[TaggedPermutation, TaggedPermutation]:
        """(1, a) and (2, b)."""
        return self.first, self.second

    @property
    def answer(self) -> int:
        """The k-th number of the sequence."""
        return _chase(self.first, self.second, self.problem.steps)

    def answer_from(self, reported: Sequence[TaggedPermutation]) -> int | None:
        """The answer, if exactly one item of each needed tag was reported; else None."""
        firsts, seconds = ({item for item in reported if item.tag == tag} for tag in (1, 2))
        if len(firsts) != 1:
            return None
        if self.problem.steps == 1:
            return firsts.pop().at(1)
        if len(seconds) != 1:
            return None
        return _chase(firsts.pop(), seconds.pop(), self.problem.steps)


def _chase(first: TaggedPermutation, second: TaggedPermutation, steps: int) -> int:
    """The k-th number: two steps together are a permutation, so the sequence of every second number is a cycle."""
    rounds, single = divmod(steps - 1, 2)
    cycle = [first.at(1)]
    while len(cycle) <= rounds:
        following = first.at(second.at(cycle[-1]))
        if following == cycle[0]:
            break
        cycle.append(following)
    reached = cycle[rounds % len(cycle)]
    return second.at(reached) if single else reached


def _checked(permutation: NDArray[Any]) -> NDArray[np.uint32]:
    """A read-only copy of a permutation of 1 .. l; anything else is rejected."""
    values = np.asarray(permutation)
    if values.ndim != 1 or len(values) < 1 or values.dtype.kind not in "iu":
        raise ParameterError(
            f"A permutation must be a one-dimensional array of integers, not {values.dtype} of shape {values.shape}."
        )
    inside = bool(values.min() >= 1) and bool(values.max() <= len(values))
    seen = np.zeros(len(values) + 1, dtype=np.bool_)
    if inside:
        seen[values] = True
    if not inside or not seen[1:].all():
        raise ParameterError(f"These {len(values):,} numbers are not a permutation of 1 .. {len(values):,}.")
    fixed = np.array(values, dtype=np.uint32)
    fixed.flags.writeable = False
    return fixed
