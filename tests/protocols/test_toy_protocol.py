"""Adding a protocol is one file and one line: a toy goes through everything that the package offers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import toy_protocol
from toy_protocol import FlippedBit

import shuffledp as sdp
from shuffledp.collection.device.simulation import Devices
from shuffledp.collection.rehearsal import Rehearsal
from shuffledp.collection.transport.connection import Connection
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.planning.planner import Limits, Plan, candidates
from shuffledp.protocols.protocol import Cost
from shuffledp.protocols.registry import PROTOCOLS, find_qualified, register
from shuffledp.randomness import Dyadic
from shuffledp.testing import check_protocol, planted_faults
from shuffledp.testing.audit.faults import plant
from shuffledp.testing.conformance import ConformanceError
from shuffledp.testing.faults import CAUGHT_BY

HOME = Path(toy_protocol.__file__)
"""The one file."""
TARGET = {"users": 400, "epsilon": 1.0, "delta": 1e-5}
REGISTER = """
from shuffledp.protocols.registry import register
from toy_protocol import FlippedBit
register(FlippedBit)
"""


@pytest.fixture
def toy(monkeypatch):
    """The class, registered for the length of a test."""
    monkeypatch.setattr(PROTOCOLS["count"], "_added", {})
    register(FlippedBit)
    return FlippedBit


@pytest.fixture
def toy_everywhere(toy, tmp_path, monkeypatch):
    """Processes that the test starts have it too: they run the line when Python starts."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(REGISTER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "start"), str(HOME.parent)]))
    return toy


@pytest.fixture(scope="module")
def small():
    """So few users and so much noise that every outcome is enumerated."""
    return FlippedBit(sdp.Target(users=3, epsilon=1.0, delta=0.5), Dyadic.at_least(0.2))


def test_the_contributing_page_shows_this_file():
    page = (HOME.parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = HOME.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert f"```python\n{code}```\n" in page


def test_registered_once_and_found_by_name(toy):
    assert (
        find_qualified("flipped-bit") is find_qualified("count/flipped-bit") is sdp.find("count", "flipped-bit") is toy
    )
    assert "flipped-bit" in PROTOCOLS["count"]
    with pytest.raises(ParameterError, match="count/flipped-bit already"):
        register(toy)
    with pytest.raises(UnknownNameError):
        register(type("Odd", (toy,), {"question": "riddle"}))


def test_without_the_line_it_is_unknown():
    with pytest.raises(UnknownNameError, match="flipped-bit"):
        sdp.find("count", "flipped-bit")


def test_it_is_planned(toy):
    tried = list(candidates(sdp.Count(400), 1.0, 1e-5, Limits(), names=["flipped-bit"]))
    assert [type(each) for each in tried] == [Plan]
    assert isinstance(tried[0].protocol, toy)
    plans = sdp.plan(sdp.Count(users=401), epsilon=1.0, delta=1e-5)
    assert "flipped-bit" in [each.protocol.name for each in plans.plans]


def test_it_runs_with_the_error_that_it_predicts(toy):
    protocol = toy.calibrate(target=sdp.Target(**TARGET))
    assert protocol == toy.calibrate(**TARGET)
    errors = [protocol.run([1] * 100 + [0] * 300).value - 100 for _ in range(60)]
    predicted = protocol.expected_error().rmse
    assert 0.4 < np.sqrt(np.mean(np.square(errors))) / predicted < 1.7  # 60 normal draws leave it once in 10^9 times


def test_options_that_it_does_not_have_are_refused(toy):
    with pytest.raises(ParameterError, match=r"count/flipped-bit has no option levels; .* it has no options"):
        toy.calibrate(**TARGET, levels=3)
    with pytest.raises(ParameterError, match="give users, epsilon and delta, or target"):
        toy.calibrate(users=400, epsilon=1.0)
    with pytest.raises(ParameterError, match="not both"):
        toy.calibrate(target=sdp.Target(**TARGET), users=400)


def test_it_is_accounted_for_on_the_command_line(toy_everywhere):
    arguments = ["account", "count/flipped-bit", "--users", "400", "--epsilon", "1", "--delta", "1e-5", "--json"]
    done = subprocess.run([sys.executable, "-m", "shuffledp", *arguments], capture_output=True, text=True, check=True)
    account = json.loads(done.stdout)
    protocol = toy_everywhere.calibrate(**TARGET)
    assert account["parameters"] == protocol.parameters()
    assert account["exact_epsilon"] == pytest.approx(protocol.guarantee.epsilon_at(1e-5))


def test_it_is_audited(toy):
    protocol = toy.calibrate(users=20, epsilon=1.0, delta=1e-2)
    assert not sdp.audit(protocol, trials=4000).exposed
    assert plant(protocol, "clear-last-value").audit(trials=4000).exposed


def test_its_document(toy):
    protocol = toy.calibrate(**TARGET)
    document = json.loads(json.dumps(sdp.to_document(protocol)))
    assert set(document["parameters"]) == {"terms", "flip"}
    assert sdp.from_document(document) == protocol
    with pytest.raises(ParameterError, match="missing or unknown"):
        sdp.from_document(document | {"parameters": {"target": document["parameters"]["terms"]}})


def test_it_conforms(toy, small):
    check_protocol(small, samples=8_000)
    for fault, broken in planted_faults(small).items():
        with pytest.raises(ConformanceError):
            check_protocol(broken, only=[CAUGHT_BY[fault]])


def test_it_collects(toy_everywhere, tmp_path):
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    rehearsal = Rehearsal.prepare(
        folder, kind=toy_everywhere, settings={"users": 100}, epsilon=1.0, delta=1e-3, name="Toy"
    )
    with rehearsal.servers():
        devices = Devices(
            rehearsal.task.verify(rehearsal.author),
            [1] * 30 + [0] * 70,
            connect=lambda: Connection(rehearsal.shuffler_url),
            connections=2,
        )
        assert devices.report().delivered == 100
        release = rehearsal.release()
    assert (release["protocol"], release["users"]) == ("flipped-bit", 100)
    assert abs(release["value"] - 30) < 12 * release["standard_error"]


class Rambling(FlippedBit):
    """Sends one message or two, and does not say that one is the fewest."""

    name = "rambling"

    @property
    def cost(self):
        return Cost(1.5, 2, 1)


def test_a_protocol_that_does_not_say_how_few_messages_are_sent_is_not_collected(toy, tmp_path):
    with pytest.raises(ParameterError, match="count/rambling does not define min_messages_per_user"):
        Rehearsal.prepare(tmp_path, kind=Rambling, settings={"users": 100}, epsilon=1.0, delta=1e-3)
