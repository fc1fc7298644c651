"""Carriers on the wire: who sends which of two lengths, what a task may state, and what a batch."""

import copy
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.collection.analyzer import ledger
from shuffledp.collection.device import Client, Policy, authentic_task
from shuffledp.collection.device import client as client_module
from shuffledp.collection.device.client import sealed_report
from shuffledp.collection.device.outbox import Outbox
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.series import RoundKeys, Series, authentic_series
from shuffledp.collection.task.task import SIGNED_AS, SignedTask, Task
from shuffledp.collection.task.wire_version_2 import Carriers, ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HEADER_SIZE, HopCounts, Manifest, ReportFormat
from shuffledp.collection.wire.keys import SealingKey, SigningKey, to_base64
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.errors import ParameterError, PolicyError, ShuffledpError
from shuffledp.privacy.carriers import CarrierRoles
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import p_value

ALPHA = 1e-6
ROUND_KEY = SealingKey.create()
MINIMUM = 57
"""Of 400 users, each a carrier with probability 1/4, except with probability 1e-7."""


@pytest.fixture(scope="module")
def create(parties):
    """Tasks with carriers."""

    def made(question="histogram", *, users=400, epsilon=1.0, delta=1e-4, maximum=2000, **settings) -> Task:
        domain = {"domain_size": 3} if question == "histogram" else {}
        return Task.create(
            kind=sdp.find(question, "correlated-noise"),
            settings={"users": users, "carriers": 0.25, **domain, **settings},
            epsilon=epsilon,
            delta=delta,
            maximum_users=maximum,
            **parties.rest(wire=WireVersion2((ShufflerKeys(parties.shuffler.public, ROUND_KEY.public),))),
        )

    return made


@pytest.fixture(scope="module")
def task(create):
    return create()


def opened_report(task, report, parties):
    """Whether it has the length of a carrier's report, and its messages, dummies left out."""
    form = ReportFormat.of(task)
    assert len(report) in (form.size, form.carrier_size)
    content = ReportOpener(ROUND_KEY, header_size=HEADER_SIZE, report_size=len(report)).open(report)
    sealed = [content[at : at + task.sealed_size] for at in range(0, len(content), task.sealed_size)]
    assert len(sealed) == (form.carrier_messages if form.is_carrier(report) else form.messages)
    opened = Opener(parties.analyzer, task.id, task.message_size, 2).open(sealed)
    assert not opened.rejected
    packed = np.frombuffer(b"".join(opened.messages), dtype=np.uint8).reshape(-1, task.message_size)
    return form.is_carrier(report), task.protocol.message_format.unpack(packed)


def test_a_chain_with_carriers_is_well_formed_and_refused(task, parties, monkeypatch):
    """A task and a series: in one line, when they are verified; without the check both would be accepted."""
    second = ShufflerKeys(parties.shuffler.public, SealingKey.create().public)
    first = ShufflerKeys(SigningKey.create().public, ROUND_KEY.public)
    chain = replace(task, wire=replace(task.wire, shufflers=(first, second)))
    keys = (RoundKeys(chain.analyzer, (first.sealing, second.sealing)),)
    signed = chain.signed(parties.author).to_bytes()
    series = Series(chain, period=86_400, keys=keys, rounds_per_device=1).signed(parties.author)
    for read, content in ((authentic_task, signed), (authentic_series, series)):
        with pytest.raises(
            ParameterError, match=r"^This task needs a chain of shufflers with carriers[^\n]*$"
        ) as refused:
            read(content, parties.author.public)
        assert refused.value.values["reason"] == "unsupported"
    monkeypatch.setattr(WireVersion2, "check_supported", lambda self: None)
    assert authentic_task(signed, parties.author.public) == chain
    assert authentic_series(series, parties.author.public).first == chain


def test_what_a_task_states(task, parties):
    """All of it follows from the protocol but the length of a carrier's report, whose cost is part of delta."""
    roles = task.protocol.carrier_roles
    assert task.messages_per_report == 1
    assert task.carriers.minimum == roles.honest_carriers
    assert task.max_messages_per_report == task.carriers.messages_per_report > 20
    content = task.signed(parties.author).to_bytes()
    assert authentic_task(content, parties.author.public) == task
    assert SignedTask.from_bytes(content).task.to_document()["carriers"] == {
        "messages_per_report": task.max_messages_per_report,
        "minimum": roles.honest_carriers,
    }
    assert task.guarantee.delta_at(1.0) <= 1e-4
    assert Policy(max_delta=1e-4).check(task) is None


