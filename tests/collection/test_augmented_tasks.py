"""Tasks of augmented protocols: created, read, refused; the policy of devices; reports of one message."""

import copy
import json
import math
from contextlib import nullcontext

import numpy as np
import pytest

from shuffledp.collection.device.client import Client, sealed_report
from shuffledp.collection.device.outbox import State
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.task.task import MAX_DUMMIES_PER_ROUND, SignedTask, Task
from shuffledp.collection.task.wire_version_2 import Carriers, ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HEADER_SIZE, HopCounts, Manifest, ReportFormat
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.errors import ParameterError, PolicyError, ShuffledpError

NAMES = ("histogram/shuffler-laplace", "histogram/shuffler-geometric", "count/shuffler-laplace")
ALLOWED = Policy(allow_augmented=True)


@pytest.fixture(scope="module")
def round_key():
    return SealingKey.create()


@pytest.fixture
def wire(parties, round_key):
    return WireVersion2((ShufflerKeys(parties.shuffler.public, round_key.public),))


@pytest.fixture(params=NAMES)
def task(request, parties, wire):
    return parties.task(request.param, wire=wire)


def test_tasks_are_signed_read_and_verified(task, parties):
    signed = task.signed(parties.author)
    read = SignedTask.from_bytes(signed.to_bytes())
    assert read.verify(parties.author.public) == task
    assert (read.task.version, read.task.messages_per_report) == (2, 1)
    assert (read.task.guarantee.trust, read.task.guarantee.honest_users) == ("augmented", 1)
    is_pure = task.protocol.name == "shuffler-geometric"
    assert read.task.delta == (0.0 if is_pure else 1e-6)
    assert json.loads(signed.to_bytes())["task"]["guarantee"]["delta"] == ("0.0" if is_pure else "1e-06")


def test_a_pure_task_is_asked_for_with_delta_0(parties, wire):
    task = parties.task(NAMES[1], wire=wire, delta=0.0)
    assert task.delta == 0.0
    assert task.guarantee.delta_at(task.epsilon) == 0.0
    assert task.protocol.guarantee.curve.pure_epsilon < task.epsilon  # a margin for other machines
    assert task.epsilon * (1 - 3e-9) < task.guarantee.pure_epsilon <= task.epsilon
    for name in (NAMES[0], NAMES[2], "histogram/balcer-cheu"):
        with pytest.raises(ShuffledpError):
            parties.task(name, wire=wire, delta=0.0)
    with pytest.raises(ParameterError, match="not nan"):
        parties.task(NAMES[1], wire=wire, delta=math.nan)


def test_a_report_has_one_message(task, parties, round_key):
    report = sealed_report(task, "bike" if task.protocol.question == "histogram" else 1)
    form = ReportFormat.of(task)
    assert len(report) == form.size
    records = ReportOpener(round_key, header_size=HEADER_SIZE, report_size=form.size).open(report)
    opened = Opener(parties.analyzer, task.id, task.message_size, 2).open([records])
    assert (len(opened.messages), opened.dummies) == (1, 0)
    packed = np.frombuffer(opened.messages[0], np.uint8)[None, :]
    assert task.protocol.message_format.unpack(packed).tolist() == [1]


def test_version_1_and_carriers_are_refused(parties, wire):
    for name in NAMES:
        with pytest.raises(ParameterError, match="a task of wire version 2, with a round key"):
            parties.task(name)
    with pytest.raises(ParameterError, match="without carriers"):
        parties.task(NAMES[0], wire=WireVersion2(wire.shufflers, carriers=Carriers(5, 10)))
    with pytest.raises(ParameterError, match="shuffled, augmented or local"):
        parties.task("histogram/discrete-laplace", wire=wire)


def test_devices_must_opt_in(task, parties, tmp_path):
    """Trusting a shuffler to shuffle is not trusting it with all noise."""
    with pytest.raises(PolicyError, match="trust: augmented"):
        Policy().check(task)
    ALLOWED.check(task)
    Policy(min_users=10**6, allow_augmented=True).check(task)  # other users do not matter
    with pytest.raises(PolicyError, match=r"this device allows epsilon = 0\.5"):
        Policy(max_epsilon=0.5, allow_augmented=True).check(task)
    content = task.signed(parties.author).to_bytes()
    value = "bike" if task.protocol.question == "histogram" else 1
    with pytest.raises(PolicyError, match="its owner can allow it"):
        Client(content, author=parties.author.public, state=tmp_path / "a")
    client = Client(content, author=parties.author.public, state=tmp_path / "b", policy=ALLOWED)
    client.report(value)  # its budget takes curves with delta 0 as well
    assert client.state is State.PENDING


