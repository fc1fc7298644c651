"""The shuffler is uniform on all permutations, on every branch, and rejects a planted bias."""

import math
import os
import tracemalloc
from itertools import cycle, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.randomness import InsecureSeededRandomness, integers
from shuffledp.shuffling import permutation, permute
from shuffledp.testing.statistics import ALPHA, p_value


def permutation_table(shuffle, size: int, trials: int) -> np.ndarray:
    """How often each permutation of ``size`` items came out."""
    places = {order: place for place, order in enumerate(permutations(range(size)))}
    table = np.zeros(len(places))
    for _ in range(trials):
        items = np.arange(size, dtype=np.uint8)
        shuffle(items)
        table[places[tuple(items.tolist())]] += 1
    return table


def uniform(size: int) -> np.ndarray:
    return np.full(math.factorial(size), 1 / math.factorial(size))


def naive_swaps(items) -> None:
    """The classic mistake: swap each place with any place."""
    targets = integers(len(items), len(items)).astype(np.int64)
    for place, target in enumerate(targets):
        items[place], items[target] = items[target], items[place]


def stuck_last(items) -> None:
    """The last item never moves."""
    permute(items[:-1])


@pytest.mark.parametrize(("size", "trials"), [(1, 10), (2, 20_000), (3, 20_000), (4, 30_000), (5, 40_000)])
def test_all_permutations_are_equally_likely(size, trials):
    assert p_value(permutation_table(permute, size, trials), uniform(size)) > ALPHA


@pytest.mark.parametrize("fault", [naive_swaps, stuck_last])
@pytest.mark.parametrize("size", [3, 4])
def test_a_biased_shuffle_is_rejected(fault, size):
    assert p_value(permutation_table(fault, size, 20_000), uniform(size)) < ALPHA


@pytest.fixture
def four_labels(monkeypatch):
    """Four labels instead of 256, so that small arrays are scattered quickly, and groups of one or two."""
    draw_bytes = permutation.draw_bytes
    monkeypatch.setattr(permutation, "draw_bytes", lambda count, source: draw_bytes(count, source) & 3)
    monkeypatch.setattr(permutation, "_LABELS", 4)
    monkeypatch.setattr(permutation, "_LARGEST_GROUP", 2)


def unpredictable() -> InsecureSeededRandomness:
    """A seeded source works in one thread, which is quicker for a few items."""
    return InsecureSeededRandomness(int.from_bytes(os.urandom(8), "big"))


@pytest.mark.usefixtures("four_labels")
@pytest.mark.parametrize(("size", "trials"), [(3, 10_000), (4, 15_000)])
def test_scattering_to_groups_is_uniform(size, trials):
    source = unpredictable()
    table = permutation_table(lambda items: permute(items, source), size, trials)
    assert p_value(table, uniform(size)) > ALPHA


@pytest.mark.parametrize(("size", "trials"), [(5, 20_000)])
def test_splitting_by_coins_is_uniform(monkeypatch, size, trials):
    """Five one-byte items exceed a scratch memory of one byte, so that coins split them in place."""
    monkeypatch.setattr(permutation, "_SCRATCH_BYTES", 1)
    monkeypatch.setattr(permutation, "_BLOCK", 1)
    source = unpredictable()
    table = permutation_table(lambda items: permute(items, source), size, trials)
    assert p_value(table, uniform(size)) > ALPHA


def test_coins_that_repeat_would_be_noticed(monkeypatch):
    """The same split every time leaves the halves apart, however well each is permuted."""
    monkeypatch.setattr(permutation, "_SCRATCH_BYTES", 1)
    monkeypatch.setattr(permutation, "_BLOCK", 1)
    alternating = cycle((0x80, 0x00))
    monkeypatch.setattr(permutation, "draw_bytes", lambda count, _: np.full(count, next(alternating), dtype=np.uint8))
    assert p_value(permutation_table(permute, 5, 5_000), uniform(5)) < ALPHA


def test_equal_keys_are_ordered_uniformly(monkeypatch):
    """Keys of one bit tie all the time; leaving ties in place must be rejected."""
    draw_words = permutation.draw_words

    def few_keys(count, dtype, source):
        words = draw_words(count, dtype, source)
        return words & 1 if dtype == np.uint16 else words

    monkeypatch.setattr(permutation, "draw_words", few_keys)
    assert p_value(permutation_table(permute, 4, 20_000), uniform(4)) > ALPHA
    monkeypatch.setattr(permutation, "_order_ties", lambda *_: None)
    assert p_value(permutation_table(permute, 4, 20_000), uniform(4)) < ALPHA