def test_dishonest_users_raise_the_minimum(create):
    task = create(honest_fraction=0.5)
    honest = task.protocol.carrier_roles.honest_carriers
    assert task.guarantee.honest_users == 200
    assert task.carriers.minimum == 2 * honest
    assert honest < 50  # of 200 honest users, a quarter are carriers on average


def test_the_delta_of_a_task_is_divided(task):
    """Noise, too few honest carriers, and reports that are too long: none of them is left out."""
    noise = task.protocol.guarantee.curve
    curve = task.guarantee.curve
    longer = task.protocol.chance_of_more_messages(task.max_messages_per_report)
    carrier = task.protocol.shares.chance_of_more(task.max_messages_per_report - 1, 3)
    assert longer == pytest.approx(0.25 * carrier)
    parts = (noise.curve.delta_at(1.0), noise.shortage, (1 + math.e) * 2000 * longer)
    assert curve.delta_at(1.0) == pytest.approx(sum(parts), rel=1e-9)
    assert all(part > 0 for part in parts)
    assert parts[1] <= 1e-3 * 1e-4
    assert parts[2] <= 1e-2 * 1e-4
    with pytest.raises(ParameterError, match="more than the claimed") as caught:
        _ = replace(task, wire=replace(task.wire, carriers=replace(task.carriers, messages_per_report=9))).guarantee
    assert caught.value.values["reason"] == "bad-guarantee"


ROLES_DRAWN = 1500


def p_of_roles(task, draw):
    """The least p-value over all values: how often the device is a carrier, whatever it says."""
    chance = float(task.protocol.carrier_roles.carrier_probability)
    found = []
    for value in ("0", "1", "2"):
        carriers = sum(draw(task, value)[0] > task.messages_per_report for _ in range(ROLES_DRAWN))
        found.append(p_value(np.array([carriers, ROLES_DRAWN - carriers]), np.array([chance, 1 - chance])))
    return min(found)


def randomized(task, value):
    return client_module._randomized(task, int(value))


def role_by_value(task, value):
    """The planted fault: who holds the last category is a carrier more often."""
    if value != "2":
        return randomized(task, value)
    broken, roles = copy.copy(task), CarrierRoles(Dyadic.of(0.35), task.protocol.carriers.honest_carriers)
    object.__setattr__(broken, "protocol", replace(task.protocol, carriers=roles))
    return randomized(broken, value)


def test_roles_have_their_probability_for_every_value(task):
    """4,500 draws at level 1e-6; a probability of 0.35 for one value in place of 0.25 is noticed."""
    assert p_of_roles(task, randomized) > ALPHA
    assert p_of_roles(task, role_by_value) < ALPHA


def test_the_whole_table_of_reports(create, parties):
    """Length and opened messages of sealed reports, for every value, against their exact distribution."""
    task = create("count", users=24, epsilon=1.0, delta=0.2, maximum=24, carriers=0.5)
    roles, drawn = task.protocol.carrier_roles, 300
    chance, cap = float(roles.carrier_probability), task.max_messages_per_report
    for bit in (0, 1):
        own = (bit, 1 - bit)
        share = {
            (plus + own[0], minus + own[1]): mass
            for (plus, minus), mass in task.protocol.shares.pmf(1e-7).items()
            if plus + minus + 1 <= cap
        }
        total = sum(share.values())
        table = {(False, own): 1 - chance} | {(True, key): chance * mass / total for key, mass in share.items()}
        found = Counter()
        for _ in range(drawn):
            role, messages = opened_report(task, sealed_report(task, bit), parties)
            found[role, (int((messages == 0).sum()), int((messages == 1).sum()))] += 1
        assert set(found) <= set(table)
        counts = np.array([found[key] for key in table])
        assert p_value(counts, np.array(list(table.values()))) > ALPHA
        carriers = sum(count for (role, _), count in found.items() if role)
        silent = [carriers if key == (True, own) else found[key] * (not key[0]) for key in table]
        assert p_value(np.array(silent), np.array(list(table.values()))) < ALPHA  # carriers that add no noise


def test_the_number_of_messages_says_nothing_but_the_role(task, parties):
    """Whoever is no carrier sends exactly one message; the noise of a carrier never changes the length."""
    sizes = {value: {len(sealed_report(task, value)) for _ in range(80)} for value in ("0", "1", "2")}
    form = ReportFormat.of(task)
    assert all(found == {form.size, form.carrier_size} for found in sizes.values())
    assert form.carrier_size - form.size == (form.carrier_messages - 1) * form.sealed_size


