"""Files that are not data, damaged or hostile: one line each, without their content, and in bounded memory."""

import gzip
import io
import lzma
import os
import random
import resource
import socket
import sqlite3
import struct
import sys
import time
import zipfile

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from shuffledp.engines import byte_streams, csv_files, json_lines, text_streams
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.files import FileTable, read_files
from shuffledp.engines.local import Column
from shuffledp.errors import DataError, ParameterError, ShuffledpError

SECRET = "Zelda"


def rows_of(path, column="m", **dialect):
    return [value for (batch,) in FileTable(path, Dialect(**dialect)).read([column]) for value in batch.to_pylist()]


def error_of(path, column="m", longest=500, **dialect):
    """The one line that says why the file cannot be read; it never has the secret."""
    with pytest.raises(ShuffledpError) as caught:
        rows_of(path, column, **dialect)
    message = str(caught.value)
    assert message.isprintable(), message
    assert SECRET not in message
    assert len(message) < longest
    return message


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def workbook():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            archive.writestr(name, f"<xml>{SECRET}</xml>")
    return file.getvalue()


def database(folder):
    path = folder / "made.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table users (m text)")
    connection.execute("insert into users values (?)", (SECRET,))
    connection.commit()
    connection.close()
    return path.read_bytes()


def feather_of_version_1():
    return b"FEA1" + bytes(60) + b"FEA1"


NOT_DATA = {
    "an Excel workbook": workbook(),
    "an Excel 97-2003": bytes.fromhex("d0cf11e0a1b11ae1") + bytes(500) + SECRET.encode(),
    "a PDF document": b"%PDF-1.7\n%\xe2\xe3\n" + SECRET.encode(),
    "an image": b"\x89PNG\r\n\x1a\n" + os.urandom(100) + SECRET.encode(),
    "an HTML page": f"\n<!DOCTYPE html>\n<html><body>{SECRET}</body></html>",
    "an XML document": f'<?xml version="1.0"?><m>{SECRET}</m>',
    "an ORC file": b"ORC" + SECRET.encode(),
    "an Avro file": b"Obj\x01" + SECRET.encode(),
    "Feather file of version 1": feather_of_version_1(),
    "a NumPy array": b"\x93NUMPY\x01\x00v\x00{}" + bytes(8),
    "encrypted Parquet": b"PARE" + bytes(100) + b"PARE",
    "a JSON array": f'[\n {{"m": "{SECRET}"}}]',
    "NUL bytes": b"m\n" + bytes(range(200)) + SECRET.encode(),
    "NUL bytes, so it is not text in UTF-8; if it is in UTF-16": f"m\n{SECRET}\n".encode("utf-16-le"),
    "byte-order mark of UTF-16: use `encoding='utf-16'`": f"m\n{SECRET}\n".encode("utf-16"),
    "byte-order mark of UTF-32: use `encoding='utf-32'`": f"m\n{SECRET}\n".encode("utf-32"),
}


@pytest.mark.parametrize("words", NOT_DATA)
@pytest.mark.parametrize("name", ["data.csv", "data"])
def test_what_is_not_data_is_named(tmp_path, words, name):
    assert words in error_of(write(tmp_path, name, NOT_DATA[words]))


def test_databases_and_archives_are_named(tmp_path):
    assert "an SQLite database" in error_of(write(tmp_path, "a.csv", database(tmp_path)))
    tar = bytearray(512)
    tar[:5], tar[257:262] = b"m.csv", b"ustar"
    assert "a tar archive" in error_of(write(tmp_path, "a.tar", tar))
    assert "a tar archive" in error_of(write(tmp_path, "a.tar.gz", gzip.compress(tar)))


def test_random_bytes_are_one_line(tmp_path):
    draw = random.Random(7)
    for number in range(60):
        content = draw.randbytes(draw.choice([1, 3, 20, 1000]))
        path = write(tmp_path, f"{number}.csv", content)
        for dialect in ({}, {"header": False}, {"encoding": "utf-16-le"}):
            with pytest.raises(ShuffledpError) as caught:
                rows_of(path, "nobody has this column", **dialect)
            assert str(caught.value).isprintable() or "has no column" in str(caught.value)


