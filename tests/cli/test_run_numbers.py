"""``shuffledp run sum`` and ``run mean``: from a column of numbers to an estimate, or one clear line."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

USERS = 2000
NUMBERS = np.round(np.linspace(-50, 20, USERS), 2)
TOTAL = float(NUMBERS.sum())
TARGET = ("--epsilon", 1, "--delta", 1e-6)
BOUNDS = ("--lower", -50, "--upper", 20)
SPLIT = ("--protocol", "split-and-mix")  # named, since to find the best one takes a while
KEYS = {
    "protocol",
    "estimator",
    "guarantee",
    "secure",
    "caveats",
    "users",
    "value",
    "standard_error",
    "interval",
    "confidence",
    "statistic",
}


@pytest.fixture
def data(tmp_path):
    """Columns: the numbers, whole ones, with a word, with a gap, and with one outside."""
    rows = [f"{x},{int(abs(x))},{'x' if i == 7 else x},{'' if i == 3 else x},{99 if i == 5 else x}"
            for i, x in enumerate(NUMBERS)]  # fmt: skip
    (tmp_path / "n.csv").write_text("v,w,word,gap,out\n" + "\n".join(rows) + "\n")
    table = pa.table({"v": NUMBERS, "w": np.abs(NUMBERS).astype(int), "yes": NUMBERS > 0})
    pyarrow.parquet.write_table(table, tmp_path / "n.parquet")
    return tmp_path


@pytest.mark.parametrize("file", ["n.csv", "n.parquet"])
@pytest.mark.parametrize("statistic", ["sum", "mean"])
@pytest.mark.usefixtures("data")
def test_json(shuffledp, file, statistic):
    done = shuffledp("run", statistic, file, "--column", "v", *BOUNDS, *TARGET, *SPLIT, "--json")
    assert (done.status, done.err) == (0, "")
    result = done.json
    assert set(result) == KEYS
    assert (result["statistic"], result["users"], result["confidence"]) == (statistic, USERS, 0.95)
    assert result["guarantee"]["trust"] == "shuffled"
    scale = 1 if statistic == "sum" else USERS
    assert abs(result["value"] - TOTAL / scale) < 70 * 25 / scale
    assert result["interval"][0] < result["value"] < result["interval"][1]


@pytest.mark.usefixtures("data")
def test_a_person_reads_it(shuffledp):
    done = shuffledp("run", "mean", "n.csv", "--column", "v", *BOUNDS, *TARGET, "--protocol", "split-and-mix")
    flat = " ".join(done.out.split())
    assert done.status == 0
    for words in ("The mean of v over 2,000 users is -1", "with 95% confidence", "epsilon = 1", "follow the protocol"):
        assert words in flat
    assert "nan" not in flat


@pytest.mark.parametrize(
    ("name", "trust"),
    [
        ("cheu", "shuffled"),
        ("privacy-blanket", "shuffled"),
        ("split-and-mix", "shuffled"),
        ("almost-central", "shuffled"),
        ("duchi", "local"),
        ("piecewise", "local"),
        ("local-laplace", "local"),
        ("discrete-laplace", "central"),
        ("laplace", "central"),
        ("sum/duchi", "local"),
    ],
)
@pytest.mark.usefixtures("data")
def test_protocols_by_name(shuffledp, name, trust):
    command = ("run", "sum", "n.csv", "--column", "v", *BOUNDS, *TARGET, "--protocol", name)
    result = shuffledp(*command, "--json").json
    assert result["protocol"] == name.removeprefix("sum/")
    assert result["guarantee"]["trust"] == trust
    assert abs(result["value"] - TOTAL) < 12 * result["standard_error"]
    clipped = shuffledp(*command, "--estimator", "clipped", "--json").json
    assert -50 * USERS <= clipped["value"] <= 20 * USERS


@pytest.mark.parametrize("route", ["messages", "counts"])
@pytest.mark.usefixtures("data")
def test_routes(shuffledp, route):
    done = shuffledp("run", "sum", "n.csv", "--column", "v", *BOUNDS, *TARGET, *SPLIT, "--route", route, "--json")
    assert abs(done.json["value"] - TOTAL) < 2000


@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        ("word", (), "1 value is outside the domain (for example 'x')"),
        ("word", ("--clip",), "'x'"),
        ("gap", (), "1 value is missing. Use --drop-missing"),
        ("gap", ("--clip",), "1 value is missing"),
        ("out", (), "for example '99'"),
        ("out", ("--drop-missing",), "for example '99'"),
        ("v", ("--whole",), "integers from -50 to 20"),
        ("v", ("--whole", "--clip"), "integers from -50 to 20"),
    ],
)
@pytest.mark.usefixtures("data")
def test_values_that_do_not_fit(shuffledp, column, options, words):
    done = shuffledp("run", "sum", "n.csv", "--column", column, *BOUNDS, *TARGET, *options)
    assert done.status == 1
    assert words in done.error


@pytest.mark.parametrize(("column", "options"), [("word", ("--clip",)), ("v", ("--whole",))])
@pytest.mark.usefixtures("data")
def test_advice_that_helps(shuffledp, column, options):
    done = shuffledp("run", "sum", "n.csv", "--column", column, *BOUNDS, *TARGET, *options)
    assert "--clip moves" not in done.error


@pytest.mark.usefixtures("data")
def test_clipping_dropping_and_whole_numbers(shuffledp):
    clipped = shuffledp("run", "sum", "n.csv", "--column", "out", *BOUNDS, *TARGET, *SPLIT, "--clip", "--json").json
    assert clipped["users"] == USERS
    dropped = shuffledp("run", "sum", "n.csv", "--column", "gap", *BOUNDS, *TARGET, *SPLIT, "--drop-missing", "--json")
    assert dropped.json["users"] == USERS - 1
    assert "not protected" in dropped.json["caveats"][0]
    assert "not protected" in dropped.err
    whole = ("--lower", 0, "--upper", 50, "--whole", "--protocol", "discrete-laplace")
    result = shuffledp("run", "sum", "n.parquet", "--column", "w", *whole, *TARGET, "--json").json
    assert result["value"] == pytest.approx(round(result["value"]), abs=1e-6)


@pytest.mark.usefixtures("data")
def test_truth_values_are_no_numbers(shuffledp):
    done = shuffledp("run", "sum", "n.parquet", "--column", "yes", "--lower", 0, "--upper", 1, *TARGET)
    assert done.status == 1
    assert "'false'" in done.error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lower", 5, "--upper", 1), "lower bound must lie below"),
        (("--lower", 1, "--upper", 1), "lower bound must lie below"),
        (("--lower", "nan", "--upper", 1), "bounds must be finite"),
        (("--lower", 0, "--upper", "inf"), "bounds must be finite"),
        (("--lower", 0, "--upper", "many"), "'many' is not a number"),
        (("--lower", -1e308, "--upper", 1e308), "too wide"),
        (("--lower", 0.5, "--upper", 3, "--whole"), "integer bounds"),
        (("--lower", 0), "--upper"),
        ((*BOUNDS, "--protocol", "finest"), "no protocol 'finest'"),
        ((*BOUNDS, "--protocol", "count/cheu"), "no protocol"),
        ((*BOUNDS, "--protocol", "best", "--calibration", "paper"), "best protocol is chosen with its calibration"),
        ((*BOUNDS, "--protocol", "duchi", "--estimator", "odd"), "no estimator 'odd'"),
        ((*BOUNDS, "--estimator", "odd"), "no estimator 'odd'"),
        ((*BOUNDS, "--confidence", 1), "confidence"),
        ((*BOUNDS, "--honest-fraction", 0), "honest fraction"),
    ],
)
@pytest.mark.usefixtures("data")
def test_wrong_usage_is_status_2(shuffledp, options, words):
    for statistic in ("sum", "mean"):
        done = shuffledp("run", statistic, "n.csv", "--column", "v", *TARGET, *options)
        assert done.status == 2
        assert words in done.error


@pytest.mark.parametrize(
    ("rows", "status", "words"), [(0, 1, "no rows"), (1, 2, "At least 2 users"), (5, 1, "too few")]
)
def test_too_few_users(shuffledp, tmp_path, rows, status, words):
    (tmp_path / "few.csv").write_text("v\n" + "1\n" * rows)
    command = ("run", "sum", "few.csv", "--column", "v", "--lower", 0, "--upper", 1, "--epsilon", 1e-4)
    done = shuffledp(*command, "--delta", 1e-6, "--protocol", "cheu")
    assert done.status == status
    assert words in done.error


@pytest.mark.usefixtures("data")
def test_files_and_figures(shuffledp, tmp_path):
    command = ("run", "sum", "n.csv", "--column", "v", *BOUNDS, *TARGET, *SPLIT, "--insecure-seed", 4)
    for name in ("r.json", "r.csv", "r.parquet"):
        done = shuffledp(*command, "--out", name, "--plot", "f.svg", "--json")
        assert f"wrote {name}" in done.err
        result = done.json
    assert json.loads((tmp_path / "r.json").read_text()) == result
    (row,) = csv.DictReader((tmp_path / "r.csv").read_text().splitlines())
    (same,) = pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist()
    for each in (row, same):
        assert float(each["value"]) == pytest.approx(result["value"])
        assert [float(each["lower"]), float(each["upper"])] == pytest.approx(result["interval"])
    assert (row["secure"], same["secure"]) == ("false", False)
    drawing = (tmp_path / "f.svg").read_text()
    assert "NOT PRIVATE: seeded estimate of the sum of v" in drawing
    assert "2,000 users" in drawing


@pytest.mark.usefixtures("data")
def test_a_seed_is_not_private(shuffledp):
    command = ("run", "mean", "n.csv", "--column", "v", *BOUNDS, *TARGET, *SPLIT, "--insecure-seed", 4)
    first, second = shuffledp(*command, "--json").json, shuffledp(*command, "--json").json
    assert first == second
    assert (first["secure"], first["guarantee"]) == (False, None)
    assert "NOT PRIVATE" in shuffledp(*command).out
    assert "epsilon = 1" not in shuffledp(*command).out


@pytest.mark.usefixtures("data")
def test_nothing_is_written_over_what_is_read(shuffledp, tmp_path):
    before = (tmp_path / "n.csv").read_bytes()
    done = shuffledp("run", "sum", "n.csv", "--column", "v", *BOUNDS, *TARGET, "--out", "n.csv")
    assert done.status == 2
    assert "named twice" in done.error
    assert (tmp_path / "n.csv").read_bytes() == before
