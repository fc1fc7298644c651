"""One-line functions: every kind of column gives the same answer, and what is no column is refused."""

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import shuffledp as sdp

TARGET = {"epsilon": 1.0, "delta": 1e-6}
MODES = ["bus", "bike", "car", "bus"] * 500
DAYS = [datetime.date(2024, month, 3) for month in (1, 2, 3, 4)] * 500
NUMBERS = [0.0, 2.5, 10.0, 7.5] * 500


def seeded():
    return {"source": sdp.InsecureSeededRandomness(7), "protocol": "balcer-cheu"}


def columns(values):
    """The same values in every kind of column."""
    arrow = pa.array(values)
    yield from (values, tuple(values), np.array(values), np.array(values, dtype=object), arrow)
    yield from (pa.chunked_array([arrow[:700], arrow[700:]]), arrow.dictionary_encode())
    yield from (pd.Series(values), pd.Series(values, dtype="category"), pd.Series(values, dtype=object))


def test_every_kind_of_column_is_the_same_histogram():
    wanted = sdp.histogram(MODES, categories=["bus", "bike", "car"], **TARGET, **seeded()).counts
    for column in columns(MODES):
        estimate = sdp.histogram(column, categories=["bus", "bike", "car"], **TARGET, **seeded())
        assert estimate.counts.tolist() == wanted.tolist()


def test_every_kind_of_column_is_the_same_mean():
    options = {"lower": 0, "upper": 10, "protocol": "split-and-mix", **TARGET}
    wanted = sdp.mean(NUMBERS, source=sdp.InsecureSeededRandomness(7), **options).value
    kinds = [*columns(NUMBERS), [decimal.Decimal(str(number)) for number in NUMBERS]]
    kinds += [pd.array(NUMBERS, dtype="Float64"), np.array(NUMBERS, dtype=np.float32)]
    for column in kinds:
        assert sdp.mean(column, source=sdp.InsecureSeededRandomness(7), **options).value == wanted


@pytest.mark.parametrize(
    "column",
    [
        [True, False, False, True] * 500,
        ["yes", "no", "No", "TRUE"] * 500,
        np.array([1, 0, 0, 1] * 500, dtype=np.int8),
        pd.Series([True, False, False, True] * 500, dtype="boolean"),
        pa.array([1.0, 0.0, 0.0, 1.0] * 500),
        [1, False, "no", "1.0"] * 500,
    ],
    ids=lambda column: type(column).__name__,
)
def test_bits(column):
    truth = sdp.count(column, protocol="discrete-laplace", epsilon=60.0, delta=1e-6)
    assert round(truth.value) == 1_000


def test_the_default_is_the_best_protocol():
    best = sdp.plan(sdp.Histogram(2_000, categories=["bus", "bike", "car"]), **TARGET).best
    estimate = sdp.histogram(MODES, categories=["bus", "bike", "car"], **TARGET)
    assert (estimate.protocol, estimate.guarantee) == (best.name, best.guarantee)
    assert estimate.secure
    central = sdp.histogram(MODES, categories=["bus", "bike", "car"], trust="central", **TARGET)
    assert central.guarantee.trust == "central"


