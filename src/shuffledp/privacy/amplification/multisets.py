"""Enumeration of multisets: the distribution of shuffled messages as exact counts of each message.

A multiset is represented by one integer whose digits are the numbers of copies of each message, so that the union of
multisets is a sum of integers. Weights are integers (exact, over a common denominator) or floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeVar

from shuffledp.errors import ParameterError

MAX_ENUMERATED_USERS = 1_000_000
MAX_OUTCOMES = 2_000_000
"""Maximum number of outcomes to compare: about two seconds and a few hundred megabytes."""

Weight = TypeVar("Weight", int, float)


@dataclass(frozen=True)
class Numbering:
    """A one-to-one numbering of the multisets of at most ``max_messages`` messages of ``kinds`` kinds."""

    kinds: int
    max_messages: int

    def number(self, messages: Iterable[int]) -> int:
        """The number of a multiset, given as its messages by kind."""
        return sum((self.max_messages + 1) ** kind for kind in messages)

    def messages(self, number: int) -> tuple[int, ...]:
        """The messages of a multiset by kind, in order."""
        messages: list[int] = []
        for kind in range(self.kinds):
            number, copies = divmod(number, self.max_messages + 1)
            messages += [kind] * copies
        return tuple(messages)


def extended(pmf: Mapping[int, Weight], report: Mapping[int, Weight]) -> dict[int, Weight]:
    """The distribution of the multiset with one more, independent report."""
    result: dict[int, Weight] = {}
    for sent, probability in report.items():
        for seen, mass in pmf.items():
            joined = seen + sent
            result[joined] = result.get(joined, 0) + mass * probability
    return result


def data_sets(values: int, users: int) -> Iterable[tuple[int, ...]]:
    """All data sets, up to the order of the users."""
    return combinations_with_replacement(range(values), users)


def data_set_pmfs(reports: Sequence[Mapping[int, Weight]], users: int) -> dict[tuple[int, ...], dict[int, Weight]]:
    """The pmf of the shuffled messages of every data set, where ``reports[x]`` is the distribution of a report on x."""
    pmfs: dict[tuple[int, ...], dict[int, Weight]] = {(): {0: 1}}
    for size in range(1, users + 1):
        pmfs = {data: extended(pmfs[data[:-1]], reports[data[-1]]) for data in data_sets(len(reports), size)}
    return pmfs


def check_enumerable(*, users: int, values: int, outcomes: int, data_sets_compared: int | None = None) -> None:
    """Reject an enumeration that would take too long.

    By default every data set of ``users - 1`` others is tried with every ordered pair of different values.
    """
    if data_sets_compared is None:
        data_sets_compared = math.comb(users + values - 2, users - 1) * values * (values - 1)
    if outcomes * data_sets_compared > MAX_OUTCOMES:
        raise ParameterError(
            f"{users:,} users and {values:,} values make {outcomes * data_sets_compared:,} outcomes to enumerate, "
            f"more than {MAX_OUTCOMES:,}. Use fewer users or values, or an upper bound.",
            outcomes=outcomes * data_sets_compared,
            limit=MAX_OUTCOMES,
        )
