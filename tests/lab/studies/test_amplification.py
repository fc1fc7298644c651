"""The study of amplification: the printed numbers, its exact marks by brute force, and planted faults."""

import math

import numpy as np
import pytest

from shuffledp.figures import DARK
from shuffledp.lab.studies.amplification import few_users as amplification_few_users
from shuffledp.lab.studies.amplification import study as amplification
from shuffledp.lab.studies.amplification.few_users import channel_rows, few_user_checks, unary_channel
from shuffledp.lab.studies.amplification.lower_bounds import (
    epsilon_upper_bound,
    other_value_delta,
    response_lower_bound,
    two_answers_lower_bound,
    two_users_delta,
)
from shuffledp.lab.studies.registry import find_study
from shuffledp.lab.studies.study import Settings
from shuffledp.privacy.amplification import METHODS, clones_delta, exact_delta, response_channel


@pytest.fixture(scope="module")
def outcome():
    return find_study("amplification").measure(Settings(quick=True))


def rows_of(outcome, name=""):
    table = outcome.tables[name]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def row_at(outcome, users, local_epsilon):
    return next(row for row in rows_of(outcome) if (row["users"], row["local_epsilon"]) == (users, local_epsilon))


def test_it_holds_and_judges_every_bound(outcome):
    assert outcome.holds, [check for check in outcome.checks if not check.holds]
    claims = {check.claim for check in outcome.checks}
    for name in set(METHODS) - {"exact-2-rr"}:
        assert f"{name} is not below the exact epsilon" in claims
    for name in ("clones", "stronger-clones"):
        assert f"{name}-closed is not below {name}" in claims
    assert any("audit" in name for name in outcome.tables)


@pytest.mark.parametrize(
    ("local_epsilon", "printed"),
    [
        (2.0, (1.0171, 0.5009, 0.1550, 0.3982, 0.1144, 0.0870, 0.0292)),
        (4.0, (4.0, None, 0.6009, 0.9581, 0.4108, 0.3146, 0.2337)),
        (6.0, (6.0, None, 5.7210, None, 1.4724, 1.3111, 1.1823)),
    ],
)
def test_the_printed_numbers(outcome, local_epsilon, printed):
    names = ("privacy-blanket", "clones-closed", "clones", "stronger-clones-closed", "stronger-clones")
    row = row_at(outcome, 10_000, local_epsilon)
    for name, expected in zip((*names, "2-rr exact", "100-rr bound"), printed, strict=True):
        assert row[name] == (expected if expected is None else pytest.approx(expected, rel=1e-3, abs=6e-5)), name


def test_epsilon_falls_like_the_root_of_the_crowd(outcome):
    few, many = (row_at(outcome, users, 1.0)["clones"] for users in (10_000, 1_000_000))
    assert 10 < few / many < 13


def test_stronger_clones_and_the_blanket_are_close_to_the_truth(outcome):
    for users in (10_000, 1_000_000):
        for local_epsilon in (2.0, 4.0, 6.0):
            row = row_at(outcome, users, local_epsilon)
            assert 1 <= row["stronger-clones"] / row["3-rr exact"] < 1.1
            assert 1 <= row["100-rr bound"] / row["100-rr exact"] < 1.005


def test_what_rounds_show_is_something_but_not_all(outcome):
    """With 10,000 users the quick study sometimes learns an event that shows nothing; that is no fault."""
    for row in rows_of(outcome, "audit"):
        assert (0.01 if row["users"] <= 1000 else -1) < row["shown"] < row["exact"] <= row["least_bound"]


def test_figures_are_drawn(outcome):
    assert [figure.name for figure in outcome.figures] == ["", "users", "forms", "few-users"]
    assert outcome.figures[0].draw(".svg", DARK).startswith(b"<svg")


# the exact marks


def brute_force(epsilon, users, ratio, rate):
    pmf = {(0, 0): 1.0}

    def extended(row):
        longer = {}
        for (a, b), mass in pmf.items():
            for (more_a, more_b), share in zip(((1, 0), (0, 1), (0, 0)), row, strict=True):
                key = (a + more_a, b + more_b)
                longer[key] = longer.get(key, 0.0) + mass * share
        return longer

    for _ in range(users - 1):
        pmf = extended((rate, rate, 1 - 2 * rate))
    neither = 1 - (ratio + 1) * rate
    first, second = extended((ratio * rate, rate, neither)), extended((rate, ratio * rate, neither))
    return sum(max(mass - math.exp(epsilon) * second[key], 0.0) for key, mass in first.items())