def test_a_role_is_drawn_once_even_if_the_noise_is_drawn_again(task, monkeypatch):
    """A carrier whose noise does not fit stays one; a device that drew the role again would not."""
    calls = Counter()
    kind = type(task.protocol)
    honest = kind.randomize_in_role

    def sometimes_long(self, value, *, carrier, source):
        calls[carrier] += 1
        messages = honest(self, value, carrier=carrier, source=source)
        if carrier and calls[True] % 2:
            return np.repeat(messages, 1000, axis=0)
        return messages

    monkeypatch.setattr(kind, "randomize_in_role", sometimes_long)
    roles = [client_module._randomized(task, 1)[0] for _ in range(2000)]
    carriers = sum(count == task.max_messages_per_report for count in roles)
    assert calls[True] in (2 * carriers, 2 * carriers - 1)
    assert calls[False] == 2000 - carriers
    assert 300 < carriers < 700


def test_the_stored_report_keeps_its_role(task, parties, tmp_path):
    content = task.signed(parties.author).to_bytes()
    policy = Policy(max_delta=1e-4)
    for device in range(6):
        state = tmp_path / str(device)
        client = Client(content, author=parties.author.public, state=state, policy=policy)
        client.report("1")
        stored = Outbox(state).pending(task.id)
        again = Client(content, author=parties.author.public, state=state, policy=policy)
        with pytest.raises(PolicyError, match="already"):
            again.report("1")
        assert again._stored() == stored
        assert len(stored) in (ReportFormat.of(task).size, ReportFormat.of(task).carrier_size)


def test_policies_are_checked_before_the_role_is_drawn(task, monkeypatch):
    """A device that only refuses once it is a carrier would leave the others without noise."""
    form = ReportFormat.of(task)
    for policy in (
        Policy(max_delta=1e-4, max_messages=task.max_messages_per_report - 1),
        Policy(max_delta=1e-4, max_report_bytes=form.carrier_size - 1),
    ):
        with pytest.raises(PolicyError, match="this device"):
            policy.check(task)
    monkeypatch.setattr(ReportFormat, "max_size", ReportFormat.size)  # the planted fault
    Policy(max_delta=1e-4, max_report_bytes=form.carrier_size - 1).check(task)


def test_other_lengths_are_refused(task, parties):
    form = ReportFormat.of(task)
    report = sealed_report(task, "0")
    for wrong in (report[:-1], report + b"x", report[: form.size - form.sealed_size], report * 2):
        with pytest.raises(ParameterError, match=rf"{form.size:,} or {form.carrier_size:,} bytes"):
            form.report_id(wrong)
    between = report[:HEADER_SIZE] + bytes(form.size - HEADER_SIZE + form.sealed_size)
    with pytest.raises(ParameterError, match="bytes, not"):
        form.report_id(between)
    sealed = [bytes(form.sealed_size)] * 2
    with pytest.raises(ParameterError, match=f"1 or {form.carrier_messages:,} messages"):
        form.build(bytes(16), sealed)


def resigned(task, parties, **changes):
    document = task.to_document() | changes
    signature = parties.author.sign(SIGNED_AS[2] + canonical(document))
    return canonical({"task": document, "author": parties.author.public.id, "signature": to_base64(signature)})


@pytest.mark.parametrize(
    ("carriers", "reason"),
    [
        ({"minimum": 0}, "malformed"),
        ({"minimum": -1}, "malformed"),
        ({"minimum": 2001}, "malformed"),
        ({"minimum": MINIMUM - 1}, "inconsistent"),
        ({"minimum": MINIMUM + 1}, "inconsistent"),
        ({"minimum": True}, "malformed"),
        ({"minimum": f"{MINIMUM}"}, "malformed"),
        ({"minimum": None}, "malformed"),
        ({"messages_per_report": 1}, "malformed"),
        ({"messages_per_report": 0}, "malformed"),
        ({"messages_per_report": 1 << 16 | 1}, "malformed"),
        ({"messages_per_report": 8}, "bad-guarantee"),
        ({"probability": "nan"}, "malformed"),
        (None, "inconsistent"),
        ([], "malformed"),
    ],
)
def test_hostile_carriers_of_a_task(task, parties, carriers, reason):
    assert task.carriers.minimum == MINIMUM
    changed = task.carriers.to_document() | carriers if isinstance(carriers, dict) else carriers
    with pytest.raises(ParameterError) as caught:
        authentic_task(resigned(task, parties, carriers=changed), parties.author.public)
    assert caught.value.values["reason"] == reason
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("carrier_probability", {"numerator": 0, "bits": 2}, "malformed"),
        ("carrier_probability", {"numerator": 1, "bits": 0}, "malformed"),
        ("carrier_probability", {"numerator": 1, "bits": 128}, "bad-guarantee"),
        ("carrier_probability", {"numerator": 15, "bits": 6}, "bad-guarantee"),
        ("carrier_probability", "nan", "malformed"),
        ("honest_carriers", 0, "malformed"),
        ("honest_carriers", 401, "malformed"),
        ("honest_carriers", 400, "bad-guarantee"),
        ("honest_carriers", "0x1", "inconsistent"),
    ],
)
def test_hostile_roles_of_a_task(task, parties, name, value, reason):
    """Extreme probabilities and numbers: the guarantee does not hold, or they cannot be read."""
    document = copy.deepcopy(task.to_document()["protocol"])
    document["parameters"][name] = value
    changes = {"protocol": document}
    if name == "honest_carriers" and value == 400:
        changes["carriers"] = task.carriers.to_document() | {"minimum": 400}
    with pytest.raises(ParameterError) as caught:
        authentic_task(resigned(task, parties, **changes), parties.author.public)
    assert caught.value.values["reason"] == reason


