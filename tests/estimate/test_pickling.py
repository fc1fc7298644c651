"""Estimates, protocols, plans and guarantees can be pickled and copied; intervals and privacy curves stay the same."""

import copy
import pickle
import subprocess
import sys
from functools import cache

import pytest

import shuffledp as sdp
from shuffledp.protocols.registry import PROTOCOLS

USERS = 2_000
SETTINGS = {
    "count": {},
    "histogram": {"categories": list("abcdefghijklmnop")},
    "sum": {"lower": 0, "upper": 10},
    "quantiles": {"lower": 0, "upper": 10, "bins": 16},
    "strings": {"alphabet": "ab", "max_length": 2},
}
DATA = {
    "count": [True] * 800 + [False] * 1_200,
    "histogram": ["a"] * 800 + ["b"] * 1_200,
    "sum": [2.5] * USERS,
    "quantiles": [2.5] * 800 + [7.5] * 1_200,
    "strings": ["ab"] * 800 + ["b"] * 1_200,
}
ENTRIES = [(question, name) for question, named in PROTOCOLS.items() for name in named]
QUESTIONS = [
    sdp.Count(users=USERS),
    pytest.param(sdp.Histogram(users=USERS, categories=["a", "b"]), marks=pytest.mark.slow),
    pytest.param(sdp.Sum(users=USERS, upper=10), marks=pytest.mark.slow),
    pytest.param(sdp.Mean(users=USERS, upper=10), marks=pytest.mark.slow),
    sdp.Quantiles(users=USERS, upper=10, bins=8),
]


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


COPIES = {"pickle": pickled, "deepcopy": copy.deepcopy}


@cache
def calibrated(question, name):
    return PROTOCOLS[question][name].calibrate(users=USERS, epsilon=1.0, delta=1e-6, **SETTINGS[question])


def everything_in(estimate):
    """All numbers of an estimate; intervals and thresholds at several confidences."""
    shown = [estimate.to_json(confidence) for confidence in (0.5, 0.999)]
    quantiles = estimate.quantiles() if isinstance(estimate, sdp.QuantileEstimate) else []
    return shown, estimate.guarantee.delta_at(0.5), quantiles, repr(estimate)


@pytest.mark.parametrize(("question", "name"), ENTRIES)
def test_every_estimate_survives_copying(question, name):
    protocol = calibrated(question, name)
    for estimator in protocol.estimators:
        estimate = protocol.run(DATA[question], estimator=estimator)
        fresh = pickle.dumps(estimate)  # before any interval is computed
        numbers = everything_in(estimate)
        assert everything_in(pickle.loads(fresh)) == numbers
        for duplicate in COPIES.values():
            assert everything_in(duplicate(estimate)) == numbers


@pytest.mark.parametrize(("question", "name"), ENTRIES)
def test_every_protocol_survives_copying(question, name):
    protocol = calibrated(question, name)
    for duplicate in COPIES.values():
        other = duplicate(protocol)
        assert other == protocol
        assert sdp.to_document(other) == sdp.to_document(protocol)
        assert other.guarantee.delta_at(0.7) == protocol.guarantee.delta_at(0.7)
        assert other.run(DATA[question]).users == USERS


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_derived_estimates_survive_copying(duplicate):
    total = calibrated("sum", "cheu").run(DATA["sum"])
    for estimate in (total.mean, total.mean.sum, calibrated("histogram", "cheu").run(DATA["histogram"]).part(2, 5)):
        assert everything_in(duplicate(estimate)) == everything_in(estimate)


def test_an_estimate_of_a_collection_survives_copying():
    """The analyzer computes intervals once and keeps them."""
    from shuffledp.collection.analyzer.estimating import Result

    estimate = calibrated("count", "cheu").run(DATA["count"])
    result = Result(task=None, reports=USERS, counted=None, estimate=estimate).at(0.9)
    assert everything_in(pickled(result.estimate)) == everything_in(estimate)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_plans_survive_copying(question):
    plans = sdp.plan(question, epsilon=1.0, delta=1e-6)
    document = plans.to_json()
    for duplicate in COPIES.values():
        other = duplicate(plans)
        assert other.question == question
        assert other.to_json() == document
        assert other.plans == plans.plans
        assert duplicate(plans.plans[0]).to_json() == plans.plans[0].to_json()
    data = DATA.get(question.name, DATA[plans.best.question])  # two categories may be planned as a count
    assert pickled(plans).best.run(data).users == USERS


@pytest.mark.parametrize("releases", [1, 12])
def test_guarantees_survive_copying(releases):
    for question, name in [
        ("count", "balcer-cheu"),
        ("count", "randomized-response"),
        ("histogram", "uniform-blanket"),
    ]:
        guarantee = calibrated(question, name).guarantee.after(releases)
        for duplicate in COPIES.values():
            other = duplicate(guarantee)
            assert other.to_json() == guarantee.to_json()
            assert other.delta_at(2.0) == guarantee.delta_at(2.0)


def test_another_process_reads_an_estimate(tmp_path):
    estimates = {
        question: calibrated(question, name).run(DATA[question])
        for question, name in [("count", "cheu"), ("histogram", "balcer-cheu"), ("sum", "cheu")]
    }
    (tmp_path / "estimates.pickle").write_bytes(pickle.dumps(estimates))
    code = (
        "import pickle, sys; print([e.intervals(0.9).tolist() for e in pickle.load(open(sys.argv[1], 'rb')).values()])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "estimates.pickle"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([estimate.intervals(0.9).tolist() for estimate in estimates.values()])
