"""The kernel that draws by table, against numpy's search on words that are chosen, and on input that is wrong."""

import numpy as np
import pytest

from shuffledp.native import ACTIVE

if not ACTIVE:
    pytest.skip("the kernels are not built", allow_module_level=True)

from shuffledp.native import _tables

TOP = (1 << 64) - 1


def guide_of(thresholds, bits):
    least = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return np.append(np.searchsorted(thresholds, least, side="left"), len(thresholds)).astype(np.uint32)


def upper_of(thresholds):
    return np.append(thresholds >> np.uint64(32), np.full(3, (1 << 32) - 1, dtype=np.uint64)).astype(np.uint32)


def draw(drawn, thresholds, guide, *rest):
    return _tables.draw(drawn, thresholds, upper_of(thresholds), guide, *rest)


def words(*values):
    return np.array(values, dtype=np.uint64)


def random_words(size, seed=0):
    return np.random.default_rng(seed).integers(1, TOP, size, dtype=np.uint64)


NOTHING = words()


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 10, 1000, 70_000])
@pytest.mark.parametrize("bits", [1, 3, 16])
@pytest.mark.parametrize("crowded", [False, True])
def test_draws_are_those_of_a_search(entries, bits, crowded):
    """Also where all thresholds lie close together, so that the guide helps little, and where some are equal."""
    thresholds = np.sort(random_words(entries, 1))
    if crowded:
        thresholds = np.sort(thresholds % np.uint64(1 << 20)) + np.uint64(1 << 40)
    thresholds[: entries // 3] = np.sort(thresholds[: entries // 3] % np.uint64(1 << 63))
    thresholds.sort()
    drawn = random_words(3000, 2)
    drawn[::3] = drawn[::3] % np.uint64(1 << 21) + np.uint64(1 << 40)
    drawn = drawn[~np.isin(drawn, thresholds)]
    out = np.full(len(drawn), 5, dtype=np.int64)
    expected = np.searchsorted(thresholds, drawn, side="right") - 7
    assert draw(drawn, thresholds, guide_of(thresholds, bits), NOTHING, -7, True, out) == len(drawn)
    assert np.array_equal(out, expected + 5)
    assert draw(drawn, thresholds, guide_of(thresholds, bits), NOTHING, -7, False, out) == len(drawn)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 10, 1000, 30_000])
@pytest.mark.parametrize("bits", [1, 3, 16])
@pytest.mark.parametrize("crowded", [False, True])
def test_draws_from_halves_are_those_of_a_search(entries, bits, crowded):
    """Up to the first half that equals one of a threshold, where it stops, and so over and over."""
    thresholds = np.sort(random_words(entries, 1))
    if crowded:
        thresholds = np.sort(thresholds % np.uint64(1 << 44)) + np.uint64(1 << 62)
    halves = np.random.default_rng(2).integers(1, (1 << 32) - 1, 3000, dtype=np.uint32)
    halves[::3] = halves[::3] % np.uint32(1 << 13) + np.uint32(1 << 30)
    upper, guide = upper_of(thresholds), guide_of(thresholds, bits)
    tied = np.isin(halves, upper[:entries])
    lowest = np.searchsorted(thresholds, halves.astype(np.uint64) << np.uint64(32), side="right")
    out = np.full(len(halves), -1, dtype=np.int64)
    no_halves, done = np.zeros(0, dtype=np.uint32), 0
    while done < len(halves):
        done += _tables.draw_halves(halves[done:], upper, guide, no_halves, 40, False, out[done:])
        assert done == len(halves) or tied[done]
        done += 1
    assert np.array_equal(out[~tied], lowest[~tied] + 40)
    assert (out[tied] == -1).all()


@pytest.mark.parametrize("undecided", [0, (1 << 32) - 1, 100, 300, 777])
def test_halves_stop_before_one_that_decides_nothing(undecided):
    thresholds = words(100, 200, 300) << np.uint64(32)
    out = np.full(4, 3, dtype=np.int64)
    drawn, unsure = np.array([99, 250, undecided, 50], dtype=np.uint32), np.array([5, 777], dtype=np.uint32)
    upper, guide = upper_of(thresholds), guide_of(thresholds, 4)
    assert _tables.draw_halves(drawn, upper, guide, unsure, 10, True, out) == 2
    assert out.tolist() == [13, 15, 3, 3]


