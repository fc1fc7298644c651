"""Published numbers: every row holds, independent sums agree with the accountants, and planted faults are noticed."""

import re
from dataclasses import replace

import pytest

from shuffledp.lab.studies import find_study
from shuffledp.lab.studies.published import rows, study
from shuffledp.lab.studies.published.exact import blanket_delta, threshold_delta_lower
from shuffledp.lab.studies.study import Settings
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.randomness import Dyadic

CACHED = (rows.clones_epsilon, rows.generic_epsilon, rows.response_epsilon, rows.hashed, rows.sampled_threshold)


@pytest.fixture(scope="module")
def outcome():
    return find_study("published").measure(Settings(quick=True))


@pytest.fixture
def fresh_rows():
    """Rows that are computed again, with the fault, and then without."""
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()


def test_it_holds(outcome):
    assert outcome.holds, [check for check in outcome.checks if not check.holds]
    assert len(outcome.tables[""].rows) == 18
    assert len(outcome.checks) > 40
    assert "nan" not in " ".join(outcome.measured)


def test_sources_name_versions(outcome):
    """Programs are cited with a commit, papers with a year and, where they have one, the number of the table."""
    programs = [source for source in outcome.tables[""].columns["source"] if ";" in source]
    assert len(programs) == 6
    without_commit = {source for source in programs if not re.search(r" at [0-9a-f]{7}$", source)}
    assert without_commit == {rows.FFT_BLANKET}
    for source in outcome.tables[""].columns["source"]:
        assert "(20" in source
        assert ("Table" in source) == ("(2022)" in source)


def test_assumptions_are_stated_where_parameters_are_unknown(outcome):
    table = outcome.tables[""].columns
    assumed = {
        source.partition(" (")[0] for source, words in zip(table["source"], table["assumed"], strict=True) if words
    }
    assert assumed == {"Luo and others", "Balle and others", "Shamsabadi and others"}


@pytest.mark.parametrize(
    ("users", "cells", "mean", "epsilon"), [(500, 20, 3.3, 0.8), (90, 7, 0.4, 1.7), (3000, 50, 2.0, 0.4)]
)
def test_the_independent_blanket_agrees_with_the_accountant(users, cells, mean, epsilon):
    exact = blanket_delta(users, cells, mean, epsilon)
    bound = Slots.at_least(mean).curve(users, cells).delta_at(epsilon)
    assert exact * (1 - 1e-9) <= bound <= 1.01 * exact


def test_the_independent_threshold_is_a_lower_bound():
    for probability, threshold, epsilon in ((0.105, 11, 1.0), (0.3, 9, 0.7)):
        lower = threshold_delta_lower(probability, threshold, epsilon)
        bound = SampleAndThreshold(Dyadic.at_least(probability), threshold).delta_at(epsilon)
        assert 0.5 * bound < lower <= bound * (1 + 1e-9)


def broken_claims():
    return {check.claim for check in study.STUDY.measure(Settings(quick=True)).checks if not check.holds}


def test_a_blanket_that_is_too_thin_is_noticed(monkeypatch, fresh_rows):
    original = rows.least_slots
    monkeypatch.setattr(rows, "least_slots", lambda *target: Slots.at_least(0.95 * original(*target).mean))
    assert {"hashed values: exact delta over n^-2", "as documented"} <= broken_claims()


def test_a_bound_that_is_worse_than_published_is_noticed(monkeypatch):
    worse = [replace(row, ours=lambda row=row: 1.001 * row.printed) for row in rows.ROWS[:2]]
    monkeypatch.setattr(study, "ROWS", (*worse, *rows.ROWS[2:]))
    assert "at most the published number" in broken_claims()


def test_an_epsilon_below_the_published_lower_bound_is_noticed(monkeypatch):
    below = replace(rows.ROWS[0], ours=lambda: 0.16)
    monkeypatch.setattr(study, "ROWS", (below, *rows.ROWS[1:]))
    assert "at least the published lower bound" in broken_claims()


def test_a_threshold_that_is_too_high_is_noticed(monkeypatch, fresh_rows):
    monkeypatch.setattr(rows, "least_threshold", lambda *_: 13)
    assert {"Nebula: delta of the next lower threshold", "as documented"} <= broken_claims()


def test_a_wrong_prediction_of_the_mean_is_noticed(monkeypatch):
    """Forty rounds tell an error that is 3 times the predicted one, with a probability of a miss below 1e-6."""
    original = study.message_tally

    def noisier(protocol, values, source):
        return original(protocol, values[::-1] * 0 + 0.5, source)  # other data than the estimate is compared with

    monkeypatch.setattr(study, "message_tally", noisier)
    assert "one message: mean absolute error of the mean" in broken_claims()