@pytest.mark.parametrize("users", [2, 3, 9])
def test_the_mark_of_randomized_response_by_brute_force(users):
    for ratio in (1.5, 5.0, 40.0):
        for values in (3, 10):
            rate = 1 / (ratio + values - 1)
            for epsilon in (0.01, 0.3, 1.0, 2.5):
                expected = brute_force(epsilon, users, ratio, rate)
                assert other_value_delta(epsilon, users, ratio, rate) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_marks_are_never_above_the_enumerated_truth():
    for values in (3, 4):
        for ratio in (2.0, 8.0):
            channel = response_channel(values, values / (ratio + values - 1))
            for epsilon in (0.1, 0.6):
                mark = other_value_delta(epsilon, 4, ratio, 1 / (ratio + values - 1))
                assert mark <= exact_delta(channel, 4, epsilon) * (1 + 1e-9)


def test_two_users_by_enumeration():
    channel = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    for epsilon in (0.05, 0.5):
        pairs = [
            two_users_delta(channel, epsilon, value=value, neighbour=1 - value, other=other)
            for value in (0, 1)
            for other in (0, 1)
        ]
        assert max(pairs) == pytest.approx(exact_delta(channel, 2, epsilon), rel=1e-8)


def test_searches_end_on_their_own_side():
    def delta_of(epsilon):
        return math.exp(-5 * epsilon)

    found = epsilon_upper_bound(delta_of, 1e-3, 4.0)
    assert delta_of(found) <= 1e-3 < delta_of(found * (1 - 3e-4))
    exact = METHODS["exact-2-rr"](1000, 2.0, 1e-6)
    assert exact * (1 - 3e-4) <= two_answers_lower_bound(1000, 2.0, 1e-6) <= exact * (1 + 1e-4)
    assert response_lower_bound(1000, 1e-3, 3, 0.5) == 0.0  # nothing can be told at so large a delta


def test_unary_channels_are_distributions():
    channel = unary_channel(3, 0.5, 0.2)
    assert channel.shape == (3, 8)
    assert channel.sum(axis=1) == pytest.approx(1.0)
    assert channel[0, 0b001] == pytest.approx(0.5 * 0.8 * 0.8)


# planted faults


def test_a_bound_that_is_too_small_is_seen(monkeypatch):
    low = {**METHODS, "stronger-clones": lambda *given: 0.8 * METHODS["stronger-clones"](*given)}
    monkeypatch.setattr(amplification, "METHODS", low)
    checks = amplification._grid_checks([amplification._grid_row(10_000, 4.0, (3,))])
    assert {check.claim for check in checks if not check.holds} == {
        "stronger-clones is not below the exact epsilon",
        "the bound of 3-rr is not below its exact epsilon",
    }


def test_a_closed_form_below_the_computed_one_is_seen(monkeypatch):
    low = {**METHODS, "clones-closed": lambda *given: 0.99 * METHODS["clones"](*given)}
    monkeypatch.setattr(amplification, "METHODS", low)
    checks = amplification._grid_checks([amplification._grid_row(10_000, 1.0, ())])
    assert [check.claim for check in checks if not check.holds] == ["clones-closed is not below clones"]


def test_more_clones_than_there_are_is_seen(monkeypatch):
    monkeypatch.setattr(
        amplification_few_users, "clones_delta", lambda epsilon, users, local: clones_delta(epsilon, 20 * users, local)
    )
    checks = few_user_checks(channel_rows(Settings(quick=True)))
    broken = {check.claim for check in checks if not check.holds}
    assert broken == {"clones is not below the exact delta"}


def test_users_that_do_not_randomize_are_seen(monkeypatch):
    monkeypatch.setattr(amplification, "binomial", lambda _trials, _rate, size, _source: np.zeros(size, dtype=np.int64))
    checks = amplification._audit_checks(amplification._audit_rows(Settings(quick=True)))
    assert not checks[-1].holds
