"""Domains of dates in periods and of numbers between edges: the same index from Python, Arrow and strings."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import shuffledp as sdp
from shuffledp.domain.periods import CALENDAR_PERIODS, CYCLES, parse_date
from shuffledp.engines.dates import local_times
from shuffledp.engines.local import Column
from shuffledp.engines.table import MemoryTable
from shuffledp.sessions.domains import histogram_domain

FIRST, LAST = "1968-02-28", "2031-01-02"


def domains():
    return [sdp.Periods(by, FIRST, LAST) for by in CALENDAR_PERIODS] + [sdp.Periods(by) for by in CYCLES]


def name_by_the_calendar(by, moment):
    """The name of the period by Python's own calendar."""
    year, week, _ = moment.isocalendar()
    return {
        "year": f"{moment:%Y}",
        "month": f"{moment:%Y-%m}",
        "week": f"{year}-W{week:02}",
        "day": f"{moment:%Y-%m-%d}",
        "month-of-year": f"{moment:%B}",
        "weekday": f"{moment:%A}",
        "hour": f"{moment:%H}",
    }[by]


def moments():
    draw = np.random.default_rng(3)
    start, end = datetime.datetime(1968, 2, 28), datetime.datetime(2031, 1, 2, 23, 59, 59)
    seconds = draw.integers(0, int((end - start).total_seconds()), 400).tolist()
    edges = [
        datetime.datetime(year, month, day) for year in (1969, 1970, 2000, 2024) for month, day in ((1, 1), (12, 31))
    ]
    return [start, end, *edges, *(start + datetime.timedelta(seconds=second) for second in seconds)]