@pytest.mark.parametrize("undecided", [0, TOP, 100, 300, 777])
def test_it_stops_before_a_word_that_decides_nothing(undecided):
    """All zeros, all ones, a threshold, the last of them, and a word that is named as unsure."""
    thresholds = words(100, 200, 300)
    out = np.full(4, -1, dtype=np.int64)
    drawn = words(99, 250, undecided, 50)
    assert draw(drawn, thresholds, guide_of(thresholds, 4), words(5, 777), 10, False, out) == 2
    assert out.tolist() == [10, 12, -1, -1]


def test_a_guide_that_leads_astray_touches_nothing_else():
    thresholds = words(100, 200, 300)
    out = np.zeros(1000, dtype=np.int64)
    for lost in (0, 3, 4, (1 << 32) - 1):
        guide = np.full(17, lost, dtype=np.uint32)
        assert draw(random_words(1000), thresholds, guide, NOTHING, 0, False, out) <= 1000
        for upper in (np.zeros(6, dtype=np.uint32), np.full(6, (1 << 32) - 1, dtype=np.uint32)):
            assert _tables.draw(random_words(1000), thresholds, upper, guide, NOTHING, 0, False, out) <= 1000
            halves = random_words(500).view(np.uint32)
            assert _tables.draw_halves(halves, upper, guide, halves[:0], 0, False, out) <= 1000
    guide = np.arange(17, dtype=np.uint32)[::-1].copy()
    assert draw(random_words(1000), thresholds, guide, NOTHING, 0, False, out) <= 1000


def test_sizes_of_nothing():
    out = np.zeros(0, dtype=np.int64)
    assert draw(NOTHING, NOTHING, guide_of(NOTHING, 1), NOTHING, 0, False, out) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"out": np.zeros(2, dtype=np.int64)},
        {"out": np.zeros(4, dtype=np.int64)},
        {"out": np.zeros(3, dtype=np.uint64)},
        {"out": np.zeros(6, dtype=np.int64)[::2]},
        {"out": np.frombuffer(bytes(24), dtype=np.int64)},
        {"words": np.zeros(3, dtype=np.int32)},
        {"words": words(1, 2, 3, 4, 5, 6)[::2]},
        {"words": None},
        {"guide": np.zeros(0, dtype=np.uint32)},
        {"guide": np.zeros(1, dtype=np.uint32)},
        {"guide": np.zeros(2, dtype=np.uint32)},
        {"guide": np.zeros(4, dtype=np.uint32)},
        {"guide": np.zeros(5, dtype=np.int64)},
        {"upper": np.zeros(3, dtype=np.uint32)},
        {"upper": np.zeros(5, dtype=np.uint32)},
        {"upper": np.zeros(4, dtype=np.uint64)},
        {"first": 1 << 64},
    ],
)
def test_wrong_input_is_refused(change):
    given = {
        "words": words(1, 2, 3),
        "thresholds": words(100),
        "upper": upper_of(words(100)),
        "guide": guide_of(words(100), 2),
        "unsure": NOTHING,
        "first": 0,
        "add": False,
        "out": np.zeros(3, dtype=np.int64),
    }
    assert _tables.draw(*given.values()) == 3
    with pytest.raises((ValueError, TypeError, OverflowError)):
        _tables.draw(*(given | change).values())


@pytest.mark.parametrize(
    "change",
    [
        {"out": np.zeros(2, dtype=np.int64)},
        {"out": np.zeros(6, dtype=np.int64)[::2]},
        {"out": np.frombuffer(bytes(24), dtype=np.int64)},
        {"words": np.zeros(3, dtype=np.uint64)},
        {"upper": np.zeros(2, dtype=np.uint32)},
        {"guide": np.zeros(2, dtype=np.uint32)},
        {"guide": np.zeros(4, dtype=np.uint32)},
        {"unsure": NOTHING},
    ],
)
def test_wrong_halves_are_refused(change):
    given = {
        "words": np.array([1, 2, 3], dtype=np.uint32),
        "upper": upper_of(words(TOP >> 1)),
        "guide": guide_of(words(TOP >> 1), 2),
        "unsure": np.zeros(0, dtype=np.uint32),
        "first": 0,
        "add": False,
        "out": np.zeros(3, dtype=np.int64),
    }
    assert _tables.draw_halves(*given.values()) == 3
    with pytest.raises((ValueError, TypeError, OverflowError)):
        _tables.draw_halves(*(given | change).values())