def test_carriers_need_a_protocol_and_wire_version_2(task, parties):
    with pytest.raises(ParameterError, match="needs wire version 2"):
        replace(task, wire=None)
    plain = parties.task(wire=WireVersion2((ShufflerKeys(parties.shuffler.public, ROUND_KEY.public),)))
    with pytest.raises(ParameterError, match="with these parameters has none"):
        replace(plain, wire=replace(plain.wire, carriers=Carriers(20, 100)))
    with pytest.raises(ParameterError, match="contradicts its protocol"):
        replace(task, messages_per_report=2)
    with pytest.raises(ParameterError, match="wire version 2"):
        Task.create(
            kind=sdp.find("count", "correlated-noise"),
            settings={"users": 400, "carriers": 0.25},
            epsilon=1.0,
            delta=1e-4,
            maximum_users=400,
            **parties.rest(),
        )


def manifest_of(task, reports, carriers, messages=None):
    messages = reports + carriers * (task.max_messages_per_report - 1) if messages is None else messages
    counts = HopCounts(carriers=carriers)
    return Manifest(task.id, reports, messages, task.sealed_size, messages, (bytes(32),), counts)


def test_batches_state_their_carriers(task):
    longer = task.max_messages_per_report - 1
    manifest_of(task, 400, MINIMUM).check_task(task)
    manifest_of(task, 2000, 2000).check_task(task)
    for manifest, match in (
        (manifest_of(task, 400, MINIMUM - 1), f"{MINIMUM - 1} carriers cannot be released: the task requires at least"),
        (manifest_of(task, 400, 0), "0 carriers cannot be released"),
        (manifest_of(task, 399, 100), "399 reports cannot be released"),
        (manifest_of(task, 400, MINIMUM, 400 + (MINIMUM - 1) * longer), "size or number"),
        (manifest_of(task, 400, MINIMUM, 400 * task.max_messages_per_report), "size or number"),
    ):
        with pytest.raises(ParameterError, match=match):
            manifest.check_task(task)
    with pytest.raises(ParameterError, match="more carriers than reports"):
        manifest_of(task, 400, 401)


def test_a_batch_of_a_task_without_carriers_has_none(parties):
    plain = parties.task(wire=WireVersion2((ShufflerKeys(parties.shuffler.public, ROUND_KEY.public),)))
    messages = 1000 * plain.messages_per_report
    numbers = (plain.id, 1000, messages, plain.sealed_size, messages, (bytes(32),))
    Manifest(*numbers, HopCounts()).check_task(plain)
    with pytest.raises(ParameterError, match="size or number"):
        Manifest(*numbers, HopCounts(carriers=1)).check_task(plain)


def test_the_ledger_recomputes_the_curve(task):
    """With the cap of carriers; with that of others, the entry would not hold."""
    document = ledger._curve_document(task)
    curve = ledger._curve(canonical(document))
    assert curve.delta_at(1.0) == task.guarantee.curve.delta_at(1.0)
    forged = ledger._curve(canonical(document | {"messages_per_report": task.messages_per_report}))
    assert forged.delta_at(1.0) > 0.4


def test_protocols_of_others_have_no_carriers(parties):
    protocol: Protocol = parties.task().protocol
    assert protocol.carrier_roles is None
    with pytest.raises(ShuffledpError, match="has no carriers"):
        protocol.randomize_in_role(0, carrier=False)