@pytest.mark.parametrize("domain", domains(), ids=lambda domain: domain.by)
def test_periods_are_those_of_the_calendar_in_every_type(domain):
    dates = moments()
    positions = {name: position for position, name in enumerate(domain.names)}
    wanted = [positions[name_by_the_calendar(domain.by, moment)] for moment in dates]
    spelled = [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in dates]
    zoned = [moment.isoformat() + "+05:30" for moment in dates]
    for values in (
        dates,
        spelled,
        zoned,
        np.array(dates, dtype="datetime64[s]"),
        [pd.Timestamp(each) for each in dates],
    ):
        assert domain.encode_all(values).tolist() == wanted
    assert [domain.find(each) for each in zoned] == wanted
    arrays = [pa.array(dates, type=pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
    arrays += [pa.array(spelled), pa.array(zoned), pa.array(spelled).dictionary_encode()]
    arrays += [pa.array([None, *dates[1:]]), pa.array(["", *spelled[1:]])]
    for array in arrays:
        times, present = local_times(array)
        indices = domain.indices(times)
        assert indices[present].tolist() == [each for each, here in zip(wanted, present, strict=True) if here]
        assert present.sum() >= len(dates) - 1


def test_hours_of_zoned_columns_are_local():
    column = pa.array([datetime.datetime(2024, 7, 1, 22, 30)], type=pa.timestamp("us", "Europe/Berlin"))
    assert sdp.Periods("hour").indices(local_times(column)[0]).tolist() == [0]
    assert sdp.Periods("weekday").indices(local_times(column)[0]).tolist() == [1]


NASTY = {
    "2024-05-31": True,
    " 2024-05-31 ": True,
    "2024-05-31T08": False,
    "2024-05-31 08:15": True,
    "2024-05-31 08:15:59.123456789": True,
    "2024-05-31T08:15:59Z": True,
    "2024-05-31 08:15 +02:00": False,
    "2024-02-30": False,
    "2023-02-29": False,
    "2024-13-01": False,
    "2024-5-3": False,
    "31.05.2024": False,
    "05/31/2024": False,
    "20240531": False,
    "2024-05-31 24:00": False,
    "2024-05-31 23:60": False,
    "2024-W22-5": False,
    "\uff12\uff10\uff12\uff14-05-31": False,
    "now": False,
    "NaT": False,
}


@pytest.mark.parametrize("text", NASTY)
def test_strings_that_are_dates(text):
    """One rule for one string, for a column of strings that Arrow parses, and for one that Python parses."""
    assert (parse_date(text) is not None) == NASTY[text]
    times, present = local_times(pa.array([text, None]))
    assert (not np.isnat(times[0]), present.tolist()) == (NASTY[text], [True, False])
    times, present = local_times(pa.array([text]), sdp.Categories.of(["x"]))
    assert (not np.isnat(times[0]), present.tolist()) == (NASTY[text], [True])


def test_an_hour_needs_a_time():
    hours = sdp.Periods("hour")
    assert hours.find("2024-05-31") is None
    for values in ([datetime.date(2024, 5, 31)], ["2024-05-31"], ["2024-05-31 08:00", "2024-05-31"]):
        with pytest.raises(sdp.DataError, match="The domain is dates with a time"):
            Column(MemoryTable({"d": values}), "d").histogram(hours)
        with pytest.raises(sdp.DomainError, match="not dates with a time"):
            hours.encode_all(values)


def test_dates_outside_the_bounds_and_missing_ones():
    months = sdp.Periods("month", "2024-01-15", "2024-03-01")
    column = Column(MemoryTable({"d": ["2024-01-01", "2024-03-31", "2024-04-01", "never", None]}), "d")
    assert months.names == ("2024-01", "2024-02", "2024-03")
    with pytest.raises(sdp.DataError, match=r"2 values are outside .*'2024-04-01', 'never'.* 1 value is missing"):
        column.histogram(months)
    assert column.histogram(months, other="other").tolist() == [1, 0, 1, 3]


def test_one_line_by_month():
    dates = pd.date_range("2013-01-01", "2013-12-31 23:00", freq="h").to_series()
    estimate = sdp.histogram(
        dates, by="month", lower="2013-01-01", upper="2013-12-31", epsilon=50, delta=1e-6, protocol="discrete-laplace"
    )
    assert estimate.categories[1] == "2013-02"
    assert np.round(estimate.counts).tolist() == [
        24 * days for days in (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    ]


def test_one_line_by_bins():
    numbers = [*np.linspace(0, 99.99, 1_000), None, 500.0]
    options = {"epsilon": 50, "delta": 1e-6, "protocol": "discrete-laplace"}
    for bins in ({"bins": 4, "lower": 0, "upper": 100}, {"bins": [0, 25, 50, 75, 100]}):
        estimate = sdp.histogram(numbers, other="other", **bins, **options)
        assert estimate.categories == ("[0, 25)", "[25, 50)", "[50, 75)", "[75, 100]", "other")
        assert np.round(estimate.counts).tolist() == [250, 250, 250, 250, 2]
        clipped = sdp.histogram([*numbers[:1_000], 500.0], clip=True, **bins, **options)
        assert np.round(clipped.counts).tolist() == [250, 250, 250, 251]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "in one way: .* none is given"),
        ({"bins": 3, "by": "hour"}, "not bins and by"),
        ({"bins": 3}, "3 bins of equal width need their bounds"),
        ({"bins": [0, 10, 5]}, "must ascend"),
        ({"bins": [0]}, "from 2 to"),
        ({"bins": [0, float("nan")]}, "must ascend"),
        ({"bins": [0, float("inf")]}, "finite"),
        ({"bins": ["a", "b"]}, "must be numbers"),
        ({"bins": "0,10"}, "a list of their edges"),
        ({"bins": 2.5, "lower": 0, "upper": 1}, "a list of their edges"),
        ({"bins": [0, 10], "lower": 0, "upper": 20}, "do not cover the bounds: upper is 20"),
        ({"bins": 4, "lower": 5, "upper": 5}, "must lie below"),
        ({"bins": 4, "lower": float("nan"), "upper": 5}, "finite"),
        ({"by": "fortnight"}, "no period 'fortnight'"),
        ({"by": "month"}, "need a first and a last date"),
        ({"by": "month", "lower": "2024-13-01", "upper": "2024-12-31"}, "dates such as"),
        ({"by": "month", "lower": 3, "upper": 4}, "dates such as"),
        ({"by": "day", "lower": "2024-05-31", "upper": "2024-05-30"}, "must not lie after"),
        ({"by": "day", "lower": "0001-01-01", "upper": "9999-12-31"}, "more than"),
        ({"by": "hour", "lower": "2024-01-01"}, "have no bounds"),
        ({"categories": ["a"], "lower": 0}, "belong to bins and dates"),
        ({"categories": ["a"], "other": " "}, "needs a name"),
    ],
)
def test_bad_domains_are_one_line(options, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        histogram_domain(**options)
    assert "\n" not in str(caught.value)


def test_names_of_close_edges_differ():
    domain = sdp.Edges.of([0, 1e6, 1e6 + 1e-3, 0.1 + 2e6])
    assert len(set(domain.names)) == 3
    assert sdp.Bins(1e6, 1e6 + 1e-3, bins=10).names[0] == "[1000000, 1000000.0001)"
