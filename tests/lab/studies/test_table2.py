"""The study of Table 2: flat lines in the shuffled and central models, and a claim of too few users is noticed."""

import math

import pytest

from shuffledp.lab.studies import table2
from shuffledp.lab.studies.study import Settings


@pytest.fixture(scope="module")
def outcome():
    return table2.STUDY.measure(Settings(quick=True))


@pytest.fixture(scope="module")
def rows(outcome):
    table = outcome.tables[""]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_it_holds(outcome):
    assert outcome.holds
    assert any("Claim 14" in check.claim for check in outcome.checks)


def test_every_model_and_problem(rows):
    assert {(row["problem"], row["model"]) for row in rows} == {
        (problem, model) for problem in ("PC(2, l)", "MPJ(h^4, h)") for model in ("local", "shuffled", "central")
    }


def test_pointer_chasing_does_not_depend_on_the_length(rows):
    """163 samples at (1, 1e-6), and 26,608 by the constants of the proof."""
    shuffled = [row for row in rows if row["problem"] == "PC(2, l)" and row["model"] == "shuffled"]
    assert {row["proven"] for row in shuffled} == {163}
    assert {row["paper"] for row in shuffled} == {26_608}
    assert all(140 <= row["users"] <= 175 for row in shuffled)
    local = {row["parameter"]: row["users"] for row in rows if row["problem"] == "PC(2, l)" and row["model"] == "local"}
    assert local[10**6] > 1000 * local[1000] > 1000 * shuffled[0]["users"]


def test_pointer_jumping_grows_with_the_height(rows):
    jumping = [row for row in rows if row["problem"] == "MPJ(h^4, h)" and row["model"] == "shuffled"]
    shuffled = {row["parameter"]: row["users"] for row in jumping}
    growth = shuffled[6] / shuffled[2]
    assert 1.5 < growth < 6 * math.log(6) / math.log(2)


def test_too_few_users_are_noticed(monkeypatch):
    """A theory that promises success for nine tenths of the users that it takes."""
    honest = table2.direct_sample_size
    monkeypatch.setattr(table2, "direct_sample_size", lambda *arguments: math.ceil(0.9 * honest(*arguments)))
    problem = table2.PointerJumping(6**4, 6)
    _, checks = table2._case(problem, "shuffled", Settings())
    assert {check.claim for check in checks if not check.holds} >= {checks[0].claim}
    assert "proven" in checks[0].claim


def test_a_distribution_off_by_one_is_noticed(monkeypatch):
    """The probability of a positive estimate, one count too early: the number of users would be proven by it."""
    problem, method = table2.PointerChasing(2, 7), table2.Method(epsilon=1.0, delta=1e-6)
    quick = Settings(quick=True)
    assert all(check.holds for check in table2._noise_checks(problem, method, 163, "here", quick))
    kind = table2.BalcerCheuHistogram
    honest = kind.chance_shown
    monkeypatch.setattr(kind, "chance_shown", lambda self, counts, **how: honest(self, counts + 1, **how))
    problem = table2.PointerChasing(2, 8)  # identifiers are cached
    broken = [check.claim for check in table2._noise_checks(problem, method, 163, "here", quick) if not check.holds]
    assert broken == ["the probability that an item is missed, from which the number is proven"]