ROW = [
    ("few.csv", "m,n\n1,2\nZelda\n3,4\n", {}, "row 2 has 1 field instead of 2"),
    ("many.csv", "m,n\n1,2\n\nZelda,1,2\n", {}, "row 3 has 3 fields instead of 2"),
    ("quoted.csv", 'm,n\n"1\n2",2\nZelda\n', {}, "row 2 has 1 field instead of 2"),
    ("semicolon.csv", "m;n\n1;2\nZelda\n", {"delimiter": ";"}, "row 2 has 1 field instead of 2"),
    ("bare.csv", "1,2\n1,2\nZelda\n", {"header": False, "names": ("m", "n")}, "row 3 has 1 field instead of 2"),
    ("tab.tsv", "m\tn\n1\t2\nZelda\n", {}, "row 2 has 1 field instead of 2"),
    ("utf-8.csv", b"m,n\n1,2\nZelda\xff,4\n", {}, "row 2 is not in UTF-8: declare the `encoding=NAME`"),
    ("header.csv", b"m\xff,n\n1,2\n", {}, "its first line is not in UTF-8"),
    ("ascii.csv", b"m\n1\n2\nZelda\xe9\n", {"encoding": "ascii"}, "near line 4 it is not in the encoding ascii"),
    ("nul.csv", "m\n1\nZelda\0\n", {}, "NUL bytes"),
    ("nul-16.csv", "m\n1\nZelda\0\n".encode("utf-16"), {"encoding": "utf-16"}, "NUL characters"),
    ("half.csv", "m\nZelda\n".encode("utf-16")[:-1], {"encoding": "utf-16"}, "not in the encoding utf-16"),
    ("order.csv", "m\nZelda\n".encode("utf-16-le"), {"encoding": "utf-16"}, "no byte-order mark"),
    ("marked.csv", b"\xef\xbb\xbfm\nZelda\n", {"encoding": "cp1252"}, "use `encoding='utf-8'`"),
    ("open.csv", 'n,"m\nZelda,1\n', {}, "ends within a quoted field"),
    ("bare-open.csv", '"Zelda\n1\n', {"header": False, "names": ("m",)}, "ends within a quoted field"),
    ("names.csv", "Zelda,2\n", {"header": False, "names": ("m",)}, "2 columns, but 1 names are given"),
    ("line.jsonl", '{"m": 1}\n{"m": "Zelda"\n', {}, "line 2 is not a JSON object"),
    ("blank.jsonl", '{"m": 1}\n\n{"m": "Zelda"}\n', {}, "line 2 is not a JSON object"),
    ("list.jsonl", '{"m": 1}\n["Zelda"]\n', {}, "line 2 is not a JSON object"),
    ("pretty.json", '{\n  "m": "Zelda"\n}\n', {}, "line 1 is not a JSON object; one object per line is needed"),
    ("two.jsonl", '{"m": 1} {"m": "Zelda"}\n', {}, "line 1 is not a JSON object"),
    ("nested.jsonl", '{"m": 1}\n{"m": {"name": "Zelda"}}\n', {}, "line 2 has a list or an object in 'm'"),
    ("array.jsonl", '{"m": []}\n', {}, "line 1 has a list or an object in 'm'"),
    ("twice.jsonl", '{"m": 1, "m": "Zelda"}\n', {}, "line 1 has a key twice"),
    ("deep.jsonl", '{"m": 1}\n{"n": ' + "[" * 100_000 + "\n", {}, "line 2 is nested too deeply"),
    ("utf-8.jsonl", b'{"m": 1}\n{"m": "Zelda\xff"}\n', {}, "line 2 is not in UTF-8"),
    ("surrogate.jsonl", '{"m": 1}\n{"m": "Zelda\\ud800"}\n', {}, "line 2 has a value that is not Unicode"),
    ("unknown.jsonl", '{"n": "Zelda"}\n', {}, "has no column 'm'; it has n"),
]


@pytest.mark.parametrize(("name", "content", "dialect", "words"), ROW, ids=[row[0] for row in ROW])
def test_a_wrong_row_is_named_by_its_number(tmp_path, name, content, dialect, words):
    """Arrow's message showed the whole row."""
    assert words in error_of(write(tmp_path, name, content), **dialect)


def test_the_number_of_a_row_far_down(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 1 << 10)
    path = write(tmp_path, "long.csv", "m,n\n" + "1,2\n" * 5_000 + "Zelda\n" + "1,2\n" * 5_000)
    assert "row 5,001 has 1 field instead of 2" in error_of(path)
    assert "row 5,001" in error_of(write(tmp_path, "long.csv.gz", gzip.compress(path.read_bytes())))


