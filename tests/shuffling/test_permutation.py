"""The shuffler is uniform on all permutations, on every branch of either path, and rejects a planted bias."""

import math
import os
import tracemalloc
from itertools import cycle, permutations
from threading import get_ident

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, integers
from shuffledp.shuffling import by_keys, permutation, permute
from shuffledp.testing.statistics import ALPHA, p_value

if ACTIVE:
    from shuffledp.shuffling import in_place

needs_kernels = pytest.mark.skipif(not ACTIVE, reason="the compiled kernels are not built")


def permutation_table(shuffle, size: int, trials: int, dtype=np.uint8) -> np.ndarray:
    """How often each permutation of ``size`` items came out."""
    places = {order: place for place, order in enumerate(permutations(range(size)))}
    table = np.zeros(len(places))
    fresh = np.zeros(size, dtype=dtype)
    fresh.view(np.uint8).reshape(size, -1)[:] = np.arange(size, dtype=np.uint8)[:, None]
    for _ in range(trials):
        items = fresh.copy()
        shuffle(items)
        table[places[tuple(items.view(np.uint8)[:: items.itemsize].tolist())]] += 1
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


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("size", "trials"), [(1, 10), (2, 10_000), (3, 10_000), (4, 20_000), (5, 30_000)])
def test_all_permutations_are_equally_likely(size, trials):
    assert p_value(permutation_table(permute, size, trials), uniform(size)) > ALPHA


@pytest.mark.parametrize("fault", [naive_swaps, stuck_last])
@pytest.mark.parametrize("size", [3, 4])
def test_a_biased_shuffle_is_rejected(fault, size):
    assert p_value(permutation_table(fault, size, 20_000), uniform(size)) < ALPHA


def unpredictable() -> InsecureSeededRandomness:
    """A seeded source works in one thread, which is quicker for a few items."""
    return InsecureSeededRandomness(int.from_bytes(os.urandom(8), "big"))


@pytest.fixture
def numpy_alone(monkeypatch):
    monkeypatch.setattr(permutation, "ACTIVE", False)


@pytest.fixture
def four_labels(numpy_alone, monkeypatch):
    """Four labels instead of 256, so that small arrays are scattered quickly, and groups of one or two."""
    draw_bytes = by_keys.draw_bytes
    monkeypatch.setattr(by_keys, "draw_bytes", lambda count, source: draw_bytes(count, source) & 3)
    monkeypatch.setattr(by_keys, "_LABELS", 4)
    monkeypatch.setattr(by_keys, "_LARGEST_GROUP", 2)


@pytest.mark.usefixtures("four_labels")
@pytest.mark.parametrize(("size", "trials"), [(3, 5_000), (4, 8_000)])
def test_scattering_to_groups_is_uniform(size, trials):
    source = unpredictable()
    table = permutation_table(lambda items: permute(items, source), size, trials)
    assert p_value(table, uniform(size)) > ALPHA


@pytest.fixture
def one_byte(numpy_alone, monkeypatch):
    """A scratch memory of one byte: coins split items in place."""
    monkeypatch.setattr(by_keys, "_SCRATCH_BYTES", 1)
    monkeypatch.setattr(by_keys, "_BLOCK", 1)


@pytest.mark.usefixtures("one_byte")
@pytest.mark.parametrize(("size", "trials"), [(5, 12_000)])
def test_splitting_by_coins_is_uniform(size, trials):
    source = unpredictable()
    table = permutation_table(lambda items: permute(items, source), size, trials)
    assert p_value(table, uniform(size)) > ALPHA


@pytest.mark.usefixtures("one_byte")
def test_coins_that_repeat_would_be_noticed(monkeypatch):
    """The same split every time leaves the halves apart, however well each is permuted."""
    alternating = cycle((0x80, 0x00))
    monkeypatch.setattr(by_keys, "draw_bytes", lambda count, _: np.full(count, next(alternating), dtype=np.uint8))
    assert p_value(permutation_table(permute, 5, 5_000), uniform(5)) < ALPHA


@pytest.mark.usefixtures("numpy_alone")
def test_equal_keys_are_ordered_uniformly(monkeypatch):
    """Keys of one bit tie all the time; leaving ties in place must be rejected."""
    draw_words = by_keys.draw_words

    def few_keys(count, dtype, source):
        words = draw_words(count, dtype, source)
        return words & 1 if dtype == np.uint16 else words

    monkeypatch.setattr(by_keys, "draw_words", few_keys)
    assert p_value(permutation_table(permute, 4, 20_000), uniform(4)) > ALPHA
    monkeypatch.setattr(by_keys, "_order_ties", lambda *_: None)
    assert p_value(permutation_table(permute, 4, 20_000), uniform(4)) < ALPHA


