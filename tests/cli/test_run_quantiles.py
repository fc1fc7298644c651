"""``shuffledp plan quantiles`` and ``run quantiles``: from a column of numbers to an estimate, or one clear line."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

USERS = 2000
NUMBERS = np.round(np.linspace(0, 100, USERS), 2)
TARGET = ("--epsilon", 1, "--delta", 1e-6)
BOUNDS = ("--lower", 0, "--upper", 100, "--bins", 10)
NAMED = ("--protocol", "uniform-blanket")  # named, since to find the best one takes a while
KEYS = {
    *("protocol", "estimator", "guarantee", "secure", "caveats", "users"),
    *(
        "quantiles",
        "mean",
        "variance",
        "standard_deviation",
        "edges",
        "below",
        "standard_errors",
        "intervals",
        "confidence",
    ),
}


@pytest.fixture
def data(tmp_path):
    """Columns: the numbers, with a word, with a gap, and with one outside."""
    rows = [f"{x},{'x' if i == 7 else x},{'' if i == 3 else x},{999 if i == 5 else x}" for i, x in enumerate(NUMBERS)]
    (tmp_path / "n.csv").write_text("v,word,gap,out\n" + "\n".join(rows) + "\n")
    pyarrow.parquet.write_table(pa.table({"v": NUMBERS}), tmp_path / "n.parquet")
    return tmp_path


@pytest.mark.parametrize(("file", "protocol"), [("n.csv", "uniform-blanket"), ("n.parquet", "discrete-laplace")])
@pytest.mark.usefixtures("data")
def test_json(shuffledp, file, protocol):
    command = ("run", "quantiles", file, "--column", "v", *BOUNDS, *TARGET, "--protocol", protocol, "--json")
    done = shuffledp(*command, "--quantiles", "0.5,0.25", "--confidence", 0.9999999)
    assert (done.status, done.err) == (0, "")
    result = done.json
    assert set(result) == KEYS
    assert (result["protocol"], result["users"]) == (protocol, USERS)
    assert len(result["edges"]) == len(result["below"]) + 2 == len(result["intervals"]) + 2 == 11
    assert [row["quantile"] for row in result["quantiles"]] == [0.5, 0.25]
    for row in result["quantiles"]:
        low, high = row["interval"]
        assert low <= row["value"] <= high
        assert low <= 100 * row["quantile"] <= high
    for name, truth in {"mean": NUMBERS.mean(), "variance": NUMBERS.var(), "standard_deviation": NUMBERS.std()}.items():
        low, high = result[name]["interval"]
        assert low <= min(truth, result[name]["value"])
        assert max(truth, result[name]["value"]) <= high


@pytest.mark.usefixtures("data")
def test_the_best_protocol_as_people_read_it(shuffledp):
    done = shuffledp("run", "quantiles", "n.csv", "--column", "v", *BOUNDS, *TARGET)
    flat = " ".join(done.out.split())
    assert done.status == 0
    for words in (
        "0.25",
        "0.75",
        "95% interval",
        "2,000 users in 10 bins from 0 to 100, by correlated-noise",
        "epsilon = 1",
    ):
        assert words in flat
    assert "standard error of the number of users below an edge" in flat
    assert "nan" not in flat


@pytest.mark.usefixtures("data")
def test_files_and_figures(shuffledp, tmp_path):
    command = ("run", "quantiles", "n.csv", "--column", "v", *BOUNDS, *TARGET, *NAMED, "--insecure-seed", 4, "--json")
    for name in ("r.json", "r.csv", "r.parquet"):
        done = shuffledp(*command, "--out", name, *(("--plot", "f.svg") if name == "r.csv" else ()))
        assert f"wrote {name}" in done.err
    result = done.json
    assert json.loads((tmp_path / "r.json").read_text()) == result
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    same = pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist()
    for table in (rows, same):
        assert [float(row["below"]) for row in table] == pytest.approx(result["below"])
        assert [float(row["edge"]) for row in table] == pytest.approx(result["edges"][1:-1])
    drawing = (tmp_path / "f.svg").read_text()
    for words in ("NOT PRIVATE: seeded estimate of the distribution of v", "2,000 users in 10 bins", "0.5: "):
        assert words in drawing


@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        ("word", (), "1 value is outside the domain (for example 'x')"),
        ("word", ("--clip",), "'x'"),
        ("gap", (), "1 value is missing. Use --drop-missing"),
        ("out", (), "The domain is numbers from 0 to 100; --clip clips numbers"),
    ],
)
@pytest.mark.usefixtures("data")
def test_values_that_do_not_fit(shuffledp, column, options, words):
    done = shuffledp("run", "quantiles", "n.csv", "--column", column, *BOUNDS, *TARGET, *options)
    assert done.status == 1
    assert words in done.error


@pytest.mark.usefixtures("data")
def test_clipping_and_dropping(shuffledp):
    command = ("run", "quantiles", "n.csv", *BOUNDS, *TARGET, *NAMED, "--json")
    clipped = shuffledp(*command, "--column", "out", "--clip").json
    assert clipped["users"] == USERS
    assert "clipped" in clipped["caveats"][0]
    dropped = shuffledp(*command, "--column", "gap", "--drop-missing").json
    assert dropped["users"] == USERS - 1
    assert "not protected" in dropped["caveats"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((*BOUNDS, "--quantiles", "0,0.5"), "A quantile must lie between 0 and 1, both excluded, not 0"),
        ((*BOUNDS, "--quantiles", "0.5,1"), "both excluded, not 1"),
        ((*BOUNDS, "--quantiles", "nan"), "both excluded, not nan"),
        ((*BOUNDS, "--quantiles", "0.5,,0.9"), "'' is not a number"),
        ((*BOUNDS, "--quantiles", "half"), "'half' is not a number"),
        ((*BOUNDS, "--quantiles", "0.5,0.50"), "name a share twice"),
        ((*BOUNDS, "--quantiles", ",".join(f"{k / 101:.6f}" for k in range(1, 101))), "At most 99"),
        (("--lower", 5, "--upper", 1), "lower bound must lie below"),
        (("--lower", 1, "--upper", 1), "lower bound must lie below"),
        (("--lower", "nan", "--upper", 1), "bounds must be finite"),
        (("--lower", 0, "--upper", "inf"), "bounds must be finite"),
        (("--lower", 0), "--upper"),
        (("--lower", 0, "--upper", 1, "--bins", 0), "number of bins must lie between 1"),
        (("--lower", 0, "--upper", 1, "--bins", 1), "at least 2 bins"),
        (("--lower", 0, "--upper", 1, "--bins", 2.5), "'2.5' is not an integer"),
        (("--lower", 0, "--upper", 1, "--bins", 10**7), "number of bins must lie between 1"),
        ((*BOUNDS, "--column", "w"), "has no column 'w'"),
        ((*BOUNDS, "--protocol", "cheu"), "no protocol 'cheu' for quantiles"),
        ((*BOUNDS, "--estimator", "clipped"), "no estimator 'clipped'"),
        ((*BOUNDS, "--whole"), "No such option"),
    ],
)
@pytest.mark.usefixtures("data")
def test_wrong_usage_is_one_line_and_writes_nothing(shuffledp, tmp_path, options, words):
    before = sorted(tmp_path.iterdir())
    done = shuffledp("run", "quantiles", "n.csv", "--column", "v", *TARGET, *options, "--out", "r.json")
    assert done.status == 2
    assert words in done.error
    assert sorted(tmp_path.iterdir()) == before


def test_plans(shuffledp):
    command = ("plan", "quantiles", "--users", USERS, *BOUNDS, *TARGET)
    done = shuffledp(*command, "--max-messages", 3, "--plot", "plans.svg")
    flat = " ".join(done.out.split())
    assert done.status == 0
    assert "quantiles of 2,000 users at epsilon = 1" in flat
    assert "Rejected: uniform-blanket (tight" in flat
    assert "wrote plans.svg" in done.err
    result = shuffledp(*command, "--json").json
    assert result["question"] == {"kind": "quantiles", "users": USERS, "lower": 0.0, "upper": 100.0, "bins": 10}
    errors = [plan["expected"]["rmse"] for plan in result["plans"] if not plan["reference"]]
    assert len(errors) > 2  # one per tree
    assert errors == sorted(errors)


@pytest.mark.slow
def test_accuracy_asks_for_an_epsilon(shuffledp):
    command = ("plan", "quantiles", "--users", USERS, "--lower", 0, "--upper", 1, "--bins", 4, "--delta", 1e-6)
    result = shuffledp(*command, "--accuracy", 10, "--json").json
    assert result["plans"][0]["expected"]["rmse"] == pytest.approx(10, rel=0.01)


def test_account_and_audit(shuffledp):
    kind = ("quantiles/uniform-blanket", "--bins", 4, "--users", 50, "--epsilon", 1, "--delta", 0.01)
    account = shuffledp("account", *kind, "--releases", 2, "--json").json
    assert account["question"] == "quantiles"
    assert 1 < account["composed"]["epsilon"] < 2
    audited = shuffledp("audit", *kind, "--trials", 300, "--confidence", 0.9999999, "--json")
    assert (audited.status, audited.json["exposed"]) == (0, False)
    exposed = shuffledp("audit", *kind, "--trials", 1000, "--plant", "little-noise", "--json")
    assert (exposed.status, exposed.json["exposed"]) == (1, True)
