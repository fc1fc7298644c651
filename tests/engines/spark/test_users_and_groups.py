"""One row per user, and groups, on Spark."""

import numpy as np
import pytest
from scipy import stats

import shuffledp as sdp
from shuffledp.domain import Categories
from shuffledp.errors import DataError
from shuffledp.sessions.data import column_of
from shuffledp.sessions.groups import grid_users

ALPHA = 1e-6
LETTERS = Categories.of(["a", "b", "c", "d"])


def picks(frame, domain=LETTERS, **options):
    return sdp.spark.count(frame, "v", domain, **options)


def users_with(spark, users, rows_of_each):
    """A frame in which every user has the same rows: pairs of a value and a time."""
    rows = ", ".join(f"struct('{value}' as v, {time} as t)" for value, time in rows_of_each)
    return spark.range(users).selectExpr("id as u", f"inline(array({rows}))")


def chi_square(found, probabilities):
    probabilities = np.asarray(probabilities)
    assert found[probabilities == 0].sum() == 0
    positive = probabilities > 0
    if positive.sum() == 1:
        return 1.0
    return stats.chisquare(found[positive], found.sum() * probabilities[positive]).pvalue


USERS = 20_000
PATTERNS = ("a", "ab", "aaab", "aabcccc")
"""The rows of users of four kinds."""


@pytest.fixture(params=["workers", "spark"])
def way(request, monkeypatch):
    """Rows are chosen by Python workers, or by Spark alone."""
    if request.param == "spark":
        monkeypatch.setattr("shuffledp.engines.spark.table._counts_by_workers", lambda *_: None)
    return request.param


@pytest.fixture(scope="module")
def patterns(spark):
    """Users of all kinds in one frame, whose values name their kind: one job counts the choices of all."""
    kinds = [f"array({', '.join(repr(f'{kind}{value}') for value in rows)})" for kind, rows in enumerate(PATTERNS)]
    rows = f"explode(element_at(array({', '.join(kinds)}), cast(id % {len(kinds)} as int) + 1)) as v"
    return spark.range(USERS * len(kinds)).selectExpr("id as u", rows)


@pytest.mark.parametrize("pick", ["row", "value"])
def test_the_distribution_of_the_pick(patterns, pick, way):
    """Chi-square over all values of each kind of user, 20,000 users, alpha 1e-6; the other choice is rejected."""
    domain = Categories.of([f"{kind}{letter}" for kind in range(len(PATTERNS)) for letter in "abcd"])
    found = picks(patterns, domain, user="u", pick=pick).reshape(len(PATTERNS), 4)
    assert found.sum(axis=1).tolist() == [USERS] * len(PATTERNS)
    for counts, rows in zip(found, PATTERNS, strict=True):
        by_row = np.array([rows.count(letter) for letter in "abcd"])
        by_value = np.minimum(by_row, 1)
        right, wrong = (by_row, by_value) if pick == "row" else (by_value, by_row)
        assert chi_square(counts, right / right.sum()) > ALPHA
        if rows not in ("a", "ab"):
            assert chi_square(counts, wrong / wrong.sum()) < ALPHA


def test_the_latest_row_with_ties_at_random(spark):
    rows = [("a", 1), ("b", 3), ("c", 3), ("c", 3), ("d", 2)]
    found = picks(users_with(spark, USERS, rows), user="u", pick="latest", order_by="t")
    assert chi_square(found, [0, 1 / 3, 2 / 3, 0]) > ALPHA


@pytest.mark.parametrize(
    ("times", "latest"),
    [(["9", "10"], "b"), (["2024-01-31", "2023-12-31"], "a"), (["2024-01-31 10:00:00", "2024-01-31 11:00:00"], "b")],
)
def test_the_latest_by_strings(spark, times, latest):
    frame = spark.createDataFrame([("a", times[0], 1), ("b", times[1], 1)], "v string, t string, u int")
    assert picks(frame, user="u", pick="latest", order_by="t")[LETTERS.encode(latest)] == 1


def test_times_that_cannot_be_ordered_or_are_missing(spark):
    frame = spark.createDataFrame([("a", "soon", 1), ("b", None, 1)], "v string, t string, u int")
    with pytest.raises(DataError, match="neither all numbers nor all dates or times"):
        picks(frame, user="u", pick="latest", order_by="t")
    frame = spark.createDataFrame([("a", "5", 1), ("b", None, 1)], "v string, t string, u int")
    with pytest.raises(DataError, match="1 value is missing in t, by which rows are ordered"):
        picks(frame, user="u", pick="latest", order_by="t")
    assert picks(frame, user="u", pick="latest", order_by="t", drop_missing=True).tolist() == [1, 0, 0, 0]


def test_a_user_with_very_many_rows_counts_once(spark, way):
    frame = spark.range(100_000).selectExpr("7 as u", "element_at(array('a', 'b'), cast(id % 2 + 1 as int)) as v")
    others = spark.range(3).selectExpr("id as u", "'c' as v")
    found = picks(frame.unionByName(others), user="u")
    assert found.sum() == 4
    assert found[2] == 3


def test_the_same_rows_are_picked_when_computed_again(spark, way):
    frame = users_with(spark, 2_000, [(value, 0) for value in "abcd"])
    column = column_of(sdp.spark.table(frame)["v"], user="u")
    again = column_of(sdp.spark.table(frame.repartition(7))["v"], user="u")
    object.__setattr__(again, "salt", column.salt)
    another = column_of(sdp.spark.table(frame)["v"], user="u")
    first = column.histogram(LETTERS)
    assert np.array_equal(first, column.histogram(LETTERS))
    assert np.array_equal(first, again.histogram(LETTERS))
    assert not np.array_equal(first, another.histogram(LETTERS)), "another salt picks other rows"


