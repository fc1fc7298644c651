"""Reading one column: CSV, gz and Parquet, missing values, and files that are broken."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from shuffledp.domain import Categories, Numbered
from shuffledp.engines import csv_files
from shuffledp.engines.encoding import distinct_values
from shuffledp.engines.files import FileTable
from shuffledp.engines.local import Column
from shuffledp.engines.strings import as_strings
from shuffledp.engines.table import Table
from shuffledp.errors import DataError, DomainError, ParameterError


def read_column(path, column, **options):
    """The strings of a column, batch by batch."""
    return (as_strings(batch) for (batch,) in FileTable(path).read([column], **options))


class Batches(Table):
    """A column in the given batches."""

    def __init__(self, batches):
        self.batches = list(batches)

    def read(self, columns, progress=lambda _: None):
        return ((batch,) for batch in self.batches)


def count_categories(batches, domain, *, other=None, **options):
    return Column(Batches(batches), "m", **options).histogram(domain, other=other)


def count_bits(batches, *, equals=None, **options):
    return Column(Batches(batches), "m", **options).bits(equals=equals)


ROWS = ["bus", "bike", "", "bus", "car", "bus"]


def text_of(path, column="mode"):
    return [value for batch in read_column(path, column) for value in batch.to_pylist()]


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"person": range(6), "mode": [row or None for row in ROWS]})


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        lines = ["person\tmode" if ".tsv" in path.suffixes else "person,mode"]
        lines += [f"{i}{chr(9) if '.tsv' in path.suffixes else ','}{row}" for i, row in enumerate(ROWS)]
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.tsv.gz", "a.parquet"])
def test_every_format_reads_the_same(tmp_path, table, name):
    path = write(tmp_path / name, table)
    assert text_of(path) == ["bus", "bike", None, "bus", "car", "bus"]
    assert text_of(path, "person") == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["x", "y", None]).dictionary_encode(), ["x", "y", None]),
        (pa.array([1.0, float("nan"), 2.5]), ["1", None, "2.5"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array(["", "z"], type=pa.large_string()), [None, "z"]),
        (pa.array([7, None], type=pa.int16()), ["7", None]),
    ],
)
def test_every_type_becomes_text(tmp_path, values, expected):
    path = tmp_path / "typed.parquet"
    pa.parquet.write_table(pa.table({"c": values}), path)
    assert text_of(path, "c") == expected


def test_only_an_empty_field_is_missing(tmp_path):
    path = tmp_path / "na.csv"
    path.write_text('c\nNA\nnull\n""\nNaN\n')
    assert text_of(path, "c") == ["NA", "null", None, "NaN"]


def test_outer_spaces_do_not_count(tmp_path):
    path = tmp_path / "spaces.csv"
    path.write_text("c,d\n yes ,1\n   ,2\n")
    assert text_of(path, "c") == ["yes", None]


def test_a_category_twice_among_many_is_found_at_once():
    names = [str(i) for i in range(300_000)]
    with pytest.raises(DomainError, match="'299999' appears twice"):
        Categories.of([*names, "299999"])


def test_quotes_newlines_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "quoted.csv"
    path.write_bytes(b'\xef\xbb\xbf"the, column",other\n"a, ""b""",1\n"two\nlines",2\n')
    assert text_of(path, "the, column") == ['a, "b"', "two\nlines"]


