"""The published pmfs of reports: a client written from the page alone, and the library, agree with every one."""

import importlib.util
import json
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.task.canonical import portable
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.testing.statistics import ALPHA, p_value

_SPEC = importlib.util.spec_from_file_location("foreign_client", Path(__file__).parent / "foreign_client.py")
foreign = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(foreign)

FILES = [
    Path(__file__).parents[2] / "vectors" / name
    for name in ("v1/randomizers.json", "v1/clusters.json", "v2/augmented.json")
]
CASES = [case for path in FILES for case in json.loads(path.read_bytes())["randomizers"]]
EACH = [pytest.param(case, id=case["name"].replace(" ", "-")) for case in CASES]
REPORTS = [
    pytest.param(case, report, id=f"{case['name']}, {report['value']}".replace(" ", "-"))
    for case in CASES
    for report in case["reports"]
    if "law" in report
]
USERS, MAX_USERS = 2000, 20_000


def exactly(curve):
    return {report: Fraction(mass) for report, mass in curve.items()}


def reports_of(case, report):
    """What the library sends for this value, as packed messages in order; reports that are too long left out."""
    protocol, value = from_document(case["protocol"]), report["value"]
    users = min(MAX_USERS, round(USERS / (1 - Fraction(report.get("chance_of_more", 0)))))
    given = value if protocol.question == "strings" or isinstance(value, int) else float(value)
    place = value if isinstance(value, int) else protocol.domain.encode_all([given])[0]
    sent = protocol.randomize_all(np.full(users, place))
    packed = [row.tobytes().hex() for row in protocol.message_format.pack(sent.values)]
    starts = sent.offsets.tolist()
    reports = [packed[start:end] for start, end in pairwise(starts)]
    return Counter(" ".join(sorted(report)) for report in reports if len(report) <= case["messages_per_report"])


def fit(seen, curve):
    """The p-value of what was seen; 0 if anything is not possible."""
    if set(seen) - set(curve):
        return 0.0
    return p_value([seen[report] for report in curve], [float(Fraction(mass)) for mass in curve.values()])


def test_there_is_a_case_of_every_protocol_that_a_task_can_name():
    named = {
        f"{question}/{name}"
        for question, shelf in PROTOCOLS.items()
        for name, kind in shelf.items()
        if kind.trust in ("shuffled", "augmented", "local") and not kind.trusts_shuffler
    }
    assert {case["protocol"]["protocol"] for case in CASES} == named == set(foreign.CLIENT)


@pytest.mark.parametrize("case", EACH)
def test_what_a_message_is(case):
    """The client's bounds, flags and number of messages, the vectors' and the library's."""
    name, parameters = case["protocol"]["protocol"], foreign.read(case["protocol"]["parameters"])
    bounds, flags = foreign.format_of(name, parameters)
    form = case["message_format"]
    assert ([hex(bound) for bound in bounds], flags) == (form["bounds"], form["flags"])
    assert (foreign.most_of(name, parameters) is None) == case["capped"]
    assert foreign.most_of(name, parameters) in (None, case["messages_per_report"])
    protocol = from_document(case["protocol"])
    assert portable(to_document(protocol)) == case["protocol"]
    assert (protocol.message_format.bounds, protocol.message_format.flags) == (tuple(bounds), flags)
    assert protocol.message_format.size == form["size"]
    assert protocol.cost.max_messages_per_user == (None if case["capped"] else case["messages_per_report"])


@pytest.mark.parametrize(("case", "report"), REPORTS)
def test_another_client_has_the_distribution(case, report):
    """Fraction by fraction."""
    curve, too_long = foreign.curve_of(case["protocol"], report["value"], case["messages_per_report"])
    assert curve == exactly(report["law"])
    expected = Fraction(report.get("chance_of_more", 0))
    assert too_long == (pytest.approx(float(expected), rel=1e-5) if isinstance(too_long, float) else expected)


@pytest.mark.parametrize(("case", "report"), REPORTS)
def test_the_library_has_the_distribution(case, report):
    """Drawn by the code that devices run; the whole table."""
    assert fit(reports_of(case, report), report["law"]) > ALPHA


