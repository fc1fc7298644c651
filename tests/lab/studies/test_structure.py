"""The study of Theorem 17 and Claims 18 to 20 holds, and notices planted faults."""

from fractions import Fraction

import pytest

from shuffledp.lab.studies import structure
from shuffledp.lab.studies.study import Settings
from shuffledp.randomness import InsecureSeededRandomness


def broken(outcome):
    return {check.claim.split(":")[0] for check in outcome.checks if not check.holds}


@pytest.fixture(scope="module")
def outcome():
    return structure.STUDY.measure(Settings(quick=True))


def test_it_holds(outcome):
    assert broken(outcome) == set()
    claims = {check.claim.split(":")[0] for check in outcome.checks}
    assert {"Theorem 17", "Claim 18", "Claim 19", "Claim 20", "Lemma of [12]", "Threshold 2 hides one holder"} <= claims


def test_the_numbers_of_claim_20(outcome):
    table = outcome.tables[""]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    ratios = [row["shuffled_ratio"] for row in rows if row["protocol"] == "Claim 20"]
    assert ratios == ["inf", "5/2", "125/64", "8/5", "8/5", "8/5"]


@pytest.mark.parametrize(
    ("name", "fault", "claim"),
    [
        ("to_local", lambda shuffled: structure.LocalProtocol(shuffled.randomizer, shuffled.analyzer), "Theorem 17"),
        ("r_infinity", lambda: structure.Channel.randomized_response(2, 2), "Claim 19"),
        ("overlap_lower", lambda *_: Fraction(1), "Lemma of [12]"),
        ("tilted_ratio", lambda *_: Fraction(10**6), "Generating functions are within e^epsilon"),
        (
            "filled_sample_pmf",
            lambda users, ones, share: structure.response_pmf(users, ones, share / 2),
            "Randomized response is a sample filled with fair coins",
        ),
        ("thresholded_sample_pmf", structure.thresholded_sample_pmf, ""),
    ],
)
def test_a_planted_fault_is_noticed(monkeypatch, name, fault, claim):
    monkeypatch.setattr(structure, name, fault)
    found = broken(structure.STUDY.measure(Settings(quick=True, source=InsecureSeededRandomness(1))))
    assert claim in found if claim else not found


def test_a_randomizer_without_the_gap_is_noticed(monkeypatch):
    uniform = structure.Channel.of({x: {(0, 0, 0, x): Fraction(1, 2), (1, 1, 1, 1): Fraction(1, 2)} for x in (0, 1)})
    monkeypatch.setattr(structure, "r_gap", lambda: uniform)
    assert "Claim 20" in broken(structure.STUDY.measure(Settings(quick=True)))
