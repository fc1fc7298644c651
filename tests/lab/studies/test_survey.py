"""The survey's table: every row is there, errors are as predicted, slopes as said, and faults are noticed."""

import math

import numpy as np
import pytest

from shuffledp.lab.studies import find_study
from shuffledp.lab.studies.checks import agrees
from shuffledp.lab.studies.study import Settings
from shuffledp.lab.studies.survey import checks as survey_checks
from shuffledp.lab.studies.survey import study as survey
from shuffledp.lab.studies.survey.entries import DELTA, ENTRIES, EPSILON, NUMBERS, calibrated, measured
from shuffledp.protocols.sum.split_and_mix import SplitAndMixSum
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness

FEW_ROUNDS = {10**3: 60, 10**4: 40, 20_000: 20}
FEW_BIT_ROUNDS = {10**3: 150, 10**4: 150, 10**6: 30}


@pytest.fixture(scope="module")
def outcome():
    """Fewer users and rounds than the quick form, which the slow tests run as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "_QUICK_ROUNDS", FEW_ROUNDS)
        patch.setattr(survey, "_QUICK_BIT_ROUNDS", FEW_BIT_ROUNDS)
        return find_study("survey").measure(Settings(quick=True))


def rows_of(outcome, name):
    table = outcome.tables[name]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def entry_of(question, protocol):
    return next(entry for entry in ENTRIES if (entry.question, entry.protocol) == (question, protocol))


def test_it_holds(outcome):
    assert outcome.holds, [check for check in outcome.checks if not check.holds]
    assert len(outcome.checks) > 100
    assert {figure.name for figure in outcome.figures} == {"", "messages", "delta"}


@pytest.mark.slow
def test_the_quick_form_holds():
    assert find_study("survey").measure(Settings(quick=True)).holds


def test_every_row_of_the_notes_is_measured(outcome):
    summary = rows_of(outcome, "")
    for row in ("Central", "Local", "Privacy Blanket", "Vanishing complexity", "one message", "Almost Central"):
        assert any(row in each["row_of_the_notes"] for each in summary)
    almost = next(each for each in summary if each["protocol"] == "sum/almost-central")
    assert almost["noted"] == "(empty)"
    assert 0.5 < almost["rmse"] < 6.0  # of few rounds
    assert 10 < almost["messages"] < almost["messages_of_fewest_users"]


def test_slopes_of_predictions(outcome):
    """1/2 for the local model, near 1/6 for one shuffled message, 0 for several and for the central model."""
    points = rows_of(outcome, "points")

    def slope(protocol):
        few, many = [row for row in points if row["protocol"] == protocol][-2:]
        return math.log(many["predicted_rmse"] / few["predicted_rmse"]) / math.log(many["users"] / few["users"])

    for protocol in ("sum/duchi", "sum/piecewise", "count/randomized-response"):
        assert slope(protocol) == pytest.approx(0.5, abs=0.001)
    assert 0.12 < slope("sum/privacy-blanket") < 0.18
    for protocol in ("sum/split-and-mix", "sum/almost-central", "sum/discrete-laplace", "count/correlated-noise"):
        assert slope(protocol) == pytest.approx(0.0, abs=0.005)


def test_messages(outcome):
    """8 messages of split and mix among ten thousand; cheu's bits are the root of the users."""
    found = {(row["protocol"], row["users"]): row["messages"] for row in rows_of(outcome, "points")}
    assert found["sum/split-and-mix", 10_000] == 8
    assert found["sum/cheu", 10_000] == 100
    assert found["sum/privacy-blanket", 10_000] == found["count/randomized-response", 10_000] == 1
    assert 1.4 < found["count/correlated-noise", 1000] < 1.5
    assert 1 < found["count/correlated-noise", 10**6] < 1.001


def test_known_errors(outcome):
    """Variances by their formulas: randomized response, duchi, and the central model."""
    found = {(row["protocol"], row["users"]): row["predicted_rmse"] for row in rows_of(outcome, "points")}
    users, growth = 10_000, math.exp(EPSILON)
    assert found["count/randomized-response", users] == pytest.approx(math.sqrt(users * growth) / (growth - 1))
    values = NUMBERS.values(users)
    wide = (growth + 1) / (growth - 1)
    variance = float(np.sum(wide**2 - (2 * values - 1) ** 2)) / 4
    assert found["sum/duchi", users] == pytest.approx(math.sqrt(variance), rel=1e-9)
    decay = math.exp(-EPSILON)
    assert found["count/discrete-laplace", users] == pytest.approx(math.sqrt(2 * decay) / (1 - decay))


