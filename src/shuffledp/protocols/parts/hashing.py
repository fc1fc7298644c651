"""Public hash functions x -> ((u x + v) mod prime) mod buckets, and how many given hashes each value agrees with.

For uniform u in 1 .. prime - 1 and v in 0 .. prime - 1, the residues of two different values are uniform over all pairs
of different residues, so any two values collide with the same probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.messages import count_values
from shuffledp.randomness import RandomSource, integers

_LARGEST_PRIME = 1 << 31  # products of two residues fit 64 bits
_CHUNK_CELLS = 1 << 21
_INVERSE_COST = 60  # cost of computing all preimages, in units of candidates

Numbers = NDArray[np.uint64]


def least_prime(least: int) -> int:
    """The least prime that is at least ``least``."""
    candidate = max(2, least)
    while any(candidate % divisor == 0 for divisor in range(2, int(candidate**0.5) + 1)):
        candidate += 1
    return candidate


@dataclass(frozen=True)
class AffineHashes:
    """The family of hash functions from values below ``prime`` to ``buckets``."""

    prime: int
    buckets: int

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= self.prime < _LARGEST_PRIME:
            raise ParameterError(
                f"Hashing needs 2 <= buckets <= prime < 2^31, not {self.buckets:,} and {self.prime:,}.",
                buckets=self.buckets,
                prime=self.prime,
            )
        if least_prime(self.prime) != self.prime:
            raise ParameterError(f"Hashing needs a prime, not {self.prime:,}.", prime=self.prime)

    @classmethod
    def for_domain(cls, size: int, buckets: int) -> AffineHashes:
        """The family with the least prime of at least ``size`` and ``buckets``."""
        if max(size, buckets) >= _LARGEST_PRIME:
            raise ParameterError(f"Hashing needs fewer than 2^31 values, not {max(size, buckets):,}.", size=size)
        return cls(least_prime(max(size, buckets, 3)), buckets)

    @property
    def collision(self) -> Fraction:
        """The probability that two different values have the same hash."""
        quotient, rest = divmod(self.prime, self.buckets)
        return Fraction(quotient * (rest + self.prime - self.buckets), self.prime * (self.prime - 1))

    @property
    def bounds(self) -> tuple[int, int]:
        """Exclusive upper bounds of u - 1 and v, which are sent."""
        return self.prime - 1, self.prime

    def draw(self, size: int, source: RandomSource) -> tuple[Numbers, Numbers]:
        """Uniform functions, as u - 1 and v."""
        return integers(self.prime - 1, size, source), integers(self.prime, size, source)

    def apply(self, factor: Numbers, shift: Numbers, values: NDArray[Any]) -> Numbers:
        """The hash of each value under the function (factor + 1, shift)."""
        hashed: Numbers = (_u64(factor) + np.uint64(1)) * _u64(values) + _u64(shift)
        hashed %= np.uint64(self.prime)
        hashed %= np.uint64(self.buckets)
        return hashed

    def supports(self, factor: Numbers, shift: Numbers, hashes: NDArray[Any], domain_size: int) -> NDArray[np.int64]:
        """For every value of the domain, the number of (function, hash) pairs that it agrees with."""
        residues = -(-self.prime // self.buckets)
        if domain_size <= residues + _INVERSE_COST:
            return self._supports_by_value(factor, shift, hashes, domain_size)
        return self._supports_by_preimage(factor, shift, hashes, domain_size)

    def _supports_by_value(
        self, factor: Numbers, shift: Numbers, hashes: NDArray[Any], domain_size: int
    ) -> NDArray[np.int64]:
        counts = np.zeros(domain_size, dtype=np.int64)
        values = np.arange(domain_size, dtype=np.uint64)
        rows = max(1, _CHUNK_CELLS // domain_size)
        for start in range(0, len(hashes), rows):
            here = slice(start, start + rows)
            hashed = self.apply(factor[here, None], shift[here, None], values)
            counts += np.count_nonzero(hashed == _u64(hashes[here])[:, None], axis=0)
        return counts

    def _supports_by_preimage(
        self, factor: Numbers, shift: Numbers, hashes: NDArray[Any], domain_size: int
    ) -> NDArray[np.int64]:
        """Count the preimages of the residues y, y + buckets, ... below the prime."""
        counts = np.zeros(domain_size, dtype=np.int64)
        prime = np.uint64(self.prime)
        steps = np.arange(0, self.prime, self.buckets, dtype=np.uint64)
        rows = max(1, _CHUNK_CELLS // len(steps))
        for start in range(0, len(hashes), rows):
            here = slice(start, start + rows)
            residues = _u64(hashes[here])[:, None] + steps
            inverse = _inverse((_u64(factor[here]) + np.uint64(1)) % prime, self.prime)
            values = (residues + prime - _u64(shift[here])[:, None]) % prime * inverse[:, None] % prime
            inside = (residues < prime) & (values < np.uint64(domain_size))
            counts += count_values(values[inside], domain_size)
        return counts


def _inverse(numbers: Numbers, prime: int) -> Numbers:
    """The inverse of each number modulo the prime, as its power prime - 2."""
    result = np.ones_like(numbers)
    power, exponent, modulus = numbers.copy(), prime - 2, np.uint64(prime)
    while exponent:
        if exponent & 1:
            result = result * power % modulus
        power = power * power % modulus
        exponent >>= 1
    return result


def _u64(values: NDArray[Any]) -> Numbers:
    return values.astype(np.uint64, copy=False)