def test_missing_values_are_never_dropped_silently():
    with_gaps = pd.Series([*MODES, None, np.nan, "NA"])
    with pytest.raises(sdp.DataError, match=r"1 value is outside .* and 2 values are missing"):
        sdp.histogram(with_gaps, categories=["bus", "bike", "car"], **TARGET)
    dropped = sdp.histogram(with_gaps, categories=["bus", "bike", "car"], missing="NA", drop_missing=True, **TARGET)
    assert dropped.users == 2_000
    assert "left out" in dropped.caveats[0]
    counted = sdp.histogram(with_gaps, categories=["bus", "bike", "car"], other="other", **TARGET)
    assert (counted.users, counted.categories[-1]) == (2_003, "other")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pd.DataFrame({"a": [1], "b": [2]}), r"whole table \(a, b\).*frame\['a'\]"),
        (pa.table({"a": [1]}), "whole table"),
        ({"a": [1]}, "whole table"),
        ("survey.csv", "read_files"),
        (Path("survey.csv"), "read_files"),
        ((value for value in [1, 0]), "of type generator"),
        ({1, 0}, "of type set"),
        (np.zeros((2, 2)), "2 dimensions"),
        (5, "of type int"),
        ([object()], "of type object"),
        ([[1], [2]], "of type list<"),
    ],
)
def test_what_is_no_column_is_refused_with_a_word_on_what_to_pass(values, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        sdp.count(values, **TARGET)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sdp.mean(NUMBERS, lower=10, upper=0, **TARGET), "must lie below"),
        (lambda: sdp.mean(NUMBERS, lower=float("nan"), upper=1, **TARGET), "finite"),
        (lambda: sdp.mean(NUMBERS, lower=0, upper=5, **TARGET), r"clip=True"),
        (lambda: sdp.quantiles(NUMBERS, lower=0, upper=10, quantiles=[0.0], **TARGET), "both excluded"),
        (lambda: sdp.quantiles(NUMBERS, lower=0, upper=10, quantiles=[0.5, 1], **TARGET), "both excluded"),
        (lambda: sdp.quantiles(NUMBERS, lower=0, upper=10, quantiles=[], **TARGET), "name at least one"),
        (lambda: sdp.quantiles(NUMBERS, lower=0, upper=10, quantiles=[[0.5]], **TARGET), "list of numbers"),
        (lambda: sdp.quantiles(NUMBERS, lower=0, upper=10, quantiles=None, **TARGET), "list of numbers"),
        (lambda: sdp.histogram(NUMBERS, bins=4, lower=0, upper=10**400, **TARGET), "upper is too large"),
        (lambda: sdp.count([True] * 9, epsilon=10**400, delta=1e-6), "epsilon is too large"),
        (lambda: sdp.count(["\ud800"] * 9, **TARGET), "not valid Unicode"),
        (lambda: sdp.count([True] * 9, protocol=5, **TARGET), "no protocol '5'"),
        (lambda: sdp.count([True] * 9, missing=5, **TARGET), "list of strings"),
        (lambda: sdp.count([True] * 9, group_by=[1] * 9, private_groups=5, **TARGET), "of type int"),
        (lambda: sdp.mean([True, False], lower=0, upper=1, **TARGET), "ask for a count of booleans"),
        (lambda: sdp.mean(NUMBERS, lower=0, upper=10**400, **TARGET), r"not 1000+\.\.\.\.$"),
        (lambda: sdp.histogram(DAYS, by="month", lower="2024-01-01", upper="2024-01-31", clip=True, **TARGET), "clip"),
        (lambda: sdp.histogram(MODES, categories=["bus", "bike", "car"], clip=True, **TARGET), "bins of numbers"),
        (lambda: sdp.variance(NUMBERS, lower=0, upper=10, group_by=MODES, **TARGET), "follows from its quantiles"),
        (lambda: sdp.strings(MODES, alphabet="a-z", max_length=4, group_by=MODES, **TARGET), "by group"),
        (lambda: sdp.count([], **TARGET), "no rows"),
        (lambda: sdp.count([True], epsilon=0.0, delta=1e-6), "epsilon"),
        (lambda: sdp.count([True] * 9, protocol="nope", **TARGET), "nope"),
        (lambda: sdp.count([True] * 9, protocol="cheu", trust="central", **TARGET), "shuffled model"),
        (lambda: sdp.count([True] * 9, calibration="paper", **TARGET), "name a protocol"),
    ],
)
def test_bad_input_is_one_line(call, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="no option 'sede'; the options are calibration, drop_missing"):
        sdp.count([True] * 9, sede=3, **TARGET)


def test_columns_of_files(tmp_path):
    pa.csv.write_csv(pa.table({"mode": MODES, "minutes": NUMBERS}), tmp_path / "survey.csv")
    pa.parquet.write_table(pa.table({"mode": MODES, "minutes": NUMBERS}), tmp_path / "survey.parquet")
    wanted = sdp.histogram(MODES, categories=["bus", "bike", "car"], **TARGET, **seeded()).counts.tolist()
    for name in ("survey.csv", "survey.parquet"):
        table = sdp.read_files(tmp_path / name)
        estimate = sdp.histogram(table["mode"], categories=["bus", "bike", "car"], **TARGET, **seeded())
        assert estimate.counts.tolist() == wanted
        with pytest.raises(sdp.ParameterError, match="no column 'nope'; it has mode, minutes"):
            sdp.count(table["nope"], **TARGET)


def test_intervals_are_those_of_the_protocol():
    """The interval covers the truth in about 95% of runs: at alpha = 1e-9, at least 349 of 400."""
    covered = 0
    for _ in range(400):
        low, high = sdp.count([True] * 300 + [False] * 700, **TARGET).interval(0.95)
        covered += low <= 300 <= high
    assert covered >= 349


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.to_timedelta(range(100), unit="s")),
        np.arange(100).astype("timedelta64[s]"),
        [datetime.timedelta(seconds=second) for second in range(100)],
        pa.array([1, 2] * 50, type=pa.duration("s")).dictionary_encode(),
    ],
    ids=["pandas", "numpy", "list", "dictionary"],
)
def test_durations_are_refused(column):
    """Their numbers depend on the unit in which they are stored."""
    with pytest.raises(sdp.DataError, match="convert durations to numbers first"):
        sdp.mean(column, lower=0, upper=100, clip=True, **TARGET)


def test_dates_in_lists():
    """Missing ones of pandas, and dates among other values."""
    year = {"by": "month", "lower": "2024-01-01", "upper": "2024-12-31", **TARGET}
    stamps = [pd.NaT, *pd.to_datetime(DAYS[1:])]
    with pytest.raises(sdp.DataError, match="1 value is missing"):
        sdp.histogram(stamps, **year)
    assert sdp.histogram(stamps, drop_missing=True, **year, **seeded()).users == 1_999
    mixed = [datetime.date(2024, 1, 1), "2024-02-03", None, datetime.datetime(2024, 5, 1, 3)] * 500
    wanted = ["2024-01-01", "2024-02-03", None, "2024-05-01 03:00:00"] * 500
    estimates = [sdp.histogram(column, drop_missing=True, **year, **seeded()) for column in (mixed, wanted)]
    assert estimates[0].counts.tolist() == estimates[1].counts.tolist()
