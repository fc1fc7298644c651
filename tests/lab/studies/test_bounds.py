"""The study of bounds with explicit constants holds, and notices planted faults."""

import pytest

from shuffledp.lab.studies.bounds import constants, means, one_message
from shuffledp.lab.studies.bounds.study import STUDY
from shuffledp.lab.studies.study import Settings

QUICK = Settings(quick=True)


def broken(checks):
    return [check.claim for check in checks if not check.holds]


@pytest.mark.slow
def test_it_holds():
    outcome = STUDY.measure(QUICK)
    assert broken(outcome.checks) == []
    assert [figure.name for figure in outcome.figures] == ["", "one-message", "count", "histogram-or-mean", "tanh"]


def test_the_constants_hold_and_a_smaller_one_is_noticed(monkeypatch):
    assert broken(constants.hyperbolic()[1] + constants.theorem_11(QUICK)[1]) == []
    monkeypatch.setattr(constants, "surplus", lambda epsilon, m: constants.math.tanh(epsilon / 2) - epsilon / 2)
    assert any("sqrt(5)" in claim for claim in broken(constants.hyperbolic()[1]))
    exact = constants.theorem_11_failure
    monkeypatch.setattr(constants, "theorem_11_failure", lambda *case: max(1e-3, exact(*case)))
    assert any("Theorem 11 (ii)" in claim for claim in broken(constants.theorem_11(QUICK)[1]))


def test_counts_of_one_message_hold_and_a_bound_that_is_too_strong_is_noticed(monkeypatch):
    assert broken(one_message.counts(QUICK)[1] + one_message.separation()[1]) == []
    exact = one_message.count_error_lower
    monkeypatch.setattr(one_message, "count_error_lower", lambda *target: 3 * exact(*target))
    assert broken(one_message.counts(QUICK)[1])


def test_means_notice_an_estimate_without_noise_or_with_too_much(monkeypatch):
    protocol = means.find("count", "randomized-response").calibrate(users=1000, epsilon=1.0, delta=means.DELTA)
    assert broken(means._measured(protocol, 1.0, QUICK)[1]) == []
    honest = means.share_errors
    monkeypatch.setattr(means, "share_errors", lambda *case: honest(*case) / 10)
    assert broken(means._measured(protocol, 1.0, QUICK)[1]) == [
        "No more than 95 of 100 rounds stay below the lower bound on alpha"
    ]
    monkeypatch.setattr(means, "share_errors", lambda *case: honest(*case) * 10)
    assert broken(means._measured(protocol, 1.0, QUICK)[1]) == [
        "The proven error of the mean is exceeded in 5 of 100 rounds at most"
    ]
