"""The kernels of random bits and places: whole tables, chosen words, and input that is wrong."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from shuffledp.native import ACTIVE
from shuffledp.testing.statistics import ALPHA, p_value

if not ACTIVE:
    pytest.skip("the kernels are not built", allow_module_level=True)

from shuffledp.native import _bits

TOP = (1 << 64) - 1


def random_words(size):
    return np.frombuffer(np.random.default_rng().bytes(8 * size), dtype=np.uint64).copy()


def narrow_words(numbers, dtype):
    """Words whose bytes are these numbers, and zeros to the end of the last."""
    given = np.array(numbers, dtype=dtype).tobytes()
    return np.frombuffer(given + bytes(-len(given) % 8), dtype=np.uint64)


def unpack(bitmap):
    return np.unpackbits(bitmap, bitorder="little")


# --- bits by comparing digit by digit


def sliced(words, digits, ends=True, groups=1):
    bitmap, ties = np.full(64 * groups, 0xAA, dtype=np.uint8), np.zeros(512 * groups, dtype=np.int64)
    filled, tied = _bits.slice_bits(words, np.array(digits, dtype=np.uint8), ends, bitmap, ties)
    return bitmap, filled, ties[:tied]


def two_open_numbers(first, second, rounds=64):
    """Words in which all numbers but two begin with a zero, and those two with ones only."""
    words = np.zeros(8 * rounds, dtype=np.uint64)
    for number in (first, second):
        words[number // 64 :: 8] |= np.uint64(1 << number % 64)
    return words


@pytest.mark.parametrize("digits", [[1], [1, 0, 1], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1], [1] * 6])
def test_few_digits_are_compared_with_those_of_each_number(digits):
    """With at most six digits, number i is bit i mod 64 of the words i // 64, one a round."""
    words = random_words(8 * len(digits))
    numbers = sum(unpack(words[8 * i : 8 * i + 8].view(np.uint8)) * 2.0 ** -(i + 1) for i in range(len(digits)))
    share = sum(digit * 2.0 ** -(i + 1) for i, digit in enumerate(digits))
    bitmap, filled, ties = sliced(words, digits)
    assert filled == 64
    assert len(ties) == 0
    assert np.array_equal(unpack(bitmap), numbers < share)
    _, _, ties = sliced(words, digits, ends=False)
    assert ties.tolist() == np.flatnonzero(numbers == share).tolist()


