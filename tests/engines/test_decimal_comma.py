"""Numbers with a decimal comma: only where it is declared, in strings of every kind of file, and never both marks."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from shuffledp.domain import Bins, Categories, Interval
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.files import FileTable, read_files
from shuffledp.engines.local import Column
from shuffledp.errors import DataError, ShuffledpError

TEN = Interval(0, 10)
COMMA = Dialect(delimiter=";", decimal=",")


def column(path, dialect=COMMA, **options):
    return Column(FileTable(path, dialect), "m", **options)


@pytest.fixture
def files(tmp_path):
    """The numbers 1.5, 10, 2.5 and 0.5 in every kind of file."""
    strings, numbers = ["1,5", "10", "+2,50", "5e-1"], [1.5, 10.0, 2.5, 0.5]
    (tmp_path / "a.csv").write_text("m;n\n" + "".join(f" {string} ;x\n" for string in strings))
    (tmp_path / "b.jsonl").write_text('{"m": "1,5"}\n{"m": 10}\n{"m": 2.50}\n{"m": 5e-1}\n')
    for name, values in {
        "string": pa.array(strings),
        "large": pa.array(strings, type=pa.large_string()),
        "dictionary": pa.array(strings).dictionary_encode(),
        "double": pa.array(numbers),
        "float": pa.array(numbers, type=pa.float32()),
        "decimal": pa.array(numbers).cast(pa.decimal128(5, 2)),
    }.items():
        pa.parquet.write_table(pa.table({"m": values}), tmp_path / f"{name}.parquet")
    return sorted(tmp_path.iterdir())


def test_numbers_of_every_kind_of_file(files):
    assert len(files) == 8
    for path in files:
        for missing in ((), ("NA",)):
            one = column(path, missing=missing)
            assert one.positions(TEN).tolist() == [0.15, 1.0, 0.25, 0.05], path.name
            assert one.values(TEN) == [1.5, 10, 2.5, 0.5], path.name
            assert one.histogram(Bins(0, 10, 5)).tolist() == [2, 1, 0, 0, 1], path.name
    assert np.allclose(column(files).positions(TEN), [0.15, 1.0, 0.25, 0.05] * 8)


def outcome(path, dialect, domain=TEN):
    messages = []
    for read in (lambda one: one.positions(domain), lambda one: one.values(domain)):
        with pytest.raises(ShuffledpError) as caught:
            read(column(path, dialect))
        messages.append(str(caught.value))
    return messages


@pytest.mark.parametrize("string", ["1.5", "1.234,5", "1,234,5", "1.000", "1,5,", ",", "1 000,5"])
def test_a_point_is_no_decimal_mark_then(tmp_path, string):
    """1.000 may be a thousand there; a file with both marks has other rules than these."""
    (tmp_path / "a.csv").write_text(f"m;n\n1,5;x\n{string};x\n")
    for message in outcome(tmp_path / "a.csv", COMMA):
        assert "1 value is outside the domain" in message
        assert repr(string) in message


def test_a_comma_must_be_declared(tmp_path):
    (tmp_path / "a.csv").write_text("m;n\n1,5;x\n")
    for message in outcome(tmp_path / "a.csv", Dialect(delimiter=";")):
        assert "'1,5'" in message
    (tmp_path / "quoted.csv").write_text('m,n\n"1,5",x\n')
    table = read_files(tmp_path / "quoted.csv", decimal=",")
    assert table["m"].positions(TEN).tolist() == [0.15]


def test_categories_and_missing_values_stay_as_they_are_written(tmp_path):
    (tmp_path / "a.csv").write_text("m;n\n1,5;x\n2.5;x\n1,5;x\n9,9;x\n")
    one = column(tmp_path / "a.csv", missing=("9,9",), drop_missing=True)
    assert one.histogram(Categories.of(["1,5", "2.5"])).tolist() == [2, 1]
    assert one.bits(equals="1,5").tolist() == [1, 2]
    with pytest.raises(DataError, match=r"1 value is outside the domain \(for example '2.5'\)"):
        one.positions(TEN)


def test_json_numbers_are_exact(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"m": 9007199254740993}\n{"m": 9007199254740992}\n{"m": 1.10}\n{"m": 1e400}\n')
    one = Column(FileTable(tmp_path / "a.jsonl"), "m")
    assert one.distinct().names == ("1.10", "9007199254740992", "9007199254740993", "1e400")
    large = Categories.of(["9007199254740993", "other"])
    assert one.histogram(large, other="other").tolist() == [1, 3]
