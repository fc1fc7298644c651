"""Fingerprints: equal records meet, distinct ones are all kept, also when their fingerprints collide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.shuffling.fingerprints import draw_coefficients, fingerprints, sort_distinct


@given(st.integers(1, 9), st.lists(st.integers(0, 5), max_size=30), st.booleans())
def test_each_distinct_record_is_kept_once(size, numbers, collide):
    """With coefficients of 0 all fingerprints collide."""
    records = np.array([[number] * size for number in numbers], dtype=np.uint8).reshape(-1, size)
    coefficients = draw_coefficients(size) * np.uint64(not collide)
    distinct, prints = sort_distinct(records, coefficients)
    assert sorted(row.tobytes() for row in distinct) == sorted({row.tobytes() for row in records})
    assert np.array_equal(prints, fingerprints(distinct, coefficients))
    assert (np.diff(prints.astype(object)) >= 0).all()


@pytest.mark.parametrize("size", [1, 4, 50])
def test_a_difference_in_any_byte_is_seen(size):
    records = np.zeros((size + 1, size), dtype=np.uint8)
    records[1:] = np.eye(size, dtype=np.uint8)
    assert len(set(fingerprints(records, draw_coefficients(size)).tolist())) == size + 1
