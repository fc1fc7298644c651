"""Exact laws of small rounds, by enumeration: the oracle that a protocol is held against."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

__all__ = ["Law", "divergence", "neighbours", "tally_law"]

Law = Mapping[tuple[int, ...], Fraction]
"""From how often each message value occurs to the probability of that."""


def tally_law(reports: Sequence[Law]) -> Law:
    """The law of the shuffled messages of several users, whose reports are independent."""
    total: Law = {(0,) * len(next(iter(reports[0]))): Fraction(1)}
    for report in reports:
        longer: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for seen, share in total.items():
            for sent, probability in report.items():
                longer[tuple(a + b for a, b in zip(seen, sent, strict=True))] += share * probability
        total = longer
    return total


def divergence(first: Law, second: Law, epsilon: float) -> Fraction:
    """The exact hockey-stick divergence of the first law from the second."""
    growth, nothing = Fraction(math.exp(epsilon)), Fraction(0)
    return sum((max(share - growth * second.get(seen, nothing), nothing) for seen, share in first.items()), nothing)


def neighbours(domain_size: int, users: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of data sets that differ in one user's value, up to the order of the users."""
    for others in combinations_with_replacement(range(domain_size), users - 1):
        for first in range(domain_size):
            for second in range(domain_size):
                if first != second:
                    yield (first, *others), (second, *others)
