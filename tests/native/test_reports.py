"""The kernel that writes reports: against rows made one by one, both paths, and input that is wrong."""

import sys

import numpy as np
import pytest

from shuffledp import BalcerCheuHistogram
from shuffledp.native import ACTIVE
from shuffledp.testing.statistics import ALPHA, same_distribution

if not ACTIVE:
    pytest.skip("the kernels are not built", allow_module_level=True)

from shuffledp.native import _reports

balcer_cheu = sys.modules[BalcerCheuHistogram.__module__]
CELLS = np.zeros(64, dtype=np.int64)
MESSAGES, READ_ONLY = np.zeros(64, dtype=np.uint8), np.frombuffer(bytes(512), dtype=np.uint8)
ROW, OWNED = np.arange(4, dtype=np.uint8), np.zeros(2, dtype=np.int64)


def reports(absent, owned, size, padded, dtype):
    """The messages of each user, one by one."""
    gone = set(absent)
    rows = []
    for user, own in enumerate(owned):
        cells = [place if user * size + place not in gone else size for place in range(size)]
        rows.append([*(place for place in cells if padded or place < size), own])
    return np.concatenate(rows).astype(dtype), np.cumsum([len(row) for row in rows])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("users", "size"), [(1, 1), (1, 9), (40, 1), (60, 13), (7, 200)])
@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_reports_are_rows_without_what_is_absent(dtype, padded, users, size, rate):
    rng = np.random.default_rng()
    owned = rng.integers(0, size, users)
    absent = np.flatnonzero(rng.random(users * size) < rate)
    values, expected_ends = reports(absent.tolist(), owned.tolist(), size, padded, dtype)
    out, ends = np.zeros(users * (size + 1), dtype=dtype), np.zeros(users, dtype=np.int64)
    row = np.arange(size, dtype=dtype)
    assert _reports.write_reports(absent, row, owned, size if padded else -1, out, ends) == len(values)
    assert np.array_equal(out[: len(values)], values)
    assert np.array_equal(ends, expected_ends)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("size", [3, 300])
def test_both_paths_make_reports_of_the_same_distribution(size, padded, monkeypatch):
    """Copies of each category, and of how many messages a report has; a shifted row must be rejected."""
    protocol = BalcerCheuHistogram.with_noise(users=100, absence=0.25, delta=1e-3, domain_size=size)
    object.__setattr__(protocol, "padded", padded)
    owned = np.arange(100_000 if size == 3 else 4000) % size
    tables, lengths = [], []
    for active in (True, False):
        monkeypatch.setattr(balcer_cheu, "ACTIVE", active)
        sent = protocol.randomize_all(owned[::-1])  # not contiguous
        assert sent.values.dtype == protocol.message_format.dtype
        assert sent.offsets[0] == 0
        assert sent.offsets[-1] == len(sent.values)
        assert np.array_equal(sent.values[sent.offsets[1:] - 1], owned[::-1])
        tables.append(np.bincount(sent.values, minlength=size + padded))
        lengths.append(np.bincount(np.diff(sent.offsets), minlength=size + 2))
    assert same_distribution(*tables) > ALPHA
    assert same_distribution(*lengths) > ALPHA
    assert same_distribution(tables[0], np.append(tables[0][1:], tables[0][0] // 2)) < ALPHA


@pytest.mark.parametrize(
    "call",
    [
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED, -1, MESSAGES[:9], OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED, -1, MESSAGES, CELLS[:1]),
        lambda: _reports.write_reports(CELLS[:0], ROW[:0], OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED + 4, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED - 1, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED, 256, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:0], ROW.astype(np.uint16), OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:1] - 1, ROW, OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:2], ROW, OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(np.array([5, 3]), ROW, OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(np.array([8]), ROW, OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(np.array([1 << 62]), ROW, OWNED, -1, MESSAGES, OWNED.copy()),
        lambda: _reports.write_reports(CELLS[:1], ROW, OWNED[:0], -1, MESSAGES, OWNED[:0]),
        lambda: _reports.write_reports(CELLS[:0], ROW, OWNED, -1, READ_ONLY, OWNED.copy()),
    ],
)
def test_wrong_input_is_refused(call):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        call()


def test_nobody_writes_nothing():
    assert _reports.write_reports(CELLS[:0], ROW, CELLS[:0], -1, MESSAGES[:0], CELLS[:0]) == 0
