"""The audit exposes what is broken, and nothing else. Confidence is 1 - 1e-7: honest protocols never fail by chance."""

import json
from functools import cache

import numpy as np
import pytest

from shuffledp.domain import Bins, Interval, Strings
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.protocols.registry import PROTOCOLS, find_qualified
from shuffledp.testing import planted_faults
from shuffledp.testing.audit import FAULTS, audit, plant
from shuffledp.testing.audit import result as audit_result

SURE = 1 - 1e-7
EVERY = [f"{question}/{name}" for question, shelf in PROTOCOLS.items() for name in shelf]


def protocol(name, *, users=30, epsilon=1.0, delta=0.01, domain_size=4, **options):
    kind = find_qualified(name)
    if kind.question == "histogram":
        options["domain_size"] = domain_size
    if kind.question == "sum":
        options["domain"] = Interval(0, 1)
    if kind.question == "quantiles":
        options["domain"] = Bins(0, 1, domain_size)
    if kind.question == "strings":
        options["domain"] = Strings("a", domain_size - 1)
        options |= {"levels": 2} if kind.name == "tree-blanket" else {}
    return kind.calibrate(users=users, epsilon=epsilon, delta=delta, **options)


NEEDED = {"histogram/count-min": {"users": 150, "epsilon": 3.0, "delta": 0.1}}
"""What a protocol needs that has no noise for 30 users at (1, 0.01)."""


@pytest.fixture(autouse=True, scope="module")
def claims_are_computed_once():
    """The epsilon that a pmf claims at another delta is the same whatever fault was planted; some take seconds."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(audit_result, "_claimed", cache(audit_result._claimed))
        yield


HONEST_LATER = (
    "histogram/cheu",
    "histogram/correlated-noise",
    "histogram/count-min",
    "histogram/fake-users",
    "histogram/hadamard-blanket",
    "histogram/hashed-blanket",
    "histogram/solh",
    "quantiles/correlated-noise",
    "sum/almost-central",
    "sum/cheu",
    "sum/laplace",
    "sum/split-and-mix",
)
"""Expensive to calibrate or to draw, and like others of their question and model; for the slow tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in HONEST_LATER else []) for name in EVERY]
)
def test_no_honest_protocol_is_exposed(name):
    result = audit(protocol(name, **NEEDED.get(name, {})), trials=300, confidence=SURE)
    assert not result.exposed
    assert 0 <= result.epsilon_at_least <= result.epsilon_claimed
    assert "consistent" in result.sentence()


CASES = {
    "count/cheu": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "count/balcer-cheu": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "count/randomized-response": ("clear-last-value", "little-noise"),
    "count/discrete-laplace": ("little-noise", "clear-release"),
    "histogram/balcer-cheu": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "histogram/shuffled-k-rr": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "histogram/k-rr": ("clear-last-value", "little-noise"),
    "histogram/stability": ("little-noise", "clear-release"),
    "histogram/sample-and-threshold": ("little-noise", "clear-release"),
    "sum/duchi": ("clear-last-value", "little-noise"),
    "sum/split-and-mix": ("clear-last-value", "no-shuffle"),
    "quantiles/uniform-blanket": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "quantiles/correlated-noise": ("clear-last-value", "little-noise", "tenfold-users", "no-shuffle"),
    "quantiles/discrete-laplace": ("little-noise", "clear-release"),
}


LATER = (
    "count/balcer-cheu",
    "histogram/shuffled-k-rr",
    "histogram/k-rr",
    "histogram/sample-and-threshold",
    "histogram/stability",
    "quantiles/correlated-noise",
    "sum/duchi",
    "sum/split-and-mix",
)
"""As others of their model; for the slow tests."""