@pytest.mark.parametrize(
    "parameters",
    [
        {"shift": 1 << 24},
        {"shift": (1 << 24) + 1},
        {"shift": 10**18},
        {"shift": 0},
        {"shift": -1},
        {"shift": "NaN"},
        {"shift": math.nan},
        {"shift": True},
        {"ratio": "nan"},
        {"ratio": "1"},
        {"ratio": "0"},
        {"ratio": None},
        {"domain_size": 10**9},
        {"domain_size": 1 << 62},
        {"domain_size": 0},
    ],
)
def test_hostile_parameters(parties, wire, parameters):
    """One line, quickly, whatever the author signed; nothing becomes a guarantee."""
    task = parties.task(NAMES[0], wire=wire)
    document = copy.deepcopy(task.to_document())
    if set(parameters) - set(document["protocol"]["parameters"]):
        pytest.fail("no such parameter")
    document["protocol"]["parameters"] |= parameters
    with pytest.raises(ShuffledpError) as refused:
        _ = Task.from_document(document).guarantee
    assert "\n" not in str(refused.value)


def test_too_many_dummies_are_refused(parties, wire):
    task = parties.task(NAMES[0], wire=wire)
    assert task.protocol.mean_dummies < MAX_DUMMIES_PER_ROUND
    with pytest.raises(ParameterError, match="seals at most 16,777,216"):
        Task.create(
            kind=type(task.protocol),
            settings={"users": 1000, "domain_size": 10**6},
            epsilon=1.0,
            delta=1e-6,
            maximum_users=5000,
            **parties.rest(wire=wire),
        )


def test_chains(parties, wire):
    """Every shuffler adds all dummies; sampling is refused."""
    second = ShufflerKeys(SigningKey.create().public, SealingKey.create().public)
    chain = WireVersion2((*wire.shufflers, second))
    for name in (NAMES[0], NAMES[2]):
        task = parties.task(name, wire=chain, shuffler=second.signing)
        assert SignedTask.from_bytes(task.signed(parties.author).to_bytes()).verify(parties.author.public) == task
        single = parties.task(name, wire=wire)
        assert task.guarantee.delta_at(1.0) == single.guarantee.delta_at(1.0)
        assert task.predicted_error(1000).rmse == pytest.approx(
            math.sqrt(2) * single.predicted_error(1000).rmse, rel=1e-3
        )
    with pytest.raises(ParameterError, match="samples reports") as refused:
        parties.task(NAMES[1], wire=chain, shuffler=second.signing)
    assert refused.value.values["reason"] == "unsupported"


def test_every_shuffler_of_a_chain_adds_at_most_its_dummies(parties, wire):
    """Later shufflers and the analyzer refuse larger batches, which would fill their disks."""
    second = ShufflerKeys(SigningKey.create().public, SealingKey.create().public)
    task = parties.task(NAMES[0], wire=WireVersion2((*wire.shufflers, second)), shuffler=second.signing)
    reports, most = task.minimum_users, task.protocol.most_dummies
    for hop in (0, 1):
        counts = HopCounts(hop, previous=bytes(32) if hop else None)
        largest = reports + (hop + 1) * most
        for messages, is_taken in ((reports + most, True), (largest, True), (largest + 1, False)):
            size = task.record_size(hop)
            manifest = Manifest(task.id, reports, messages, size, messages, (bytes(32),), counts)
            with nullcontext() if is_taken else pytest.raises(ParameterError, match="size or number"):
                manifest.check_task(task, hop)


@pytest.mark.parametrize("name", NAMES)
def test_honest_draws_are_within_the_bound(parties, wire, name):
    """And the bound is not much above the mean: it protects the disks of those who take the batch."""
    protocol = parties.task(name, wire=wire).protocol
    drawn = [len(protocol.draw_dummies()) for _ in range(300)]
    assert protocol.mean_dummies <= max(drawn) <= protocol.most_dummies
    assert protocol.most_dummies <= 4 * protocol.mean_dummies + 200