@pytest.mark.parametrize(
    ("row", "dialect", "words"),
    [
        (b"Zelda\0,2\n", {}, "NUL bytes"),
        (b"Zelda\x81,2\n", {"encoding": "cp1252"}, "near line 5,002 it is not in the encoding cp1252"),
    ],
)
def test_errors_in_the_thread_that_reads_ahead(tmp_path, monkeypatch, row, dialect, words):
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(csv_files, "_MAX_HEADER_BYTES", 1 << 4)
    monkeypatch.setattr(text_streams, "_PIECE_BYTES", 1 << 9)
    path = write(tmp_path, "long.csv", b"m,n\n" + b"1,2\n" * 5_000 + row + b"1,2\n" * 5_000)
    assert words in error_of(path, **dialect)


def test_unlikely_headers_are_not_shown(tmp_path):
    """Without a header, the first line is a person's row."""
    assert "use `header=False`" in error_of(write(tmp_path, "no.csv", "Zelda,37\nLink,20\n"))
    message = error_of(write(tmp_path, "s.csv", "a;m;c\n1;Zelda;3\n"))
    assert "one name that contains ';'" in message
    assert "use `delimiter=';'`" in message
    assert "use `delimiter='\\t'`" in error_of(write(tmp_path, "t.csv", "a\tm\n1\tZelda\n"))
    assert "use `delimiter=','`" in error_of(write(tmp_path, "t.tsv", "a,m\n1,Zelda\n"))
    assert "it has 1, 2." in error_of(write(tmp_path, "bare.csv", "Zelda,37\n"), "3", header=False)
    wide = write(tmp_path, "wide.csv", ",".join("x" * 5_000 + str(number) for number in range(150)) + "\n")
    assert "it has xxx" in error_of(wide, longest=2_000)


def test_a_header_of_many_columns(tmp_path):
    names = ["m", *(f"n{number}" for number in range(20_000))]
    path = write(tmp_path, "wide.csv", ",".join(names) + "\n" + "a" + "," * 20_000 + "\n")
    assert rows_of(path) == ["a"]


def damaged(content, draw):
    content = bytearray(content)
    for _ in range(draw.choice([1, 5, 50])):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)[: draw.choice([len(content), draw.randrange(1, len(content))])]


