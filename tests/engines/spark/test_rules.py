"""The same rules as on this machine: one difficult file, read by Spark and by the local engine."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shuffledp as sdp
from shuffledp.domain import Categories, Periods
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.files import read_files
from shuffledp.engines.spark import counts as spark_counts
from shuffledp.engines.spark.engine import SparkEngine
from shuffledp.errors import DataError, ParameterError, ShuffledpError
from shuffledp.sessions.data import column_of

NASTY = {
    "strings": [" bus ", "bus", "\u00a0bus\u2003", "BUS", "", "  ", None, "NaN", "NA", "1", "1.0", "+1.00", "-0.0", "TRUE", "true", "b\"u,s\n", "ünï"],
    "numbers as strings": ["1", "2.5", " 3e1 ", "1_0", "0x10", "inf", "nan", "", None, ".5", "5.", "-7", "1e400", "7", "8", "9", "10"],
    "floats": [1.0, 2.5, 1e10, 1e-7, 1e22, -0.0, float("nan"), None, 0.1, 123456.789, 5e-324, float("inf"), 3.0, 4.0, 5.0, 1e16, 7.5],
    "integers": [1, 2, -3, None, 2**53 + 1, 0, 7, 7, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    "booleans": [True, False, None, True, True, False, True, True, False, True, True, True, True, True, True, True, False],
    "decimals": [Decimal("1.00"), Decimal("2.50"), None, Decimal("-0.00"), *[Decimal(i) for i in range(13)]],
    "dates": [datetime.date(2024, 1, 31), None, *[datetime.date(2024, 2, 1 + i) for i in range(15)]],
    "times": [datetime.datetime(2024, 1, 31, 23, 59, 59), None, *[datetime.datetime(2024, 2, 1 + i, i, 30) for i in range(15)]],
    "users": ["1", " 1", "1.0", "2", None, "", "NA", *[f"u{i}" for i in range(10)]],
    "good": ["bus"] * 9 + [" bike"] * 8,
    "groups": [1.0, 1e-7, 2.0, 2.5, None, float("nan"), *[1.0] * 11],
}  # fmt: skip
# ruff: noqa: E501 - one line per column


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("nasty") / "nasty.parquet"
    kinds = {"times": pa.timestamp("us")}
    table = pa.table({name: pa.array(values, type=kinds.get(name)) for name, values in NASTY.items()})
    pq.write_table(table, path)
    return SparkEngine().table([str(path)], Dialect()), read_files(path)


def outcome(action):
    try:
        return action()
    except ShuffledpError as error:
        return type(error).__name__, str(error)


DOMAINS = [
    Categories.of(["bus", "1", "true", "0"]),
    Categories.of(["bus", "BUS", "1", "1.0", "other"]),
    sdp.Numbered(12),
    sdp.Bins(0, 10, 5),
    sdp.Edges.of([-10, 0, 1, 2.5, 100]),
    Periods("month", "2024-01-01", "2024-03-31"),
    Periods("weekday"),
    Periods("hour"),
]
RULES = [
    {},
    {"drop_missing": True},
    {"missing": ("NA", "1")},
    {"missing": ("NaN", "7"), "drop_missing": True},
]


def remarks_and(table, name, rules, action):
    remarks = []
    column = column_of(table[name], **rules)
    object.__setattr__(column, "remark", remarks.append)
    return outcome(lambda: action(column)), sorted(remarks)


@pytest.mark.parametrize("name", [name for name in NASTY if name not in ("groups", "users")])
@pytest.mark.parametrize("in_workers", [False, True])
def test_counts_and_refusals_are_the_same(tables, name, in_workers, monkeypatch):
    """Every domain and rule: the same counts, or the same sentence, on the driver and in the workers."""
    if in_workers:
        monkeypatch.setattr(spark_counts, "_has_many_values", lambda *_: True)
    cases = [(domain, {}, {}) for domain in DOMAINS]
    if not in_workers:  # each further rule with some domains: every case is a job
        cases += [(domain, RULES[1 + index % 3], {}) for index, domain in enumerate(DOMAINS)]
    cases += [(DOMAINS[1], {}, {"other": "other"}), (DOMAINS[3], {"drop_missing": True}, {"clip": True})]
    answers = set()
    for domain, rules, options in cases:

        def count(column, domain=domain, options=options):
            return column.histogram(domain, **options).tolist()

        found, expected = (remarks_and(table, name, rules, count) for table in tables)
        assert _without_order(found) == _without_order(expected), (domain, rules, options)
        answers.add(str(expected))
    assert len(answers) > 2


def _without_order(result):
    """Spark meets values in any order, so which examples an error names, and in which order, may differ."""
    import re

    answer, remarks = result
    if isinstance(answer, tuple):
        answer = (answer[0], re.sub(r"\(for example .*?\)", "", answer[1], flags=re.DOTALL))
        answer = (answer[0], "".join(sorted(answer[1])))
    return answer, remarks


@pytest.mark.parametrize("name", ["strings", "floats", "integers", "booleans", "decimals", "dates"])
def test_distinct_values_are_the_same(tables, name):
    found, expected = (table[name].distinct().names for table in tables)
    assert found == expected


@pytest.mark.parametrize("equals", [None, "1", "true"])
def test_bits_are_the_same(tables, equals):
    for name in ("strings", "booleans", "integers"):
        found, expected = (
            outcome(
                lambda table=table, name=name: column_of(table[name], drop_missing=True).bits(equals=equals).tolist()
            )
            for table in tables
        )
        assert (found == expected) or (isinstance(found, tuple) and isinstance(expected, tuple)), name
        if equals is not None:
            assert isinstance(found, list)


def test_positions_are_checked_by_the_same_rules(tables):
    domain = sdp.Interval(-10, 10)
    for name in ("numbers as strings", "floats", "integers", "strings"):
        found, expected = (
            outcome(lambda table=table, name=name: len(table[name].positions(domain))) for table in tables
        )
        assert _without_order((found, [])) == _without_order((expected, [])), name
        assert isinstance(expected, tuple)
    column = "integers"
    found, expected = (
        len(column_of(table[column], drop_missing=True).positions(domain, clip=True)) for table in tables
    )
    assert found == expected == 16


def test_users_and_groups_are_the_same(tables):
    domain = Categories.of(["bus", "bike"])
    for rules in ({"user": "users"}, {"user": "users", "drop_missing_users": True}, {"user": "users", "missing": "NA"}):
        found, expected = (
            remarks_and(table, "good", rules, lambda column: int(column.histogram(domain).sum())) for table in tables
        )
        assert found == expected, rules
    found, expected = (
        outcome(
            lambda table=table: sdp.histogram(
                table["good"], categories=domain, group_by="groups", epsilon=1, delta=1e-6
            )
        )
        for table in tables
    )
    assert found == expected
    assert "no group in groups" in found[1]
    found, expected = (
        sdp.histogram(
            table["good"], categories=domain, group_by="groups", drop_missing=True, epsilon=3, delta=1e-2
        ).too_few
        for table in tables
    )
    assert found == expected
    assert "1e-07" in found or len(found) < 4


def test_csv_files_are_read_alike(spark, tmp_path):
    content = 'name; "value"\n'.replace('; "', ";").replace('"\n', "\n")
    rows = ["a;1,5", 'b;" 2"', '"c;c";3', '"d\nd";4', "ä;5", '"e""e";6', " f ;7"]
    path = tmp_path / "table.csv"
    path.write_text(content + "\n".join(rows) + "\n", encoding="latin-1")
    dialect = Dialect(delimiter=";", encoding="latin-1", decimal=",")
    local = read_files(path, delimiter=";", encoding="latin-1", decimal=",")
    table = SparkEngine().table([str(path)], dialect)
    domain = Categories.of(["a", "b", "c;c", "d\nd", "ä", 'e"e', "f"])
    assert table["name"].histogram(domain).tolist() == local["name"].histogram(domain).tolist() == [1] * 7
    bins = sdp.Bins(0, 10, 10)
    assert table["value"].histogram(bins).tolist() == local["value"].histogram(bins).tolist()


def test_encodings_that_spark_does_not_know_are_refused(spark):
    with pytest.raises(ParameterError, match=r"Spark reads the encodings .*, not cp1252"):
        SparkEngine().table(["a.csv"], Dialect(encoding="cp1252"))


def test_json_lines_are_read_alike(spark, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"v": 1.0, "w": "x"}\n{"v": 12345.678, "w": null}\n{"v": 2}\n{"v": true}\n')
    found = SparkEngine().table([str(path)], Dialect())["v"].distinct().names
    assert found == read_files(path)["v"].distinct().names


def test_paths(spark, tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": ["bus"] * 3}), tmp_path / f"{name}.parquet")
    engine, domain = SparkEngine(), Categories.of(["bus", "car"])
    everything = engine.table([f"{tmp_path}/*.parquet"], Dialect())
    assert everything["x"].histogram(domain).tolist() == [6, 0]
    two = engine.table([f"{tmp_path}/a.parquet", f"{tmp_path}/b.parquet"], Dialect())
    assert np.array_equal(two["x"].histogram(domain), [6, 0])
    with pytest.raises(ParameterError, match="is named twice: its users would count twice"):
        engine.table([f"{tmp_path}/a.parquet", f"{tmp_path}/*.parquet"], Dialect())
    with pytest.raises(DataError, match="there is no such file"):
        engine.table([f"{tmp_path}/c.parquet"], Dialect())
    with pytest.raises(ParameterError, match="several formats"):
        engine.table([f"{tmp_path}/a.parquet", "b.csv"], Dialect())
    with pytest.raises(ParameterError, match="standard input"):
        engine.table(["-"], Dialect())
    with pytest.raises(ParameterError, match="has no column 'y'; it has x"):
        everything["y"].histogram(domain)
