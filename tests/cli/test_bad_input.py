"""Bad input: one clear line, the right status, no traceback, nothing half-written."""

import gzip
import os
import subprocess
import sys

import pytest

COUNT = ("run", "count", "data.csv", "--column", "c")
HISTOGRAM = ("run", "histogram", "data.csv", "--column", "c", "--domain", "a,b")
TARGET = ("--epsilon", "1", "--delta", "1e-3")


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data.csv").write_text("c\n" + "a\n" * 500)
    (tmp_path / "bits.csv").write_text("c\n" + "1\n" * 500)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (("--epsilon", "abc", "--delta", "1e-3"), "'abc' is not a number"),
        (("--epsilon", "0", "--delta", "1e-3"), "epsilon must be a positive number"),
        (("--epsilon", "-1", "--delta", "1e-3"), "epsilon must be a positive number"),
        (("--epsilon", "nan", "--delta", "1e-3"), "epsilon must be a positive number"),
        (("--epsilon", "inf", "--delta", "1e-3"), "epsilon must be a positive number"),
        (("--epsilon", "1", "--delta", "0"), "delta must lie strictly between 0 and 1"),
        (("--epsilon", "1", "--delta", "1"), "delta must lie strictly between 0 and 1"),
        (("--epsilon", "1", "--delta", "-0.1"), "delta must lie strictly between 0 and 1"),
        (("--epsilon", "1", "--delta", "nan"), "delta must lie strictly between 0 and 1"),
        (("--epsilon", "1"), "--delta"),
        ((*TARGET, "--honest-fraction", "0"), "honest fraction"),
        ((*TARGET, "--honest-fraction", "1.5"), "honest fraction"),
        ((*TARGET, "--confidence", "1"), "confidence"),
        ((*TARGET, "--estimator", "best"), "no estimator 'best'"),
        ((*TARGET, "--protocol", "finest"), "no protocol 'finest'"),
        ((*TARGET, "--protocol", "best", "--calibration", "paper"), "best protocol is chosen with its calibration"),
        ((*TARGET, "--calibration", "loose"), "loose"),
        ((*TARGET, "--engine", "cloud"), "cloud"),
        ((*TARGET, "--route", "scenic"), "scenic"),
        ((*TARGET, "--insecure-seed", "x"), "insecure-seed"),
        ((*TARGET, "--nonsense"), "nonsense"),
    ],
)
@pytest.mark.usefixtures("data")
def test_wrong_usage_is_status_2(shuffledp, target, words):
    for command in (COUNT, HISTOGRAM):
        done = shuffledp(*command, *target)
        assert done.status == 2
        assert words in done.error


@pytest.mark.usefixtures("data")
def test_a_wrong_column(shuffledp):
    done = shuffledp("run", "count", "data.csv", "--column", "x", *TARGET)
    assert done.status == 2
    assert "no column 'x'; it has c" in done.error


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "empty"),
        ("header.csv", b"c\n", "no rows"),
        ("one.csv", b"c\n1\n", "At least 2 users"),
        ("two.csv", b"c\n1\n0\n", "too few"),
        ("cut.csv.gz", gzip.compress(b"c\n" + os.urandom(3000).hex().encode() + b"\n")[:900], "Cannot read"),
        ("cut.parquet", b"PAR1xxxxxxxxx", "Cannot read"),
        ("words.csv", b"c\nmaybe\nperhaps\n", "2 values are outside"),
    ],
)
def test_files_that_cannot_be_used(shuffledp, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    done = shuffledp("run", "count", name, "--column", "c", *TARGET, "--protocol", "balcer-cheu")
    assert done.status in (1, 2)
    assert words in done.error


def test_no_such_file(shuffledp):
    done = shuffledp("run", "count", "none.csv", "--column", "c", *TARGET)
    assert done.status == 1
    assert "no such file" in done.error


@pytest.mark.parametrize("users", ["0", "1", "-5", "2.5", "many", "1e19", "nan", "inf", "1e400"])
def test_numbers_of_users_that_make_no_sense(shuffledp, users):
    done = shuffledp("plan", "count", "--users", users, "--epsilon", "1", "--delta", "1e-6")
    assert done.status == 2
    assert done.error


def test_too_few_users_says_how_many(shuffledp):
    done = shuffledp("account", "count/balcer-cheu", "--users", "50", "--epsilon", "1", "--delta", "1e-6")
    assert done.status == 1
    assert "80 are needed" in done.error


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (("--domain", "a,a"), "'a' appears twice"),
        (("--domain", ""), "empty name"),
        (("--domain", "a,,b"), "empty name"),
        (("--domain-file", "none.txt"), "Cannot read the domain file none.txt"),
        (("--domain-file", "blank.txt"), "names no category"),
        (("--domain-file", "twice.txt"), "'b' appears twice"),
        (("--domain-file", "binary.txt"), "not UTF-8"),
        (("--domain", "a,b", "--domain-from-data"), "Name the domain once"),
        (("--domain", "a,b", "--other", " "), "--other is empty"),
    ],
)
def test_domains_that_make_no_sense(shuffledp, data, domain, words):
    (data / "blank.txt").write_text("\n \n")
    (data / "twice.txt").write_text("a\nb\nb\n")
    (data / "binary.txt").write_bytes(b"\xff\xfe\x00")
    done = shuffledp("run", "histogram", "data.csv", "--column", "c", *TARGET, *domain)
    assert done.status == 2
    assert words in done.error


