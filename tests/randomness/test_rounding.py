"""Randomized rounding: exact distributions, down to the least fraction."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.randomness import round_randomly, sum_rounded_randomly
from shuffledp.testing.statistics import ALPHA, p_value

SIZE = 400_000


@pytest.mark.parametrize("value", [0.5, 0.125, 7.3, 1e-3, 2.0**39 + 0.25, 0.999])
def test_rounding_has_its_distribution(value):
    """Both neighbours; a fraction off by five per cent must be rejected."""
    size = 4_000_000 if value == 1e-3 else 800_000
    up = round_randomly(np.full(size, value)) - int(value)
    share = value - int(value)
    table = np.bincount(up, minlength=2)
    assert len(table) == 2
    assert p_value(table, [1 - share, share]) > ALPHA
    wrong = share * 0.95 if share > 0.5 else share * 1.05 if share > 0.01 else share * 1.2
    assert p_value(table, [1 - wrong, wrong]) < ALPHA


@given(value=st.floats(0, 1, exclude_max=True), near=st.integers(-1, 1), further=st.integers(0, (1 << 64) - 1))
def test_rounding_compares_every_bit(value, near, further, words_source):
    """It rounds up exactly when the drawn number, of as many words as it takes, lies below the fraction."""
    first = min(max(0, int(Fraction(value) * 2**64) + near), 2**64 - 1)
    words = [first, further, *[1 << 63] * 20]
    drawn = sum(Fraction(word, 1 << 64 * (place + 1)) for place, word in enumerate(words))
    assert round_randomly(np.array([value]), words_source(*words))[0] == (drawn < Fraction(value))


def test_the_least_fraction_is_not_lost(words_source):
    """2^-1074 rounds up on sixteen words of zeros and a small one, and on nothing else."""
    least = np.array([2.0**-1074])
    assert round_randomly(least, words_source(*[0] * 17)).tolist() == [1]
    assert round_randomly(least, words_source(*[0] * 16, 1 << 14)).tolist() == [0]
    assert round_randomly(least, words_source(1)).tolist() == [0]


def test_rounding_at_the_edges():
    assert round_randomly(np.array([[0.0, 3.0], [2.0**40 - 1, 1.0]])).tolist() == [[0, 3], [2**40 - 1, 1]]
    assert len(round_randomly(np.zeros(0))) == 0
    for bad in (-0.5, 2.0**40, float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            round_randomly(np.array([1.0, bad]))


def test_sums_have_the_distribution_of_summed_roundings():
    """The whole table of sums of 12 numbers; fractions off by 2 % must be rejected."""
    values = np.tile([0.5, 3.25, 0.9, 2.0**-20], 3)
    sums = np.array([sum_rounded_randomly(values) for _ in range(30_000)]) - 9
    table = np.bincount(sums, minlength=13)

    def pmf(factor):
        result = np.ones(1)
        for value in values:
            fraction = value % 1 * factor
            result = np.convolve(result, [1 - fraction, fraction])
        return result

    assert p_value(table, pmf(1.0)) > ALPHA
    assert p_value(table, pmf(0.98)) < ALPHA


@given(value=st.floats(0, 1, exclude_max=True), near=st.integers(-1, 1), further=st.integers(0, (1 << 64) - 1))
def test_sums_compare_every_bit(value, near, further, bytes_source):
    """A sum of one number: 16 bits, and in case of a tie words of 64 bits."""
    first = min(max(0, int(Fraction(value) * 2**16) + near), 2**16 - 1)
    rest = [further, *[1 << 63] * 20]
    content = first.to_bytes(2, "little") + b"".join(word.to_bytes(8, "little") for word in rest)
    drawn = Fraction(first, 1 << 16) + sum(Fraction(word, 1 << 16 + 64 * (i + 1)) for i, word in enumerate(rest))
    assert sum_rounded_randomly(np.array([value]), bytes_source(content)) == (drawn < Fraction(value))


def test_sums_of_large_numbers_are_exact():
    values = np.full(100_000, 2.0**40 - 1)
    assert sum_rounded_randomly(values) == 100_000 * (2**40 - 1)
    values = np.full(1 << 15, 2.0**40 - 1)
    values[-1] -= 1  # the sum is odd and above 2^53, where floats are even
    assert sum_rounded_randomly(values) == (2**40 - 1) * len(values) - 1
    assert sum_rounded_randomly(np.zeros(0)) == 0
    for bad in (-0.5, 2.0**40, float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            sum_rounded_randomly(np.array([1.0, bad]))
