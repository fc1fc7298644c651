"""User ids: exactly one row of each user counts, chosen uniformly by that user's rows and fresh randomness alone.

Statistical tests have alpha = 1e-6, over whole tables of outcomes, and must reject planted faults at the same alpha.
"""

import datetime
import decimal
import itertools
import math
import uuid
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats

import shuffledp as sdp
from shuffledp.domain import Categories, Interval
from shuffledp.engines import users as users_module
from shuffledp.engines.distinct import index_distinct_values
from shuffledp.engines.local import Column
from shuffledp.engines.table import MemoryTable, Table
from shuffledp.engines.users import UserIds, choose_rows
from shuffledp.randomness import SYSTEM

ALPHA = 1e-6
LETTERS = Categories.of(["x", "y", "z"])


def column(values, ids, order=None, **options):
    """A column of values with user ids."""
    columns = {"value": values, "id": ids} | ({} if order is None else {"when": order})
    rules = {"drop_missing": options.pop("drop_missing", False), "missing": options.pop("missing", ())}
    options |= {} if order is None else {"pick": "latest", "order_by": "when"}
    return Column(MemoryTable(columns), "value", **rules, users=UserIds("id", **options))


def chosen_places(choose, sizes, tables):
    """For tables of users with so many rows each, all in one call: which of their rows the users of each table got."""
    rows_per_table, users_per_table = sum(sizes), len(sizes)
    pattern = np.repeat(np.arange(users_per_table), sizes)
    users = (np.arange(tables)[:, None] * users_per_table + pattern).ravel().astype(np.int32)
    chosen = choose(users)
    chosen = chosen[np.argsort(users[chosen])].reshape(tables, users_per_table)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return chosen - np.arange(tables)[:, None] * rows_per_table - starts


def uniformity(choose, sizes=(1, 2, 3, 5), tables=20_000):
    """The p-value of the joint choices of the users of a table, which are uniform over all combinations."""
    places = chosen_places(choose, sizes, tables)
    cells = np.ravel_multi_index(tuple(places.T), sizes)
    return scipy.stats.chisquare(np.bincount(cells, minlength=math.prod(sizes))).pvalue


def uniform(users):
    return choose_rows(users, np.arange(len(users)), source=SYSTEM)


def first_row(users):
    return np.unique(users, return_index=True)[1]