def test_the_bound_of_the_notes_fails_and_the_right_one_does_not(outcome):
    for row in rows_of(outcome, "hoeffding"):
        assert row["exact_probability"] < 0.05 < row["notes_exact_probability_of_mean"]
        assert row["notes_exceeded_by_sum"] > 0.95


def test_one_message_pays_for_a_small_delta(outcome):
    sweep = rows_of(outcome, "delta")
    one = [row["predicted_rmse"] for row in sweep if row["protocol"] == "count/cheu"]
    several = {row["predicted_rmse"] for row in sweep if row["protocol"] == "count/correlated-noise"}
    assert one == sorted(one)
    assert one[-1] > 2 * one[0]
    assert len(several) == 1


def test_the_words_hold_no_placeholders(outcome):
    text = " ".join(outcome.measured)
    assert "nan" not in text
    assert "{" not in text


def test_the_bound_of_the_notes_in_place_of_the_right_one_is_noticed(monkeypatch):
    monkeypatch.setattr(
        survey_checks, "sum_radius", lambda users, _, risk: users * survey_checks.notes_radius_of_mean(users, risk)
    )
    found = measured(entry_of("count", "randomized-response"), 1000, 300, SYSTEM)
    broken = [check for check in survey_checks.hoeffding([found])[1] if not check.holds]
    assert broken
    assert all("Hoeffding" in check.claim for check in broken)


def test_noise_that_is_lost_is_noticed_by_the_study(monkeypatch):
    """Split and mix whose users add no noise: the study fails, at that protocol alone, here of one of every kind."""
    kinds = ("split-and-mix", "privacy-blanket", "randomized-response", "correlated-noise", "discrete-laplace")
    some = tuple(entry for entry in ENTRIES if entry.protocol in kinds)
    monkeypatch.setattr(survey, "ENTRIES", some)
    monkeypatch.setattr(survey, "_paragraphs", lambda *_: [])  # these tell and show all
    monkeypatch.setattr(survey, "_message_figure", lambda _: None)
    monkeypatch.setattr(
        "shuffledp.protocols.sum.split_and_mix.scattered_negative_binomial",
        lambda *_: (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)),
    )
    monkeypatch.setattr(survey, "_QUICK_ROUNDS", {10_000: 100, 20_000: 100})
    monkeypatch.setattr(survey, "_QUICK_BIT_ROUNDS", {10_000: 100, 20_000: 100})
    broken = [check for check in survey.STUDY.measure(Settings(quick=True)).checks if not check.holds]
    assert broken
    assert all("sum/split-and-mix" in check.where for check in broken)


def test_too_many_messages_are_noticed(monkeypatch):
    entry = entry_of("sum", "split-and-mix")
    found = measured(entry, 1000, 20, SYSTEM)
    assert all(check.holds for check in survey_checks.checks_of_rounds(found))
    monkeypatch.setattr(SplitAndMixSum, "randomize_all", _one_more(SplitAndMixSum.randomize_all))
    found = measured(entry, 1000, 20, SYSTEM)
    assert [check.claim for check in survey_checks.checks_of_rounds(found) if not check.holds][-1:] == [
        "Messages per user"
    ]


def _one_more(randomize_all):
    def lengthened(self, values, **how):
        messages = randomize_all(self, values, **how)
        more = np.concatenate((messages.values, messages.values[: messages.users]))
        offsets = (self.messages + 1) * np.arange(messages.users + 1)
        return type(messages)(more, messages.users, offsets, messages.secure)

    return lengthened


def test_predictions_are_judged_without_wrong_alarms():
    rng = np.random.default_rng()
    for size in (30, 200):
        for _ in range(300):
            assert agrees("c", "w", 5 * rng.laplace(size=size) / math.sqrt(2), 5.0, kurtosis=6.0).holds
    assert not agrees("c", "w", rng.laplace(size=10_000), 1.0, kurtosis=6.0).holds
    assert not agrees("c", "w", 0.3 * rng.normal(size=500), 1.0, kurtosis=3.0).holds


def test_a_seed_repeats():
    entry = entry_of("sum", "privacy-blanket")
    first, second = (measured(entry, 1000, 3, InsecureSeededRandomness(7)).errors for _ in range(2))
    assert first.tolist() == second.tolist()


def test_the_protocols_are_those_of_the_target():
    for entry in ENTRIES:
        guarantee = calibrated(entry, 1000).guarantee
        assert guarantee.epsilon <= EPSILON
        assert guarantee.delta in (0.0, DELTA)
