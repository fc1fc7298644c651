"""The counting kernels against numpy, for every type; a value outside is noticed wherever it is."""

import numpy as np
import pytest

kernels = pytest.importorskip("shuffledp.native._counting")

TYPES = [np.uint8, np.uint16, np.uint32, np.uint64]


def in_four(values, limit, width):
    tables = np.zeros((4, width), dtype=np.uint32)
    inside = kernels.count_in_four(values, limit, tables)
    return inside, tables.sum(axis=0, dtype=np.int64)


def in_bytes(values, limit, width):
    low, high = np.zeros(width, dtype=np.uint8), np.zeros(width, dtype=np.int64)
    carried = kernels.count_in_bytes(values, limit, low, high)
    assert carried < 0 or carried == high.sum() // 256
    return carried >= 0, high + low


def at_once(values, limit, width):
    high = np.zeros(width, dtype=np.int64)
    added = kernels.count_in_bytes(values, limit, np.empty(0, dtype=np.uint8), high)
    assert added in (-1, len(values))
    return added >= 0, high


@pytest.mark.parametrize("count", [in_four, in_bytes, at_once])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("length", "limit"), [(0, 5), (1, 5), (3, 5), (4, 5), (5, 5), (10_001, 5), (10_001, 100)])
def test_counts_are_numpys(count, dtype, length, limit):
    """With 5 values every byte overflows several times."""
    values = np.random.default_rng().integers(limit, size=length, dtype=dtype)
    values.flags.writeable = False
    inside, counts = count(values, limit, limit + 3)
    assert inside
    assert counts.tolist() == np.bincount(values.astype(np.int64), minlength=limit + 3).tolist()


@pytest.mark.parametrize("count", [in_four, in_bytes, at_once])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_value_outside_is_noticed(count, dtype):
    for place in range(11):
        for value in (100, 101, np.iinfo(dtype).max):
            values = np.full(11, 99, dtype=dtype)
            values[place] = value
            assert not count(values, 100, 100)[0]
            assert not count(values, 100, 200)[0]
            assert not count(values, 0, 100)[0]
    assert count(values[:0], 0, 0)[0]
    assert not count(values, 0, 0)[0]


def test_bytes_carry_over():
    for length in (255, 256, 257, 511, 512, 513, 70_000):
        assert in_bytes(np.full(length, 7, dtype=np.uint8), 8, 8)[1].tolist() == [0] * 7 + [length]


def test_bad_arguments_are_refused():
    values, tables = np.zeros(5, dtype=np.uint32), np.zeros((4, 10), dtype=np.uint32)
    low, high = np.zeros(10, dtype=np.uint8), np.zeros(10, dtype=np.int64)
    for shape, limit in [((4, 10), 11), ((2, 10), 10), ((0, 10), 10), ((4, 0), 1)]:
        with pytest.raises(ValueError, match="four tables"):
            kernels.count_in_four(values, limit, np.zeros(shape, dtype=np.uint32))
    for lows, highs, limit in [(10, 10, 11), (9, 10, 10), (11, 10, 10), (0, 10, 11), (5, 0, 0)]:
        with pytest.raises(ValueError, match="tables of the same length"):
            kernels.count_in_bytes(values, limit, np.zeros(lows, np.uint8), np.zeros(highs, np.int64))
    for limit in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            kernels.count_in_four(values, limit, tables)
        with pytest.raises(OverflowError):
            kernels.count_in_bytes(values, limit, low, high)
    for wrong in (values[::2], values.astype(np.float64), values.astype(np.int32), values.reshape(5, 1), None, [1]):
        with pytest.raises((ValueError, TypeError)):
            kernels.count_in_four(wrong, 10, tables)
        with pytest.raises((ValueError, TypeError)):
            kernels.count_in_bytes(wrong, 10, low, high)
    frozen = tables.copy()
    frozen.flags.writeable = False
    for wrong in (tables[:, ::2], tables.astype(np.int64), tables[0], frozen, None):
        with pytest.raises((ValueError, TypeError)):
            kernels.count_in_four(values, 5, wrong)
    for wrong in (high[::2], high.astype(np.int32), high.reshape(2, 5), None):
        with pytest.raises((ValueError, TypeError)):
            kernels.count_in_bytes(values, 5, low[: 5 if wrong is None else len(wrong)], wrong)


def test_tables_lie_apart():
    """What is counted must not change what is to be counted."""
    tables = np.zeros((4, 10), dtype=np.uint32)
    high = np.zeros(10, dtype=np.int64)
    for values in (tables[3], tables[0].view(np.uint8), tables[2, 3:5].view(np.uint64)):
        with pytest.raises(ValueError, match="must not overlap"):
            kernels.count_in_four(values, 10, tables)
    for values, low in [
        (high.view(np.uint64), np.zeros(10, dtype=np.uint8)),
        (high.view(np.uint8)[75:], np.zeros(0, dtype=np.uint8)),
        (tables[0], tables.reshape(-1).view(np.uint8)[5:15]),
        (tables[0], high.view(np.uint8)[:10]),
    ]:
        with pytest.raises(ValueError, match="must not overlap"):
            kernels.count_in_bytes(values, 10, low, high)
