"""Permuting by random keys with numpy is uniform on each of its branches, and rejects planted faults."""

import os
from itertools import cycle

import numpy as np
import pytest

from shuffledp.randomness import InsecureSeededRandomness
from shuffledp.shuffling import by_keys, permutation, permute
from shuffledp.testing.statistics import ALPHA


@pytest.fixture
def numpy_alone(monkeypatch):
    monkeypatch.setattr(permutation, "ACTIVE", False)


def unpredictable() -> InsecureSeededRandomness:
    """A seeded source works in one thread, which is quicker for a few items."""
    return InsecureSeededRandomness(int.from_bytes(os.urandom(8), "big"))


@pytest.fixture
def four_labels(numpy_alone, monkeypatch):
    """Four labels instead of 256, so that small arrays are scattered quickly, and groups of one or two."""
    draw_bytes = by_keys.draw_bytes
    monkeypatch.setattr(by_keys, "draw_bytes", lambda count, source: draw_bytes(count, source) & 3)
    monkeypatch.setattr(by_keys, "_LABELS", 4)
    monkeypatch.setattr(by_keys, "_LARGEST_GROUP", 2)


@pytest.mark.usefixtures("four_labels")
@pytest.mark.parametrize(("size", "trials"), [(3, 1_000), (4, 2_500)])
def test_scattering_to_groups_is_uniform(uniformity, size, trials):
    source = unpredictable()
    assert uniformity(lambda items: permute(items, source), size, trials) > ALPHA


@pytest.fixture
def one_byte(numpy_alone, monkeypatch):
    """A scratch memory of one byte: coins split items in place."""
    monkeypatch.setattr(by_keys, "_SCRATCH_BYTES", 1)
    monkeypatch.setattr(by_keys, "_BLOCK", 1)


@pytest.mark.usefixtures("one_byte")
@pytest.mark.parametrize(("size", "trials"), [(5, 3_000)])
def test_splitting_by_coins_is_uniform(uniformity, size, trials):
    source = unpredictable()
    assert uniformity(lambda items: permute(items, source), size, trials) > ALPHA


@pytest.mark.usefixtures("one_byte")
def test_coins_that_repeat_would_be_noticed(uniformity, monkeypatch):
    """The same split every time leaves the halves apart, however well each is permuted."""
    alternating = cycle((0x80, 0x00))
    monkeypatch.setattr(by_keys, "draw_bytes", lambda count, _: np.full(count, next(alternating), dtype=np.uint8))
    assert uniformity(permute, 5, 2_500) < ALPHA


@pytest.mark.usefixtures("numpy_alone")
def test_equal_keys_are_ordered_uniformly(uniformity, monkeypatch):
    """Keys of one bit tie all the time; leaving ties in place must be rejected."""
    draw_words = by_keys.draw_words

    def few_keys(count, dtype, source):
        words = draw_words(count, dtype, source)
        return words & 1 if dtype == np.uint16 else words

    monkeypatch.setattr(by_keys, "draw_words", few_keys)
    assert uniformity(permute, 4, 4_000) > ALPHA
    monkeypatch.setattr(by_keys, "_order_ties", lambda *_: None)
    assert uniformity(permute, 4, 4_000) < ALPHA
