"""Atoms of the noise of ``almost-central``: a few numbers that add up to 0 (Ghazi et al. 2021).

By repeated halving, a number i becomes 2^h numbers of two adjacent sizes at depth h. Each halving of a number is an
atom {i, -ceil(i/2), -floor(i/2)}, so i is a sum of integer multiples of atoms, and finally of "+1" and "-1".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shuffledp.errors import ParameterError

Move = tuple[int, int]
"""The reach of an atom, and the number of copies by which it is shifted."""

MAX_LEVELS = 1 << 14
_PARTS = 8  # shifts are rounded up to multiples of this fraction of the largest at their depth


@dataclass(frozen=True)
class Atom:
    """Numbers that add up to 0, the one with the largest absolute value first."""

    members: tuple[int, ...]
    reach: int
    """Bound on the number of copies by which replacing one user shifts this atom."""


def decomposition(message: int) -> Iterator[dict[int, int]]:
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
        halves: dict[int, int] = {}
        for size, copies in sizes.items():
            for half in (size // 2, size - size // 2):
                halves[half] = halves.get(half, 0) + copies
        sizes, sign = halves, -sign
    yield ends


@lru_cache(maxsize=32)
def atoms_of(levels: int) -> tuple[Atom, ...]:
    """All atoms that occur in a message 1 .. levels + 1, {+1, -1} first."""
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


def _members(leader: int) -> tuple[int, ...]:
    sign, size = (1, leader) if leader > 0 else (-1, -leader)
    return leader, -sign * (size - size // 2), -sign * (size // 2)


@lru_cache(maxsize=32)
def moves_by_depth(levels: int) -> tuple[tuple[tuple[Move, ...], ...], ...]:
    """Per depth, the shifts of one or two atoms that messages cause, without those that are dominated by others."""
    reaches = _reaches(levels)
    message = np.arange(2, levels + 2)
    by_depth = []
    for depth in range((levels + 1).bit_length()):
        size, remainder = message >> depth, message & ((1 << depth) - 1)
        unit = max(1, (1 << depth) // _PARTS)
        sign = 1 if depth % 2 == 0 else -1
        reach = np.array([0, 0, *(reaches.get(sign * leader, 0) for leader in range(2, (levels + 1 >> depth) + 2))])
        lower = np.where(size >= 2, (1 << depth) - remainder, 0)
        pairs = [
            (reach[leader], np.where(copies > 0, -(-copies // unit) * unit, 0))
            for leader, copies in ((size, lower), (size + 1, np.where(size >= 1, remainder, 0)))
        ]
        rows = np.unique(np.column_stack([column for pair in pairs for column in pair]), axis=0)
        moves = {tuple(sorted(move for move in ((a, b), (c, d)) if move[1])) for a, b, c, d in rows.tolist()}
        if moves := moves - {()}:
            by_depth.append(_largest_moves(moves))
    return tuple(by_depth)


def _largest_moves(candidates: set[tuple[Move, ...]]) -> tuple[tuple[Move, ...], ...]:
    """The candidates that no other dominates by having the same atoms, or more, and at least as many copies of each."""

    def is_dominated(small: tuple[Move, ...], large: tuple[Move, ...]) -> bool:
        padded = (*small, *((large[len(small) :]) if len(small) < len(large) else ()))
        return len(padded) == len(large) and all(
            one[0] == other[0] and one[1] <= other[1] for one, other in zip(padded, large, strict=True)
        )

    return tuple(
        sorted(one for one in candidates if not any(one != other and is_dominated(one, other) for other in candidates))
    )


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
