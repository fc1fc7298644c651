"""Affine hashes: exact collisions, no overflow, and two ways to count who supports what."""

from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.protocols.parts.hashing import AffineHashes, least_prime
from shuffledp.randomness import SYSTEM
from shuffledp.testing.statistics import ALPHA, p_value

FAMILIES = [(3, 2), (5, 2), (5, 3), (7, 2), (7, 4), (7, 7), (11, 3), (13, 5)]


def functions(family: AffineHashes) -> tuple[np.ndarray, np.ndarray]:
    """All of them."""
    factor, shift = np.array(list(product(range(family.prime - 1), range(family.prime))), dtype=np.uint64).T
    return factor, shift


def test_least_primes():
    assert [least_prime(number) for number in (0, 2, 3, 4, 8, 90, 100, 1000, 10**6)] == [
        *(2, 2, 3, 5, 11, 97, 101, 1009, 1_000_003)
    ]


@pytest.mark.parametrize(("prime", "buckets"), FAMILIES)
def test_every_two_values_collide_with_exactly_the_stated_probability(prime, buckets):
    family = AffineHashes(prime, buckets)
    factor, shift = functions(family)
    tables = np.stack([family.apply(factor, shift, np.array([value])) for value in range(prime)])
    assert tables.max() == buckets - 1
    for first in range(prime):
        for second in range(first):
            collisions = int((tables[first] == tables[second]).sum())
            assert collisions == family.collision * len(factor)


@pytest.mark.parametrize("prime", [101, 65_537, 2_147_483_629])
def test_the_hash_is_the_formula_also_for_large_primes(prime):
    family = AffineHashes(prime, 5)
    factor, shift = family.draw(500, SYSTEM)
    values = np.arange(prime - 500, prime) if prime > 500 else np.arange(500) % prime
    hashed = family.apply(factor, shift, values)
    expected = [
        ((u + 1) * x + v) % prime % 5 for u, v, x in zip(factor.tolist(), shift.tolist(), values.tolist(), strict=True)
    ]
    assert hashed.tolist() == expected


@pytest.mark.parametrize(
    ("prime", "buckets", "size"), [(7, 3, 5), (101, 4, 100), (101, 101, 90), (997, 2, 1), (997, 50, 600)]
)
def test_both_ways_of_counting_support_agree(prime, buckets, size):
    family = AffineHashes(prime, buckets)
    factor, shift = family.draw(300, SYSTEM)
    hashes = np.arange(300) % buckets
    direct = [
        sum(
            ((u + 1) * x + v) % prime % buckets == y
            for u, v, y in zip(*map(np.ndarray.tolist, (factor, shift, hashes)), strict=True)
        )
        for x in range(size)
    ]
    assert family.supports(factor, shift, hashes, size).tolist() == direct
    assert family._supports_by_value(factor, shift, hashes, size).tolist() == direct
    assert family._supports_by_preimage(factor, shift, hashes, size).tolist() == direct


def test_small_types_of_messages_do_not_overflow():
    """A factor of 255 sent as a byte stands for 256."""
    family = AffineHashes(257, 3)
    factor, shift = np.array([255], dtype=np.uint8), np.array([200], dtype=np.uint8)
    expected = [int((256 * x + 200) % 257 % 3 == 1) for x in range(256)]
    assert family.supports(factor, shift, np.array([1], dtype=np.uint8), 256).tolist() == expected


def test_functions_are_uniform():
    """The whole table of 20 functions; factors that may be 0 are rejected."""
    family = AffineHashes(5, 2)
    factor, shift = family.draw(40_000, SYSTEM)
    table = np.bincount((factor * 5 + shift).astype(np.int64), minlength=20)
    assert p_value(table, np.full(20, 1 / 20)) > ALPHA
    wrong = np.bincount(((factor + np.uint64(1)) * np.arange(40_000, dtype=np.uint64) % np.uint64(5)).astype(np.int64))
    assert p_value(wrong, [0, *[0.25] * 4]) < ALPHA


def test_the_family_fits_the_domain():
    assert AffineHashes.for_domain(100, 4) == AffineHashes(101, 4)
    assert AffineHashes.for_domain(2, 2) == AffineHashes(3, 2)
    assert AffineHashes.for_domain(3, 8) == AffineHashes(11, 8)
    assert AffineHashes(101, 4).bounds == (100, 101)


@pytest.mark.parametrize(("prime", "buckets"), [(5, 1), (5, 6), ((1 << 31) + 11, 2)])
def test_impossible_families_are_refused(prime, buckets):
    with pytest.raises(ParameterError, match="2 <= buckets <= prime"):
        AffineHashes(prime, buckets)


@pytest.mark.parametrize("composite", [4, 9, 100, 65_535])
def test_a_number_that_is_not_prime_is_refused(composite):
    """Its functions collide more often than the estimator assumes."""
    with pytest.raises(ParameterError, match="needs a prime"):
        AffineHashes(composite, 2)