@pytest.mark.parametrize("form", ["arrow", "arrows", "parquet", "xz", "zip", "gz", "feather"])
def test_damaged_files_are_one_line_or_data(tmp_path, form):
    """Never another exception, and never a crash: buffers of Arrow files are checked before they are used."""
    table = pa.table({"m": ["a", None, "bb"] * 40, "k": pa.array(["x", "y", "z"] * 40).dictionary_encode()})
    file = io.BytesIO()
    if form in ("arrow", "arrows"):
        with (pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream)(file, table.schema) as writer:
            writer.write_table(table)
    elif form == "feather":
        pa.feather.write_feather(table, file, compression="lz4")
    elif form == "parquet":
        pa.parquet.write_table(table, file)
    else:
        content = b"m,k\n" + b"a,x\n" * 200
        if form == "zip":
            with zipfile.ZipFile(file, "w", compression=zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("m.csv", content)
        else:
            file.write({"xz": lzma.compress, "gz": gzip.compress}[form](content))
    draw, refused = random.Random(form), 0
    for number in range(150):
        path = write(tmp_path, f"{number}.{form}", damaged(file.getvalue(), draw))
        messages = []
        for name in ("m", "k"):
            try:
                Column(FileTable(path), name, drop_missing=True).distinct()
            except ShuffledpError as error:
                messages.append(str(error))
        assert "\n" not in "".join(messages)
        refused += bool(messages)
    assert refused > 50


def test_strings_of_parquet_files_that_are_not_utf_8(tmp_path):
    wrong = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    pa.parquet.write_table(pa.table({"m": wrong, "b": pa.array([b"\xff\xfe"])}), tmp_path / "wrong.parquet")
    for name in ("m", "b"):
        with pytest.raises(DataError, match="not in UTF-8"):
            Column(FileTable(tmp_path / "wrong.parquet"), name).distinct()


def test_zip_archives_with_other_than_one_file(tmp_path):
    def archive(name, members, **options):
        with zipfile.ZipFile(tmp_path / name, "w", **options) as file:
            for member, content in members.items():
                file.writestr(member, content)
        return tmp_path / name

    assert "a zip archive of 2 files" in error_of(archive("two.zip", {"a.csv": "m\n1", "b.csv": "m\nZelda"}))
    assert "empty zip archive" in error_of(archive("none.zip", {}))
    assert "other than deflate" in error_of(archive("bz.zip", {"a.csv": "m\n1"}, compression=zipfile.ZIP_BZIP2))
    twice = archive("inner.zip", {"a.csv.gz": gzip.compress(b"m\n1\n")})
    assert "compressed twice" in error_of(twice)
    locked = bytearray(archive("locked.zip", {"a.csv": "m\nZelda"}).read_bytes())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in error_of(write(tmp_path, "locked.zip", locked))
    assert rows_of(archive("absolute.zip", {"/etc/../../m.exe": "m\n1"})) == ["1"]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.xz", "a.zip", "a.csv.bz2"])
def test_names_that_promise_a_compression(tmp_path, name):
    suffix = name.rpartition(".")[2]
    assert f"its name ends in .{suffix}, but" in error_of(write(tmp_path, name, "m\nZelda\n"))


@pytest.mark.parametrize("form", ["gz", "xz", "zip"])
def test_bombs_need_bounded_memory(tmp_path, form):
    """A long row without an end, which its compressed form hides."""
    path, zeros = tmp_path / f"bomb.{form}", b"0" * (1 << 22)
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("m.csv", b"m\n" + zeros * 40)
    else:
        compress = {"gz": gzip.compress, "xz": lzma.compress}[form]
        path.write_bytes(compress(b"m\n") + compress(zeros) * 60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "a row is longer than 4 MiB" in error_of(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 120_000, grown


def test_formats_that_need_memory_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_streams, "MAX_IN_MEMORY_BYTES", 1 << 16)
    file = io.BytesIO()
    pa.parquet.write_table(pa.table({"m": [str(number) for number in range(50_000)]}), file)
    assert "must be in memory as a whole" in error_of(write(tmp_path, "a.parquet.gz", gzip.compress(file.getvalue())))
    assert len(rows_of(write(tmp_path, "a.parquet", file.getvalue()))) == 50_000


def test_a_dictionary_of_xz_that_needs_much_memory(tmp_path):
    content = lzma.compress(b"m\n1\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29, "preset": 0}])
    assert "needs too much memory" in error_of(write(tmp_path, "large.xz", content))


def test_lines_of_json_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_MAX_LINE_BYTES", 1 << 10)
    monkeypatch.setattr(json_lines, "_PIECE_BYTES", 1 << 8)
    assert "line 2 is longer than" in error_of(write(tmp_path, "long.jsonl", '{"m": 1}\n{"m": "' + "x" * 5_000))


def test_pipes_devices_and_directories_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert "it is not a file but a named pipe; to read from a pipe, use standard input (-)" in error_of(
        tmp_path / "pipe.csv"
    )
    assert "it is not a file but a device" in error_of("/dev/zero")
    assert "it is not a file but a directory" in error_of(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "a socket" in error_of(tmp_path / "s")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "Cannot read" in error_of(tmp_path / "loop")
    with pytest.raises(DataError, match="not a valid path"):
        rows_of("a\0b.csv")
    (tmp_path / "link.csv").symlink_to(write(tmp_path, "real.csv", "m\n1\n"))
    assert rows_of(tmp_path / "link.csv") == ["1"]


def test_files_that_change_while_they_are_read(tmp_path):
    path = write(tmp_path, "growing.csv", "m\n" + "1\n" * 3_000_000)
    batches = FileTable(path).read(["m"])
    next(batches)
    with path.open("a") as file:
        file.write("1\n")
    with pytest.raises(DataError, match="it changed while it was read"):
        list(batches)


def test_a_file_that_is_named_twice_is_refused(tmp_path):
    """Its users would count twice, and one person would have two rows."""
    path = write(tmp_path, "a.csv", "m\n1\n")
    (tmp_path / "link.csv").symlink_to(path)
    os.link(path, tmp_path / "hard.csv")
    for other in (path, str(path), tmp_path / "link.csv", tmp_path / "hard.csv", str(tmp_path / "a*.csv")):
        with pytest.raises(ParameterError, match=r"is named twice.*would count twice"):
            list(FileTable([path, other]).read(["m"]))
    with pytest.raises(ParameterError, match="standard input is named twice"):
        list(FileTable(["-", "-"]).read(["m"]))


def test_patterns(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path, f"part-{number}.csv", f"m\n{number}\n")
    write(tmp_path, "[x].csv", "m\nbrackets\n")
    write(tmp_path, ".hidden.csv", "m\nhidden\n")
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", "part-2.csv", "m\n2\n")
    assert rows_of(str(tmp_path / "part-*.csv")) == ["1", "10", "9"]
    assert rows_of(tmp_path / "part-?.csv") == ["1", "9"]
    assert rows_of(tmp_path / "[x].csv") == ["brackets"]
    assert rows_of(f"{tmp_path}/**/part-*.csv") == ["2", "1", "10", "9"]
    assert rows_of([tmp_path / "part-9.csv", tmp_path / "part-1.csv"]) == ["9", "1"]
    assert "No file matches" in error_of(tmp_path / "none-*.csv")
    for nothing in ([], ()):
        with pytest.raises(ParameterError, match="no file to read"):
            list(FileTable(nothing).read(["m"]))
    with pytest.raises(ParameterError, match="not by an object of type int"):
        list(FileTable([3]).read(["m"]))


@pytest.fixture
def stdin(monkeypatch):
    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def parquet_bytes():
    file = io.BytesIO()
    pa.parquet.write_table(pa.table({"m": ["a", "b"]}), file)
    return file.getvalue()


def zip_bytes():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m.csv", "m\na\nb\n")
    return file.getvalue()


STANDARD_INPUT = {
    "csv": b"m\na\nb\n",
    "csv.gz": gzip.compress(b"m\na\nb\n"),
    "csv.xz": lzma.compress(b"m\na\nb\n"),
    "json": b'{"m": "a"}\n{"m": "b"}',
    "parquet": parquet_bytes(),
    "zip": zip_bytes(),
    "parquet.gz": gzip.compress(parquet_bytes()),
}


# ids, because compressed bytes contain the time: workers would name the tests differently
@pytest.mark.parametrize("content", STANDARD_INPUT.values(), ids=STANDARD_INPUT)
def test_standard_input_is_read_once(stdin, content):
    stdin(content)
    table = read_files("-")
    assert [value for (batch,) in table.read(["m"]) for value in batch.to_pylist()] == ["a", "b"]
    with pytest.raises(DataError, match="was read already, and can be read once only"):
        list(table.read(["m"]))
    stdin(content)
    assert rows_of("-") == ["a", "b"]


def test_standard_input_that_is_not_data(stdin, monkeypatch):
    stdin(b"m,n\n1,2\nZelda\n")
    assert "Cannot read standard input: a row has 1 field instead of 2" in error_of("-")
    stdin(b"")
    assert "standard input is empty" in error_of("-")
    monkeypatch.setattr("sys.stdin", None)
    assert "there is none" in error_of("-")


def test_declared_dialects_are_checked():
    for wrong in ({"delimiter": ""}, {"delimiter": ";;"}, {"delimiter": '"'}, {"delimiter": "\n"}, {"delimiter": "é"}):
        with pytest.raises(ParameterError, match="A delimiter is one ASCII character"):
            read_files("a.csv", **wrong)
    for encoding in ("nonsense", "base64", "rot13", "", None):
        with pytest.raises(ParameterError, match="There is no encoding"):
            read_files("a.csv", encoding=encoding)
    with pytest.raises(ParameterError, match="The decimal mark is"):
        read_files("a.csv", decimal="'")
    with pytest.raises(ParameterError, match="use `header=False` too"):
        read_files("a.csv", names=["m"])
    with pytest.raises(ParameterError, match="list of strings"):
        read_files("a.csv", header=False, names=[1])


def test_reading_stops_early_without_waiting(tmp_path):
    """An abandoned reader neither hangs nor reads from a closed file."""
    path = write(tmp_path, "long.csv", "m\n" + "1\n" * 3_000_000)
    started = time.monotonic()
    for _ in range(5):
        batches = FileTable(path).read(["m"])
        next(batches)
        batches.close()
    assert time.monotonic() - started < 60
    assert sys.exc_info() == (None, None, None)