def test_headers_with_newlines_and_blank_lines(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text('\n\n"x\ny",b\n1,2\n3,4\n')
    assert text_of(path, "b") == ["2", "4"]
    assert text_of(path, "x\ny") == ["1", "3"]


def test_many_batches_and_progress(tmp_path):
    path = tmp_path / "long.csv"
    values = np.array(["left", "right", "middle"])[np.arange(900_000) % 3]
    path.write_text("side\n" + "\n".join(values.tolist()) + "\n")
    seen: list[float] = []
    batches = list(read_column(path, "side", progress=seen.append))
    assert len(batches) > 1
    assert sum(map(len, batches)) == 900_000
    assert seen == sorted(seen)
    assert 0 < seen[0] <= 1
    assert seen[-1] == 1


BROKEN = {
    "empty.csv": b"",
    "truncated.csv.gz": gzip.compress(b"c\n" + b"value\n" * 100_000)[:-200],
    "not.csv.gz": b"this is no gzip",
    "cut.parquet": b"PAR1 and then nothing",
    "ragged.csv": b"c,d\n1,2\n3\n",
    "binary.csv": b"c\n" + bytes(range(128, 256)) * 4 + b"\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_one_clear_error(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(DataError) as caught:
        text_of(path, "c")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_columns(tmp_path, table):
    with pytest.raises(DataError, match="no such file"):
        text_of(tmp_path / "none.csv")
    with pytest.raises(DataError, match="not a file"):
        text_of(tmp_path)
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ParameterError, match="has no column 'nope'; it has person, mode"):
            text_of(write(tmp_path / name, table), "nope")
    (tmp_path / "twice.csv").write_text("c,c\n1,2\n")
    with pytest.raises(ParameterError, match="2 columns named"):
        text_of(tmp_path / "twice.csv", "c")


def arrays(*values):
    return [pa.array(values, type=pa.string())]


def test_counting_categories():
    domain = Categories.of(["bus", "bike", "car"])
    assert count_categories(arrays("bus", "car", "bus"), domain).tolist() == [2, 0, 1]


def test_nothing_is_dropped_silently():
    domain = Categories.of(["bus", "bike"])
    batches = arrays("bus", "plane", None, "boat", "plane")
    with pytest.raises(DataError, match=r"3 values are outside the domain .*'plane', 'boat'.* and 1 value is missing"):
        count_categories(batches, domain)
    with pytest.raises(DataError, match="3 values are outside"):
        count_categories(batches, domain, drop_missing=True)
    with_other = Categories.of(["bus", "bike", "other"])
    assert count_categories(batches, with_other, other="other").tolist() == [1, 0, 4]
    assert count_categories(batches, with_other, other="other", drop_missing=True).tolist() == [1, 0, 3]
    assert count_categories(arrays("bus", None), domain, drop_missing=True).tolist() == [1, 0]


def test_no_rows_are_no_users():
    for batches in (arrays(), arrays(None, None)):
        with pytest.raises(DataError, match="no rows"):
            count_categories(batches, Categories.of(["a"]), drop_missing=True)


def test_counting_bits():
    assert count_bits(arrays("yes", "No", "TRUE", "0", "f", "1")).tolist() == [3, 3]
    assert count_bits(arrays("bus", "car", "bus"), equals="bus").tolist() == [1, 2]
    assert count_bits(arrays("1", None), drop_missing=True).tolist() == [0, 1]
    with pytest.raises(DataError, match=r"2 values are outside .*'maybe', '2'"):
        count_bits(arrays("yes", "maybe", "2"))
    with pytest.raises(DataError, match="1 value is missing"):
        count_bits(arrays("bus", None), equals="bus")


def test_the_domain_of_the_data():
    assert distinct_values([*arrays("b", None, "a"), *arrays("c", "a")]).names == ("a", "b", "c")
    assert distinct_values(arrays("10", "9", "-1", "x", "100")).names == ("-1", "9", "10", "100", "x")
    with pytest.raises(DataError):
        distinct_values(arrays(None))


def test_values_that_read_the_same_are_one_category_of_the_data():
    """They are one category of a given domain, so too where the data gives it."""
    column = arrays("1", "1.0", "TRUE", "True", "2.0", "2.00", "01")
    domain = distinct_values(column)
    assert domain.names == ("01", "1", "2.0", "TRUE")
    assert count_categories(column, domain).tolist() == [1, 2, 2, 2]


def test_domains():
    domain = Categories.of(["a", "b"])
    assert domain.encode_all(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert domain.encode("b") == 1
    for names in ([], ["a", "a"], ["a", 3]):
        with pytest.raises(DomainError):
            Categories.of(names)
    for wrong in ("c", 1, None, ["a"]):
        with pytest.raises(DomainError):
            domain.encode(wrong)
    with pytest.raises(DomainError, match="2 of 3 indices are outside"):
        Numbered(2).encode_all(np.array([0, 2, -1]))
    with pytest.raises(DomainError):
        domain.encode_all(np.array([[0, 1]]))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("one.csv", 'm\na\n"b\na\na\n'),
        ("no-line-break.csv", 'm\na\n"b\na\na'),
        ("own.csv", 'id,m\n1,a\n2,"b\n3,a\n'),
        ("crlf.csv", 'id,m\r\n1,a\r\n2,"b\r\n3,a\r\n'),
        ("later.csv", 'm,note\na,fine\nb,"not closed\na,fine\n'),
        ("twice.csv", 'm,note\na,fine\nb,"not closed""\na,fine\n'),
        ("tabs.tsv", 'm\tnote\na\tfine\nb\t"not closed\na\tfine\n'),
        ("packed.csv.gz", 'm,note\na,fine\nb,"not closed\na,fine\n'),
    ],
)
def test_a_quotation_mark_that_is_never_closed_swallows_no_rows(tmp_path, name, content):
    """The rows after it vanished: three users were two, without an error."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    with pytest.raises(DataError, match="ends within a quoted field"):
        list(read_column(path, "m"))


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\r", "\n\n"])
def test_closed_quotation_marks_and_what_looks_like_the_end_are_values(tmp_path, ending):
    path = tmp_path / "closed.csv"
    for last in ('"b\n""c"""', 'b"', '""', "end of file\x1a", '"x\nend of file\x1a"'):
        path.write_bytes(f"m,n\na,{last}\n{last},a{ending}".encode())
        rows = [value for batch in read_column(path, "m") for value in batch.to_pylist()]
        assert rows[0] == "a"
        assert len(rows) == 2 + (ending == "\n\n")


