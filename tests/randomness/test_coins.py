"""Coins of any probability as flags, bitmaps and places: exact pmfs on both paths, and the faults they must catch."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import (
    Dyadic,
    InsecureSeededRandomness,
    bernoulli,
    bernoulli_bits,
    bernoulli_indices,
    binomial,
    binomials,
    coins,
    integers,
)
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.usefixtures("path")

THIRD = Dyadic((1 << 3000) // 3, 3000)


def flags_of_bits(probability, size, *source):
    bitmap = bernoulli_bits(probability, size, *source)
    assert bitmap.dtype == np.uint8
    assert len(bitmap) == -(-size // 8)
    assert not np.unpackbits(bitmap, bitorder="little")[size:].any()
    return np.unpackbits(bitmap, count=size, bitorder="little").astype(np.bool_)


def flags_of_indices(probability, size, *source):
    places = bernoulli_indices(probability, size, *source)
    assert places.dtype == np.int64
    assert (np.diff(places) > 0).all()
    flags = np.zeros(size, dtype=np.bool_)
    flags[places] = True
    return flags


FORMS = [bernoulli, flags_of_bits, flags_of_indices]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "probability",
    [
        Dyadic(1, 1),
        Dyadic(5, 3),
        Dyadic(77, 8),
        Dyadic(1000, 13),
        THIRD,
        Dyadic.at_least(0.05),
        Dyadic.at_least(0.003),
        Dyadic.at_least(0.985),
    ],
    ids=str,
)
def test_coins_have_their_distribution(form, probability):
    """Enough coins for sixty thousand of the rarer kind; a probability off by five per cent must be rejected."""
    share = float(probability)
    size = int(60_000 / min(share, 1 - share))
    ones = int(form(probability, size).sum())
    assert p_value([size - ones, ones], [1 - share, share]) > ALPHA
    wrong = share * 1.05 if share < 0.5 else share - 0.05 * (1 - share)
    assert p_value([size - ones, ones], [1 - wrong, wrong]) < ALPHA


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rate", [0.3, 0.05, 0.99])
@pytest.mark.parametrize("stride", [1, 8, 64, 128, 1 << 18])
def test_coins_are_independent(form, rate, stride):
    """Whole tables of four coins that share a byte, a column of the kernel or a block; a coin used twice is noticed."""
    probability = Dyadic.at_least(rate)
    flags = form(probability, 1 << 21).reshape(-1, 4, stride).astype(np.int64)
    distribution = np.array([rate ** code.bit_count() * (1 - rate) ** (4 - code.bit_count()) for code in range(16)])
    weights = np.array([8, 4, 2, 1])[:, None]
    assert p_value(np.bincount((flags * weights).sum(axis=1).ravel(), minlength=16), distribution) > ALPHA
    flags[:, 3] = flags[:, 0]
    assert p_value(np.bincount((flags * weights).sum(axis=1).ravel(), minlength=16), distribution) < ALPHA


@pytest.mark.parametrize("rate", [0.4, 0.04, 0.0009])
def test_every_place_is_as_likely(rate):
    """Places within 4096 coins: no part of a block, group or word is favoured; a place left out must be rejected."""
    size = 1 << 24
    table = np.zeros(4096, dtype=np.int64)
    np.add.at(table, bernoulli_indices(Dyadic.at_least(rate), size) % 4096, 1)
    coarse = table.reshape(64, 64)
    for seen in (coarse.sum(axis=0), coarse.sum(axis=1)):
        assert p_value(seen, np.full(64, 1 / 64)) > ALPHA
        planted = seen.copy()
        planted[7] = 0
        assert p_value(planted, np.full(64, 1 / 64)) < ALPHA


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4096, 4097, 65_537, (1 << 20) + 1])
def test_sizes_and_certain_outcomes(form, size):
    for bits in (0, 1, 64, 1000):
        assert not form(Dyadic(0, bits), size).any()
        assert form(Dyadic(1 << bits, bits), size).sum() == size
    for rate in (0.5, 0.01, 0.99):
        assert len(form(Dyadic.at_least(rate), size)) == size


@given(numerator=st.integers(0, (1 << 20) - 1), drawn=st.integers(0, (1 << 24) - 1))
def test_few_coins_compare_every_bit(bytes_source, numerator, drawn):
    """The bit is exactly 'the drawn number is below the probability', however many bits that takes."""
    source = bytes_source(drawn.to_bytes(3, "big"))
    assert bernoulli(Dyadic(numerator, 20), 1, source)[0] == (Fraction(drawn, 1 << 24) < Fraction(numerator, 1 << 20))


class Ones:
    """A source of nothing but ones."""

    secure = False

    def fill(self, out):
        out.fill(0xFF)


@pytest.mark.parametrize(("last", "below"), [(0xFF, False), (0xFE, True), (0x00, True)])
@pytest.mark.parametrize("form", FORMS)
def test_many_coins_compare_every_bit(form, last, below, path, monkeypatch):
    """All digits of all numbers equal those of 1 - 2^-80, until the last ones decide."""
    bytes_beyond = 2 if path == "native" else 9  # those that are drawn for ties only
    calls = []

    def draw_bytes(count, source):
        calls.append(count)
        return np.full(count, 0xFF if len(calls) % bytes_beyond else last, dtype=np.uint8)

    monkeypatch.setattr(coins, "draw_bytes", draw_bytes)
    assert (form(Dyadic((1 << 80) - 1, 80), 5000, Ones()) == below).all()
    assert sum(calls) >= 5000 * bytes_beyond


def test_a_number_equal_to_the_probability_is_not_below():
    """With words of ones, 1 - 2^-64 is met exactly in all its digits."""
    for bits in (1, 5, 64, 65, 200):
        assert not bernoulli(Dyadic((1 << bits) - 1, bits), 5000, Ones()).any()


@pytest.mark.parametrize(("rate", "size"), [(9e-5, 10**9 + 7), (1e-6, 10**11), (1e-10, (1 << 49) + 12_345)])
def test_places_among_very_many_coins(rate, size):
    """In order, as many as there should be, and cut where the coins end."""
    probability = Dyadic.at_least(rate)
    places = bernoulli_indices(probability, size)
    mean = size * float(probability)
    assert abs(len(places) - mean) < 6 * np.sqrt(mean)
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0
    assert places[-1] < size
    halves = [np.count_nonzero(places < size // 2), np.count_nonzero(places >= size // 2)]
    assert p_value(halves, [0.5, 0.5]) > ALPHA


def test_the_least_probabilities():
    assert len(bernoulli_indices(Dyadic(1, 65_536), 1 << 62)) == 0
    assert not bernoulli(Dyadic(1, 65_536), 100_000).any()
    assert bernoulli(Dyadic((1 << 65_536) - 1, 65_536), 100_000).all()


def test_places_as_narrow_numbers():
    size = 1 << 20
    wide, narrow = (
        bernoulli_indices(Dyadic.at_least(0.01), size, InsecureSeededRandomness(5), dtype=dtype)
        for dtype in (np.int64, np.uint32)
    )
    assert narrow.dtype == np.uint32
    assert np.array_equal(wide, narrow)
    with pytest.raises(ParameterError, match="cannot index"):
        bernoulli_indices(Dyadic.at_least(1e-9), 1 << 33, dtype=np.uint32)


@pytest.mark.parametrize("form", [bernoulli, bernoulli_bits, bernoulli_indices])
@pytest.mark.parametrize("size", [-1, (1 << 62) + 1])
def test_impossible_sizes_are_refused(form, size):
    with pytest.raises(ParameterError):
        form(Dyadic(1, 1), size)


def test_more_places_than_expected_find_room(path, monkeypatch):
    if path == "numpy":
        pytest.skip("there is no list that grows")
    monkeypatch.setattr(coins._IndexBuffer, "expecting", lambda *_: coins._IndexBuffer(np.empty(3, dtype=np.int64)))
    for rate in (0.4, 0.01):
        size = 1 << 18
        places = bernoulli_indices(Dyadic.at_least(rate), size)
        assert (np.diff(places) > 0).all()
        assert abs(len(places) - rate * size) < 6 * np.sqrt(size * rate)


@pytest.mark.parametrize("block", [7, 12, 13])
def test_blocks_that_are_nearly_full_get_done(block, path, monkeypatch):
    """Which has a probability of nearly nothing: many places are drawn twice then."""
    if path == "numpy":
        pytest.skip("there are no blocks")
    count = (1 << block) - 1 if block <= 12 else 300

    class Full:
        def draw(self, size, source):
            return np.full(size, count, dtype=np.int64)

    monkeypatch.setattr(coins, "power_table", lambda *_: Full())
    monkeypatch.setattr(coins, "_block_bits", lambda *_: block)
    size = 9 << block
    monkeypatch.setattr(coins, "_FEW_FOR_A_TABLE", 0)
    monkeypatch.setattr(coins, "_FEW", 0)
    assert np.array_equal(np.bincount(bernoulli_indices(Dyadic(1, 8), size) >> block), [count] * 9)
    if block <= 12:
        assert bernoulli(Dyadic(1, 8), size).sum() == 9 * count


def test_a_seed_repeats_and_the_kernels_leave_no_words_behind(path, monkeypatch):
    kept = []
    if path == "native":
        leave = coins._Words.__exit__

        def spy(self, *why):
            leave(self, *why)
            kept.append(self._array)

        monkeypatch.setattr(coins._Words, "__exit__", spy)
    for rate in (0.4, 0.04):
        first, second = (bernoulli(Dyadic.at_least(rate), 200_000, InsecureSeededRandomness(3)) for _ in range(2))
        assert np.array_equal(first, second)
    assert len(kept) == (4 if path == "native" else 0)
    assert not any(array.any() for array in kept)


def test_sizes_of_any_kind(path):
    half = Dyadic.at_least(0.001)
    for size in (np.uint8(200), np.int32(100_000), np.uint32(100_000), np.uint64(100_000), np.int64(100_000)):
        assert len(bernoulli(half, size)) == size
        assert len(bernoulli_bits(half, size)) == int(size) // 8
        assert bernoulli_indices(half, size).dtype == np.int64
        assert len(integers(5, size)) == len(binomial(np.int64(1000), half, size)) == size
    for size in (-1, 1.5, "1", None, 1 << 63):
        for draw in (bernoulli, bernoulli_bits, bernoulli_indices):
            with pytest.raises(ParameterError, match="size must"):
                draw(half, size)
        with pytest.raises(ParameterError, match="size must"):
            integers(5, size)
        with pytest.raises(ParameterError, match="size must"):
            binomial(5, half, size)
    with pytest.raises(ParameterError, match="size must"):
        binomial(-5, half, 5)
    with pytest.raises(ParameterError, match="must be integers"):
        binomials(np.array([1.5]), half)
    with pytest.raises(ParameterError, match="int64 or uint32"):
        bernoulli_indices(half, 5, dtype=np.int32)


@pytest.mark.skipif(not ACTIVE, reason="the numpy path makes longer arrays")
@pytest.mark.parametrize("rate", [0.3, 0.001, 0.999])
def test_memory_is_that_of_the_result(rate, path):
    if path == "numpy":
        pytest.skip("the numpy path makes longer arrays")
    probability = Dyadic.at_least(rate)
    tracemalloc.start()
    try:
        for form, size in ((bernoulli_bits, 10**8), (bernoulli, 10**7), (bernoulli_indices, 10**7)):
            tracemalloc.reset_peak()
            result = form(probability, size)
            assert tracemalloc.get_traced_memory()[1] < 1.01 * result.nbytes + (8 << 20)
            del result
    finally:
        tracemalloc.stop()