@pytest.fixture
def tiny(monkeypatch):
    """With the kernels: groups of two items' bytes are large, and a thread is worth its while for one byte.

    Parts of threads follow one another in this thread, which is much quicker.
    """

    def set_up(*, labels: int, largest: int, really: bool = False) -> None:
        monkeypatch.setattr(in_place, "_LABELS", labels)
        monkeypatch.setattr(in_place, "_LARGEST_GROUP_BYTES", largest)
        monkeypatch.setattr(in_place, "_LEAST_BYTES_A_THREAD", 1)
        if not really:
            monkeypatch.setattr(in_place, "_in_threads", lambda work, streams: [work(stream) for stream in streams])

    return set_up


@needs_kernels
@pytest.mark.parametrize(
    ("size", "trials", "labels", "largest", "threads", "dtype"),
    [
        (6, 20_000, 1, 6, 1, "u1"),
        (4, 10_000, 2, 1, 1, "u1"),
        (5, 10_000, 2, 3, 1, "u1"),
        (6, 15_000, 4, 2, 1, "u1"),
        (5, 10_000, 256, 2, 1, "u1"),
        (4, 10_000, 2, 1, 2, "u1"),
        (5, 10_000, 2, 2, 2, "u1"),
        (6, 15_000, 2, 2, 3, "u1"),
        (5, 10_000, 4, 2, 2, "u1"),
        (5, 10_000, 2, 4, 1, "u2"),
        (5, 10_000, 2, 8, 1, "u4"),
        (5, 10_000, 2, 16, 2, "u8"),
        (5, 10_000, 2, 7, 1, "V3"),
        (5, 10_000, 2, 90, 2, "V41"),
        (4, 10_000, 2, 1, 1, "V4096"),
    ],
)
def test_every_native_route_is_uniform(tiny, size, trials, labels, largest, threads, dtype):
    """Whole, in groups (of groups), in parts of several threads; numbers, records and wide records."""
    tiny(labels=labels, largest=largest)
    table = permutation_table(lambda items: permute(items, SYSTEM, threads=threads), size, trials, dtype)
    assert p_value(table, uniform(size)) > ALPHA


@needs_kernels
def test_real_threads_are_uniform(tiny, monkeypatch):
    tiny(labels=2, largest=2, really=True)
    workers, draw = set(), in_place._Stream.scatter

    def noted(*arguments):
        workers.add(get_ident())
        return draw(*arguments)

    monkeypatch.setattr(in_place._Stream, "scatter", noted)
    table = permutation_table(lambda items: permute(items, threads=2), 4, 500)
    assert p_value(table, uniform(4)) > ALPHA
    assert len(workers - {get_ident()}) > 1


def first_label_is_zero(monkeypatch) -> None:
    scatter = in_place.scatter

    def unfair(content, size, heads, ends, labels):
        labels[0] = 0
        return scatter(content, size, heads, ends, labels)

    monkeypatch.setattr(in_place, "scatter", unfair)


def last_labels_are_balanced(monkeypatch) -> None:
    """Every group gets as many of the last items."""
    monkeypatch.setattr(in_place, "draw_bytes", lambda count, _: np.arange(count, dtype=np.uint8))


def one_label_too_many_is_looked_at(monkeypatch) -> None:
    """A label without room is forgotten, and the item gets another one."""
    settle = in_place.settle

    def biased(content, size, begins, heads, labels, bounds):
        full = 0 if heads[0] == begins[1] else 1
        if labels[0] % 2 == full:
            labels[0] = os.urandom(1)[0]
        settle(content, size, begins, heads, labels, bounds)

    monkeypatch.setattr(in_place, "settle", biased)


def groups_are_left_as_they_are(monkeypatch) -> None:
    monkeypatch.setattr(in_place, "fisher_yates", lambda content, size, place, words, used: (len(content), used))


def the_second_item_stays(monkeypatch) -> None:
    fisher_yates = in_place.fisher_yates
    late = lambda content, size, place, words, used: fisher_yates(  # noqa: E731
        content, size, max(place, min(2, len(content))), words, used
    )
    monkeypatch.setattr(in_place, "fisher_yates", late)