@pytest.mark.parametrize("block", [48, 51, 64])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quoted_line_breaks_survive_the_ends_of_blocks(tmp_path, monkeypatch, block, end):
    """Arrow lost the line feed of a quoted CR LF that lay across two blocks, and with it the category."""
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", block)
    path = tmp_path / "blocks.csv"
    for before in range(block):
        values = ["x" * (before % 7), "l\r\nm", "x" * (before // 7), *["l\r\nm"] * 9, "a"]
        path.write_bytes(end.join(["m,n", *(f'"{value}",1' for value in values), ""]).encode())
        assert [each or "" for batch in read_column(path, "m") for each in batch.to_pylist()] == values


def test_every_marker_of_a_missing_value_is_named():
    """Three of five were: whoever followed the advice got the same error again."""
    column = arrays("NA", "?", "NULL", "n/a", "nan", "a")
    with pytest.raises(DataError, match=r"`missing=\('NA', '\?', 'NULL', 'n/a', 'nan'\)`"):
        count_categories(column, Categories.of(["a"]))
    remarks = []
    count_categories(column, Categories.of(["a", "other"]), other="other", remark=remarks.append)
    assert [remark.split("'")[1] for remark in remarks] == ["NA", "?", "NULL", "n/a", "nan"]


@pytest.mark.parametrize(
    ("header", "column"),
    [('"a\nb",n', "a\nb"), ('"a ""x"" b",n', 'a "x" b'), ('a"b,n', 'a"b'), ("n,m", "m"), ('"n","m,\r\no"', "m,\r\no")],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headers_with_quotation_marks_and_line_breaks(tmp_path, header, column, end):
    path = tmp_path / "header.csv"
    path.write_bytes(f"{header}{end}x,x{end}".encode())
    assert [value for batch in read_column(path, column) for value in batch.to_pylist()] == ["x"]
    path.write_bytes(header.encode())
    assert not [value for batch in read_column(path, column) for value in batch.to_pylist()]


def test_a_header_without_end_is_refused(tmp_path):
    path = tmp_path / "header.csv"
    path.write_bytes(b'"m,n\n' + b"x,y\n" * (1 << 18))
    with pytest.raises(DataError, match="longer than 1,048,576 bytes"):
        list(read_column(path, "m"))
