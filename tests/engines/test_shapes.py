"""One nasty column in every shape of file: the same counts, the same errors, the same devices."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import zipfile
from dataclasses import replace

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from shuffledp.domain import BIT, Categories, EqualTo, Interval
from shuffledp.engines import csv_files
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.files import FileTable
from shuffledp.engines.local import Column
from shuffledp.engines.strings import as_strings
from shuffledp.errors import ShuffledpError

NO_HEADER = {"header": False, "names": ("m",)}
DIALECTS = {
    "semicolon.csv": Dialect(delimiter=";"),
    "pipe-crlf.csv": Dialect(delimiter="|"),
    "comma.tsv": Dialect(delimiter=","),
    "latin-1.csv": Dialect(encoding="latin-1"),
    "cp1252-blank.csv": Dialect(encoding="cp1252"),
    "utf-8.csv": Dialect(encoding="UTF8"),
    "utf-16.csv": Dialect(encoding="utf-16"),
    "utf-16-be.csv.gz": Dialect(encoding="utf-16-be"),
    "utf-16-le-marked.csv": Dialect(encoding="utf-16-le"),
    "utf-32.csv": Dialect(encoding="utf-32", delimiter=";"),
    "no-header.csv": Dialect(**NO_HEADER),
    "no-header-cr.csv": Dialect(**NO_HEADER),
    "no-header-end.csv": Dialect(**NO_HEADER),
    "no-header-two.csv": Dialect(header=False, names=("m", "n"), delimiter=";"),
    "no-header-blank.csv.xz": Dialect(header=False, names=("m", "n", "o")),
    "no-header-utf-16.csv": Dialect(**NO_HEADER, encoding="utf-16"),
    "latin-1.jsonl": Dialect(encoding="latin-1"),
    "utf-16.jsonl": Dialect(encoding="utf-16"),
}
"""The dialect of each file that does not have the usual one."""


def file_table(path):
    return FileTable(path, DIALECTS.get(path.name, Dialect()))


def read_column(path, column, **options):
    """The strings of a column, batch by batch."""
    return (as_strings(batch) for (batch,) in file_table(path).read([column], **options))


def file_column(path, name, *options, **more):
    return Column(file_table(path), name, *options, **more)


NASTY = [None, "a", None, "b", None, None, "a", "NA", "c, d", 'say "e"', "two\nlines", "\u00e9", "1", "b", None]
"""The first and the last are missing, and two in a row."""
NUMBERS = [None, 1.0, 2.0, None, 3.0, 1.0, None]
BOOLEANS = [True, None, False, True, None]


def as_csv(
    values, *, columns=1, end="\n", quoted=False, blank=False, before="", final=True, delimiter=",", header=True
):
    """The file by hand: a missing value is an empty field, or with ``blank`` an empty line."""

    def field(value):
        text = "" if value is None else value
        if (quoted and (text or quoted == "all")) or any(each in text for each in '",;|\r\n\t'):
            return '"' + text.replace('"', '""') + '"'
        return text

    rest = [str(number) for number in range(columns - 1)]
    lines = [delimiter.join(["m", *(f"other{number}" for number in rest)])] if header else []
    for value in values:
        lines.append("" if value is None and blank else delimiter.join([field(value), *rest]))
    return (before + end.join(lines) + (end if final else "")).encode()


def as_python_csv(values, **dialect):
    """As the standard library writes it."""
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows([["m"], *([value] for value in values)])
    return text.getvalue().encode()


def as_parquet(array, **options):
    file = io.BytesIO()
    pa.parquet.write_table(pa.table({"m": array, "n": pa.nulls(len(array))}), file, **options)
    return file.getvalue()


def as_arrow(array, *, stream=False, rows=None, **options):
    table, file = pa.table({"n": pa.nulls(len(array)), "m": array}), io.BytesIO()
    kind = pa.ipc.new_stream if stream else pa.ipc.new_file
    with kind(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


def as_feather(array, **options):
    file = io.BytesIO()
    pa.feather.write_feather(pa.table({"m": array}), file, **options)
    return file.getvalue()


def as_json(values, *, end="\n", null=True, escape=True, final=True):
    """A missing value is null, or its key is missing; other keys may have anything."""
    rows = [{"other": [{"m": 1}], "n": 0.5} | ({} if value is None and not null else {"m": value}) for value in values]
    return (end.join(json.dumps(row, ensure_ascii=escape) for row in rows) + (end if final else "")).encode()


def as_zip(content, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.mkdir("../directory")
        archive.writestr("../../etc/passwd", content)
    return file.getvalue()


def recoded(content, encoding):
    return content.decode().encode(encoding)


def other_shapes(values):
    """Dialects, compressions and formats that need more than a look at the name."""
    strings = pa.array(values, type=pa.string())
    return {
        "semicolon.csv": as_csv(values, columns=2, delimiter=";"),
        "pipe-crlf.csv": as_csv(values, columns=3, delimiter="|", end="\r\n", blank=True),
        "comma.tsv": as_csv(values, columns=2),
        "latin-1.csv": recoded(as_csv(values, columns=2), "latin-1"),
        "cp1252-blank.csv": recoded(as_csv(values, columns=2, blank=True, end="\r\n", before="\r\n"), "cp1252"),
        "utf-8.csv": as_csv(values, end="\r"),
        "utf-16.csv": recoded(as_csv(values, end="\r\n"), "utf-16"),
        "utf-16-be.csv.gz": gzip.compress(recoded(as_csv(values), "utf-16-be")),
        "utf-16-le-marked.csv": recoded(as_csv(values), "utf-16"),
        "utf-32.csv": recoded(as_csv(values, columns=2, delimiter=";", final=False), "utf-32"),
        "no-header.csv": as_csv(values, header=False),
        "no-header-cr.csv": as_csv(values, header=False, end="\r", quoted=True),
        "no-header-end.csv": as_csv(values, header=False, quoted="all", final=False),
        "no-header-two.csv": as_csv(values, header=False, columns=2, delimiter=";"),
        "no-header-blank.csv.xz": lzma.compress(as_csv(values, header=False, columns=3, blank=True, end="\r\n")),
        "no-header-utf-16.csv": recoded(as_csv(values, header=False), "utf-16"),
        "one.csv.xz": lzma.compress(as_csv(values)),
        "two-streams.csv.xz": lzma.compress(as_csv(values)[:20]) + b"\0" * 8 + lzma.compress(as_csv(values)[20:]),
        "one.csv.zip": as_zip(as_csv(values), compression=zipfile.ZIP_DEFLATED),
        "stored.zip": as_zip(as_csv(values, columns=2)),
        "one.csv.zst": pa.compress(as_csv(values), codec="zstd", asbytes=True),
        "one.csv.lz4": lz4_frame(as_csv(values)),
        "gzip-without-suffix.csv": gzip.compress(as_csv(values)),
        "two-members.csv.gz": gzip.compress(as_csv(values)[:20]) + gzip.compress(as_csv(values)[20:]),
        "parquet.csv": as_parquet(strings),
        "packed.parquet.gz": gzip.compress(as_parquet(strings)),
        "packed.zip": as_zip(as_parquet(strings)),
        "lz4.feather": as_feather(strings, compression="lz4"),
        "plain.feather": as_feather(strings, compression="uncompressed", chunksize=4),
        "file.arrow": as_arrow(strings, rows=3),
        "dictionary.arrow": as_arrow(strings.dictionary_encode()),
        "large.arrow.xz": lzma.compress(as_arrow(strings.cast(pa.large_string()), compression="zstd")),
        "view.arrow": as_arrow(strings.cast(pa.string_view())),
        "stream.arrows": as_arrow(strings, stream=True, rows=4),
        "stream.arrows.gz": gzip.compress(as_arrow(strings.dictionary_encode(), stream=True)),
        "null.jsonl": as_json(values),
        "no-key.ndjson": as_json(values, null=False, escape=False, final=False),
        "crlf.json": b"\xef\xbb\xbf" + as_json(values, end="\r\n"),
        "latin-1.jsonl": recoded(as_json(values, escape=False), "latin-1"),
        "utf-16.jsonl": recoded(as_json(values, escape=False), "utf-16"),
        "packed.jsonl.zip": as_zip(as_json(values)),
    }


def lz4_frame(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def text_shapes(values):
    strings = pa.array(values, type=pa.string())
    return other_shapes(values) | {
        "one.csv": as_csv(values),
        "one-crlf.csv": as_csv(values, end="\r\n"),
        "one-cr.csv": as_csv(values, end="\r"),
        "one-quoted.csv": as_csv(values, quoted=True),
        "one-quoted-empty.csv": as_csv(values, quoted="all"),
        "one-windows.csv": b"\xef\xbb\xbf" + as_csv(values, end="\r\n", quoted="all"),
        "one-python.csv": as_python_csv(values),
        "one-python-quoted.csv": as_python_csv(values, quoting=csv.QUOTE_ALL, lineterminator="\n"),
        "one-blank-first.csv": as_csv(values, before="\n\n\n"),
        "one-blank-first-windows.csv": b"\xef\xbb\xbf" + as_csv(values, before="\r\n\r\n", end="\r\n"),
        "one.csv.gz": gzip.compress(as_csv(values)),
        "one.csv.bz2": bz2.compress(as_csv(values, end="\r\n")),
        "two.csv": as_csv(values, columns=2),
        "two-crlf.csv": as_csv(values, columns=2, end="\r\n", quoted="all"),
        "two-blank.csv": as_csv(values, columns=2, blank=True),
        "three-blank-crlf.csv": as_csv(values, columns=3, blank=True, end="\r\n", before="\r\n"),
        "no-end.csv": as_csv(values, columns=2, final=False),
        "no-end-quoted.csv": as_csv(values, quoted="all", final=False),
        "two.tsv": as_csv(values, columns=2, delimiter="\t"),
        "null.parquet": as_parquet(strings),
        "empty.parquet": as_parquet(pa.array([each or "" for each in values])),
        "spaces.parquet": as_parquet(pa.array([f" {each} " if each else " \t" for each in values])),
        "large.parquet": as_parquet(strings.cast(pa.large_string())),
        "dictionary.parquet": as_parquet(strings.dictionary_encode()),
        "groups.parquet": as_parquet(strings, row_group_size=2),
    }


def column_of(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def outcome(action):
    """What came of it; an error as its words, without the file."""
    try:
        result = action()
    except ShuffledpError as error:
        return type(error).__name__, str(error)
    return result.names if isinstance(result, Categories) else result.tolist()


DOMAIN = Categories.of(["a", "b", "c, d", 'say "e"', "two\nlines", "\u00e9", "1", "other"])
WITH_NA = Categories.of([*DOMAIN.names, "NA"])


def outcomes(path):
    """Everything that a column can become, with every way to deal with what is missing or outside."""
    found = {"rows": [value for batch in read_column(path, "m") for value in batch.to_pylist()]}
    for drop in (False, True):
        for missing in ((), ("NA",), ("NA", "a")):
            table = file_column(path, "m", drop, missing=missing)
            found[drop, missing] = [
                outcome(lambda table=table: table.histogram(DOMAIN)),
                outcome(lambda table=table: table.histogram(WITH_NA)),
                outcome(lambda table=table: table.histogram(DOMAIN, other="other")),
                outcome(lambda table=table: table.bits()),
                outcome(lambda table=table: table.bits(equals="b")),
                outcome(lambda table=table: table.positions(Interval(0, 1))),
                outcome(table.distinct),
            ]
    return found


def test_the_column_is_the_same_in_every_shape(tmp_path):
    shapes = text_shapes(NASTY)
    wanted = outcomes(column_of(tmp_path, "null.parquet", shapes["null.parquet"]))
    assert wanted["rows"] == NASTY
    assert wanted[False, ()][0] == (
        "DataError",
        "1 value is outside the domain (for example 'NA') and 5 values are missing. Use `other=NAME` to put them into "
        "a category of their own. If 'NA' stands for a missing value, use `missing=('NA',)`. Use `other=NAME` to count "
        "missing ones too, or `drop_missing=True` to leave them out.",
    )
    assert wanted[True, ()][1] == [2, 2, 1, 1, 1, 1, 1, 0, 1]
    assert wanted[True, ("NA",)][0] == [2, 2, 1, 1, 1, 1, 1, 0]
    assert wanted[False, ()][2] == [2, 2, 1, 1, 1, 1, 1, 6]
    assert wanted[True, ()][4] == [8, 2]
    refused = "'NA' cannot be both a value and a marker for missing values."
    assert wanted[False, ("NA",)][1] == ("ParameterError", refused)
    for name, content in shapes.items():
        assert outcomes(column_of(tmp_path, name, content)) == wanted, name


def test_several_files_are_read_one_after_the_other(tmp_path):
    """Each in its own format; the values have the types that the files give them."""
    parts = [NASTY[:2], NASTY[2:6], NASTY[6:9], NASTY[9:12], NASTY[12:]]
    column_of(tmp_path, "part-1.csv", as_csv(parts[0]))
    column_of(tmp_path, "part-2.parquet", as_parquet(pa.array(parts[1], type=pa.large_string())))
    column_of(tmp_path, "part-3.jsonl", as_json(parts[2]))
    column_of(tmp_path, "part-10.csv.zip", as_zip(as_csv(parts[3], columns=2)))
    column_of(tmp_path, "part-4.arrow", as_arrow(pa.array(parts[4])))
    in_order = [tmp_path / f"part-{name}" for name in ("1.csv", "2.parquet", "3.jsonl", "10.csv.zip", "4.arrow")]
    fractions = []
    rows = [value for (batch,) in FileTable(in_order).read(["m"], fractions.append) for value in batch.to_pylist()]
    assert rows == NASTY
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] == 1
    shuffled = Column(FileTable(str(tmp_path / "part-*")), "m", missing=("NA",), drop_missing=True)
    assert shuffled.histogram(DOMAIN).tolist() == [2, 2, 1, 1, 1, 1, 1, 0]
    by_name = [value for (batch,) in shuffled.table.read(["m"]) for value in batch.to_pylist()]
    assert by_name == [*parts[0], *parts[3], *parts[1], *parts[2], *parts[4]]
    (tmp_path / "part-5.csv").write_text("n\n1\n")
    assert "part-5.csv has no column 'm'; it has n" in outcome(shuffled.bits)[1]


@pytest.mark.parametrize("block", [48, 51, 64, 1 << 22])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_empty_lines_survive_the_ends_of_blocks(tmp_path, monkeypatch, block, end):
    """Arrow parses a file in blocks: a line break, or an empty line, may lie across two of them."""
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", block)
    draw = random.Random(block)
    for number in range(18):
        values = [draw.choice([None, None, "a", "bb", "x y"]) for _ in range(draw.randrange(40))]
        for blank, many in ((False, 1), (False, 2), (True, 3)):
            content = as_csv(values, end=end, columns=many, blank=blank, before=end * (number % 3))
            path = column_of(tmp_path, "blocks.csv", content)
            assert [each for batch in read_column(path, "m") for each in batch.to_pylist()] == values


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"m\na\n\nb\n\na\n", ["a", None, "b", None, "a"]),  # as reported: 3 users, and not a word
        (b"m\na\n", ["a"]),
        (b"m\na", ["a"]),
        (b"m\na\n\n", ["a", None]),
        (b"m\n\n", [None]),
        (b"m\n", []),
        (b"m", []),
        (b"\n\nm", []),
        (b"\xef\xbb\xbfm\r\n\r\n", [None]),
        (b"m,n\na,1\n\n", ["a", None]),
    ],
)
def test_which_lines_are_rows(tmp_path, content, rows):
    path = column_of(tmp_path, "lines.csv", content)
    assert [each for batch in read_column(path, "m") for each in batch.to_pylist()] == rows
    start = content.lstrip(b"\xef\xbb\xbf\r\n")
    without = column_of(tmp_path, "lines-utf-16.csv", recoded(start.replace(b",", b";"), "utf-16"))
    table = FileTable(without, Dialect(delimiter=";", encoding="utf-16"))
    assert [each for (batch,) in table.read(["m"]) for each in as_strings(batch).to_pylist()] == rows
    if b"\n" in start and len(start) > start.index(b"\n") + 1:
        after = start.replace(b"\r\n", b"\n").partition(b"\n")[2]
        table = FileTable(column_of(tmp_path, "rows.csv", after), Dialect(header=False))
        assert [each for (batch,) in table.read(["1"]) for each in as_strings(batch).to_pylist()] == rows
    if not rows:
        told = outcome(file_column(path, "m").bits)
        assert told == ("DataError", "The column holds no rows, so there are no users.")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\n\r\n", "has empty lines only"), (b"\n" * (1 << 21), "too many empty lines")],
)
def test_files_without_a_header(tmp_path, content, words):
    told = outcome(file_column(column_of(tmp_path, "blank.csv", content), "m").bits)
    assert told[0] == "DataError"
    assert words in told[1]
    assert "there is no header" in told[1]


def number_shapes(values):
    texts = [None if each is None else f"{each:g}" for each in values]
    pointed = [None if each is None else f"{each:.1f}" for each in values]
    return {
        "whole.csv": as_csv(texts),
        "pointed.csv": as_csv(pointed),
        "pointed-two.csv": as_csv(pointed, columns=2),
        "many-zeros.csv": as_csv([each and f"{each}00" for each in pointed]),
        "int64.parquet": as_parquet(pa.array([each and int(each) for each in values], type=pa.int64())),
        "int8.parquet": as_parquet(pa.array([each and int(each) for each in values], type=pa.int8())),
        "double.parquet": as_parquet(pa.array(values, type=pa.float64())),
        "nan.parquet": as_parquet(pa.array([float("nan") if each is None else each for each in values])),
        "float.parquet": as_parquet(pa.array(values, type=pa.float32())),
        "decimal.parquet": as_parquet(pa.array(values, type=pa.float64()).cast(pa.decimal128(5, 2))),
        "text.parquet": as_parquet(pa.array(pointed)),
        "dictionary.parquet": as_parquet(pa.array(values).dictionary_encode()),
        "int32.arrow": as_arrow(pa.array([each and int(each) for each in values], type=pa.int32())),
        "half.arrow": as_arrow(pa.array(values, type=pa.float16()), stream=True),
        "double.jsonl": as_json(values),
        "int.jsonl": as_json([each and int(each) for each in values]),
        "nan.jsonl": as_json([float("nan") if each is None else each for each in values]),
        "text.jsonl": as_json(pointed),
    }


@pytest.mark.parametrize("domain", [["1", "2", "3"], ["1.0", "2.0", "3.0"]])
def test_whole_numbers_meet_their_categories_however_they_are_stored(tmp_path, domain):
    for name, content in number_shapes(NUMBERS).items():
        table = file_column(column_of(tmp_path, name, content), "m", drop_missing=True)
        assert table.histogram(Categories.of(domain)).tolist() == [2, 1, 1], name
        assert table.bits(equals=domain[2]).tolist() == [3, 1], name
        assert table.positions(Interval(1, 3, whole=True)).tolist() == [0.0, 0.5, 1.0, 0.0], name
        without = replace(table, missing=(domain[0],))
        assert without.positions(Interval(1, 3)).tolist() == [0.5, 1.0], name


def boolean_shapes(values):
    def written(yes, no):
        return as_csv([None if each is None else yes if each else no for each in values])

    return {
        "arrow.csv": written("true", "false"),
        "python.csv": written("True", "False"),
        "r.csv": written("TRUE", "FALSE"),
        "bool.parquet": as_parquet(pa.array(values)),
        "text.parquet": as_parquet(pa.array([None if each is None else str(each) for each in values])),
        "bool.feather": as_feather(pa.array(values)),
        "bool.jsonl": as_json(values),
    }


def test_booleans_meet_their_categories_however_they_are_stored(tmp_path):
    for name, content in boolean_shapes(BOOLEANS).items():
        table = file_column(column_of(tmp_path, name, content), "m", drop_missing=True)
        for domain in (["True", "False"], ["true", "false"], ["TRUE", "FALSE"]):
            assert table.histogram(Categories.of(domain)).tolist() == [2, 1], name
            assert table.bits(equals=domain[0]).tolist() == [1, 2], name
        assert table.bits().tolist() == [1, 2], name


@pytest.mark.parametrize("text", ["1_0", "\uff11\uff10", "0x10", "inf", "nan", "1e", "1,5"])
def test_what_is_no_number_is_none_for_run_and_report(tmp_path, text):
    path = column_of(tmp_path, "numbers.csv", as_csv(["1", text]))
    for clip in (False, True):
        told = outcome(lambda clip=clip: file_column(path, "m").positions(Interval(0, 100), clip=clip))
        assert told[0] == "DataError"
        assert repr(text) in told[1]
    with pytest.raises(ShuffledpError, match="A number is needed"):
        file_column(path, "m").values(Interval(0, 100))


def test_a_domain_from_data_is_sorted_by_the_same_numbers(tmp_path):
    path = column_of(tmp_path, "sorted.csv", as_csv(["9", "1_0", "10", "inf", "-1", "nan", "1e1"]))
    assert file_column(path, "m").distinct().names == ("-1", "9", "10", "1e1", "1_0", "inf", "nan")


@pytest.mark.parametrize("devices", [None, 3, 9])
def test_devices_are_the_same_in_every_shape(tmp_path, devices):
    """Also the first few of them: a row that is missing keeps its place."""
    wanted = None
    for name, content in text_shapes(NASTY).items():
        path = column_of(tmp_path, name, content)
        found = []
        for drop in (False, True):
            for missing in ((), ("NA",)):
                for domain in (Categories.of([name for name in DOMAIN.names if name != "other"]), EqualTo("b"), BIT):
                    column = file_column(path, "m", drop_missing=drop, missing=missing)
                    try:
                        found.append(column.values(domain, limit=devices))
                    except ShuffledpError as error:
                        found.append(str(error))
        wanted = wanted or found
        assert found == wanted, name
    assert any("5 values are missing" in str(each) or devices for each in wanted)


def test_values_that_look_missing_are_pointed_out(tmp_path):
    """Refused ones in the error, counted ones in a remark; those that the domain names are meant."""
    path = column_of(tmp_path, "markers.csv", as_csv(["a", "NA", "a", "?", "a"]))
    domain, remarks = Categories.of(["a", "other"]), []
    told = outcome(lambda: file_column(path, "m").histogram(domain))
    assert "If 'NA' or '?' stands for a missing value, use `missing=('NA', '?')`." in told[1]
    table = file_column(path, "m", remark=remarks.append)
    assert table.histogram(domain, other="other").tolist() == [3, 2]
    assert [each.split(" is counted")[0] for each in remarks] == ["'NA'", "'?'"]
    remarks.clear()
    table.bits(equals="a")
    assert len(remarks) == 2
    remarks.clear()
    table.histogram(Categories.of(["a", "NA", "?"]))
    assert remarks == []
    table.distinct()
    assert len(remarks) == 2
    remarks.clear()
    file_column(path, "m", drop_missing=True, missing=("NA", "?"), remark=remarks.append).histogram(domain)
    assert remarks == []
