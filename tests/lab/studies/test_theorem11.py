"""The study of Theorem 11 holds, and would notice if the theorem did not."""

import pytest

from shuffledp.lab.studies import theorem11
from shuffledp.lab.studies.study import Settings


@pytest.fixture(scope="module")
def outcome():
    return theorem11.STUDY.measure(Settings(quick=True))


def test_it_holds(outcome):
    assert outcome.holds
    parts = {part for check in outcome.checks for part in ("(i)", "(ii)", "(iii)", "(iv)") if part in check.claim}
    assert parts == {"(i)", "(ii)", "(iii)", "(iv)"}


def test_the_numbers(outcome):
    """Balcer and Cheu's noise has mean 725.4 at (1, 1e-6); the least has 34.07, and its error is that much smaller."""
    rows = [dict(zip(outcome.tables[""].columns, row, strict=True)) for row in outcome.tables[""].rows]
    paper, tight = (
        next(row for row in rows if (row["epsilon"], row["delta"], row["calibration"]) == (1.0, 1e-6, calibration))
        for calibration in ("paper", "tight")
    )
    assert paper["noise_mean"] == pytest.approx(725.4, abs=0.1)
    assert tight["noise_mean"] == pytest.approx(34.07, abs=0.01)
    assert paper["true_epsilon"] == pytest.approx(0.145, abs=0.001)
    assert 0.8 < paper["error"] / paper["bound"] < 1
    assert 15 < paper["error"] / tight["error"] < 25


def broken_checks_of_one_case():
    protocol = theorem11.BalcerCheuCount.calibrate(users=theorem11._USERS, epsilon=0.3, delta=1e-6, calibration="paper")
    _, checks = theorem11._case(protocol, 0.3, 1e-6, 100, Settings(quick=True))
    return [check for check in checks if not check.holds]


def test_a_bound_that_is_too_small_is_noticed(monkeypatch):
    assert not broken_checks_of_one_case()
    monkeypatch.setattr(theorem11, "theorem_11_alpha", lambda *arguments: 1e-5)
    broken = broken_checks_of_one_case()
    assert broken
    assert all("(ii)" in check.claim for check in broken)


def test_a_protocol_that_loses_zero_is_noticed(monkeypatch):
    honest = theorem11.BalcerCheuCount.estimate
    monkeypatch.setattr(
        theorem11.BalcerCheuCount, "estimate", lambda self, tally: honest(self, tally, estimator="unbiased")
    )
    broken = {check.claim for check in broken_checks_of_one_case()}
    assert "Theorem 11 (iii), zero stays zero" in broken
    assert all("(iii)" in claim or "as computed" in claim for claim in broken)