def same_share_of_the_rows(users):
    """Every choice is uniform, but those of the four users of a table depend on each other."""
    _, starts, sizes = np.unique(users, return_index=True, return_counts=True)
    shares = np.repeat(np.random.default_rng().random(len(sizes) // 4), 4)
    return starts + np.floor(shares * sizes).astype(np.int64)


def test_choices_are_uniform_and_independent():
    assert uniformity(uniform) > ALPHA


@pytest.mark.parametrize("fault", [first_row, same_share_of_the_rows])
def test_the_test_of_uniformity_rejects_planted_faults(fault):
    assert uniformity(fault) < ALPHA


def test_all_permutations_give_all_combinations_equally_often(monkeypatch):
    """Exact: over the 720 permutations of 6 rows, the users with 1, 2 and 3 rows get each combination 120 times."""
    users = np.array([1, 0, 2, 1, 2, 2], dtype=np.int32)
    outcomes = Counter()
    for permutation in itertools.permutations(range(6)):
        monkeypatch.setattr(
            users_module, "permute", lambda items, source, p=permutation: items.__setitem__(slice(None), items[list(p)])
        )
        outcomes[tuple(choose_rows(users, np.arange(6), source=SYSTEM).tolist())] += 1
    assert outcomes == {(1, b, c): 120 for b in (0, 3) for c in (2, 4, 5)}


@pytest.mark.parametrize("rows", [1, 2, 100_000])
def test_exactly_one_row_of_each_user(rows):
    users = np.random.default_rng().permutation(np.concatenate([np.arange(7), np.full(rows, 7)])).astype(np.int32)
    chosen = uniform(users)
    assert sorted(users[chosen].tolist()) == list(range(8))


def test_replacing_all_rows_of_one_user_changes_one_value():
    generator = np.random.default_rng()
    ids = generator.integers(300, size=2_000)
    values = np.array(LETTERS.names)[generator.integers(3, size=2_000)]
    changed = np.where(ids == ids[0], np.where(values == "x", "y", "x"), values)
    before, after = (
        column(rows, ids, source=sdp.InsecureSeededRandomness(5)).histogram(LETTERS) for rows in (values, changed)
    )
    assert before.sum() == after.sum() == len(np.unique(ids))
    assert np.abs(before - after).sum() == 2


@pytest.mark.parametrize(("pick", "probability"), [("row", 5 / 6), ("value", 1 / 2)])
def test_values_by_rows_or_each_distinct_value_once(pick, probability):
    """20,000 users with five times x and once y; the other rule is rejected."""
    rows = ["x"] * 5 + ["y"]
    ids = np.repeat(np.arange(20_000), len(rows))
    counts = column(rows * 20_000, ids, pick=pick).histogram(LETTERS)
    numbers = column([1.0] * 5 + [7.0], [1] * 6, pick=pick).positions(Interval(0, 10))
    assert counts.sum() == 20_000
    assert numbers.tolist() in ([0.1], [0.7])
    for expected, fits in ((probability, True), (4 / 3 - probability, False)):
        assert bool(scipy.stats.binomtest(int(counts[0]), 20_000, expected).pvalue > ALPHA) == fits


def test_distinct_numbers_count_once():
    """10,000 users with nine times 1 and once 2, as positions."""
    ids = np.repeat(np.arange(10_000), 10)
    positions = column(([1.0] * 9 + [2.0]) * 10_000, ids, pick="value").positions(Interval(0, 10))
    assert scipy.stats.binomtest(int((positions == 0.1).sum()), 10_000, 0.5).pvalue > ALPHA


WHEN = [
    [3, 1, 2, 1],
    [2.5, -1.0, 2.0, 1.0],
    [10**17 + 1, 10**17, 5, 4],
    ["10", "9", "2", "1.5"],
    ["2026-02-10", "2026-02-09", "2025-12-31", "2025-12-30"],
    ["2026-02-10T08:00:00Z", "2026-02-09T23:00:00Z", "2025-12-31T00:00:00Z", "2025-12-30T00:00:00Z"],
    ["2026-02-10 08:00:01", "2026-02-10 08:00:00", "2025-12-31", "2025-12-30"],
    [datetime.date(2026, 2, 10), datetime.date(2026, 2, 9), datetime.date(2025, 1, 2), datetime.date(2025, 1, 1)],
    [datetime.time(9), datetime.time(8), datetime.time(7), datetime.time(6)],
    [decimal.Decimal("2.5"), decimal.Decimal("2.4"), decimal.Decimal(2), decimal.Decimal(1)],
    pd.to_datetime(pd.Series(["2026-02-10", "2026-02-09", "2025-12-31", "2025-12-30"])),
    pd.to_datetime(pd.Series(["2026-02-10", "2026-02-09", "2025-12-31", "2025-12-30"])).dt.tz_localize("UTC"),
    pd.Series(["3", "2", "1", "0"], dtype="category"),
    np.array([2**63 + 2, 2**63 + 1, 1, 0], dtype=np.uint64),
]


@pytest.mark.parametrize("when", WHEN, ids=lambda when: str(pa.array(when).type))
def test_the_latest_row(when):
    assert column(["x", "y", "x", "y"], [1, 1, 2, 2], order=when).histogram(LETTERS).tolist() == [2, 0, 0]
    assert column(["y", "x", "z", "y"], [1, 1, 2, 2], order=when).histogram(LETTERS).tolist() == [0, 1, 1]


def test_ties_are_broken_at_random():
    ids, when = np.repeat(np.arange(9_000), 4), [7, 7, 7, 2] * 9_000
    counts = column(["x", "y", "z", "x"] * 9_000, ids, order=when).histogram(LETTERS)
    assert scipy.stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "a", " a ", "b"],
        [1, 2, 1, 1, 2],
        [1, "2", "1", 1.0, 2],
        ["1", "2", "1.0", " 1", "2.00"],
        [1.0, 2.0, 1.0, 1.0, 2.0],
        [0.5, 1e-7, 0.5, 0.5, 1e-7],
        [True, False, True, "true", "FALSE"],
        [b"\xff", b"\x00", b"\xff", b"\xff", b"\x00"],
        np.array([1, 2, 1, 1, 2], dtype=np.uint8),
        np.array([1, 2, 1, 1, 2], dtype=np.float16),
        pa.array(["a", "b", "a", "a", "b"]).dictionary_encode(),
        pa.array(["a", "b", "a", "a", "b"], type=pa.large_string()),
        pa.array(["a", "b", "a", "a", "b"], type=pa.string_view()),
        pa.array([uuid.UUID(int=i).bytes for i in (1, 2, 1, 1, 2)], type=pa.binary(16)),
        pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "a", "b"]).dictionary_encode()]),
        pd.Series(["a", "b", "a", "a", "b"], dtype="category"),
        pd.Series([1, 2, 1, 1, 2], dtype="Int64"),
        pd.to_datetime(pd.Series(["2026-01-01", "2026-01-02", "2026-01-01", "2026-01-01", "2026-01-02"])),
        [decimal.Decimal("1.0"), decimal.Decimal(2), decimal.Decimal(1), decimal.Decimal(1), decimal.Decimal("2.0")],
        [10**30, 10**30 + 1, 10**30, 10**30, 10**30 + 1],
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_ids_of_any_type(ids):
    """The first, third and fourth row are one user, the others another; the values show which rows were taken."""
    for _ in range(8):
        assert column(["x", "y", "x", "x", "y"], ids).histogram(LETTERS).tolist() == [1, 1, 0]


class Batches(Table):
    """A table of given batches, whose types may differ, as those of several files."""

    def __init__(self, *batches):
        self.batches = batches

    def read(self, columns, progress=lambda _: None):
        for values, ids in self.batches:
            yield tuple({"value": pa.array(values), "id": ids}[name] for name in columns)


