"""One row per user in blocks: the choice is that of a brute force, however rows are divided and ordered."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.engines.spark import choosing
from shuffledp.engines.spark.choosing import choose, divide
from shuffledp.errors import DataError
from shuffledp.sessions.data import column_of

WORD = (1 << 64) - 1


def rank(key: int, rows: int, bits: int, salt: int) -> int:
    """The rank of the chosen row, by Python's integers."""
    mixed = (((key << bits) & WORD) >> bits) + salt & WORD
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & WORD
    return ((mixed ^ mixed >> 31) >> 11) * rows >> 53


def brute_force(keys, codes, size, salt, distinct):
    rows = defaultdict(list)
    for key, code in zip(keys.tolist(), codes.tolist(), strict=True):
        rows[key].append(code)
    chosen = []
    for key, own in rows.items():
        ordered = sorted(set(own)) if distinct else sorted(own)
        chosen.append(ordered[rank(key, len(ordered), max(1, size - 1).bit_length(), salt)])
    return sorted(chosen)


@pytest.mark.parametrize("size", [1, 2, 16, 1_000, 70_000])
@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("case", ["plain", "one user has most rows", "keys that differ in their first bit only"])
def test_the_choice_is_that_of_a_brute_force(size, distinct, case):
    generator = np.random.default_rng()
    keys = generator.choice(generator.integers(1 << 64, size=500, dtype=np.uint64), size=4_000)
    if case == "one user has most rows":
        keys[: 2 * choosing._MANY_ROWS + 500] = keys[0]
    elif case != "plain":
        keys[:50] = keys[50:100] ^ np.uint64(1 << 63)
    codes, salt = generator.integers(size, size=len(keys)), int(generator.integers(1 << 63))
    expected = brute_force(keys, codes, size, salt, distinct)
    assert sorted(choose(keys, codes, None, size, salt, distinct=distinct).tolist()) == expected
    parts = defaultdict(list)
    for half in np.array_split(generator.permutation(len(keys)), 2):  # as two tasks divide them
        for part, *block in divide(keys[half], codes[half], 4):
            parts[part].append(block)
    found = []
    for blocks in parts.values():
        counts = None
        if any(len(counted) for _, _, counted in blocks):
            counts = np.concatenate([counted if len(counted) else np.ones(len(key), int) for key, _, counted in blocks])
        own_keys, own_codes = (np.concatenate([block[index] for block in blocks]) for index in (0, 1))
        found += choose(own_keys, own_codes, counts, size, salt, distinct=distinct).tolist()
    assert sorted(found) == expected


def test_values_that_are_no_names_are_read_again(spark):
    """Other spellings, and rows without a value, take the way by distinct values; the same users are counted."""
    frame = spark.range(400).selectExpr("id % 100 as u", "cast(id % 2 as string) as v")
    spelled = frame.selectExpr("u", "case when u = 7 then concat(v, '.0 ') else v end as v")
    for rows in (frame, spelled):
        assert sdp.spark.count(rows, "v", sdp.Numbered(2), user="u").sum() == 100
    outside = frame.selectExpr("case when u = 7 then null else u end as u", "case when u = 7 then 'x' else v end as v")
    with pytest.raises(DataError, match="4 values are outside the domain"):
        sdp.spark.count(outside, "v", sdp.Numbered(2), user="u", drop_missing_users=True)
    absent = frame.selectExpr("u", "case when u = 7 then null else v end as v")
    assert sdp.spark.count(absent, "v", sdp.Numbered(2), user="u", drop_missing=True).sum() == 99


def test_ids_that_look_missing_are_remarked(spark):
    frame, remarks = spark.createDataFrame([("NA", "0"), ("ann", "1")], "u string, v string"), []
    column = replace(column_of(sdp.spark.table(frame)["v"], user="u"), remark=remarks.append)
    assert column.histogram(sdp.Numbered(2)).tolist() == [1, 1]
    assert [remark.split()[0] for remark in remarks] == ["'NA'"]
