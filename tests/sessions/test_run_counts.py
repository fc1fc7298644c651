"""Rounds from counts that another engine has computed: the same release as from the rows."""

import ast
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import shuffledp as sdp
from shuffledp.errors import BelowMinimumError, DataError, DomainError, ParameterError, UnknownNameError

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TARGET = {"epsilon": 1.0, "delta": 1e-6}
MODES = ["bus", "bike", "1"]


def seeded():
    return sdp.InsecureSeededRandomness(20)


@pytest.fixture(scope="module")
def histogram():
    return sdp.plan(sdp.Histogram(1_000, categories=MODES), **TARGET).best


@pytest.fixture(scope="module")
def count():
    return sdp.plan(sdp.Count(1_000), **TARGET).best


@pytest.fixture(scope="module")
def mean():
    return sdp.plan(sdp.Mean(1_000, 0, 10), **TARGET).best


@pytest.fixture(scope="module")
def quantiles():
    return sdp.plan(sdp.Quantiles(1_000, 0, 10, bins=16), **TARGET).best


VALUES = ["bus"] * 600 + ["bike"] * 300 + ["1"] * 100


@pytest.mark.parametrize(
    "counts",
    [
        {"bus": 600, "bike": 300, "1": 100},
        {"1": 100, "bike": 300, "bus": 600},
        {"bus": 599, " bus ": 1, "bike": np.int32(300), 1: 51, "1.0": 49},
        Counter(VALUES),
        pd.Series(VALUES).value_counts(),
        [600, 300, 100],
        np.array([600, 300, 100], dtype=np.uint16),
        (600, 300, 100),
    ],
    ids=lambda counts: type(counts).__name__,
)
@pytest.mark.parametrize("route", ["messages", "counts"])
def test_counts_are_released_like_rows(histogram, counts, route):
    wanted = histogram.run(VALUES, route=route, source=seeded())
    estimate = sdp.run_counts(counts, histogram, route=route, source=seeded())
    assert estimate.categories == wanted.categories
    assert estimate.users == 1_000
    if route == "counts":
        assert estimate.counts.tolist() == wanted.counts.tolist()
    assert np.abs(estimate.counts - [600, 300, 100]).max() < 100


@pytest.mark.parametrize("counts", [{True: 400, False: 600}, {"yes": 400, "NO": 600}, {1: 400, 0: 600}, [600, 400]])
def test_counts_of_yes_and_no(count, counts):
    wanted = count.run([1] * 400 + [0] * 600, route="counts", source=seeded()).value
    assert sdp.run_counts(counts, count, route="counts", source=seeded()).value == wanted


def test_counts_of_numbers(mean, quantiles):
    numbers = {1: 400, 2.5: 500, "10": 100}
    values = [1] * 400 + [2.5] * 500 + [10] * 100
    wanted = mean.run(values, source=seeded())
    assert sdp.run_counts(numbers, mean, source=seeded()).value == wanted.value
    for counts in (numbers, np.bincount(quantiles.domain.encode_all(values), minlength=16)):
        estimate = sdp.run_counts(counts, quantiles, route="counts", source=seeded())
        assert estimate.below.tolist() == quantiles.run(values, route="counts", source=seeded()).below.tolist()


def test_large_counts_need_no_memory():
    protocol = sdp.find("histogram", "correlated-noise").calibrate(users=10**9, categories=MODES, **TARGET)
    estimate = sdp.run_counts({"bus": 9 * 10**8, "bike": 10**8}, protocol)
    assert abs(estimate.counts[0] - 9 * 10**8) < 10**5


WRONG = [
    ({"plane": 5, "bus": 1_000}, DomainError, "'plane' is not one of the 3 categories"),
    ({None: 5, "bus": 1_000}, DomainError, "A missing value belongs to no category"),
    ({"bus": -1}, DataError, "cannot be -1"),
    ({"bus": 1_000.0}, DataError, "A count is an integer, not 1000.0 of type float"),
    ({"bus": float("nan")}, DataError, "A count is an integer"),
    ({"bus": True}, DataError, "A count is an integer"),
    ({"bus": "1000"}, DataError, "A count is an integer"),
    ({"bus": None}, DataError, "A count is an integer"),
    ({"bus": 2**70}, DataError, "at most 1,000,000,000,000,000 users"),
    ({"bus": 999}, BelowMinimumError, "has 999 reports; the guarantee requires 1,000"),
    ({}, BelowMinimumError, "has 0 reports"),
    ([500, 500], ParameterError, "There are 2 counts; the domain has 3 values"),
    (np.array([600.0, 300.0, 100.0]), DataError, "A count is an integer"),
    (np.ones((3, 3), dtype=int), ParameterError, "a flat array in the order of the domain"),
    ("bus", ParameterError, "Counts are"),
    (1_000, ParameterError, "Counts are"),
    (None, ParameterError, "Counts are"),
]


@pytest.mark.parametrize(("counts", "error", "words"), WRONG)
def test_wrong_counts_are_refused_before_anything_is_drawn(histogram, counts, error, words):
    class NoSource:
        def __getattr__(self, name):
            raise AssertionError(name)

    with pytest.raises(error, match=words):
        sdp.run_counts(counts, histogram, source=NoSource())


def test_wrong_counts_of_numbers(mean, quantiles):
    for protocol in (mean, quantiles):
        with pytest.raises(DomainError, match="not numbers from 0 to 10"):
            sdp.run_counts({11: 1_000}, protocol)
        with pytest.raises(DomainError, match="A number is needed"):
            sdp.run_counts({"x": 1_000}, protocol)
    with pytest.raises(ParameterError, match="not an array"):
        sdp.run_counts([1_000], mean)
    with pytest.raises(ParameterError, match=r"limited to 200,000,000 users"):
        sdp.run_counts({1: 10**9}, mean)
    with pytest.raises(BelowMinimumError):
        sdp.run_counts({1: 10}, mean)


def test_what_is_not_a_protocol(histogram):
    for wrong in ("best", sdp.Histogram(1_000, categories=MODES), None):
        with pytest.raises(ParameterError, match=r"such as sdp.plan\(...\).best"):
            sdp.run_counts({"bus": 1_000}, wrong)
    with pytest.raises(UnknownNameError):
        sdp.run_counts({"bus": 1_000}, histogram, estimator="none")
    with pytest.raises(UnknownNameError):
        sdp.run_counts({"bus": 1_000}, histogram, route="none")


def test_the_page_shows_three_lines_for_each_engine():
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        assert len(ast.parse(block).body) == 3
        assert "sdp.run_counts" in block


def test_the_lines_for_polars_run(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    Path("survey.csv").write_text("mode\n" + "bus\n" * 700 + "bike\n" * 300)
    protocol = sdp.plan(sdp.Histogram(1_000, categories=MODES), **TARGET).best
    names = {"polars": polars, "sdp": sdp, "protocol": protocol}
    exec(BLOCKS[0], names)
    assert np.abs(names["estimate"].counts - [700, 300, 0]).max() < 100


def test_columns_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"mode": ["bus", None, "bike"] * 500, "minutes": ["5", "7.5", "x"] * 500})
    categorical = frame["mode"].cast(polars.Categorical)
    for column in (frame["mode"], categorical):
        estimate = sdp.histogram(column, categories=["bus", "bike"], drop_missing=True, **TARGET)
        assert estimate.users == 1_000
    with pytest.raises(DataError, match="500 values are outside the domain"):
        sdp.mean(frame["minutes"], lower=0, upper=10, **TARGET)