def test_ids_of_different_types_in_different_batches():
    batches = [
        (["x", "y"], pa.array([1, 2])),
        (["x", "y"], pa.array(["1", "2.0"])),
        (["x"], pa.array([1.0])),
        (["y"], pa.array(["2"]).dictionary_encode()),
        ([], pa.array([], type=pa.null())),
    ]
    counts = Column(Batches(*batches), "value", users=UserIds("id")).histogram(LETTERS)
    assert counts.tolist() == [1, 1, 0]


def test_distinct_values_that_no_row_has_are_no_users():
    ids = pd.Series(["a", "b", "a"], dtype=pd.CategoricalDtype(["unused", "b", "a", "other"]))
    assert column(["x", "y", "x"], ids).histogram(LETTERS).tolist() == [1, 1, 0]


def test_distinct_values_are_named():
    distinct = index_distinct_values([pa.array([2.0, 1.5, None, 2.0])], "The group")
    assert distinct.names() == ["2", "1.5"]
    assert distinct.missing == 1
    assert index_distinct_values([pa.array([], type=pa.int64())], "The group").names() == []


@pytest.mark.parametrize("missing", [None, "", " ", math.nan])
def test_missing_ids_are_an_error_unless_dropped(missing):
    ids = [1, missing, 2, 2] if not isinstance(missing, str) else ["1", missing, "2", "2"]
    with pytest.raises(sdp.DataError, match=r"1 user id is missing in id\. Use `drop_missing_users=True`"):
        column(["x", "y", "z", "z"], ids).histogram(LETTERS)
    dropped = UserIds("id", drop_missing=True)
    table = MemoryTable({"value": ["x", "y", "z", "z"], "id": ids})
    assert Column(table, "value", users=dropped).histogram(LETTERS).tolist() == [1, 0, 1]


def test_markers_of_missing_values_apply_to_ids():
    remarks = []
    table = MemoryTable({"value": ["x", "y", "z"], "id": ["a", "NA", "-1"]})
    Column(table, "value", users=UserIds("id"), remark=remarks.append).histogram(LETTERS)
    assert remarks == ["'NA' is counted as the id of one user; if it stands for a missing id, use `missing=('NA',)`."]
    marked = Column(table, "value", missing=("NA", "-1"), users=UserIds("id", drop_missing=True))
    assert marked.histogram(LETTERS).tolist() == [1, 0, 0]


def test_rows_without_a_value_are_dropped_before_the_choice():
    values, ids = ["x", None, None, "y", None], ["a", "a", "b", "c", "c"]
    with pytest.raises(sdp.DataError, match="3 values are missing"):
        column(values, ids).histogram(LETTERS)
    for _ in range(20):
        counts = column(values, ids, drop_missing=True).histogram(LETTERS)
        assert counts.tolist() == [1, 1, 0]


def test_other_questions_have_one_value_per_user():
    ids = [1, 1, 2, 2, 3]
    assert column([True, True, False, False, True], ids).bits().tolist() == [1, 2]
    assert column([5, 5, 0, 0, 10], ids).positions(Interval(0, 10)).tolist() == [0.5, 0.0, 1.0]
    assert column([5, 5, 0, 0, 10], ids).histogram(sdp.Bins(0, 10, 2)).tolist() == [1, 2]


def test_a_seed_repeats_the_choice():
    generator = np.random.default_rng()
    ids, values = generator.integers(1_000, size=5_000), generator.random(5_000)
    first, again, other = (
        column(values, ids, source=sdp.InsecureSeededRandomness(seed)).positions(Interval(0, 1)).tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert (
        column(values, ids).positions(Interval(0, 1)).tolist() != column(values, ids).positions(Interval(0, 1)).tolist()
    )


@pytest.mark.parametrize(
    ("ids", "order", "words"),
    [
        ([[1], [2]], None, r"user ids \(id\) is of type list"),
        ([{"a": 1}, {"a": 2}], None, "of type struct"),
        ([1, 2, 3], None, "differ in their numbers of rows"),
        ([None, None], None, "2 user ids are missing"),
        ([1, 2], ["soon", "later"], "neither all numbers nor all dates"),
        ([1, 2], [1, None], "1 value is missing in when, by which rows are ordered"),
        ([1, 2], [math.nan, math.nan], "2 values are missing in when"),
        ([1, 2], [True, False], "of type bool"),
        ([1, 2], [[1], [2]], "of type list"),
    ],
)
def test_bad_input_is_one_line(ids, order, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        column(["x", "y"], ids, order=order).histogram(LETTERS)
    assert "\n" not in str(caught.value)


def test_rows_without_a_place_in_the_order_can_be_dropped():
    assert column(["x", "y"], [1, 2], order=[1, None], drop_missing=True).histogram(LETTERS).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pick": "first"}, "choose one of row, value, latest"),
        ({"pick": "latest"}, "order_by=COLUMN"),
        ({"order_by": "when"}, 'pick="latest"'),
    ],
)
def test_contradictory_rules_are_refused(options, words):
    with pytest.raises(sdp.ParameterError, match=words):
        UserIds("id", **options)
