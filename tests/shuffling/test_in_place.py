"""Permuting in place with the kernels is uniform on every route, rejects planted faults, and keeps to its memory."""

import os
import tracemalloc
from threading import get_ident

import numpy as np
import pytest

from shuffledp.native import ACTIVE
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness
from shuffledp.shuffling import permutation, permute
from shuffledp.testing.statistics import ALPHA, p_value

if ACTIVE:
    from shuffledp.shuffling import in_place

pytestmark = pytest.mark.skipif(not ACTIVE, reason="the compiled kernels are not built")

FAULTY_TRIALS = 3_000


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


@pytest.mark.parametrize(
    ("size", "trials", "labels", "largest", "threads", "dtype"),
    [
        (6, 10_000, 1, 6, 1, "u1"),
        (4, 2_500, 2, 1, 1, "u1"),
        pytest.param(5, 10_000, 2, 3, 1, "u1", marks=pytest.mark.slow),
        (6, 9_000, 4, 2, 1, "u1"),
        pytest.param(5, 10_000, 256, 2, 1, "u1", marks=pytest.mark.slow),
        pytest.param(4, 10_000, 2, 1, 2, "u1", marks=pytest.mark.slow),
        (5, 3_000, 2, 2, 2, "u1"),
        pytest.param(6, 15_000, 2, 2, 3, "u1", marks=pytest.mark.slow),
        (5, 3_000, 4, 2, 2, "u1"),
        pytest.param(5, 10_000, 2, 4, 1, "u2", marks=pytest.mark.slow),
        pytest.param(5, 10_000, 2, 8, 1, "u4", marks=pytest.mark.slow),
        (5, 3_000, 2, 16, 2, "u8"),
        (5, 3_000, 2, 7, 1, "V3"),
        pytest.param(5, 10_000, 2, 90, 2, "V41", marks=pytest.mark.slow),
        (4, 5_000, 2, 1, 1, "V4096"),
    ],
)
def test_every_native_route_is_uniform(uniformity, tiny, size, trials, labels, largest, threads, dtype):
    """Whole, in groups (of groups), in parts of several threads; numbers, records and wide records."""
    tiny(labels=labels, largest=largest)
    assert uniformity(lambda items: permute(items, SYSTEM, threads=threads), size, trials, dtype) > ALPHA


def test_real_threads_are_uniform(uniformity, tiny, monkeypatch):
    tiny(labels=2, largest=2, really=True)
    workers, draw = set(), in_place._Stream.scatter

    def noted(*arguments):
        workers.add(get_ident())
        return draw(*arguments)

    monkeypatch.setattr(in_place._Stream, "scatter", noted)
    assert uniformity(lambda items: permute(items, threads=2), 4, 500) > ALPHA
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
def test_a_fault_of_a_native_route_is_rejected(uniformity, tiny, monkeypatch, fault, threads):
    tiny(labels=2, largest=2)
    fault(monkeypatch)
    assert uniformity(lambda items: permute(items, SYSTEM, threads=threads), 4, FAULTY_TRIALS) < ALPHA


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


def test_random_numbers_are_erased(monkeypatch):
    streams, made = [], in_place._Stream.__init__

    def noted(self, *arguments):
        made(self, *arguments)
        streams.append(self)

    monkeypatch.setattr(in_place._Stream, "__init__", noted)
    permute(np.arange(1_000))
    assert streams
    assert not any(stream._words.any() for stream in streams)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "V3", "V16", "V41", "V100"])
@pytest.mark.parametrize("threads", [1, 3])
def test_groups_of_real_size_keep_every_item(monkeypatch, dtype, threads):
    """Several buffers, groups of groups, and every kind of item; origin and arrival are independent."""
    monkeypatch.setattr(in_place, "_LARGEST_GROUP_BYTES", 1 << 12)
    monkeypatch.setattr(in_place, "_LEAST_BYTES_A_THREAD", 1 << 16)
    monkeypatch.setattr(in_place, "BUFFER_BYTES", 1 << 14)
    size, cells = 100_000 if dtype == "V100" else 250_000, 16
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


def test_scratch_memory_does_not_grow_with_the_items():
    items = np.zeros(30_000_000, dtype=np.uint16)
    tracemalloc.start()
    permute(items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