@pytest.mark.parametrize("size", [70_000, 300_000, 3_000_000])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, "V24"])
def test_large_arrays_keep_every_item(size, dtype):
    if dtype == "V24":
        items = np.zeros(size, dtype="V24")
        items.view(np.uint8).reshape(size, 24)[:, :8] = np.arange(size, dtype=np.uint64)[:, None].view(np.uint8)
        items.view(np.uint8).reshape(size, 24)[:, 16:] = items.view(np.uint8).reshape(size, 24)[:, :8]
    else:
        items = (np.arange(size) % 251).astype(dtype) if dtype == np.uint8 else np.arange(size, dtype=dtype)
    before = np.sort(items.view(np.uint8).reshape(size, -1)[:, 0]) if dtype == "V24" else np.sort(items)
    shuffled = items.copy()
    permute(shuffled)
    if dtype == "V24":
        rows = shuffled.view(np.uint8).reshape(size, 24)
        assert np.array_equal(rows[:, :8], rows[:, 16:])
        numbers = np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel()
        assert np.array_equal(np.sort(numbers), np.arange(size))
        assert np.array_equal(np.sort(rows[:, 0]), before)
    else:
        assert np.array_equal(np.sort(shuffled), before)
        assert not np.array_equal(shuffled, items)


def test_where_an_item_lands_is_uniform_at_full_size():
    """An item's block of origin against its block of arrival over real pieces; a local shuffle fails."""
    size, cells = 1 << 20, 16
    items = np.arange(size, dtype=np.uint32)
    permute(items)
    origin, arrival = items * cells // size, np.arange(size) * cells // size
    law = np.full(cells * cells, 1 / cells**2)
    table = np.bincount(origin.astype(np.int64) * cells + arrival, minlength=cells * cells)
    assert p_value(table, law) > ALPHA / 10
    local = np.concatenate([np.random.default_rng().permutation(part) for part in np.split(np.arange(size), 8)])
    local_table = np.bincount((local * cells // size) * cells + arrival, minlength=cells * cells)
    assert p_value(local_table, law) < ALPHA


@pytest.mark.slow
def test_a_hundred_million_messages_in_place_with_bounded_scratch():
    import resource

    size = 100_000_000
    items = np.arange(size, dtype=np.uint32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    permute(items)
    extra_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert extra_kib < 256 * 1024
    seen = np.zeros(size, dtype=np.bool_)
    seen[items] = True
    assert seen.all()
    cells = 64
    origin, arrival = items.astype(np.int64) * cells // size, np.arange(size) * cells // size
    assert p_value(np.bincount(origin * cells + arrival, minlength=cells**2), np.full(cells**2, 1 / cells**2)) > ALPHA


@pytest.mark.parametrize(("size", "width"), [(200_000, 1024), (66_000, 4096), (40_000, 8192)])
def test_scratch_memory_is_bounded_for_wide_items(size, width):
    items = np.zeros(size, dtype=f"V{width}")
    items.view(np.uint64).reshape(size, -1)[:, 3] = np.arange(size)
    tracemalloc.start()
    permute(items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 20
    assert np.array_equal(np.sort(items.view(np.uint64).reshape(size, -1)[:, 3]), np.arange(size))


def test_a_seed_gives_one_permutation():
    first, second = np.arange(200_000), np.arange(200_000)
    permute(first, InsecureSeededRandomness(3))
    permute(second, InsecureSeededRandomness(3))
    assert np.array_equal(first, second)


@settings(max_examples=30)
@given(shape=st.tuples(st.integers(0, 40), st.integers(1, 4)))
def test_rows_stay_together(shape):
    rows = np.arange(shape[0] * shape[1]).reshape(shape)
    shuffled = rows.copy()
    permute(shuffled)
    assert sorted(map(tuple, shuffled.tolist())) == sorted(map(tuple, rows.tolist()))


def test_a_view_is_permuted_in_place():
    items = np.arange(100_000)
    permute(items[::2])
    assert np.array_equal(items[1::2], np.arange(1, 100_000, 2))
    assert np.array_equal(np.sort(items[::2]), np.arange(0, 100_000, 2))


def test_what_cannot_be_permuted_is_refused():
    frozen = np.arange(3)
    frozen.flags.writeable = False
    for items in (frozen, np.array(5), [1, 2, 3], np.array(["a", None], dtype=object)):
        with pytest.raises(ParameterError):
            permute(items)
