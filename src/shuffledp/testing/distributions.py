"""Exact distributions of small rounds by enumeration, with which protocols are compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON
from shuffledp.errors import ParameterError
from shuffledp.protocols.protocol import Pmf

_LARGEST_TABLE = 3_000_000


@dataclass(frozen=True)
class Alphabet:
    """An encoding of multisets of messages as integers, in which addition is union.

    A multiset has one digit in base ``base`` per code of a message: its number of copies.
    """

    codes: int
    base: int

    def __post_init__(self) -> None:
        if self.codes * math.log2(self.base) >= 62:
            raise ParameterError(
                f"Up to {self.base - 1} copies of {self.codes:,} messages are too many outcomes to enumerate; "
                "use fewer users or a smaller domain."
            )

    @property
    def weights(self) -> NDArray[np.int64]:
        """The integer of one copy of each code."""
        return self.base ** np.arange(self.codes, dtype=np.int64)

    def number(self, copies: Sequence[int]) -> int:
        """The integer of a multiset given as copies of each code."""
        return sum(int(count) * self.base**code for code, count in enumerate(copies))

    def codes_of(self, number: int) -> NDArray[np.int64]:
        """The codes of the messages of a multiset, in increasing order."""
        copies = (number // self.weights) % self.base
        return np.repeat(np.arange(self.codes), copies)

    def size(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of messages of each multiset."""
        sizes: NDArray[np.int64] = ((numbers[:, None] // self.weights) % self.base).sum(axis=1)
        return sizes


@dataclass(frozen=True, eq=False)
class Table:
    """A distribution over numbered outcomes, in increasing order; ``missing`` is the mass of a tail left out."""

    outcomes: NDArray[np.int64]
    masses: NDArray[np.float64]

    @classmethod
    def of(cls, pmf: Pmf, alphabet: Alphabet) -> Table:
        """The table of a protocol's pmf of reports."""
        outcomes = np.array([alphabet.number(copies) for copies in pmf], dtype=np.int64)
        return cls._collected(outcomes, np.array([float(share) for share in pmf.values()]))

    @classmethod
    def _collected(cls, outcomes: NDArray[np.int64], masses: NDArray[np.float64]) -> Table:
        distinct, positions = np.unique(outcomes, return_inverse=True)
        total: NDArray[np.float64] = np.bincount(positions, weights=masses, minlength=len(distinct)).astype(np.float64)
        return cls(distinct[total > 0], total[total > 0])

    @property
    def missing(self) -> float:
        """One minus the sum of the masses."""
        return max(0.0, 1 - math.fsum(self.masses))

    def plus(self, other: Table) -> Table:
        """The distribution of two independent multisets joined."""
        if len(self.outcomes) * len(other.outcomes) > _LARGEST_TABLE:
            raise ParameterError("The protocol is too large to enumerate; use fewer users or a smaller domain.")
        outcomes = (self.outcomes[:, None] + other.outcomes).ravel()
        return Table._collected(outcomes, np.outer(self.masses, other.masses).ravel())

    @classmethod
    def joined(cls, reports: Sequence[Table]) -> Table:
        """The distribution of the shuffled messages of several users, whose reports are independent."""
        total = cls(np.zeros(1, dtype=np.int64), np.ones(1))
        for report in reports:
            total = total.plus(report)
        return total


def divergence(first: Mapping[Any, Any], second: Mapping[Any, Any], epsilon: float) -> float:
    """A lower bound on the hockey-stick divergence of the first distribution from the second.

    If tails of the second were left out, outcomes that it lacks are ignored.
    """
    return divergences(first, second, [epsilon])[0]


def divergences(first: Mapping[Any, Any], second: Mapping[Any, Any], epsilons: Sequence[float]) -> list[float]:
    """The divergence at each epsilon."""
    complete = math.fsum(float(share) for share in second.values()) > 1 - 1e-13
    outcomes = [outcome for outcome in first if complete or outcome in second]
    shares = np.array([float(first[outcome]) for outcome in outcomes])
    other_shares = np.array([float(second.get(outcome, 0.0)) for outcome in outcomes])
    return [math.fsum(_excess(shares, other_shares, epsilon).tolist()) for epsilon in epsilons]


def _excess(shares: NDArray[np.float64], other_shares: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    if epsilon > LARGEST_EPSILON:  # e^epsilon times any double above 0 is taken to exceed 1
        return np.where(other_shares > 0, 0.0, shares)
    return np.maximum(shares - math.exp(epsilon) * other_shares, 0.0)


def neighbours(values: Sequence[Any], users: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """All pairs of data sets that differ in one user's value, up to the order of the users."""
    for others in combinations_with_replacement(values, users - 1):
        for first in values:
            for second in values:
                if first != second:
                    yield (first, *others), (second, *others)
