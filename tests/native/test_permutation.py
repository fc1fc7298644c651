"""The kernels against plain Python, item by item; bad arguments raise and touch nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

kernels = pytest.importorskip("shuffledp.native._permutation")

SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 33, 60, 100, 129)


def numbered(count: int, size: int) -> np.ndarray:
    """Items that all differ where their size allows it, each of one repeated pattern, so that a torn one is noticed."""
    number = np.arange(count)[:, None]
    place = np.arange(size)
    return ((number >> (8 * (place % 2))) + 31 * (place // 2)).astype(np.uint8).ravel()


def items_of(content: np.ndarray, size: int) -> list[bytes]:
    return [bytes(row) for row in content.reshape(-1, size)]


def misaligned(content: np.ndarray) -> np.ndarray:
    room = np.empty(len(content) + 8, dtype=np.uint8)
    start = 1 + (-room.ctypes.data) % 8
    room[start : start + len(content)] = content
    return room[start : start + len(content)]


def swapped(items: list, words: list[int]) -> tuple[list, int, int]:
    """Fisher-Yates in plain Python: the items, the place and the number of words used."""
    result, place = list(items), 0
    for used, word in enumerate(words):
        if place == len(items):
            return result, place, used
        bound = place + 1
        if word * bound % 2**32 < 2**32 % bound:
            continue
        target = word * bound >> 32
        result[place], result[target] = result[target], result[place]
        place += 1
    return result, place, len(words)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("moved", [False, True], ids=["aligned", "misaligned"])
def test_fisher_yates_is_as_in_python(size, moved):
    words = np.random.default_rng().integers(2**32, size=300, dtype=np.uint32)
    before = numbered(250, size)
    content = misaligned(before) if moved else before.copy()
    place = used = 0
    for stop in (0, 1, 100, 101, 300):  # the words come in pieces
        place, used = kernels.fisher_yates(content, size, place, words[:stop], min(used, stop))
    expected, all_placed, all_used = swapped(items_of(before, size), words.tolist())
    assert (place, used) == (all_placed, all_used)
    assert items_of(content, size) == expected


def test_words_that_would_favour_a_place_are_rejected():
    """Of 2^32 words 2^32 mod bound are too many: for bounds of 3 and 5 it is the word 0, the smallest."""
    content = np.arange(3, dtype=np.uint8)
    assert kernels.fisher_yates(content, 1, 2, np.array([0], dtype=np.uint32), 0) == (2, 1)
    assert content.tolist() == [0, 1, 2]
    assert kernels.fisher_yates(content, 1, 2, np.array([0, 0, 1], dtype=np.uint32), 0) == (3, 3)
    assert content.tolist() == [2, 1, 0]
    for word, target in ((2**32 // 3, 0), (2**32 // 3 + 1, 1), (2**32 - 1, 2)):
        content = np.arange(3, dtype=np.uint8)
        kernels.fisher_yates(content, 1, 2, np.array([word], dtype=np.uint32), 0)
        assert content.tolist().index(2) == target


@given(st.data(), st.sampled_from([1, 2, 4, 8, 3, 20]), st.sampled_from([1, 2, 4]), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_items_go_to_the_groups_of_their_labels(data, size, labels, parts):
    """Scattering in several parts, then settling: the groups are together, with as many items as there were labels."""
    count = data.draw(st.integers(0, 40))
    content = numbered(count, size)
    before = items_of(content, size)
    cuts = np.arange(labels * parts + 1, dtype=np.int64) * count // (labels * parts)
    heads, given_labels = cuts[:-1].copy(), []
    for part in range(parts):
        own = slice(part, None, parts)
        own_heads, ends = heads[own].copy(), cuts[1:][own].copy()
        drawn = np.array(data.draw(st.lists(st.integers(0, 255), max_size=20)), dtype=np.uint8)
        used = kernels.scatter(content, size, own_heads, ends, drawn)
        given_labels += (drawn[:used] % labels).tolist()
        moved = own_heads - heads[own]
        assert moved.tolist() == [(drawn[:used] % labels == label).sum() for label in range(labels)]
        room = ends - own_heads
        room[-1] -= room[-1] > 0
        assert used == len(drawn) or room.min() == 0
        heads[own] = own_heads
    assert sorted(items_of(content, size)) == sorted(before)
    placed = [items_of(content[start * size : end * size], size) for start, end in zip(cuts[:-1], heads, strict=True)]
    missing = count - len(given_labels)
    drawn = np.array(data.draw(st.lists(st.integers(0, 255), min_size=missing, max_size=missing)), dtype=np.uint8)
    bounds = np.empty(labels + 1, dtype=np.int64)
    kernels.settle(content, size, cuts[:-1], heads, drawn, bounds)
    given_labels += (drawn % labels).tolist()
    assert bounds.tolist() == [sum(label < border for label in given_labels) for border in range(labels + 1)]
    assert sorted(items_of(content, size)) == sorted(before)
    for label in range(labels):
        group = items_of(content[bounds[label] * size : bounds[label + 1] * size], size)
        for segment in placed[label * parts : (label + 1) * parts]:
            for item in segment:
                group.remove(item)  # raises if it is not there


def test_the_next_label_is_not_looked_at_when_a_segment_is_full():
    """Else the item would get another label in the end, and be too seldom where there was no room."""
    content = np.arange(8, dtype=np.uint8)
    heads, ends = np.array([0, 4]), np.array([4, 8])
    assert kernels.scatter(content, 1, heads, ends, np.array([0, 0, 0, 0, 1, 0], dtype=np.uint8)) == 4
    assert heads.tolist() == [4, 4]
    content, heads = np.arange(8, dtype=np.uint8), np.array([0, 4])
    assert kernels.scatter(content, 1, heads, ends, np.array([1, 3, 255, 0], dtype=np.uint8)) == 3
    assert heads.tolist() == [0, 7]
    assert kernels.scatter(content, 1, heads, ends, np.array([0], dtype=np.uint8)) == 0


def test_items_in_the_order_of_their_labels():
    """The last item is first in the hand; then comes what was at the head where the one before went."""
    content = np.arange(6, dtype=np.uint8)
    heads = np.array([0, 3])
    assert kernels.scatter(content, 1, heads, np.array([3, 6]), np.array([0, 0, 1], dtype=np.uint8)) == 3
    assert heads.tolist() == [2, 4]
    assert content.tolist() == [5, 0, 2, 1, 4, 3]


def array(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_bad_arguments_are_refused():
    content, labels, words = np.arange(8, dtype=np.uint8), np.zeros(8, dtype=np.uint8), np.zeros(8, dtype=np.uint32)
    frozen = content.copy()
    frozen.flags.writeable = False
    wrong_segments = [
        (array(0, 4), array(4, 9)),
        (array(0, 4), array(5, 8)),
        (array(-1, 4), array(4, 8)),
        (array(4, 0), array(8, 4)),
        (array(5, 6), array(4, 8)),
        (array(0, 4), array(8)),
        (array(0, 2, 4), array(2, 4, 8)),
        (array(), array()),
        (np.zeros(512, dtype=np.int64), np.zeros(512, dtype=np.int64)),
        (array(0, 1 << 62), array(4, (1 << 62) + 4)),
    ]
    for heads, ends in wrong_segments:
        with pytest.raises(ValueError, match="must be"):
            kernels.scatter(content, 1, heads, ends, labels)
    for begins, heads, given_labels, bounds in [
        (array(0, 4), array(2, 6), labels[:3], array(0, 0, 0)),
        (array(0, 4), array(2, 6), labels[:5], array(0, 0, 0)),
        (array(0, 4), array(5, 6), labels[:1], array(0, 0, 0)),
        (array(0, 4), array(4, 9), labels[:0], array(0, 0, 0)),
        (array(0, 4), array(2, 3), labels[:7], array(0, 0, 0)),
        (array(-2, 4), array(2, 6), labels[:2], array(0, 0, 0)),
        (array(0, 4, 6), array(2, 4, 6), labels[:6], array(0, 0, 0)),
        (array(0, 4), array(2), labels[:6], array(0, 0, 0)),
        (array(), array(), labels, array(0, 0, 0)),
        (array(0), array(0), labels, array(0)),
        (array(0), array(0), labels, array()),
        (array(0, -(1 << 62)), array(8, 1 << 62), labels[:0], array(0, 0, 0)),
    ]:
        with pytest.raises(ValueError, match="must"):
            kernels.settle(content, 1, begins, heads, given_labels, bounds)
    for place, used in [(-1, 0), (9, 0), (0, -1), (0, 9)]:
        with pytest.raises(ValueError, match="must lie within"):
            kernels.fisher_yates(content, 1, place, words, used)
    for size in (0, -1, 3, 16, 1 << 62):
        with pytest.raises(ValueError, match="divide the number of bytes"):
            kernels.fisher_yates(content, size, 0, words, 0)
        with pytest.raises(ValueError, match="divide the number of bytes"):
            kernels.scatter(content, size, array(0, 0), array(0, 0), labels)
        with pytest.raises(ValueError, match="divide the number of bytes"):
            kernels.settle(content, size, array(0), array(0), labels, array(0, 0))
    for wrong in (frozen, content[::2], content.view(np.uint16), content.reshape(2, 4), None, content.tolist()):
        with pytest.raises((ValueError, TypeError)):
            kernels.fisher_yates(wrong, 1, 0, words, 0)
        with pytest.raises((ValueError, TypeError)):
            kernels.scatter(wrong, 1, array(0, 4), array(4, 8), labels)
        with pytest.raises((ValueError, TypeError)):
            kernels.settle(wrong, 1, array(0, 4), array(4, 8), labels[:0], array(0, 0, 0))
    for arguments in [(None, array(4, 8), labels), (array(0, 4), None, labels), (array(0, 4), array(4, 8), None)]:
        with pytest.raises(TypeError):
            kernels.scatter(content, 1, *arguments)
    assert content.tolist() == list(range(8))


def test_nothing_to_do():
    nothing, words = np.empty(0, dtype=np.uint8), np.zeros(3, dtype=np.uint32)
    bounds = array(5, 5, 5)
    assert kernels.fisher_yates(nothing, 4, 0, words, 1) == (0, 1)
    assert kernels.fisher_yates(np.zeros(4, dtype=np.uint8), 4, 0, words[:0], 0) == (0, 0)
    assert kernels.scatter(nothing, 4, array(0, 0), array(0, 0), np.zeros(3, dtype=np.uint8)) == 0
    kernels.settle(nothing, 4, array(0, 0), array(0, 0), nothing, bounds)
    assert bounds.tolist() == [0, 0, 0]
