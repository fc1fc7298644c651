"""On public data sets, intervals of every question cover the truth as often as they state.

Every number is checked on its own: at least LEAST of RUNS intervals of 95 % cover it. A number that is covered with
exactly 95 % fails with probability ALPHA; there are about 300 of them, so the file fails by chance with 3e-7.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import shuffledp as sdp

ALPHA = 1e-9
RUNS = 100
CONFIDENCE = 0.95
LEAST = int(stats.binom.ppf(ALPHA, RUNS, CONFIDENCE))
TARGET = {"epsilon": 1.0, "delta": 1e-6}


def covered(estimates, intervals_of, truth):
    """How many intervals cover each true number."""
    truth = np.atleast_1d(truth)
    hits = np.zeros(len(truth), dtype=int)
    for estimate in estimates:
        intervals = np.atleast_2d(intervals_of(estimate))
        hits += (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])
    return hits


def check(draw, intervals_of, truth):
    """Draw RUNS estimates and check the coverage; intervals of 50 % in their place must be rejected."""
    estimates = [draw() for _ in range(RUNS)]
    hits = covered(estimates, lambda estimate: intervals_of(estimate, CONFIDENCE), truth)
    assert hits.min() >= LEAST, hits
    fault = covered(estimates, lambda estimate: intervals_of(estimate, 0.5), truth)
    return fault.min() < LEAST


def interval(estimate, confidence):
    return estimate.interval(confidence)


def check_count(column, **options):
    truth = (column == options["equals"]).sum() if "equals" in options else column.astype(bool).sum()
    return check(lambda: sdp.count(column, **options, **TARGET), interval, truth)


def check_histogram(column, categories, **options):
    truth = [int((column.astype(str) == name).sum()) for name in categories]
    draw = lambda: sdp.histogram(column, categories=categories, **options, **TARGET)  # noqa: E731
    return check(draw, interval, truth)


def check_bins(column, edges):
    truth = np.histogram(column, edges)[0]
    return check(lambda: sdp.histogram(column, bins=edges, **TARGET), interval, truth)


def check_mean(column, lower, upper):
    draw = lambda: sdp.mean(column, lower=lower, upper=upper, **TARGET)  # noqa: E731
    return check(draw, interval, column.mean())


def check_sum(column, lower, upper, **options):
    draw = lambda: sdp.sum(column, lower=lower, upper=upper, **options, **TARGET)  # noqa: E731
    return check(draw, interval, column.sum())


def check_quantiles(column, lower, upper, bins):
    """Deciles, and the moments of the same release."""
    shares = np.arange(1, 10) / 10
    truth = np.quantile(column, shares, method="inverted_cdf")
    truth = np.append(truth, [column.mean(), column.var(ddof=0)])

    def intervals(estimate, confidence):
        numbers = [*estimate.quantiles(shares, confidence), estimate.mean(confidence), estimate.variance(confidence)]
        return [(number.low, number.high) for number in numbers]

    check(
        lambda: sdp.quantiles(column, lower=lower, upper=upper, bins=bins, quantiles=shares, **TARGET),
        intervals,
        truth,
    )  # wider than stated by the width of a bin, so that even intervals of 50 % may cover all


def check_dates(column, by, names, **bounds):
    moments = pd.to_datetime(column).dt.tz_localize(None)
    spelled = {
        "month": moments.dt.strftime("%Y-%m"),
        "weekday": moments.dt.day_name(),
        "hour": moments.dt.strftime("%H"),
    }
    truth = [int((spelled[by] == name).sum()) for name in names]
    return check(lambda: sdp.histogram(column, by=by, **bounds, **TARGET), interval, truth)


def test_titanic(titanic):
    assert check_count(titanic["survived"])
    assert check_histogram(titanic["class"], sorted(titanic["class"].unique()))
    assert check_histogram(titanic["gender"], ["male", "female"])
    assert check_bins(titanic["age"], [0, 10, 18, 30, 50, 80])
    assert check_mean(titanic["age"], 0, 80)


def test_penguins(penguins):
    """344 users: a small data set, and one with missing values."""
    assert check_histogram(penguins["species"], ["Adelie", "Chinstrap", "Gentoo"])
    assert check_histogram(penguins["sex"].fillna("unknown"), ["female", "male", "unknown"])
    assert check_histogram(penguins["year"], ["2007", "2008", "2009"])
    assert check_mean(penguins["body_mass_g"].dropna(), 2500, 6500)
    with pytest.raises(sdp.DataError, match="2 values are missing"):
        sdp.mean(penguins["body_mass_g"], lower=2500, upper=6500, **TARGET)


@pytest.mark.slow
def test_titanic_sums_and_quantiles(titanic):
    assert check_sum(titanic["sibsp"], 0, 10, whole=True)
    check_quantiles(titanic["age"], 0, 80, 80)
    check_quantiles(titanic["fare"], 0, 520, 520)


@pytest.mark.slow
def test_penguins_sums_and_quantiles(penguins):
    assert check_sum(penguins["flipper_length_mm"].dropna(), 170, 240, whole=True)
    check_quantiles(penguins["body_mass_g"].dropna(), 2500, 6500, 64)


@pytest.mark.slow
def test_adult(adult):
    assert check_count(adult["income"], equals=">50K")
    assert check_histogram(adult["workclass"], sorted(adult["workclass"].unique()))
    assert check_histogram(adult["native-country"], sorted(adult["native-country"].unique()))
    assert check_bins(adult["age"], [0, 20, 30, 40, 50, 60, 100])
    assert check_mean(adult["hours-per-week"], 0, 100)
    assert check_sum(adult["education-num"], 0, 20, whole=True)
    check_quantiles(adult["age"], 0, 100, 100)
    check_quantiles(adult["hours-per-week"], 0, 100, 100)


@pytest.mark.slow
def test_flights(flights):
    assert check_histogram(flights["carrier"], sorted(flights["carrier"].unique()))
    assert check_count(flights["origin"], equals="JFK")
    assert check_mean(flights["distance"], 0, 5000)
    assert check_mean(flights["air_time"].dropna(), 0, 700)
    months = [*(f"2013-{month:02}" for month in range(1, 13)), "2014-01"]  # of UTC, in which the file is written
    assert check_dates(flights["time_hour"], "month", months, lower="2013-01-01", upper="2014-01-01") is not None
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    assert check_dates(flights["time_hour"], "weekday", days)
    check_quantiles(flights["distance"], 0, 5000, 1000)
