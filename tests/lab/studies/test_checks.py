"""Checks hold when they should, and sound when they must."""

import math

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.studies.checks import (
    agrees,
    at_least,
    at_most,
    equals,
    exceeded_rarely,
    frequency,
    likely,
    mean_at_most,
    quantile,
    rarely,
    rmse,
    square_at_most,
)


def test_exact_numbers():
    assert at_most("c", "w", 1.0, 1.0).holds
    assert not at_most("c", "w", 1.0000001, 1.0).holds
    assert at_least("c", "w", 1.0, 1.0).holds
    assert not at_least("c", "w", 0.9999, 1.0).holds
    assert equals("c", "w", math.inf, math.inf).holds
    assert not equals("c", "w", 2.0, 1.0, tolerance=0.5).holds


def test_a_number_that_is_none_never_holds():
    assert not at_most("c", "w", math.nan, 1.0).holds
    assert not at_least("c", "w", math.nan, 1.0).holds


@pytest.mark.parametrize(("failures", "holds"), [(0, True), (50, True), (80, True), (100, False), (1000, False)])
def test_rare_events(failures, holds):
    assert rarely("c", "w", failures=failures, rounds=1000, at_most=0.05).holds is holds


def test_what_must_never_happen():
    assert rarely("c", "w", failures=0, rounds=10, at_most=0.0).holds
    assert not rarely("c", "w", failures=1, rounds=10_000, at_most=0.0).holds


def test_likely_events():
    assert likely("c", "w", successes=985, rounds=1000, at_least=0.99).holds
    assert not likely("c", "w", successes=950, rounds=1000, at_least=0.99).holds


def test_wrong_alarms_are_as_rare_as_said():
    """The binomial test at its own limit: the first number of failures that sounds has a tail below the level."""
    from scipy import stats

    first = next(count for count in range(200) if not rarely("c", "w", failures=count, rounds=200, at_most=0.1).holds)
    assert stats.binom.sf(first - 1, 200, 0.1) < 1e-6 <= stats.binom.sf(first - 2, 200, 0.1)


def test_means_and_errors():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 3, 4000)
    assert mean_at_most("c", "w", noise + 1, 1.0).holds
    assert not mean_at_most("c", "w", noise + 2, 1.0).holds
    assert agrees("c", "w", noise, 3.0).holds
    assert not agrees("c", "w", noise, 3.8).holds
    assert not agrees("c", "w", noise, 3.4, kurtosis=3.0).holds
    for size in (38, 55):  # few errors, and still far too large ones are noticed
        assert not agrees("c", "w", 5 * rng.normal(size=size), 1.0).holds
        assert not square_at_most("c", "w", 5 * rng.normal(size=size), 1.0).holds
        assert square_at_most("c", "w", 0.9 * rng.normal(size=size), 1.0).holds
    value, low, high = rmse(noise)
    assert low < 3.0 < high
    assert low < value < high


@pytest.mark.parametrize("size", [10, 40, 200])
def test_intervals_of_few_errors_cover(size):
    """About nineteen of twenty intervals hold the truth, also for Laplace errors."""
    rng = np.random.default_rng(3)
    misses = 0
    for _ in range(500):
        _, low, high = rmse(rng.laplace(size=size))
        misses += not low <= math.sqrt(2) <= high
    assert misses <= 50


def test_quantiles_cover():
    """The interval of a quantile misses it in about one of twenty, for a skewed distribution too."""
    rng = np.random.default_rng(2)
    truth = -math.log(0.05)
    misses = 0
    for _ in range(400):
        _, low, high = quantile(rng.exponential(size=500), 0.95)
        misses += not low <= truth <= high
    assert 3 <= misses <= 45


def test_too_little_to_judge():
    with pytest.raises(ParameterError, match="at least two"):
        rmse([1.0])
    with pytest.raises(ParameterError, match="finite"):
        agrees("c", "w", [1.0, math.nan], 1.0)
    with pytest.raises(ParameterError, match="3 of 2"):
        rarely("c", "w", failures=3, rounds=2, at_most=0.5)


def test_json_has_no_infinities():
    assert equals("c", "w", math.inf, math.inf).to_json()["bound"] is None


@pytest.mark.parametrize(("hits", "holds"), [(400, False), (470, True), (500, True), (530, True), (600, False)])
def test_frequencies_from_both_sides(hits, holds):
    assert frequency("c", "w", hits=hits, trials=1000, probability=0.5).holds is holds


def test_frequencies_at_the_ends():
    assert frequency("c", "w", hits=0, trials=10, probability=0.0).holds
    assert frequency("c", "w", hits=10, trials=10, probability=1.0).holds
    assert not frequency("c", "w", hits=1, trials=10, probability=0.0).holds
    assert not frequency("c", "w", hits=9, trials=10, probability=1.0).holds
    assert not frequency("c", "w", hits=5, trials=10, probability=math.nan).holds


def test_many_rows_share_the_wrong_alarm():
    """577 of 1,000 have a two-sided tail of 1e-6 and a little: alarming alone, not among a hundred rows."""
    from scipy import stats

    hits = next(count for count in range(500, 600) if 2 * stats.binom.sf(count - 1, 1000, 0.5) < 1e-6)
    assert not frequency("c", "w", hits=hits, trials=1000, probability=0.5).holds
    many = frequency("c", "w", hits=hits, trials=1000, probability=0.5, rows=100)
    assert many.holds
    assert "100 rows" in many.evidence
    assert not likely("c", "w", successes=940, rounds=1000, at_least=0.99, rows=100).holds


def test_a_bound_that_is_not_a_number_fails():
    errors = [1.0, 2.0]
    assert exceeded_rarely("c", "w", errors, 3.0, at_most=0.05).holds
    assert not exceeded_rarely("c", "w", errors * 10, math.nan, at_most=0.05).holds
    assert not rarely("c", "w", failures=0, rounds=10, at_most=math.nan).holds
    assert not agrees("c", "w", errors, math.nan).holds
    assert not equals("c", "w", math.nan, math.nan, tolerance=1.0).holds
    assert not mean_at_most("c", "w", errors, math.nan).holds
    assert not square_at_most("c", "w", errors, [math.nan, 1.0]).holds
    assert not likely("c", "w", successes=10, rounds=10, at_least=math.nan).holds