@pytest.mark.parametrize(
    ("option", "path", "words"),
    [
        ("--out", "missing/result.json", "there is no directory missing"),
        ("--out", "result.txt", "a result ends in"),
        ("--out", "folder", "it is a directory"),
        ("--plot", "missing/figure.png", "there is no directory missing"),
        ("--plot", "figure.pdf", "a figure ends in"),
    ],
)
def test_outputs_that_cannot_be_written(shuffledp, data, option, path, words):
    (data / "folder").mkdir()
    before = {entry.name for entry in data.iterdir()}
    done = shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, option, path)
    assert done.status == 1
    assert words in done.error
    assert {entry.name for entry in data.iterdir()} == before


@pytest.mark.parametrize(
    "outputs",
    [
        ("--out", "bits.csv"),
        ("--out", "./bits.csv"),
        ("--out", "same.svg", "--plot", "same.svg"),
    ],
)
def test_nothing_is_written_over_what_is_read(shuffledp, data, outputs):
    before = {entry.name: entry.read_bytes() for entry in data.iterdir()}
    done = shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, *outputs)
    assert done.status in (1, 2)
    assert done.error
    assert {entry.name: entry.read_bytes() for entry in data.iterdir()} == before


def test_bytes_of_a_broken_file_stay_off_the_screen(shuffledp, tmp_path):
    (tmp_path / "odd.csv").write_bytes(b"c,d\n1,2\n\x1b[31mred\x07\n")
    done = shuffledp("run", "count", "odd.csv", "--column", "c", *TARGET)
    assert done.error.isprintable()


def test_one_output_that_fails_leaves_the_other_unwritten(shuffledp, data, monkeypatch):
    """Half a release would invite a second one with fresh noise."""
    real = os.chmod

    def full(name, mode):
        if "result.json" in str(name):
            raise OSError(28, "No space left on device")
        real(name, mode)

    monkeypatch.setattr(os, "chmod", full)
    outputs = ("--plot", "figure.svg", "--out", "result.json")
    done = shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, *outputs)
    assert done.status == 1
    assert "No space left" in done.error
    assert {entry.name for entry in data.iterdir()} == {"data.csv", "bits.csv"}


def test_a_failed_write_leaves_the_old_file(shuffledp, data, monkeypatch):
    (data / "result.json").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    done = shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, "--out", "result.json")
    assert done.status == 1
    assert "No space left on device" in done.error
    assert (data / "result.json").read_text() == "old"
    assert {entry.name for entry in data.iterdir()} == {"data.csv", "bits.csv", "result.json"}


def test_a_fault_of_ours_is_one_line_too(shuffledp, data, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr("shuffledp.cli.run.check_release", broken)
    done = shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, "--protocol", "cheu")
    assert done.status == 1
    assert "RuntimeError: planted" in done.error
    monkeypatch.setenv("SHUFFLEDP_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        shuffledp("run", "count", "bits.csv", "--column", "c", *TARGET, "--protocol", "cheu")


def test_a_process_of_its_own_says_the_same(shuffledp_process, shuffledp):
    done = shuffledp_process("run", "count", "none.csv", "--column", "c", *TARGET)
    assert done.status == 1
    assert "no such file" in done.error
    assert shuffledp().status == 2


def test_a_reader_that_goes_away_is_no_error_text(tmp_path):
    command = f"{sys.executable} -m shuffledp plan count --users 10000 --epsilon 1 --delta 1e-6 --json | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in done.stderr