def test_another_distribution_would_be_seen():
    """The reports of one value do not fit the pmf of another, wherever the two distributions are clearly different."""
    tried = 0
    for case in CASES:
        first, *others = [report for report in case["reports"] if "law" in report] or [None]
        for other in others:
            both = [exactly(each["law"]) for each in (first, other)]
            distance = sum(abs(both[0].get(key, 0) - both[1].get(key, 0)) for key in {*both[0], *both[1]}) / 2
            few = Fraction(first.get("chance_of_more", 0)) > Fraction(99, 100)  # of which hardly one is short enough
            if distance > Fraction(1, 5) and not few:
                assert fit(reports_of(case, first), other["law"]) < ALPHA, case["name"]
                tried += 1
    assert tried > 40


@pytest.mark.parametrize("case", [case for case in EACH if case.values[0]["capped"] and case.values[0]["reports"]])
def test_how_often_a_report_is_too_long(case):
    """The library's bound holds, and is close, for the value where it is largest."""
    chances = [Fraction(report["chance_of_more"]) for report in case["reports"]]
    bound = from_document(case["protocol"]).chance_of_more_messages(case["messages_per_report"])
    digits = 1e-5 if "chance_of_more" in case else 0.0  # of clusters they are rounded to six digits
    assert float(max(chances)) * (1 - digits) <= bound <= float(max(chances)) * (1 + max(digits, 1e-6))


@pytest.mark.parametrize("case", [case for case in EACH if "shares" in case.values[0]])
def test_shares(case):
    """First probabilities, mean and variance of each negative binomial number, and together they make whole noise."""
    parameters = foreign.read(case["protocol"]["parameters"])
    honest = foreign.honest(parameters, case["protocol"]["parameters"])
    whole = (1, parameters.get("flood_shape"), parameters.get("noise", {}).get("shape"))
    for share in case["shares"]:
        shape, ratio = Fraction(share["shape"]), Fraction(share["ratio"])
        masses = [Fraction(mass) for mass in share["probabilities"]]
        assert not masses or masses[0] ** shape.denominator == (1 - ratio) ** shape.numerator
        for k, (mass, following) in enumerate(pairwise(masses)):
            assert following / mass == ratio * (k + shape) / (k + 1)
        assert Fraction(share["mean"]) == shape * ratio / (1 - ratio)
        assert Fraction(share["variance"]) == shape * ratio / (1 - ratio) ** 2
        assert bool(masses) == bool(case["reports"])
        assert (honest * shape) in whole


def test_nineteen_users_split_and_mix():
    """The pmf has no fractions, but the sum of a report is that of level and noise, and the other messages uniform."""
    case = next(case for case in CASES if case["name"] == "sum/split-and-mix, 19 honest users")
    modulus, ratio = case["protocol"]["parameters"]["modulus"], float(Fraction(case["shares"][0]["ratio"]))
    masses = [0.75]  # of one share
    for k in range(12_000):
        masses.append(masses[-1] * ratio * (k + 1 / 19) / (k + 1))
    residues = np.bincount(np.arange(len(masses)) % modulus, weights=masses)
    assert sum(masses) == pytest.approx(1, abs=1e-12)
    for report in case["reports"]:
        curve = np.zeros(modulus)
        for (level, share), plus, minus in product(report["levels"].items(), range(modulus), range(modulus)):
            mass = float(Fraction(share)) * residues[plus] * residues[minus]
            curve[(int(level) + plus - minus) % modulus] += mass
        seen = reports_of(case, report)
        messages = [[int(each, 16) >> 4 for each in sent.split(" ")] for sent in seen.elements()]
        assert {len(each) for each in messages} == {4}
        assert p_value(np.bincount([sum(each) % modulus for each in messages], minlength=modulus), curve) > ALPHA
        uniform = np.full(modulus, 1 / modulus)
        assert p_value(np.bincount(np.concatenate(messages), minlength=modulus), uniform) > ALPHA
        fewer = [sum(each[1:]) % modulus for each in messages]  # as if a message were lost
        assert p_value(np.bincount(fewer, minlength=modulus), curve) < ALPHA