@pytest.mark.parametrize(("first", "second"), [(3, 131), (3, 67), (3, 4), (0, 511), (127, 383), (128, 130)])
@pytest.mark.parametrize("least", [6, 7, 20])
def test_two_open_numbers_never_use_the_same_bits(first, second, least):
    """Of two numbers that are equal for long, one differs first; both would if they shared a bit of a word."""
    words = two_open_numbers(first, second)
    words[8 * least :] = TOP
    words[8 * least + first // 64] = np.uint64(TOP ^ 1 << first % 64)
    bitmap, _, ties = sliced(words, [1] * 64, ends=False)
    others = np.delete(unpack(bitmap), [first, second])
    assert others.all()
    together = (first - second) % 128 == 0  # only then do they go on with a word each
    if together or least == 6:
        assert not unpack(bitmap)[second]
        assert second in ties
    if together:
        assert unpack(bitmap)[first]
        assert ties.tolist() == [second]


@pytest.mark.parametrize("number", [0, 63, 64, 200, 511])
@pytest.mark.parametrize("equal", [6, 7, 40, 63])
def test_a_single_open_number_goes_on_to_the_last_digit(number, equal):
    start = [0, 1, 1, 0, 1, 0]  # no number but one begins like this
    words = np.zeros(8 * 64, dtype=np.uint64)
    for i, digit in enumerate(start):
        row = words[8 * i : 8 * i + 8]
        row[:] = TOP if i == 0 else 0
        bit = np.uint64(1 << number % 64)
        row[number // 64] = row[number // 64] | bit if digit else row[number // 64] & ~bit
    for ones in (True, False):
        words[48:] = TOP if ones else 0
        digits = start + [int(ones)] * (equal - 6) + [int(not ones)]
        bitmap, _, ties = sliced(words, digits)
        assert np.flatnonzero(unpack(bitmap)).tolist() == ([] if ones else [number])
        assert len(ties) == 0
        _, _, ties = sliced(words, digits[:-1], ends=False)
        assert ties.tolist() == [number]


def test_a_group_is_begun_only_where_everything_suffices():
    digits = [1] * 64
    for words, filled in ((0, 0), (511, 0), (512, 64), (1023, 64), (1024, 128)):
        assert sliced(np.full(words, TOP, dtype=np.uint64), digits, groups=3)[1] == filled
    bitmap, ties = np.zeros(128, dtype=np.uint8), np.zeros(1023, dtype=np.int64)
    words = np.full(2048, TOP, dtype=np.uint64)
    assert _bits.slice_bits(words, np.ones(64, dtype=np.uint8), False, bitmap, ties) == (64, 512)
    assert ties[:512].tolist() == list(range(512))


@pytest.mark.parametrize("digits", [[0, 1, 0, 0, 1] + [0, 1] * 20, [1] * 10, [0, 0, 0, 0, 0, 0, 0, 1, 1]])
def test_sliced_bits_have_their_distribution(digits):
    """Whole tables of the four numbers of a column; a number that repeats another must be rejected."""
    share = sum(digit * 2.0 ** -(i + 1) for i, digit in enumerate(digits))
    bitmap, filled, _ = sliced(random_words(1 << 19), digits, groups=6000)
    columns = unpack(bitmap[:filled]).reshape(-1, 4, 128).astype(np.int64)
    pmf = [share ** code.bit_count() * (1 - share) ** (4 - code.bit_count()) for code in range(16)]
    weights = np.array([8, 4, 2, 1])[:, None]
    assert p_value(np.bincount((columns * weights).sum(axis=1).ravel(), minlength=16), pmf) > ALPHA
    columns[:, 1] = columns[:, 2]
    assert p_value(np.bincount((columns * weights).sum(axis=1).ravel(), minlength=16), pmf) < ALPHA


# --- forms of a bitmap


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000])
def test_bits_become_flags(size):
    bitmap = random_words(125).view(np.uint8)
    flags = np.full(size, 9, dtype=np.uint8)
    _bits.spread_bits(bitmap, flags)
    assert np.array_equal(flags, unpack(bitmap)[:size])


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("spare", [0, 1, 67, 68, 500])
def test_bits_become_places(dtype, rate, spare):
    """Whatever room is left, and an error where one place is missing."""
    bitmap = np.packbits(np.random.default_rng().random(64 * 40) < rate, bitorder="little")
    expected = np.flatnonzero(unpack(bitmap)) + 1000
    out = np.zeros(len(expected) + spare, dtype=dtype)
    assert _bits.list_bits(bitmap, 1000, out) == len(expected)
    assert np.array_equal(out[: len(expected)], expected)
    if len(expected):
        with pytest.raises(ValueError, match="more ones"):
            _bits.list_bits(bitmap, 1000, out[: len(expected) - 1])


# --- so many of each block


def placed(counts, bits, words, room=None, dtype=np.int64, base=0):
    counts = np.array(counts, dtype=np.int64)
    out = np.full(int(counts.sum()) if room is None else room, 77, dtype=dtype)
    done, found = _bits.scatter_places(counts, bits, base, words, out)
    return done, out[:found]


def marked(counts, bits, words):
    counts = np.array(counts, dtype=np.int64)
    bitmap = np.zeros(len(counts) << bits >> 3, dtype=np.uint8)
    return _bits.scatter_bits(counts, bits, words, bitmap), np.flatnonzero(unpack(bitmap))


@pytest.mark.parametrize(("bits", "dtype"), [(6, np.uint8), (8, np.uint8), (12, np.uint16), (16, np.uint16)])
@pytest.mark.parametrize("room", [4, 20])
def test_a_place_that_is_drawn_twice_is_drawn_again(bits, dtype, room):
    """By rank where there is room, else by marks, or one by one among very many."""
    words = narrow_words([9, 5, 9, 5, 60, 9, 7, *[33] * 40], dtype)
    done, found = placed([4], bits, words, room)
    assert done == 1
    assert found.tolist() == [5, 7, 9, 60]
    if bits <= 12:
        assert marked([4], bits, words)[1].tolist() == [5, 7, 9, 60]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("bits", [1, 2, 5, 8, 9, 12, 13, 14, 15, 20, 31])
