"""``shuffledp run``: from a file to an estimate."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from shuffledp.datasets import COMMUTE_MODES

pytestmark = pytest.mark.kernels

BEST = ("--epsilon", 1, "--delta", 1e-8)
TARGET = (*BEST, "--protocol", "balcer-cheu")  # spares the time to compare all protocols
MAX_SECONDS = 60.0
"""For ten million rows, which take a few seconds; the machine may be busy."""
TRUTH = {"walk": 1428, "car": 9103, "cable car": 0, "ferry": 10}


def test_histogram_json(shuffledp, commute, modes):
    done = shuffledp("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-file", modes, "--json")
    assert done.status == 0
    assert done.err == ""
    result = done.json
    contract = {"protocol", "guarantee", "users", "categories", "counts", "standard_errors", "intervals", "confidence"}
    assert contract <= set(result)
    assert result["categories"] == list(COMMUTE_MODES)
    assert result["users"] == 25_000
    assert result["domain"] == "file"
    found = dict(zip(result["categories"], result["counts"], strict=True))
    assert found["cable car"] == 0
    assert abs(found["car"] - TRUTH["car"]) < 60
    for name, (low, high) in zip(result["categories"], result["intervals"], strict=True):
        assert low <= found[name] <= high


def test_the_best_protocol_is_taken_if_none_is_named(shuffledp, commute, modes):
    histogram = shuffledp("run", "histogram", commute, "--column", "mode", *BEST, "--domain-file", modes, "--json").json
    count = shuffledp("run", "count", commute, "--column", "owns_car", *BEST, "--json").json
    assert (histogram["protocol"], count["protocol"]) == ("correlated-noise", "correlated-noise")
    assert max(histogram["standard_errors"]) < 4
    assert (histogram["withheld_below"], any(histogram["withheld"])) == (None, False)
    assert (count["withheld_below"], count["withheld"]) == (None, False)


def test_an_estimator_that_the_best_protocol_lacks(shuffledp, commute, modes):
    done = shuffledp(
        "run", "histogram", commute, "--column", "mode", *BEST, "--domain-file", modes, "--estimator", "threshold"
    )
    assert done.status == 2, done.out
    for words in ("threshold", "correlated-noise", "projected, unbiased, clipped", "--protocol"):
        assert words in done.error


def test_small_counts_are_shown_as_withheld(shuffledp, commute, modes):
    arguments = ("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-file", modes)
    done = shuffledp(*arguments, "--out", "result.csv", "--plot", "picture.svg")
    assert done.status == 0, done.err
    told = " ".join(done.out.split())
    (row,) = [line for line in done.out.splitlines() if "cable car" in line]
    assert "│ < 79 │" in " ".join(row.split())
    assert "│ < 0.316% │" in " ".join(row.split())
    assert "of a withheld one up to 50." in told
    assert 'shown as "< 79": one of 79 or more is withheld with a probability of at most 2.5%.' in told
    with Path("result.csv").open(newline="") as file:
        rows = {row["category"]: row for row in csv.DictReader(file)}
    assert (rows["cable car"]["count"], rows["cable car"]["withheld"]) == ("0", "true")
    assert float(rows["cable car"]["standard_error"]) > 40
    assert (rows["car"]["withheld"], round(float(rows["car"]["standard_error"]), 1)) == ("false", 7.9)
    assert "&lt; 79" in Path("picture.svg").read_text()
    result = shuffledp(*arguments, "--json", "--confidence", 0.5).json
    assert result["withheld"][COMMUTE_MODES.index("cable car")]
    assert 60 < result["withheld_below"] < 79


def test_a_withheld_count(shuffledp, commute):
    done = shuffledp("run", "count", commute, "--column", "mode", "--equals", "cable car", *TARGET)
    told = " ".join(done.out.split())
    assert told.startswith("< ")
    assert "of 25,000 users (standard error 3" in told or "of 25,000 users (standard error 4" in told
    assert "Counts that cannot be distinguished from noise are withheld" in told


def test_no_negative_counts_on_the_screen_but_in_the_json(shuffledp, tmp_path):
    """An empty category of an unbiased estimator is below 0 half of the time: of 40, all are not with 2^-40 < 1e-11."""
    names = [f"c{number}" for number in range(40)]
    (tmp_path / "data.csv").write_text("c,n\n" + "all,1\n" * 1000)
    arguments = ("run", "histogram", "data.csv", "--column", "c", "--domain", ",".join(["all", *names]), *BEST)
    arguments = (*arguments, "--protocol", "balcer-cheu", "--estimator", "unbiased", "--insecure-seed", 3)
    assert min(shuffledp(*arguments, "--json").json["counts"]) < 0
    shown = shuffledp(*arguments, "--plot", "picture.svg").out
    assert not re.search(r"-\d", shown)
    assert not re.search(r">[-\u2212]\d", Path("picture.svg").read_text())


def test_count_json(shuffledp, commute):
    done = shuffledp("run", "count", commute, "--column", "owns_car", *TARGET, "--json")
    result = done.json
    assert {"protocol", "guarantee", "users", "value", "standard_error", "interval", "confidence"} <= set(result)
    assert abs(result["value"] - 13_769) < 80
    assert result["interval"][0] <= result["value"] <= result["interval"][1]
    by_value = shuffledp("run", "count", commute, "--column", "mode", "--equals", "walk", *TARGET, "--json").json
    assert abs(by_value["value"] - TRUTH["walk"]) < 80


@pytest.mark.parametrize("route", ["auto", "messages", "counts"])
@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_routes_and_calibrations(shuffledp, commute, modes, route, calibration):
    done = shuffledp(
        "run",
        "histogram",
        commute,
        "--column",
        "mode",
        *TARGET,
        "--domain-file",
        modes,
        "--route",
        route,
        "--calibration",
        calibration,
        "--json",
    )
    car = done.json["counts"][COMMUTE_MODES.index("car")]
    assert abs(car - TRUTH["car"]) < (60 if calibration == "tight" else 400)


def test_a_person_sees_a_table_and_the_guarantee(shuffledp, commute):
    done = shuffledp(
        "run",
        "histogram",
        commute,
        "--column",
        "district",
        *TARGET,
        "--domain",
        "Old Town,Harbour,Mill Quarter,North Hill,Lakeside,Outer Villages",
    )
    assert done.status == 0
    for words in ("Old Town", "95% interval", "25,000 users", "epsilon = 1", "collude, there is no guarantee"):
        assert words in " ".join(done.out.split())


def test_a_missing_domain_is_refused_with_the_reason(shuffledp, commute):
    done = shuffledp("run", "histogram", commute, "--column", "mode", *TARGET)
    assert done.status == 2
    assert "must be public" in done.error
    assert "--domain-from-data" in done.error


def test_the_domain_of_the_data_is_stated(shuffledp, commute):
    done = shuffledp("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-from-data", "--json")
    assert done.status == 0
    assert done.json["domain"] == "data"
    assert "cable car" not in done.json["categories"]
    assert "which ones occur is not protected" in " ".join(done.err.split())
    assert len(done.json["caveats"]) == 1


def test_values_outside_the_domain(shuffledp, commute):
    few = ("run", "histogram", commute, "--column", "mode", *TARGET, "--domain", "car,bus")
    done = shuffledp(*few)
    assert done.status == 1
    assert "13,719 values are outside the domain" in done.error
    assert "--other" in done.error
    with_other = shuffledp(*few, "--other", "something else", "--json").json
    assert with_other["categories"] == ["car", "bus", "something else"]
    assert abs(with_other["counts"][2] - 13_719) < 80


def test_missing_values(shuffledp, tmp_path):
    (tmp_path / "holes.csv").write_text("a\n" + "x\n" * 300 + '""\n' * 7)
    few = ("run", "histogram", "holes.csv", "--column", "a", "--epsilon", 1, "--delta", 1e-4, "--domain", "x,y")
    few += ("--protocol", "k-rr")
    done = shuffledp(*few)
    assert done.status == 1
    assert "7 values are missing" in done.error
    assert "--drop-missing" in done.error
    dropped = shuffledp(*few, "--drop-missing", "--json", "--plot", tmp_path / "dropped.svg")
    assert dropped.json["users"] == 300
    assert "not protected" in dropped.json["caveats"][0]
    assert "number of users" in " ".join(dropped.err.split())
    assert "Rows without a value were left out" in (tmp_path / "dropped.svg").read_text()
    assert shuffledp(*few, "--other", "y", "--json").json["users"] == 307


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet"])
def test_results_are_written(shuffledp, commute, modes, tmp_path, suffix):
    out = tmp_path / f"result.{suffix}"
    done = shuffledp(
        "run", "histogram", commute, "--column", "mode", *TARGET, "--domain-file", modes, "--out", out, "--json"
    )
    assert "wrote" in done.err
    if suffix == "json":
        assert json.loads(out.read_text()) == done.json
        return
    if suffix == "csv":
        with out.open() as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pa.parquet.read_table(out).to_pylist()
    assert [row["category"] for row in rows] == list(COMMUTE_MODES)
    assert [float(row["count"]) for row in rows] == done.json["counts"]
    one = shuffledp(
        "run", "count", commute, "--column", "owns_car", *TARGET, "--out", tmp_path / f"one.{suffix}", "--json"
    )
    assert one.status == 0
    assert (tmp_path / f"one.{suffix}").stat().st_size > 0


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("html", b"<!DOCTYPE html>")])
def test_figures_are_drawn(shuffledp, commute, modes, tmp_path, suffix, start):
    figure = tmp_path / f"figure.{suffix}"
    done = shuffledp("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-file", modes, "--plot", figure)
    assert done.status == 0
    content = figure.read_bytes()
    assert content.lstrip().startswith(start)
    if suffix != "png":
        assert b"epsilon = 1" in content
        assert b"worked from home" in content
    if suffix == "html":
        assert b"<script src" not in content
    count = tmp_path / f"count.{suffix}"
    assert shuffledp("run", "count", commute, "--column", "owns_car", *TARGET, "--plot", count).status == 0
    assert count.read_bytes().lstrip().startswith(start)


def test_a_figure_of_many_categories_shows_the_largest(shuffledp, tmp_path):
    values = np.repeat(np.arange(200), np.arange(200) + 1)
    pa.parquet.write_table(pa.table({"v": values}), tmp_path / "many.parquet")
    done = shuffledp(
        "run",
        "histogram",
        "many.parquet",
        "--column",
        "v",
        *TARGET,
        "--domain",
        ",".join(map(str, range(200))),
        "--plot",
        "f.svg",
    )
    assert done.status == 0
    assert "The 60 largest of 200 categories" in (tmp_path / "f.svg").read_text()
    assert "and 160 more categories" in done.out


def test_a_seed_repeats_and_is_never_called_private(shuffledp, commute, modes, tmp_path):
    seeded = ("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-file", modes, "--insecure-seed", 3)
    first, second = (shuffledp(*seeded, "--json").json for _ in range(2))
    assert first == second
    assert first["guarantee"] is None
    assert first["secure"] is False
    text = shuffledp(*seeded, "--plot", tmp_path / "seeded.svg").out
    assert "NOT PRIVATE" in text
    assert "there is no guarantee" not in text
    assert "NOT PRIVATE: seeded estimate" in (tmp_path / "seeded.svg").read_text()
    shuffledp(*seeded, "--out", tmp_path / "seeded.csv")
    with (tmp_path / "seeded.csv").open() as file:
        assert {row["secure"] for row in csv.DictReader(file)} == {"false"}
    unseeded = [shuffledp(*seeded[:-2], "--json").json["counts"] for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_honest_fraction_and_confidence(shuffledp, commute):
    done = shuffledp(
        "run",
        "count",
        commute,
        "--column",
        "owns_car",
        *TARGET,
        "--honest-fraction",
        0.5,
        "--confidence",
        0.5,
        "--json",
    ).json
    assert done["guarantee"]["honest_users"] == 12_500
    assert done["confidence"] == 0.5


@pytest.mark.parametrize("estimator", ["unbiased", "clipped", "midpoint", "relaxed-threshold"])
def test_estimators_by_name(shuffledp, commute, modes, estimator):
    done = shuffledp(
        "run",
        "histogram",
        commute,
        "--column",
        "mode",
        *TARGET,
        "--domain-file",
        modes,
        "--estimator",
        estimator,
        "--json",
    )
    assert done.json["estimator"] == estimator
    ferry = done.json["counts"][COMMUTE_MODES.index("ferry")]
    assert abs(ferry - TRUTH["ferry"]) < 60


@pytest.mark.parametrize(
    ("wait", "how"), [(0.6, signal.SIGKILL), pytest.param(1.2, signal.SIGINT, marks=pytest.mark.slow)]
)
def test_killed_in_the_middle_nothing_is_left(tmp_path, wait, how):
    rows = 1_000_000
    pa.parquet.write_table(pa.table({"v": np.arange(rows) % 7}), tmp_path / "big.parquet")
    command = [
        sys.executable,
        "-m",
        "shuffledp",
        "run",
        "histogram",
        "big.parquet",
        "--column",
        "v",
        "--epsilon",
        "1",
        "--delta",
        "1e-9",
        "--protocol",
        "balcer-cheu",
        "--domain",
        "0,1,2,3,4,5,6",
        "--out",
        "r.json",
        "--plot",
        "f.png",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(wait)
    process.send_signal(how)
    process.communicate(timeout=60)
    left = {path.name for path in tmp_path.iterdir()} - {"big.parquet"}
    for name in left:
        assert name in ("r.json", "f.png")
        content = (tmp_path / name).read_bytes()
        assert content.endswith((b"}\n", b"IEND\xaeB`\x82"))


@pytest.mark.slow
def test_ten_million_rows(tmp_path, shuffledp_process):
    rng = np.random.default_rng()
    names = np.array([f"category {i}" for i in range(20)])
    column = pa.array(names).take(pa.array(rng.integers(0, 20, 10_000_000)))
    pa.parquet.write_table(pa.table({"c": column}), tmp_path / "ten.parquet")
    start = time.perf_counter()
    done = shuffledp_process(
        "run", "histogram", "ten.parquet", "--column", "c", *TARGET, "--domain", ",".join(names), "--json"
    )
    assert done.status == 0
    assert time.perf_counter() - start < MAX_SECONDS
    assert done.json["users"] == 10_000_000


@pytest.mark.parametrize(("confidence", "text"), [(0.999, "99.9%"), (0.995, "99.5%")])
def test_a_high_confidence_is_not_shown_as_100_percent(shuffledp, commute, tmp_path, confidence, text):
    level = ("--confidence", confidence, "--plot", "p.svg")
    shown = [
        shuffledp("run", "histogram", commute, "--column", "mode", *TARGET, "--domain-from-data", *level).out,
        shuffledp("run", "count", commute, "--column", "owns_car", *TARGET, *level).out,
        (tmp_path / "p.svg").read_text(),
    ]
    for each in shown:
        assert text in each
        assert "100%" not in each