def threads_keep_their_own(monkeypatch) -> None:
    """Places of groups depend on which thread labelled an item: each thread permutes what it had."""

    def halves(content, size, streams):
        cuts = [len(content) * part // len(streams) for part in range(len(streams) + 1)]
        for stream, start, end in zip(streams, cuts, cuts[1:], strict=False):
            stream.permute(content[start:end], size)

    monkeypatch.setattr(in_place, "_permute_groups", halves)


@needs_kernels
@pytest.mark.parametrize(
    ("fault", "threads"),
    [
        (first_label_is_zero, 1),
        (first_label_is_zero, 2),
        (last_labels_are_balanced, 1),
        (last_labels_are_balanced, 2),
        (one_label_too_many_is_looked_at, 1),
        (groups_are_left_as_they_are, 1),
        (groups_are_left_as_they_are, 2),
        (the_second_item_stays, 1),
        (threads_keep_their_own, 2),
    ],
)
def test_a_fault_of_a_native_route_is_rejected(tiny, monkeypatch, fault, threads):
    tiny(labels=2, largest=2)
    fault(monkeypatch)
    table = permutation_table(lambda items: permute(items, SYSTEM, threads=threads), 4, 10_000)
    assert p_value(table, uniform(4)) < ALPHA


@needs_kernels
def test_threads_are_as_many_as_is_asked_for(monkeypatch):
    used = []
    monkeypatch.setattr(in_place, "_in_threads", lambda work, streams: [used.append(len(streams)), *map(work, streams)])
    monkeypatch.setattr(in_place, "_LARGEST_GROUP_BYTES", 1 << 16)
    monkeypatch.setattr(in_place, "_LEAST_BYTES_A_THREAD", 1 << 16)
    monkeypatch.setattr(permutation, "available_cores", lambda: 3)
    for options, expected in [
        ({}, 3),
        ({"threads": 2}, 2),
        ({"threads": 100}, 6),
        ({"threads": 2, "source": InsecureSeededRandomness(1)}, 1),
    ]:
        permute(np.arange(100_000, dtype=np.uint32), **options)
        assert set(used) == {expected}
        used.clear()


@needs_kernels
def test_random_numbers_are_erased(monkeypatch):
    streams, made = [], in_place._Stream.__init__

    def noted(self, *arguments):
        made(self, *arguments)
        streams.append(self)

    monkeypatch.setattr(in_place._Stream, "__init__", noted)
    permute(np.arange(1_000))
    assert streams
    assert not any(stream._words.any() for stream in streams)


@needs_kernels
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "V3", "V16", "V41", "V100"])
@pytest.mark.parametrize("threads", [1, 3])
def test_groups_of_real_size_keep_every_item(monkeypatch, dtype, threads):
    """Several buffers, groups of groups, and every kind of item; origin and arrival are independent."""
    monkeypatch.setattr(in_place, "_LARGEST_GROUP_BYTES", 1 << 12)
    monkeypatch.setattr(in_place, "_LEAST_BYTES_A_THREAD", 1 << 16)
    monkeypatch.setattr(in_place, "BUFFER_BYTES", 1 << 14)
    size, cells = 250_000, 16
    items = np.zeros(size, dtype=dtype)
    rows = items.view(np.uint8).reshape(size, -1)
    numbers = np.arange(size)
    for column in range(rows.shape[1]):
        rows[:, column] = (numbers >> (8 * (2 - column % 3))) & 255
    before = np.sort(rows[:, 0])
    permute(items, threads=threads)
    assert np.array_equal(np.sort(rows[:, 0]), before)
    if rows.shape[1] >= 3:
        found = rows[:, :3].astype(np.int64) @ [1 << 16, 1 << 8, 1]
        assert np.array_equal(np.sort(found), numbers)
        for column in range(3, rows.shape[1]):
            assert np.array_equal(rows[:, column], rows[:, column % 3])
        table = np.bincount((found * cells // size) * cells + numbers * cells // size, minlength=cells**2)
        assert p_value(table, np.full(cells**2, cells**-2.0)) > ALPHA


@needs_kernels
@pytest.mark.parametrize(("size", "threads"), [(3_000_000, 1), (10_000_000, 2)])
def test_millions_are_a_permutation_and_marked_items_land_everywhere(size, threads):
    """The first hundred thousand items land in each of a thousand stretches alike."""
    marked, cells = 100_000, 1_000
    items = np.arange(size, dtype=np.uint32)
    permute(items, threads=threads)
    arrival = np.flatnonzero(items < marked)
    assert len(arrival) == marked
    seen = np.zeros(size, dtype=np.bool_)
    seen[items] = True
    assert seen.all()
    table = np.bincount(arrival * cells // size, minlength=cells)
    assert p_value(table, np.full(cells, 1 / cells)) > ALPHA


@pytest.mark.usefixtures("path")
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


@pytest.mark.usefixtures("path")
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
    assert extra_kib < (64 if ACTIVE else 256) * 1024
    seen = np.zeros(size, dtype=np.bool_)
    seen[items] = True
    assert seen.all()
    cells = 64
    origin, arrival = items.astype(np.int64) * cells // size, np.arange(size) * cells // size
    assert p_value(np.bincount(origin * cells + arrival, minlength=cells**2), np.full(cells**2, 1 / cells**2)) > ALPHA


@pytest.mark.parametrize(("size", "width"), [(200_000, 1024), (66_000, 4096), (40_000, 8192)])
def test_scratch_memory_is_bounded_for_wide_items(size, width, path):
    items = np.zeros(size, dtype=f"V{width}")
    items.view(np.uint64).reshape(size, -1)[:, 3] = np.arange(size)
    tracemalloc.start()
    permute(items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (2 if path == "native" else 128) << 20
    assert np.array_equal(np.sort(items.view(np.uint64).reshape(size, -1)[:, 3]), np.arange(size))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("size", [100, 1_500_000])
def test_a_seed_gives_one_permutation(size):
    first, second = np.arange(size), np.arange(size)
    permute(first, InsecureSeededRandomness(3))
    permute(second, InsecureSeededRandomness(3))
    assert np.array_equal(first, second)


@needs_kernels
def test_scratch_memory_does_not_grow_with_the_items():
    items = np.zeros(30_000_000, dtype=np.uint16)
    tracemalloc.start()
    permute(items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.usefixtures("path")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.tuples(st.integers(0, 40), st.integers(1, 4)))
def test_rows_stay_together(shape):
    rows = np.arange(shape[0] * shape[1]).reshape(shape)
    shuffled = rows.copy()
    permute(shuffled)
    assert sorted(map(tuple, shuffled.tolist())) == sorted(map(tuple, rows.tolist()))


@pytest.mark.usefixtures("path")
def test_a_view_is_permuted_in_place():
    items = np.arange(100_000)
    permute(items[::2])
    assert np.array_equal(items[1::2], np.arange(1, 100_000, 2))
    assert np.array_equal(np.sort(items[::2]), np.arange(0, 100_000, 2))
    permute(items[:100:-1])
    assert np.array_equal(np.sort(items), np.arange(100_000))
    rows = np.asfortranarray(np.arange(100_000).reshape(-1, 5))
    permute(rows)
    assert np.array_equal(rows[:, 0] + 4, rows[:, 4])
    assert np.array_equal(np.sort(rows[:, 0]), np.arange(0, 100_000, 5))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    "items",
    [
        np.empty(0),
        np.empty((5, 0)),
        np.empty((0, 5)),
        np.zeros(3, dtype="V0"),
        np.zeros(1),
        np.zeros((1, 3, 2)),
    ],
    ids=lambda items: str(items.shape),
)
def test_nothing_to_permute(items):
    before = items.copy()
    permute(items)
    assert np.array_equal(items, before)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", ["datetime64[s]", "S5", "U3", ">i4", "c16", "f2", "?", [("a", "u1"), ("b", "f8")]])
def test_items_of_any_type(dtype):
    items = np.zeros(1_000, dtype=dtype)
    content = items.view(np.uint8).reshape(1_000, -1)
    content[:, 0] = np.arange(1_000) % 2
    permute(items)
    assert content[:, 0].sum() == 500
    assert not np.array_equal(content[:, 0], np.arange(1_000) % 2)


@pytest.mark.usefixtures("path")
def test_items_in_a_file(tmp_path):
    items = np.memmap(tmp_path / "items", dtype=np.uint32, mode="w+", shape=(10_000,))
    items[:] = np.arange(10_000)
    permute(items)
    assert not np.array_equal(items, np.arange(10_000))
    assert np.array_equal(np.sort(items), np.arange(10_000))


@pytest.mark.usefixtures("path")
def test_masks_go_with_their_items():
    items = np.ma.masked_array(np.arange(1_000), mask=np.arange(1_000) % 2 == 0)
    permute(items)
    assert np.array_equal(items.mask, items.data % 2 == 0)


def test_what_cannot_be_permuted_is_refused():
    frozen = np.arange(3)
    frozen.flags.writeable = False
    for items in (frozen, np.array(5), [1, 2, 3], np.array(["a", None], dtype=object)):
        with pytest.raises(ParameterError):
            permute(items)
    for threads in (0, -1, 1.5, "two"):
        with pytest.raises(ParameterError, match="at least one thread"):
            permute(np.arange(3), threads=threads)