def is_slow(name, fault):
    """One fault of histograms and of quantiles is among the fast tests: the others are looked for as in counts."""
    return name in LATER or (not name.startswith("count/") and fault != "clear-last-value")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, marks=[pytest.mark.slow] if is_slow(name, fault) else [])
        for name, faults in CASES.items()
        for fault in faults
    ],
)
def test_every_planted_fault_is_exposed(name, fault):
    broken = plant(protocol(name, users=100, delta=1e-3), fault)
    result = broken.audit(trials=2000, confidence=SURE)
    assert result.exposed, result.to_json()
    assert result.planted == FAULTS[fault]
    assert result.sentence().startswith("EXPOSED")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("count/cheu", "the last value is sent as it is"),
        ("histogram/k-rr", "the last value is sent as it is"),
        ("count/discrete-laplace", "a release without noise"),
    ],
)
def test_faults_of_the_conformance_kit_are_exposed(name, fault):
    broken = planted_faults(protocol(name))[fault]
    assert audit(broken, trials=1000, confidence=SURE).exposed


def test_the_bound_comes_close_where_the_claim_is_exact():
    """20,000 reports of k-ary randomized response show nine tenths of its epsilon."""
    result = audit(protocol("histogram/k-rr"), trials=20_000)
    assert result.epsilon_at_least > 0.9
    assert result.finding.data_sets.startswith("a single report")


def test_liars_are_left_out():
    """An adversary can subtract what they sent: a round has the honest users only."""
    honest = protocol("count/cheu", users=210, honest_fraction=0.5)
    sizes = []

    class Recorded:
        def __getattr__(self, name):
            return getattr(honest, name)

        def randomize_all(self, values):
            sizes.append(len(values))
            return honest.randomize_all(values)

    assert not audit(Recorded(), trials=300, confidence=SURE).exposed
    assert 300 * 105 in sizes


def test_data_sets_can_be_chosen():
    data = np.zeros(30, dtype=int), np.array([0] * 29 + [1])
    broken = plant(protocol("count/cheu"), "no-shuffle")
    result = broken.audit(trials=3000, confidence=SURE, data=data)
    assert result.exposed  # the last user's place is looked at
    assert result.finding.data_sets.startswith("others as given")
    with pytest.raises(ParameterError, match="differ in exactly one user"):
        audit(protocol("count/cheu"), trials=100, data=(np.zeros(30), np.ones(30)))
    with pytest.raises(ParameterError, match="requires 30 users"):
        audit(protocol("count/cheu"), trials=100, data=([0, 0], [0, 1]))


def test_the_result_as_json_and_as_a_figure():
    seen = []
    result = audit(protocol("count/cheu"), trials=2000, progress=seen.append)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["claim"]["epsilon"] == document["epsilon_claimed"] == 1.0
    assert document["planted_fault"] is None
    assert document["exposed"] is False
    assert document["trials"] == 2000
    assert [point["delta"] for point in document["curve"]] == [0.01, 0.1]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert result.figure(".svg").startswith(b"<svg")
    assert result.delta_at(0.0) <= result.guarantee.delta_at(0.0)


def test_trials_are_chosen_by_time():
    assert 400 <= audit(protocol("histogram/k-rr")).trials <= 100_000


def test_another_delta_can_be_audited():
    result = audit(protocol("count/cheu"), trials=500, delta=0.05)
    assert result.epsilon_claimed == pytest.approx(protocol("count/cheu").guarantee.epsilon_at(0.05))
    assert result.epsilon_claimed < 1


def test_bad_input():
    with pytest.raises(ParameterError, match="confidence"):
        audit(protocol("count/cheu"), confidence=1.5)
    with pytest.raises(ParameterError, match="delta must lie"):
        audit(protocol("count/cheu"), delta=0.0)
    with pytest.raises(ParameterError, match="at least 10 trials"):
        audit(protocol("count/cheu"), trials=0)
    with pytest.raises(ParameterError, match="nothing to audit"):
        audit(protocol("histogram/k-rr", domain_size=1))
    with pytest.raises(ParameterError, match="fewer users"):
        audit(protocol("histogram/balcer-cheu", users=10_000_000, delta=1e-8, domain_size=10))
    with pytest.raises(UnknownNameError, match="choose one of clear-last-value"):
        plant(protocol("count/cheu"), "gremlins")
    with pytest.raises(ParameterError, match="cannot have the fault no-shuffle"):
        plant(protocol("histogram/k-rr"), "no-shuffle")
