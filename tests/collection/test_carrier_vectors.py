"""The published vectors of carriers: the library and a client written from the page alone agree with every case."""

import importlib.util
import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.device import authentic_task
from shuffledp.collection.task.canonical import portable
from shuffledp.collection.task.task import SignedTask, Task
from shuffledp.collection.wire.formats import Manifest, ReportFormat
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.errors import ParameterError
from shuffledp.privacy.carriers import CarrierRoles
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.testing.statistics import ALPHA, p_value


def beside(name):
    """A module of this directory."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


foreign, guarantees = beside("foreign_client"), beside("foreign_guarantees")
FILE = json.loads((Path(__file__).parents[2] / "vectors" / "v2" / "carriers.json").read_bytes())
AUTHOR, SHUFFLER = (VerifyingKey(bytes.fromhex(FILE[role]["public"])) for role in ("author", "shuffler"))
TOLERANCE, DRAWN = float(FILE["tolerance"]), 1500
WORDS = {"wrong-size": "size or number", "too-few": "cannot be released", "malformed": r"\w"}


def named(cases):
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def close(found, expected):
    return abs(found - float(expected)) <= TOLERANCE * float(expected) + 1e-12


@pytest.mark.parametrize("case", named(FILE["randomizers"]))
def test_what_follows_from_the_parameters(case):
    """By the library and by the formulas of the page."""
    protocol = from_document(case["protocol"])
    assert portable(to_document(protocol)) == portable(case["protocol"])
    name, parameters = case["protocol"]["protocol"], foreign.read(case["protocol"]["parameters"])
    honest = foreign.honest(parameters, case["protocol"]["parameters"])
    assert case["guarantee"]["honest_users"] == honest == protocol.guarantee.honest_users
    assert close(guarantees.shortage(parameters, honest), case["shortage"])
    for epsilon, expected in case["guarantee"]["deltas"].items():
        assert close(guarantees.delta(name, parameters, honest, float(epsilon)), expected)
        assert close(protocol.guarantee.delta_at(float(epsilon)), expected)
    users = case["protocol"]["parameters"]["terms"]["users"]
    assert case["minimum_carriers"] == math.ceil(Fraction(parameters["honest_carriers"] * users, honest))
    assert case["messages_per_report"] == protocol.min_messages_per_user == 1
    longest = case["messages_per_carrier_report"]
    probability = float(parameters["carrier_probability"])
    assert close(protocol.chance_of_more_messages(longest) / probability, case["chance_of_more"])


REPORTS = [
    pytest.param(case, report, id=f"{case['name']}, {report['value']}".replace(" ", "-"))
    for case in FILE["randomizers"]
    for report in case["reports"]
]


@pytest.mark.parametrize(("case", "report"), REPORTS)
def test_reports_by_enumeration(case, report):
    curve, too_long = foreign.curve_of(case["protocol"], report["value"], case["messages_per_carrier_report"])
    assert {key: Fraction(mass) for key, mass in report["law"].items()} == curve
    assert close(float(too_long), report["chance_of_more"])
    assert foreign.report_of_other(case["protocol"], report["value"]) == report["other"]


def drawn(case, report, *, carrier):
    protocol = from_document(case["protocol"])
    found = Counter()
    for _ in range(DRAWN if carrier else 20):
        sent = protocol.randomize_in_role(report["value"], carrier=carrier)
        packed = sorted(row.tobytes().hex() for row in protocol.message_format.pack(sent))
        if len(packed) <= case["messages_per_carrier_report"]:
            found[" ".join(packed)] += 1
    return found


@pytest.mark.parametrize(("case", "report"), REPORTS[::3])
def test_reports_of_the_library(case, report):
    """1,500 reports of carriers at level 1e-6; those of the other value do not fit."""
    assert set(drawn(case, report, carrier=False)) == {report["other"]}
    found = drawn(case, report, carrier=True)
    assert set(found) <= set(report["law"])
    expected = np.array([float(Fraction(mass)) for mass in report["law"].values()])
    assert p_value([found[key] for key in report["law"]], expected) > ALPHA
    (other,) = (each for each in case["reports"] if each is not report)
    swapped = drawn(case, other, carrier=True)
    seen = [swapped[key] for key in report["law"]]
    assert set(swapped) - set(report["law"]) or p_value(seen, expected) < ALPHA


@pytest.mark.parametrize("case", named(FILE["good_tasks"]))
def test_good_tasks(case):
    task = authentic_task(case["content"].encode(), AUTHOR)
    form = ReportFormat.of(task)
    assert task.id.hex() == case["id"]
    assert (form.size, form.carrier_size) == (case["report_size"], case["carrier_report_size"])
    assert close(task.guarantee.delta_at(task.epsilon), case["delta"])
    document = json.loads(case["content"])["task"]
    name, parameters = document["protocol"]["protocol"], foreign.read(document["protocol"]["parameters"])
    honest = foreign.honest(parameters, document["protocol"]["parameters"])
    bins, sharers = parameters.get("domain_size", 1), parameters["honest_carriers"]
    rates = foreign.rates_of(parameters)
    too_long = exceeding(document["carriers"]["messages_per_report"] - 1, bins / sharers, parameters["ratio"], rates)
    capped = (1 + math.e) * document["maximum_users"] * float(parameters["carrier_probability"]) * too_long
    assert close(guarantees.delta(name, parameters, honest, 1.0) + capped, case["delta"])


def exceeding(most, share, ratio, rates):
    """Pr[M > most] for one carrier, by the recursion of the page."""
    shape, ratio = 2 * share, float(ratio)
    masses = [(1 - ratio) ** shape * math.exp(-share * sum(map(float, rates.values())))]
    total = [0.0]
    for m in range(1, 6 * most):
        total.append(ratio * (masses[m - 1] + total[m - 1]))
        clusters = sum(2 * k * share * float(rate) * masses[m - 2 * k] for k, rate in rates.items() if 2 * k <= m)
        masses.append((shape * total[m] + clusters) / m)
    return sum(masses[most + 1 :])


def refusal(function, *arguments):
    try:
        function(*arguments)
    except ParameterError as error:
        return error if "\n" not in str(error) else None
    return None


@pytest.mark.parametrize("case", named(FILE["bad_tasks"]))
def test_bad_tasks(case):
    assert refusal(authentic_task, case["content"].encode(), AUTHOR).values["reason"] == case["reason"]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Task, "_check_roles", lambda self: None),
        (Task, "_check_wire", lambda self, wire: None),
        (CarrierRoles, "__post_init__", lambda self: None),
    ],
)
def test_a_missing_check_is_seen(monkeypatch, kind, name, value):
    monkeypatch.setattr(kind, name, value)
    wrong = []
    for case in FILE["bad_tasks"]:
        try:
            error = refusal(authentic_task, case["content"].encode(), AUTHOR)
        except Exception:
            error = None
        if error is None or error.values.get("reason") != case["reason"]:
            wrong.append(case["name"])
    assert wrong


def task_of_batches():
    return SignedTask.from_bytes(FILE["task_of_batches"].encode()).verify(AUTHOR)


def read(case):
    Manifest.verified(case["manifest"].encode(), SHUFFLER, 2).check_task(task_of_batches())


@pytest.mark.parametrize("case", named(FILE["good_batches"]))
def test_good_batches(case):
    read(case)


@pytest.mark.parametrize("case", named(FILE["bad_batches"]))
def test_bad_batches(case):
    with pytest.raises(ParameterError, match=WORDS[case["reason"]]):
        read(case)


def test_an_analyzer_without_the_minimum_is_seen():
    """The planted fault: the batch with one carrier too few would be accepted."""
    task = task_of_batches()
    few = next(case for case in FILE["bad_batches"] if case["reason"] == "too-few")
    lax = replace(task.wire, carriers=replace(task.carriers, minimum=1))
    broken = object.__new__(Task)
    broken.__dict__.update(task.__dict__ | {"wire": lax})
    manifest = Manifest.verified(few["manifest"].encode(), SHUFFLER, 2)
    with pytest.raises(ParameterError):
        manifest.check_task(task)
    object.__setattr__(broken, "id", task.id)
    manifest.check_task(broken)
