"""Atoms of the noise of ``almost-central``: a few numbers that add up to 0 (Ghazi et al. 2021).

By repeated division into p parts, a number i becomes p^h numbers of two adjacent sizes at depth h. Each division of a
number is an atom, {i, -ceil(i/2), -floor(i/2)} for two parts, so i is a sum of integer multiples of atoms, and finally
of "+1" and "-1". Version 1 of the noise has two parts, as published.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shuffledp.errors import ParameterError

Decomposition = tuple[tuple[tuple[tuple[int, int], ...], ...], tuple[int, int]]

MAX_LEVELS = 1 << 14


@dataclass(frozen=True)
class Atom:
    """Numbers that add up to 0, the one with the largest absolute value first."""

    members: tuple[int, ...]
    reach: int
    """Bound on the number of copies by which replacing one user shifts this atom."""
    factor: float = 1.0
    """Relative to the step of the noise: an atom of large messages that are never the worst has less noise."""


def decomposition(message: int, parts: int = 2) -> Iterator[dict[int, int]]:
    """Yield, per depth, the number of copies of each atom in the message, by leading number; last, the "+1" and "-1".

    The last item is {1: n_+, -1: n_-}, such that e_message = sum of copies * atom + n_+ e_1 - n_- e_-1, where atoms
    with a negative leading number are subtracted.
    """
    sizes, sign = {message: 1}, 1
    ends = {1: 0, -1: 0}
    while sizes:
        ends[sign] += sizes.pop(1, 0)
        if sizes:
            yield {sign * size: copies for size, copies in sizes.items()}
        smaller: dict[int, int] = {}
        for size, copies in sizes.items():
            for part in _divided(size, parts):
                smaller[part] = smaller.get(part, 0) + copies
        sizes, sign = smaller, -sign
    yield ends


@lru_cache(maxsize=8)
def decompositions(levels: int, parts: int) -> tuple[Decomposition, ...]:
    """Of every message from 1 to levels + 1: per depth the leading numbers and their copies, and n_+ and n_-."""
    listed = []
    for message in range(1, levels + 2):
        *depths, ends = decomposition(message, parts)
        listed.append((tuple(tuple(copies.items()) for copies in depths), (ends[1], ends[-1])))
    return tuple(listed)


def signed(leader: int, copies: int) -> int:
    """By how many copies adding the message shifts the atom: an atom with a negative leading number is subtracted."""
    return copies if leader > 0 else -copies


def _divided(size: int, parts: int) -> list[int]:
    """A number as that many numbers of two adjacent sizes, without zeros, the larger ones first."""
    quotient, remainder = divmod(size, parts)
    return [quotient + 1] * remainder + [quotient] * (parts - remainder if quotient else 0)


@lru_cache(maxsize=32)
def atoms_of(levels: int) -> tuple[Atom, ...]:
    """All atoms of version 1 that occur in a message 1 .. levels + 1, {+1, -1} first."""
    check_levels(levels)
    reaches = _reaches(levels)
    others = [Atom(_members(leader), reach) for leader, reach in sorted(reaches.items())]
    return (Atom((1, -1), max_ends(levels)), *others)


@lru_cache(maxsize=32)
def _reaches(levels: int) -> dict[int, int]:
    """For each leading number, 2^h with h the greatest depth at which it occurs; signs alternate with the depth."""
    reaches: dict[int, int] = {}
    largest = levels + 1
    for depth in range(largest.bit_length()):
        # at this depth, message m consists of the sizes m >> depth and, if there is a remainder, (m >> depth) + 1
        largest_size = (largest - 1 >> depth) + 1
        for size in range(2, largest_size + 1):
            reaches[size if depth % 2 == 0 else -size] = 1 << depth
    return reaches


def max_ends(levels: int) -> int:
    """The largest number of "+1" or of "-1" in the decomposition of a message."""
    message = np.arange(1, levels + 2)
    depth = np.frexp(message)[1] - 1  # at this depth sizes are 1 (an end) or 2 (two ends at the next depth)
    remainder = message - (1 << depth)
    return int(np.maximum((1 << depth) - remainder, 2 * remainder).max())


@lru_cache(maxsize=32)
def graded_atoms(levels: int, parts: int, slope: float, widest: float) -> tuple[Atom, ...]:
    """All atoms of messages 1 .. levels + 1 that are divided into so many parts, {+1, -1} first.

    The reach is the largest number of copies in a message. A message allows the factor min(1 + slope d / levels,
    widest), where d is the least distance of its group from the nearer end; an atom of which it has only a fraction of
    the reach may have a larger factor in proportion. The factor of an atom is the least over all messages that have
    it, rounded down to one of a group. Only sums, products and quotients of doubles occur, so that every machine finds
    the same factors.
    """
    check_levels(levels)
    listed = decompositions(levels, parts)
    largest: dict[int, int] = {}
    for depths, _ in listed:
        for leader, n in itertools.chain(*depths):
            largest[leader] = max(largest.get(leader, 0), n)
    allowed = dict.fromkeys(largest, widest)
    values = {widest}
    for first, last in groups_of(levels):
        factor = min(1 + slope * min(first - 1, levels + 1 - last) / levels, widest)
        values.add(factor)
        for depths, _ in listed[first - 1 : last]:
            for leader, n in itertools.chain(*depths):
                allowed[leader] = min(allowed[leader], factor * largest[leader] / n)
    steps = sorted(values)
    others = [
        Atom(_members(leader, parts), reach, max(step for step in steps if step <= allowed[leader]))
        for leader, reach in sorted(largest.items())
    ]
    return (Atom((1, -1), max(max(ends) for _, ends in listed)), *others)


@lru_cache(maxsize=32)
def groups_of(levels: int) -> tuple[tuple[int, int], ...]:
    """First and last message of each group, by the distance from the nearer end: 0, 1, 2, 3, 4 .. 5, 6 .. 8, ..."""
    half = levels // 2
    groups, start = [], 0
    while start <= half:
        end = start + max(1, start // 2) - 1
        groups.append((1 + start, min(1 + end, 1 + half)))
        if levels - start > half:
            groups.append((max(levels + 1 - end, half + 2), levels + 1 - start))
        start = end + 1
    return tuple(sorted(groups))


def _members(leader: int, parts: int = 2) -> tuple[int, ...]:
    sign, size = (1, leader) if leader > 0 else (-1, -leader)
    return leader, *(-sign * part for part in _divided(size, parts))


def tolerances(levels: int) -> list[int]:
    """For each atom except {+1, -1}, t_s inverse to its size, such that copies_s / t_s sum to at most 1 per message."""
    largest = 0
    for message in range(2, levels + 2):
        *depths, _ = decomposition(message)
        largest = max(largest, sum(abs(leader) * n for copies in depths for leader, n in copies.items()))
    return [-(-largest // abs(atom.members[0])) for atom in atoms_of(levels)[1:]]


def check_levels(levels: int) -> None:
    """Reject a number of levels outside 1 to 2^14."""
    if not 1 <= levels <= MAX_LEVELS:
        raise ParameterError(f"Levels must lie between 1 and {MAX_LEVELS:,}, not {levels}.", levels=levels)