def test_missing_users(spark, way):
    frame = spark.createDataFrame([("a", 1), ("b", None), ("c", None)], "v string, u int")
    with pytest.raises(DataError, match=r"2 user ids are missing in u\. Use `drop_missing_users=True`"):
        picks(frame, user="u")
    assert picks(frame, user="u", drop_missing_users=True).tolist() == [1, 0, 0, 0]


def test_rows_without_a_value_do_not_take_part(spark):
    frame = spark.createDataFrame([("a", 1), (None, 1), (" ", 1), (None, 2)], "v string, u int")
    assert picks(frame, user="u", drop_missing=True).tolist() == [1, 0, 0, 0]
    with pytest.raises(DataError, match="3 values are missing"):
        picks(frame, user="u")


def test_means_per_user(spark):
    rows = "inline(array(struct(1.0D as v), struct(1.0D as v), struct(3.0D as v)))"
    frame = spark.range(4_000).selectExpr("id as u", rows)
    table = sdp.spark.table(frame)
    estimate = sdp.mean(table["v"], lower=0, upper=4, user="u", epsilon=1, delta=1e-6)
    assert estimate.users == 4_000
    assert abs(estimate.value - 5 / 3) < 0.2
    assert estimate.guarantee.neighbours == "replace-one-user"
    by_value = sdp.mean(table["v"], lower=0, upper=4, user="u", pick="value", epsilon=1, delta=1e-6)
    assert abs(by_value.value - 2) < 0.2


TARGET = {"epsilon": 1.0, "delta": 1e-6}


def fewest_users():
    """The fewest users of a group for whom some protocol is feasible."""

    def feasible(users):
        try:
            return bool(sdp.plan(sdp.Histogram(users, categories=["a", "b"]), **TARGET).plans)
        except sdp.InfeasibleError:
            return False

    low, high = 2, 4_000
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(grid_users(middle)) else (middle + 1, high)
    return low


@pytest.fixture(scope="module")
def fewest():
    return fewest_users()


@pytest.fixture(scope="module")
def frame(spark, fewest):
    """Groups around the fewest users for which a histogram is feasible, and a large one."""
    sizes = {"one": 1, "edge": fewest, "below": fewest - 1, "large": 4_000}
    rows = [(group, "a" if i % 4 else "b", float(i % 5)) for group, size in sizes.items() for i in range(size)]
    return spark.createDataFrame(rows, "g string, v string, x double").repartition(3)


class TestGroups:
    def test_too_small_groups_have_no_numbers(self, frame, fewest):
        found = sdp.spark.run_groups(frame, "v", sdp.Histogram(1, categories=["a", "b"]), group_by="g", **TARGET)
        assert set(found) == {"one", "edge", "below", "large"}
        assert found.too_few == {"one": 1, "below": fewest - 1}
        assert found["edge"].users == fewest
        assert abs(found["large"].counts[0] - 3_000) < 300
        assert found.guarantee.neighbours == "replace-one-within-group"
        assert found.guarantee.epsilon <= 1.0

    def test_means_of_groups(self, frame):
        found = sdp.spark.run_groups(frame, "x", sdp.Mean(1, 0, 4), group_by="g", **TARGET)
        assert abs(found["large"].value - 2) < 0.2
        assert found["large"].users == 4_000
        assert found["one"].users == 1

    def test_private_groups(self, frame):
        groups = ["one", "edge", "below", "large", "nobody"]
        options = {"group_by": "g", "private_groups": groups, **TARGET}
        found = sdp.spark.run_groups(frame, "v", sdp.Histogram(1, categories=["a", "b"]), **options)
        assert list(found) == groups
        assert abs(found["large"].counts[0] - 3_000) < 300
        options["private_groups"] = groups[1:]
        with pytest.raises(DataError, match=r"1 of 4 groups in g are not listed \(for example 'one'\)"):
            sdp.spark.run_groups(frame, "v", sdp.Histogram(1, categories=["a", "b"]), **options)

    @pytest.mark.parametrize("pick", ["row", "value"])
    @pytest.mark.parametrize("private", [None, ["x", "y"]])
    def test_users_in_groups(self, spark, pick, private):
        """Three rows in x, of two values, and one in y: a user is in x with probability 3/4."""
        rows = [("x", "a"), ("x", "a"), ("x", "b"), ("y", "c")]
        listed = ", ".join(f"struct('{group}' as g, '{value}' as v)" for group, value in rows)
        users = 8_000
        frame = spark.range(users).selectExpr("id as u", f"inline(array({listed}))")
        column = column_of(sdp.spark.table(frame)["v"], user="u", pick=pick)
        grouped = column.grouped("g", None if private is None else Categories.of(private))
        grouped.histogram(LETTERS)
        found = grouped.members.product_counts()
        expected = {
            ("row", True): [2, 1, 0, 0, 0, 0, 1, 0],
            ("row", False): [2, 1, 0, 0, 0, 0, 1, 0],
            ("value", True): [1.5, 1.5, 0, 0, 0, 0, 1, 0],
            ("value", False): [4 / 3, 4 / 3, 0, 0, 0, 0, 4 / 3, 0],
        }[pick, private is None]
        assert found.sum() == users
        assert chi_square(found, np.array(expected) / 4) > ALPHA