def test_blocks_have_as_many_places_as_they_should(bits, dtype):
    """Any mixture of counts, from none to more than are ranked at once; in order, each in its block."""
    rng = np.random.default_rng()
    blocks = 2 if bits == 31 else 300 if bits < 20 else 64
    counts = rng.integers(0, min(1 << bits, 30) + 1, blocks)
    counts[:: blocks // 2] = [0, min(1 << bits, 100)] if blocks == 2 else 0
    done, found = placed(counts, bits, random_words(30_000), room=int(counts.sum()) + 50, dtype=dtype)
    assert done == len(counts)
    assert (np.diff(found.astype(np.int64)) > 0).all()
    assert np.array_equal(np.bincount(found >> bits, minlength=blocks), counts)
    if 3 <= bits <= 12:
        done, found = marked(counts, bits, random_words(30_000))
        assert done == len(counts)
        assert np.array_equal(np.bincount(found >> bits, minlength=blocks), counts)


def by_rank(count, blocks):
    done, found = placed([count] * blocks, 3, random_words(2 * blocks), room=count * blocks + 8)
    assert done == blocks
    return found.reshape(blocks, count) % 8


def by_marks(count, blocks):
    words = random_words(2 * blocks)
    rows = [placed([count], 3, words[16 * i : 16 * i + 16])[1] for i in range(blocks // 8)]
    return np.array(rows)


def in_a_bitmap(count, blocks):
    done, found = marked([count] * blocks, 3, random_words(2 * blocks))
    assert done == blocks
    return found.reshape(blocks, count) % 8


@pytest.mark.parametrize("way", [by_rank, by_marks, in_a_bitmap])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_set_is_as_likely(way, count):
    """The whole table of sets; places that shun their neighbours must be rejected."""
    rows = way(count, 160_000)
    sets = [sum(1 << place for place in chosen) for chosen in combinations(range(8), count)]
    distribution = np.full(len(sets), 1 / comb(8, count))
    assert (np.diff(rows, axis=1) > 0).all()

    def table(rows):
        seen = np.bincount((1 << rows).sum(axis=1), minlength=256)
        assert seen[sets].sum() == len(rows)
        return seen[sets]

    assert p_value(table(rows), distribution) > ALPHA
    kept = rows[(np.diff(rows, axis=1) > 1).all(axis=1)] if 1 < count < 5 else rows[rows[:, 0] > 0]
    assert p_value(table(kept), distribution) < ALPHA


@pytest.mark.parametrize("bits", [14, 15, 18, 34])
def test_pairs_among_very_many_are_uniform(bits):
    """The eighths that two places fall into, with the exact distribution of distinct ones."""
    blocks = 50_000
    done, found = placed([2] * blocks, bits, random_words(2 * blocks + 100), room=2 * blocks + 8)
    assert done == blocks
    eighths = (found.reshape(blocks, 2) % (1 << bits)) >> (bits - 3)
    size, all_pairs = 1 << (bits - 3), comb(1 << bits, 2)
    pairs = [(i, j) for i in range(8) for j in range(i, 8)]
    distribution = [(comb(size, 2) if i == j else size * size) / all_pairs for i, j in pairs]
    codes = np.array([8 * i + j for i, j in pairs])
    first, second = eighths[:, 0], eighths[:, 1]
    assert (first <= second).all()
    assert p_value(np.bincount(8 * first + second, minlength=64)[codes], distribution) > ALPHA
    assert p_value(np.bincount(8 * first + np.maximum(first, 3), minlength=64)[codes], distribution) < ALPHA


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_it_stops_where_words_or_room_run_out(bits):
    """And goes on with the next ones as if nothing had been; what was not begun is untouched."""
    counts = np.full(500, 5, dtype=np.int64)
    out = np.full(2500, -1, dtype=np.int64)
    done = found = calls = 0
    while done < len(counts):
        room = min(2500, found + 1000)
        more, written = _bits.scatter_places(counts[done:], bits, done << bits, random_words(20), out[found:room])
        assert (more > 0) == (written > 0)
        assert written == 5 * more
        done, found, calls = done + more, found + written, calls + 1
    assert calls > 10
    assert (np.diff(out) > 0).all()
    assert np.array_equal(np.bincount(out >> bits), counts)
    if bits <= 12:
        bitmap = np.zeros(500 << bits >> 3, dtype=np.uint8)
        done = 0
        while done < len(counts):
            done += _bits.scatter_bits(counts[done:], bits, random_words(20), bitmap[done << bits >> 3 :])
            assert not bitmap[done << bits >> 3 :].any()
        assert np.array_equal(np.bincount(np.flatnonzero(unpack(bitmap)) >> bits), counts)


# --- wrong input

BYTES, FLAGS = np.zeros(64, dtype=np.uint8), np.ones(64, dtype=np.uint8)
WORDS, COUNTS, PLACES = np.zeros(4096, dtype=np.uint64), np.ones(2, dtype=np.int64), np.zeros(64, dtype=np.int64)
READ_ONLY = np.frombuffer(bytes(512), dtype=np.uint8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _bits.slice_bits(WORDS, FLAGS[:0], True, BYTES, PLACES),
        lambda: _bits.slice_bits(WORDS, np.ones(65, dtype=np.uint8), True, BYTES, PLACES),
        lambda: _bits.slice_bits(WORDS, FLAGS, True, BYTES[:63], PLACES),
        lambda: _bits.slice_bits(WORDS, FLAGS, True, READ_ONLY[:64], PLACES),
        lambda: _bits.slice_bits(WORDS[::2], FLAGS, True, BYTES, PLACES),
        lambda: _bits.slice_bits(WORDS.view(np.int64), FLAGS, True, BYTES, PLACES),
        lambda: _bits.slice_bits(None, FLAGS, True, BYTES, PLACES),
        lambda: _bits.spread_bits(BYTES, np.zeros(513, dtype=np.uint8)),
        lambda: _bits.spread_bits(BYTES, READ_ONLY),
        lambda: _bits.spread_bits(BYTES, np.zeros(100, dtype=np.bool_)[::2]),
        lambda: _bits.list_bits(BYTES[:63], 0, PLACES),
        lambda: _bits.list_bits(FLAGS, 0, PLACES[:0]),
        lambda: _bits.list_bits(FLAGS, 0, np.zeros(64)),
        lambda: _bits.scatter_places(COUNTS, 0, 0, WORDS, PLACES),
        lambda: _bits.scatter_places(COUNTS, 63, 0, WORDS, PLACES),
        lambda: _bits.scatter_places(COUNTS, 3, -1, WORDS, PLACES),
        lambda: _bits.scatter_places(COUNTS, 62, 0, WORDS, PLACES),
        lambda: _bits.scatter_places(COUNTS, 31, 1, WORDS, PLACES.astype(np.uint32)),
        lambda: _bits.scatter_places(-COUNTS, 3, 0, WORDS, PLACES),
        lambda: _bits.scatter_places(9 * COUNTS, 3, 0, WORDS, PLACES),
        lambda: _bits.scatter_places(COUNTS, 3, 0, WORDS, PLACES.astype(np.float64)),
        lambda: _bits.scatter_places(COUNTS, 3, 0, WORDS, READ_ONLY.view(np.int64)),
        lambda: _bits.scatter_bits(COUNTS, 2, WORDS, BYTES),
        lambda: _bits.scatter_bits(COUNTS, 13, WORDS, BYTES),
        lambda: _bits.scatter_bits(COUNTS, 9, WORDS, BYTES),
        lambda: _bits.scatter_bits(9 * COUNTS, 3, WORDS, BYTES),
        lambda: _bits.scatter_bits(-COUNTS, 3, WORDS, BYTES),
        lambda: _bits.scatter_bits(COUNTS, 3, WORDS, READ_ONLY),
    ],
)
def test_wrong_input_is_refused(call):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        call()


def test_nothing_to_do_is_done():
    nothing, no_words = PLACES[:0], WORDS[:0]
    assert _bits.slice_bits(no_words, FLAGS, True, BYTES, PLACES) == (0, 0)
    assert _bits.slice_bits(WORDS, FLAGS, True, BYTES[:0], PLACES) == (0, 0)
    assert _bits.list_bits(BYTES[:0], 0, nothing) == 0
    assert _bits.scatter_places(nothing, 5, 0, WORDS, PLACES) == (0, 0)
    assert _bits.scatter_places(COUNTS, 5, 0, no_words, PLACES) == (0, 0)
    assert _bits.scatter_places(0 * COUNTS, 5, 0, no_words, nothing) == (2, 0)
    assert _bits.scatter_bits(nothing, 5, WORDS, BYTES[:0]) == 0
    assert _bits.scatter_bits(COUNTS, 5, no_words, BYTES) == 0
