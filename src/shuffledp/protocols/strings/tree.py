"""The tree of tree-blanket: scrambled words of strings, their prefixes per level, and the buckets of these.

Everything here is public and the same for every party; privacy does not depend on it. Scrambling makes the prefixes of
different strings independent, whatever they have in common.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Strings
from shuffledp.errors import ParameterError

Limbs = NDArray[np.uint64]
"""Words as rows of 64-bit limbs, the least significant first."""

MAX_LEVELS = 256
_LABEL = b"shuffledp tree-blanket 1\0"
_ROUNDS = 4
_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64 (Steele, Lea and Flood 2014)


@dataclass(frozen=True)
class StringTree:
    """The cells of every string of a domain: on each level, the bucket of a prefix of its scrambled word."""

    domain: Strings
    buckets: int
    levels: int
    tail: int
    first_bits: int
    seed: int

    def __post_init__(self) -> None:
        if not 2 <= self.buckets < 1 << 32:
            raise ParameterError(f"buckets must be from 2 to 2^32 - 1, not {self.buckets:,}.", buckets=self.buckets)
        if not 1 <= self.levels <= MAX_LEVELS:
            raise ParameterError(f"levels must be from 1 to {MAX_LEVELS}, not {self.levels:,}.", levels=self.levels)
        if not 0 <= self.tail < self.levels:
            raise ParameterError(f"tail must be from 0 to below {self.levels} levels, not {self.tail}.", tail=self.tail)
        if not 1 <= self.first_bits <= 24:
            raise ParameterError(f"first_bits must be from 1 to 24, not {self.first_bits}.", first_bits=self.first_bits)
        if not 0 <= self.seed <= _MASK:
            raise ParameterError(f"The seed must be an integer of 64 bits, not {self.seed}.", seed=self.seed)

    def depths(self, length: int) -> tuple[int, ...]:
        """The number of bits of a word that each level covers, for strings of this length."""
        return self._depths[length]

    @cached_property
    def _depths(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self._depths_of(self.domain.word_bits(length)) for length in range(self.domain.max_length + 1))

    def _depths_of(self, bits: int) -> tuple[int, ...]:
        first, last = min(bits, self.first_bits), self.levels - self.tail - 1
        if last == 0:
            return (bits,) * self.levels
        return tuple(first + -(-(bits - first) * min(level, last) // last) for level in range(self.levels))

    def limbs(self, length: int) -> int:
        """The number of 64-bit limbs of a word."""
        return max(1, -(-self.domain.word_bits(length) // 64))

    def scramble(self, length: int, number: int) -> int:
        """The word of the string with this number among those of its length (an unbalanced Feistel network)."""
        bits = self.domain.word_bits(length)
        right_bits = bits - bits // 2
        halves = [number >> right_bits, number & ((1 << right_bits) - 1)]
        for turn in range(_ROUNDS):
            halves[turn % 2] ^= self._round(length, turn, halves[1 - turn % 2])
        return halves[0] << right_bits | halves[1]

    def unscramble(self, length: int, word: int) -> int:
        """The inverse of ``scramble``; the number may be too large for a string of this length."""
        bits = self.domain.word_bits(length)
        right_bits = bits - bits // 2
        halves = [word >> right_bits, word & ((1 << right_bits) - 1)]
        for turn in reversed(range(_ROUNDS)):
            halves[turn % 2] ^= self._round(length, turn, halves[1 - turn % 2])
        return halves[0] << right_bits | halves[1]

    def _round(self, length: int, turn: int, half: int) -> int:
        """The bits that one round adds to the other half."""
        bits = self.domain.word_bits(length)
        width = bits // 2 if turn % 2 == 0 else bits - bits // 2
        content = half.to_bytes(-(-bits // 8), "big")
        digest = hashlib.sha256(
            _LABEL + self.seed.to_bytes(8, "big") + length.to_bytes(2, "big") + bytes([turn]) + content
        ).digest()
        return int.from_bytes(digest, "big") >> (256 - width)

    def word(self, index: int) -> tuple[int, int]:
        """The length and the scrambled word of the string with this index."""
        length, number = self.domain.length_and_number(index)
        return length, self.scramble(length, number)

    def string_index(self, length: int, word: int) -> int | None:
        """The index of the string with this word; None if there is none."""
        number = self.unscramble(length, word)
        if number >= self.domain.class_size(length):
            return None
        return self.domain.index_of(length, number)

    def key(self, length: int, level: int) -> int:
        """The start of the hash of a prefix."""
        return _mixed((self.seed + GOLDEN * (1 + length * self.levels + level)) & _MASK)

    def bucket_of(self, length: int, level: int, prefixes: Limbs) -> NDArray[np.int64]:
        """The bucket of each prefix on a level."""
        return hashed_buckets(self.key(length, level), prefixes, self.buckets)

    def prefixes(self, length: int, level: int, words: Limbs) -> Limbs:
        """The prefix of each word that a level covers."""
        return shifted_right(words, self.domain.word_bits(length) - self.depths(length)[level])

    def as_limbs(self, length: int, words: list[int]) -> Limbs:
        """Words as rows of limbs."""
        limbs = self.limbs(length)
        content = b"".join(word.to_bytes(8 * limbs, "little") for word in words)
        return np.frombuffer(content, dtype="<u8").astype(np.uint64).reshape(len(words), limbs)

    def cells(self, words: list[tuple[int, int]]) -> NDArray[np.int64]:
        """The bucket on every level of each word, given with its length."""
        buckets = np.empty((len(words), self.levels), dtype=np.int64)
        for length, rows, limbs in self.by_length(words):
            for level in range(self.levels):
                buckets[rows, level] = self.bucket_of(length, level, self.prefixes(length, level, limbs))
        return buckets

    def by_length(self, words: list[tuple[int, int]]) -> Iterator[tuple[int, NDArray[np.int64], Limbs]]:
        """The words of each length: the length, their positions in the list, and their limbs."""
        lengths = np.array([length for length, _ in words], dtype=np.int64)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            yield length, rows, self.as_limbs(length, [words[row][1] for row in rows.tolist()])


def shifted_right(words: Limbs, bits: int) -> Limbs:
    """Each word shifted right, with as many limbs as before."""
    whole, part = divmod(bits, 64)
    shifted = np.zeros_like(words)
    limbs = words.shape[1]
    if whole >= limbs:
        return shifted
    shifted[:, : limbs - whole] = words[:, whole:] >> np.uint64(part)
    if part and whole + 1 < limbs:
        shifted[:, : limbs - whole - 1] |= words[:, whole + 1 :] << np.uint64(64 - part)
    return shifted


def shifted_left(words: Limbs, bits: int) -> Limbs:
    """Each word shifted left by fewer than 64 bits, with as many limbs as before."""
    if bits == 0:
        return words
    shifted: Limbs = words << np.uint64(bits)
    shifted[:, 1:] |= words[:, :-1] >> np.uint64(64 - bits)
    return shifted


def hashed_buckets(key: int, prefixes: Limbs, buckets: int) -> NDArray[np.int64]:
    """The bucket of each prefix under the hash that starts with ``key``."""
    hashes = np.full(len(prefixes), key, dtype=np.uint64)
    for limb in prefixes.T:
        hashes = _mixed_array((hashes + np.uint64(GOLDEN)) ^ limb)
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def _mixed_array(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64, entry by entry."""
    first, second = map(np.uint64, _MULTIPLIERS)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * first
    hashes = (hashes ^ (hashes >> np.uint64(27))) * second
    return hashes ^ (hashes >> np.uint64(31))


def _mixed(number: int) -> int:
    number = ((number ^ (number >> 30)) * _MULTIPLIERS[0]) & _MASK
    number = ((number ^ (number >> 27)) * _MULTIPLIERS[1]) & _MASK
    return number ^ (number >> 31)
