"""On public data sets, intervals of every question cover the truth as often as they state.

Every number is checked on its own: so many of RUNS intervals of 95 % must cover it that a number that is covered with
exactly 95 % fails with probability ALPHA; there are about 300 of them, so the file fails by chance with 3e-7.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import shuffledp as sdp

ALPHA = 1e-9
RUNS, QUANTILE_RUNS = 100, 40
CONFIDENCE = 0.95
TARGET = {"epsilon": 1.0, "delta": 1e-6}


def are_covered(estimates, intervals_of, truth):
    """Whether enough intervals cover each true number."""
    truth = np.atleast_1d(truth)
    hits = np.zeros(len(truth), dtype=int)
    for estimate in estimates:
        intervals = np.atleast_2d(intervals_of(estimate))
        hits += (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])
    return hits.min() >= stats.binom.ppf(ALPHA, len(estimates), CONFIDENCE)


def check(draw, intervals_of, truth):
    """Draw RUNS estimates and check the coverage; intervals of 50 % in their place must be rejected."""
    estimates = [draw() for _ in range(RUNS)]
    assert are_covered(estimates, lambda estimate: intervals_of(estimate, CONFIDENCE), truth)
    assert not are_covered(estimates, lambda estimate: intervals_of(estimate, 0.5), truth)


def interval(estimate, confidence):
    return estimate.interval(confidence)


def check_count(column, **options):
    truth = (column == options["equals"]).sum() if "equals" in options else column.astype(bool).sum()
    check(lambda: sdp.count(column, **options, **TARGET), interval, truth)


def check_histogram(column, categories, **options):
    truth = [int((column.astype(str) == name).sum()) for name in categories]
    draw = lambda: sdp.histogram(column, categories=categories, **options, **TARGET)  # noqa: E731
    check(draw, interval, truth)


def check_bins(column, edges):
    truth = np.histogram(column, edges)[0]
    check(lambda: sdp.histogram(column, bins=edges, **TARGET), interval, truth)


def check_mean(column, lower, upper):
    draw = lambda: sdp.mean(column, lower=lower, upper=upper, **TARGET)  # noqa: E731
    check(draw, interval, column.mean())


def check_sum(column, lower, upper, **options):
    draw = lambda: sdp.sum(column, lower=lower, upper=upper, **options, **TARGET)  # noqa: E731
    check(draw, interval, column.sum())


def check_quantiles(column, lower, upper, bins):
    """Deciles, and the moments of the same release; an eighth decile that is off by a third must be rejected."""
    shares = np.arange(1, 10) / 10
    truth = np.quantile(column, shares, method="inverted_cdf")
    truth = np.append(truth, [column.mean(), column.var(ddof=0)])

    def intervals(estimate):
        numbers = [*estimate.quantiles(shares, CONFIDENCE), estimate.mean(CONFIDENCE), estimate.variance(CONFIDENCE)]
        return [(number.low, number.high) for number in numbers]

    draw = lambda: sdp.quantiles(column, lower=lower, upper=upper, bins=bins, **TARGET)  # noqa: E731
    estimates = [draw() for _ in range(QUANTILE_RUNS)]
    assert are_covered(estimates, intervals, truth)
    moved = truth + np.where(np.arange(len(truth)) == 7, (upper - lower) / 3, 0)
    assert not are_covered(estimates, intervals, moved)


def check_dates(column, by, names, **bounds):
    moments = pd.to_datetime(column).dt.tz_localize(None)
    spelled = {
        "month": moments.dt.strftime("%Y-%m"),
        "weekday": moments.dt.day_name(),
        "hour": moments.dt.strftime("%H"),
    }
    truth = [int((spelled[by] == name).sum()) for name in names]
    check(lambda: sdp.histogram(column, by=by, **bounds, **TARGET), interval, truth)


def test_titanic(titanic):
    check_count(titanic["survived"])
    check_bins(titanic["age"], [0, 10, 18, 30, 50, 80])


@pytest.mark.slow
def test_more_of_titanic(titanic):
    check_histogram(titanic["class"], sorted(titanic["class"].unique()))
    check_mean(titanic["age"], 0, 80)


@pytest.mark.slow
def test_more_of_penguins(penguins):
    check_histogram(penguins["species"], ["Adelie", "Chinstrap", "Gentoo"])
    check_histogram(penguins["year"], ["2007", "2008", "2009"])


def test_penguins(penguins):
    """344 users: a small data set, and one with missing values."""
    check_histogram(penguins["sex"].fillna("unknown"), ["female", "male", "unknown"])
    check_mean(penguins["body_mass_g"].dropna(), 2500, 6500)
    with pytest.raises(sdp.DataError, match="2 values are missing"):
        sdp.mean(penguins["body_mass_g"], lower=2500, upper=6500, **TARGET)


@pytest.mark.slow
def test_sums(titanic, penguins, adult):
    check_sum(titanic["sibsp"], 0, 10, whole=True)
    check_sum(penguins["flipper_length_mm"].dropna(), 170, 240, whole=True)
    check_sum(adult["education-num"], 0, 20, whole=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "column", "lower", "upper", "bins"),
    [
        ("titanic", "age", 0, 80, 80),
        ("titanic", "fare", 0, 520, 260),
        ("penguins", "body_mass_g", 2500, 6500, 64),
        ("adult", "age", 0, 100, 100),
        ("adult", "hours-per-week", 0, 100, 100),
        ("flights", "distance", 0, 5000, 500),
    ],
)
def test_quantiles(request, data, column, lower, upper, bins):
    check_quantiles(request.getfixturevalue(data)[column].dropna(), lower, upper, bins)


@pytest.mark.slow
def test_adult(adult):
    check_count(adult["income"], equals=">50K")
    check_histogram(adult["workclass"], sorted(adult["workclass"].unique()))
    check_histogram(adult["native-country"], sorted(adult["native-country"].unique()))
    check_bins(adult["age"], [0, 20, 30, 40, 50, 60, 100])
    check_mean(adult["hours-per-week"], 0, 100)


@pytest.mark.slow
def test_flights(flights):
    check_histogram(flights["carrier"], sorted(flights["carrier"].unique()))
    check_count(flights["origin"], equals="JFK")
    check_mean(flights["distance"], 0, 5000)
    check_mean(flights["air_time"].dropna(), 0, 700)


@pytest.mark.slow
def test_dates_of_flights(flights):
    months = [*(f"2013-{month:02}" for month in range(1, 13)), "2014-01"]  # of UTC, in which the file is written
    check_dates(flights["time_hour"], "month", months, lower="2013-01-01", upper="2014-01-01")
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    check_dates(flights["time_hour"], "weekday", days)


def grouped_intervals(estimates, confidence):
    return [estimate.interval(confidence) for estimate in estimates.values()]


def test_means_by_group(penguins):
    known = penguins.dropna(subset=["body_mass_g"])
    truth = known.groupby("species")["body_mass_g"].mean().to_numpy()
    options = {"lower": 2500, "upper": 6500, "group_by": known["species"], **TARGET}
    check(lambda: sdp.mean(known["body_mass_g"], **options), grouped_intervals, truth)


@pytest.mark.slow
def test_counts_by_group(titanic, adult):
    for data, column, equals, group in ((titanic, "survived", "1", "class"), (adult, "income", ">50K", "education")):
        truth = (data[column].astype(str) == equals).groupby(data[group]).sum()
        estimates = sdp.count(data[column], equals=equals, group_by=data[group], **TARGET)
        released = [name for name, estimate in estimates.items() if estimate is not None]
        assert len(released) >= 4

        def draw(data=data, column=column, equals=equals, group=group, released=released):
            estimates = sdp.count(data[column], equals=equals, group_by=data[group], **TARGET)
            return {name: estimates[name] for name in released}

        check(draw, grouped_intervals, truth[released].to_numpy())


@pytest.mark.slow
def test_one_row_of_each_aircraft(flights):
    """The last flight of each of 4,043 aircraft, whose carrier does not depend on the choice among equal times."""
    known = flights.dropna(subset=["tailnum"])
    last = known.sort_values("time_hour").groupby("tailnum").tail(1)
    carriers = sorted(flights["carrier"].unique())
    truth = [int((last["carrier"] == carrier).sum()) for carrier in carriers]
    options = {"categories": carriers, "user": known["tailnum"], "pick": "latest", "order_by": known["time_hour"]}
    check(lambda: sdp.histogram(known["carrier"], **options, **TARGET), interval, truth)


@pytest.mark.slow
def test_sessions(titanic):
    """Three answers under one budget."""
    categories = sorted(titanic["class"].unique())
    truth = [int(titanic["survived"].sum()), *(int((titanic["class"] == name).sum()) for name in categories)]
    truth.append(titanic["age"].mean())

    def draw():
        session = sdp.Session(users=len(titanic), **TARGET, adaptive=True)  # adding pairs is fast
        yes = session.count(titanic["survived"], share=0.2, protocol="balcer-cheu")
        classes = session.histogram(titanic["class"], categories=categories, share=0.4, protocol="balcer-cheu")
        ages = session.mean(titanic["age"], lower=0, upper=80, share=0.4, protocol="split-and-mix")
        assert session.left.share == pytest.approx(0)
        return yes, classes, ages

    def intervals(estimates, confidence):
        yes, classes, ages = (estimate.interval(confidence) for estimate in estimates)
        return np.vstack([yes, classes, ages])

    check(draw, intervals, truth)
