"""Files and dialects on the command line."""

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

TARGET = ("--epsilon", 1, "--delta", 1e-4, "--json")
SECRET = "Zelda"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stdin(monkeypatch):
    def feed(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def users(done):
    assert done.status == 0, done.err
    return done.json["users"]


def test_dialects(shuffledp):
    Path("a.csv").write_bytes("1;Fuß;1,5\n2;Bus;2\n".encode("cp1252") * 300)
    dialect = ("--delimiter", ";", "--encoding", "cp1252", "--no-header", "--decimal", ",")
    bounds = ("--lower", 0, "--upper", 4, "--protocol", "split-and-mix")
    done = shuffledp("run", "mean", "a.csv", "--column", "3", *bounds, *dialect, *TARGET)
    assert users(done) == 600
    assert abs(done.json["value"] - 1.75) < 1
    done = shuffledp("run", "histogram", "a.csv", "--column", "2", "--domain", "Fuß,Bus", *dialect, *TARGET)
    assert users(done) == 600
    Path("t.csv").write_text("m\tn\n" + "1\tx\n0\ty\n" * 300)
    for tab in ("tab", "\\t", "\t"):
        assert users(shuffledp("run", "count", "t.csv", "--column", "m", "--delimiter", tab, *TARGET)) == 600


def test_several_files_patterns_and_standard_input(shuffledp, stdin):
    content = "m\n" + "1\n0\n" * 200
    Path("a.csv").write_text(content)
    Path("b.csv.gz").write_bytes(gzip.compress(content.encode()))
    pa.parquet.write_table(pa.table({"m": [True, False] * 200}), "c.parquet")
    Path("d.jsonl").write_text("".join(json.dumps({"m": value}) + "\n" for value in [1, 0] * 200))
    assert users(shuffledp("run", "count", "a.csv", "b.csv.gz", "c.parquet", "--column", "m", *TARGET)) == 1_200
    assert users(shuffledp("run", "count", "*.*", "--column", "m", *TARGET)) == 1_600
    stdin(content.encode())
    assert users(shuffledp("run", "count", "-", "--column", "m", *TARGET)) == 400
    stdin(content.encode())
    assert users(shuffledp("run", "count", "-", "[a-b].csv*", "--column", "m", *TARGET)) == 1_200
    stdin(content.encode())
    done = shuffledp("run", "histogram", "-", "--column", "m", "--domain-from-data", *TARGET)
    assert "can be read once only" in done.error
    assert done.status == 1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("a.csv", "./a.csv"), 2, "a.csv is named twice"),
        (("*.none",), 1, "No file matches *.none"),
        (("a.csv", "none.csv"), 1, "no such file"),
        (("s.csv",), 2, "use --delimiter ';'"),
        (("t.csv",), 2, "use --delimiter tab"),
        (("bare.csv",), 2, "use --no-header"),
        (("utf-16.csv",), 1, "use --encoding utf-16"),
        (("latin.csv",), 1, "row 2 is not in UTF-8: declare the --encoding NAME"),
        (("ragged.csv",), 1, "row 2 has 1 field instead of 2"),
        (("a.csv", "--encoding", "none"), 2, "There is no encoding 'none'"),
        (("a.csv", "--delimiter", ";;"), 2, "A delimiter is one ASCII character"),
        (("a.csv", "--decimal", "x"), 2, "The decimal mark is"),
        (("*.csv", "--out", "a.csv"), 2, "a.csv is named twice"),
        ((".",), 1, "it is not a file but a directory"),
    ],
)
def test_one_line_without_a_row(shuffledp, arguments, status, words):
    Path("a.csv").write_text("m\n1\n")
    Path("s.csv").write_text(f"m;n\n1;{SECRET}\n")
    Path("t.csv").write_text(f"m\tn\n1\t{SECRET}\n")
    Path("bare.csv").write_text(f"17,{SECRET}\n")
    Path("utf-16.csv").write_bytes(f"m\n{SECRET}\n".encode("utf-16"))
    Path("latin.csv").write_bytes(f"m,n\n1,2\n{SECRET}\xe9,2\n".encode("latin-1"))
    Path("ragged.csv").write_text(f"m,n\n1,2\n{SECRET}\n")
    done = shuffledp("run", "count", *arguments, "--column", "m", "--epsilon", 1, "--delta", 1e-4)
    assert words in done.error
    assert SECRET not in done.error
    assert done.status == status
    assert Path("a.csv").read_text() == "m\n1\n"


@pytest.mark.parametrize("complete", ["true", "false"])
def test_several_questions_about_several_files(shuffledp, complete):
    """Also where rows are chosen before the questions: numbers keep the decimal mark of the files."""
    Path("plan.toml").write_text(
        f"[session]\nepsilon = 2.0\ndelta = 1e-4\ncomplete = {complete}\n\n"
        '[[question]]\nkind = "mean"\ncolumn = "minutes"\nlower = 0\nupper = 4\nprotocol = "split-and-mix"\n\n'
        '[[question]]\nkind = "count"\ncolumn = "car"\nprotocol = "balcer-cheu"\n'
    )
    Path("a.csv").write_text("minutes;car\n" + "1,5;yes\n2,5;no\n" * 300)
    pa.parquet.write_table(pa.table({"minutes": [1.5, 2.5] * 300, "car": [True, False] * 300}), "b.parquet")
    dialect = ("--delimiter", ";", "--decimal", ",")
    done = shuffledp("run-all", "plan.toml", "a.csv", "b.parquet", *dialect, "--json")
    assert users(done) == 1_200
    assert abs(done.json["results"][0]["result"]["value"] - 2) < 1
    Path("c.csv").write_text("minutes;car\n1.500;yes\n")
    done = shuffledp("run-all", "plan.toml", "?.csv", "b.parquet", *dialect, "--json")
    assert "1 value is outside the domain (for example '1.500')" in done.error
    assert "is named twice" in shuffledp("run-all", "plan.toml", "a.csv", "a.csv", *dialect).error
    assert "is named twice" in shuffledp("run-all", "plan.toml", "*.toml", *dialect).error
