"""The shuffler is uniform on all permutations by either path, rejects a planted bias, and takes any array."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import InsecureSeededRandomness, integers
from shuffledp.shuffling import permute
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.kernels


def naive_swaps(items) -> None:
    """The classic mistake: swap each place with any place."""
    targets = integers(len(items), len(items)).astype(np.int64)
    for place, target in enumerate(targets):
        items[place], items[target] = items[target], items[place]


def stuck_last(items) -> None:
    """The last item never moves."""
    permute(items[:-1])


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("size", "trials"), [(1, 10), (2, 5_000), (3, 5_000), (4, 10_000), (5, 15_000)])
def test_all_permutations_are_equally_likely(uniformity, size, trials):
    assert uniformity(permute, size, trials) > ALPHA


@pytest.mark.parametrize("fault", [naive_swaps, stuck_last])
@pytest.mark.parametrize("size", [3, 4])
def test_a_biased_shuffle_is_rejected(uniformity, fault, size):
    assert uniformity(fault, size, 12_000) < ALPHA


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        *((size, dtype) for size in (70_000, 300_000) for dtype in (np.uint8, np.uint32, "V24")),
        pytest.param(3_000_000, np.uint8, marks=pytest.mark.slow),
        (3_000_000, np.uint32),
        pytest.param(3_000_000, "V24", marks=pytest.mark.slow),
    ],
)
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
    distribution = np.full(cells * cells, 1 / cells**2)
    table = np.bincount(origin.astype(np.int64) * cells + arrival, minlength=cells * cells)
    assert p_value(table, distribution) > ALPHA / 10
    local = np.concatenate([np.random.default_rng().permutation(part) for part in np.split(np.arange(size), 8)])
    local_table = np.bincount((local * cells // size) * cells + arrival, minlength=cells * cells)
    assert p_value(local_table, distribution) < ALPHA


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


@pytest.mark.parametrize(
    ("size", "width"), [(140_000, 1024), pytest.param(66_000, 4096, marks=pytest.mark.slow), (20_000, 8192)]
)
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
        with pytest.raises(ParameterError, match="threads must be an integer of at least 1"):
            permute(np.arange(3), threads=threads)


@pytest.mark.usefixtures("path")
def test_what_is_no_source_is_refused():
    sources = (5, None, "SYSTEM", np.random.default_rng(), InsecureSeededRandomness)
    kinds = (np.arange(0), np.arange(5), np.arange(100_000), np.arange(100)[::2])
    for source, items in product(sources, kinds):
        before = items.copy()
        with pytest.raises(ParameterError, match=r"Random bits cannot come from .*; give SYSTEM"):
            permute(items, source=source)
        assert np.array_equal(items, before)
