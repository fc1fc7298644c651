"""Random grouping: every record once, labels uniform over any number of groups, and repeatable from a key."""

from itertools import pairwise

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, RepeatableRandomness
from shuffledp.shuffling.grouping import group_randomly
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = [pytest.mark.usefixtures("path"), pytest.mark.kernels]


def numbered(count: int, record_size: int = 5) -> np.ndarray:
    records = np.zeros((count, record_size), dtype=np.uint8)
    records[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(-1, 4)
    return records.reshape(-1).view(f"V{record_size}")


def numbers_of(records: np.ndarray) -> np.ndarray:
    size = records.dtype.itemsize
    return np.ascontiguousarray(records.view(np.uint8).reshape(-1, size)[:, :4]).view("<u4")[:, 0]


@pytest.mark.parametrize("groups", [1, 2, 64, 256, 512, 1024])
def test_labels_are_uniform_and_every_record_has_one(groups):
    """Sample size 40 per group; alpha 1e-7. The planted fault: odd labels never occur."""
    grouped, bounds = group_randomly(numbered(40 * groups), groups, SYSTEM)
    assert sorted(numbers_of(grouped).tolist()) == list(range(40 * groups))
    assert (bounds[0], bounds[-1], len(bounds)) == (0, 40 * groups, groups + 1)
    sizes = np.diff(bounds)
    assert groups == 1 or p_value(sizes, np.full(groups, 1 / groups)) > ALPHA
    if groups > 1:
        planted = np.zeros(groups)
        planted[::2] = sizes[::2] + sizes[1::2]
        assert p_value(planted, np.full(groups, 1 / groups)) < ALPHA


@pytest.mark.parametrize("groups", [4, 512])
def test_the_same_key_and_label_give_the_same_groups(groups):
    key = RepeatableRandomness.new_key()
    results = [
        [numbers_of(grouped[start:end]).tolist() for start, end in pairwise(bounds.tolist())]
        for grouped, bounds in (
            group_randomly(numbered(3000), groups, RepeatableRandomness(*stream))
            for stream in ((key, b"one"), (key, b"one"), (key, b"two"), (RepeatableRandomness.new_key(), b"one"))
        )
    ]
    assert results[0] == results[1]
    assert results[0] != results[2]
    assert results[0] != results[3]


def test_few_records_and_none():
    for count in (0, 1, 2):
        grouped, bounds = group_randomly(numbered(count), 512, InsecureSeededRandomness(count))
        assert len(grouped) == bounds[-1] == count


@pytest.mark.parametrize("groups", [0, 3, -2, 257])
def test_the_number_of_groups_is_a_power_of_two(groups):
    with pytest.raises(ParameterError, match="power of two"):
        group_randomly(numbered(3), groups, SYSTEM)
