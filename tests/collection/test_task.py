"""A task: what its author signed, and a guarantee that everybody recomputes."""

import copy
import dataclasses
import json
import math
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shuffledp as sdp
from shuffledp.collection.device import authentic_task
from shuffledp.collection.task.authentic import load_authentic
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.task import MAX_DRAWS_PER_REPORT, MAX_TASK_BYTES, SignedTask, Task
from shuffledp.collection.wire.keys import SealingKey, SigningKey, to_base64
from shuffledp.errors import DataError, ParameterError
from shuffledp.protocols.documents import from_document
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.protocols.sum.local_laplace import LocalLaplaceSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

RANDOMIZERS = json.loads((Path(__file__).parents[2] / "vectors" / "v1" / "randomizers.json").read_bytes())[
    "randomizers"
]
COLLECTED = [
    f"{question}/{name}"
    for question, shelf in PROTOCOLS.items()
    for name, kind in shelf.items()
    if kind.trust in ("shuffled", "local") and not kind.trusts_shuffler
]
NAMES = ("histogram/balcer-cheu", "count/correlated-noise", "sum/split-and-mix", "histogram/k-rr")


@pytest.fixture(scope="session")
def tasks(parties):
    return {name: parties.task(name) for name in NAMES}


@pytest.fixture(scope="session")
def envelopes(parties, tasks):
    """Signed tasks as documents."""
    return {name: json.loads(task.signed(parties.author).to_bytes()) for name, task in tasks.items()}


def signed_anew(envelope, author: SigningKey) -> bytes:
    """As an author would who wants devices to believe it."""
    signature = author.sign(b"shuffledp task v1\n" + canonical(envelope["task"]))
    return canonical({**envelope, "author": author.public.id, "signature": to_base64(signature)})


def places(document, path=()):
    """Every place of a document, as the way to it."""
    yield path
    if isinstance(document, dict):
        for key in document:
            yield from places(document[key], (*path, key))
    elif isinstance(document, list):
        for index in range(len(document)):
            yield from places(document[index], (*path, index))


def at(document, path):
    for step in path:
        document = document[step]
    return document


def put(document, path, value):
    if not path:
        return value
    changed = copy.deepcopy(document)
    at(changed, path[:-1])[path[-1]] = value
    return changed


@st.composite
def changes(draw, document):
    """The document with one place changed: something added, removed, exchanged, or a little different."""
    path = draw(st.sampled_from(sorted(places(document), key=str)))
    old = at(document, path)
    kinds = ["exchange"]
    if path:
        kinds.append("remove")
    if isinstance(old, dict):
        kinds.append("add")
    if isinstance(old, (str, int)):
        kinds += ["near", "near"]
    kind = draw(st.sampled_from(kinds))
    if kind == "exchange":
        return put(document, path, draw(st.sampled_from([None, True, False, 0, 1, 2, -1, "", "1", "0x1", [], {}])))
    if kind == "add":
        return put(document, path, {**old, draw(st.sampled_from(["more", "", "Name", "id"])): 1})
    if kind == "near":
        if isinstance(old, str):
            spot = draw(st.integers(0, len(old)))
            letter = draw(st.sampled_from("0129.-+eZ/ xa\n"))
            new = old[:spot] + letter + old[spot + draw(st.integers(0, 1)) :]
        else:
            new = int(old) + draw(st.sampled_from([-1, 1, 2, 1000]))
        return put(document, path, new)
    changed = copy.deepcopy(document)
    del at(changed, path[:-1])[path[-1]]
    return changed


def same(one, other) -> bool:
    """As JSON, where true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name, parties, tasks):
    task = tasks[name]
    content = task.signed(parties.author).to_bytes()
    for read in (SignedTask.from_bytes(content).verify, lambda key: authentic_task(content, key)):
        found = read(parties.author.public)
        assert found == task
        assert found.id == task.id
        assert found.guarantee.delta_at(task.epsilon) <= task.delta
    assert authentic_task(content + b"\n", parties.author.public) == task
    assert len(task.id) == 32


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_was_not_signed_is_refused(name, parties, envelopes, data):
    envelope = envelopes[name]
    changed = data.draw(changes(envelope))
    if same(changed, envelope):
        return
    with pytest.raises(ParameterError):
        authentic_task(canonical(changed), parties.author.public)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_task_that_its_author_made_up_holds_or_is_refused(name, parties, envelopes, data):
    """The author may choose; but what does not follow from the parameters, or claims too much, is refused."""
    envelope = envelopes[name]
    changed = {**envelope, "task": data.draw(changes(envelope["task"]))}
    content = signed_anew(changed, parties.author)
    try:
        task = authentic_task(content, parties.author.public)
    except ParameterError:
        return
    assert task.content == canonical(changed["task"])
    assert task.guarantee.delta_at(task.epsilon) <= task.delta


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_truncated(cut, parties, tasks):
    content = tasks[NAMES[0]].signed(parties.author).to_bytes()
    with pytest.raises(ParameterError):
        authentic_task(content[:cut], parties.author.public)


def test_every_byte_counts(parties, tasks):
    content = tasks[NAMES[0]].signed(parties.author).to_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(ParameterError):
            authentic_task(bytes(changed), parties.author.public)


@pytest.mark.parametrize("name", NAMES)
def test_claims_that_the_parameters_do_not_hold(name, parties, envelopes):
    for key, value in (("epsilon", "0.25"), ("delta", "1e-12")):
        changed = put(envelopes[name], ("task", "guarantee", key), value)
        if name == "histogram/k-rr" and key == "delta":  # it needs none, so that claim is true
            assert authentic_task(signed_anew(changed, parties.author), parties.author.public).delta == 1e-12
            continue
        with pytest.raises(ParameterError, match=r"more than the claimed|parameters give"):
            authentic_task(signed_anew(changed, parties.author), parties.author.public)


def test_claims_beside_the_truth(parties, envelopes):
    envelope = envelopes["histogram/balcer-cheu"]
    for path, value, words in [
        (("guarantee", "honest_users"), 5000, "guarantee"),
        (("guarantee", "local_epsilon"), "1.0", "guarantee"),
        (("minimum_users",), 10, "minimum_users"),
        (("message_size",), 2, "message_size"),
        (("suite",), "none", "suite"),
    ]:
        changed = put(envelope, ("task", *path), value)
        with pytest.raises(ParameterError, match=f"contradicts its protocol: {words}"):
            authentic_task(signed_anew(changed, parties.author), parties.author.public)
    changed = put(envelope, ("task", "messages_per_report"), 3)  # fewer than a user may send: the rest would be lost
    with pytest.raises(ParameterError, match="has 5 messages, not 3"):
        authentic_task(signed_anew(changed, parties.author), parties.author.public)


def test_a_smaller_cap_costs_delta(parties, envelopes, tasks):
    name = "count/correlated-noise"
    cap = tasks[name].messages_per_report
    changed = put(envelopes[name], ("task", "messages_per_report"), cap // 2)
    with pytest.raises(ParameterError, match="more than the claimed"):
        authentic_task(signed_anew(changed, parties.author), parties.author.public)
    changed = put(envelopes[name], ("task", "maximum_users"), 10**9)  # more users exceed it more often
    with pytest.raises(ParameterError, match="more than the claimed"):
        authentic_task(signed_anew(changed, parties.author), parties.author.public)
    longer = put(envelopes[name], ("task", "messages_per_report"), cap + 10)
    assert authentic_task(signed_anew(longer, parties.author), parties.author.public).messages_per_report == cap + 10


def test_true_is_not_one(parties, envelopes):
    """Python takes true for 1, and the signature would be computed over 1; another language would refuse it."""
    for path in (("version",), ("protocol", "version"), ("message_size",)):
        assert at(envelopes["histogram/balcer-cheu"]["task"], path) == 1
        changed = put(envelopes["histogram/balcer-cheu"], ("task", *path), True)
        with pytest.raises(ParameterError, match="not a valid signature"):
            authentic_task(canonical(changed), parties.author.public)
        with pytest.raises(ParameterError):
            authentic_task(signed_anew(changed, parties.author), parties.author.public)


def test_nothing_is_computed_before_the_signature_is_checked(parties, envelopes, monkeypatch):
    """Such a number would take hours and all memory; who cannot sign must not be able to ask for it."""
    changed = put(envelopes["count/correlated-noise"], ("task", "protocol", "parameters", "flood_shape"), "1e999999999")

    def reached(*_):
        raise AssertionError("an unsigned task was built")

    monkeypatch.setattr(Task, "from_document", reached)
    with pytest.raises(ParameterError, match="not a valid signature"):
        authentic_task(canonical(changed), parties.author.public)
    with pytest.raises(AssertionError, match="unsigned"):
        authentic_task(canonical(envelopes["count/correlated-noise"]), parties.author.public)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions(version, parties, envelopes):
    changed = put(envelopes[NAMES[0]], ("task", "version"), version)
    with pytest.raises(ParameterError, match="has version"):
        authentic_task(signed_anew(changed, parties.author), parties.author.public)


def test_other_keys(parties, tasks):
    signed = tasks[NAMES[0]].signed(parties.author)
    stranger = SigningKey.create()
    for content in (signed.to_bytes(), tasks[NAMES[0]].signed(stranger).to_bytes()):
        key = stranger if content == signed.to_bytes() else parties.author
        with pytest.raises(ParameterError, match="was not signed by"):
            authentic_task(content, key.public)
        with pytest.raises(ParameterError, match="was signed by"):
            SignedTask.from_bytes(content).verify(key.public)
    forged = canonical({**json.loads(signed.to_bytes()), "author": stranger.public.id})
    with pytest.raises(ParameterError, match="not a valid signature"):
        authentic_task(forged, stranger.public)


@pytest.mark.parametrize("name", ["count/discrete-laplace", "histogram/stability", "histogram/sample-and-threshold"])
def test_protocols_that_trust_a_party_with_the_values(name, parties):
    with pytest.raises(ParameterError, match="requires a trusted party"):
        parties.task(name, epsilon=2.0)
    domain = {} if name.startswith("count") else {"domain_size": 3}
    protocol = sdp.find(*name.split("/")).calibrate(users=1000, epsilon=2, delta=1e-6, **domain)
    with pytest.raises(ParameterError, match="requires a trusted party"):
        parties.around(protocol, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "The name of a task must have 1 to 2,000 characters, not 0"),
        ({"population": ""}, "The population of a task must have 1 to 2,000 characters, not 0"),
        ({"name": "a\nb"}, r"The name of a task has the character U\+000A, which is not allowed"),
        ({"description": "\x1b[31m"}, r"The description of a task has the character U\+001B"),
        ({"population": "a\u00a0b"}, r"The population of a task has the character U\+00A0"),
        ({"description": "x" * 2001}, "must have 0 to 2,000 characters, not 2,001"),
        ({"maximum_users": 999}, "maximum_users must be between"),
        ({"maximum_users": 10**9 + 1}, "and 1,000,000,000, not 1,000,000,001"),
        ({"opens": datetime(2026, 1, 1)}, "time zone"),
        ({"opens": datetime(999, 12, 31, tzinfo=UTC)}, "years 1000 to 9999"),
        ({"opens": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "years 1000 to 9999"),
        ({"closes": datetime(9999, 12, 31, 20, tzinfo=timezone(timedelta(hours=-5)))}, "years 1000 to 9999"),
    ],
)
def test_what_makes_no_task(change, words, parties):
    with pytest.raises(ParameterError, match=words):
        parties.task(NAMES[0], **change)


@pytest.mark.parametrize("name", ["histogram/k-rr", "histogram/shuffled-k-rr", "histogram/balcer-cheu"])
def test_last_digits_of_another_machine(name, tasks, parties):
    """What is said of one report alone may differ in what a logarithm leaves open, and no further."""
    task = tasks.get(name) or parties.task(name)
    local = task.protocol.guarantee.local_epsilon
    other = math.nextafter(local, 0) if math.isfinite(local) else math.inf
    elsewhere = dataclasses.replace(task, stated_local_epsilon=other)
    found = SignedTask.from_bytes(elsewhere.signed(parties.author).to_bytes()).verify(parties.author.public)
    assert found.id == elsewhere.id
    assert (found.id == task.id) == math.isinf(local)
    for wrong in (local * (1 - 1e-6), local * 2, 0.0) if math.isfinite(local) else (5.0, 0.0):
        lie = dataclasses.replace(task, stated_local_epsilon=wrong).signed(parties.author).to_bytes()
        with pytest.raises(ParameterError, match="contradicts its protocol: guarantee"):
            SignedTask.from_bytes(lie)


@pytest.mark.parametrize("name", [*NAMES[:3], "histogram/cheu", "histogram/uniform-blanket", "count/cheu"])
def test_the_protocols_own_claim_has_room_for_last_digits_too(name, tasks, parties):
    task = tasks.get(name) or parties.task(name)
    claim = task.protocol.target
    achieved = task.protocol.guarantee.delta_at(claim.epsilon)
    assert 0.2 * task.delta < achieved < claim.delta * (1 - 5e-10)
    assert claim.delta <= task.delta


def test_noise_that_no_device_could_draw(tasks, parties):
    protocol = tasks["sum/split-and-mix"].protocol
    wide = dataclasses.replace(protocol, ratio=Dyadic((1 << 64) - (1 << 44)))
    with pytest.raises(ParameterError, match="too wide for devices to draw"):
        parties.around(wide, wide.messages)


def test_parameters_that_keep_a_device_busy_are_refused(parties):
    """The noise of local-laplace is drawn step by step: a ratio of 1 - 2^-40 took a device more than 12 seconds."""
    busy = LocalLaplaceSum(Target(100, 1.0, 0.0), 1, Dyadic(1, 40).complement, 1 << 50, sdp.Interval(0, 1))
    with pytest.raises(ParameterError, match=f"at most {MAX_DRAWS_PER_REPORT:,}"):
        parties.around(busy, 1)
    allowed = dataclasses.replace(busy, ratio=Dyadic(1, 23).complement)
    assert allowed.draws_per_report == MAX_DRAWS_PER_REPORT
    before = time.process_time()
    parties.around(allowed, 1).protocol.randomize(0.5)
    assert time.process_time() - before < 20


@pytest.mark.parametrize(
    "absence",
    [
        {"bits": 1100, "numerator": 1},
        {"bits": 64_000, "numerator": 1},
        {"bits": 129, "numerator": 1},
        {"bits": 128, "numerator": 1},
        {"bits": 64, "numerator": "0x8000000000000001"},
    ],
)
def test_a_signed_task_without_noise_is_refused(absence, parties, envelopes):
    """A probability that underflows in the accountant must not verify, whoever signed it."""
    envelope = copy.deepcopy(envelopes["histogram/balcer-cheu"])
    envelope["task"]["protocol"]["parameters"]["noise"]["absence"] = absence
    with pytest.raises(ParameterError):
        authentic_task(signed_anew(envelope, parties.author), parties.author.public)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("bus", "a\x1b[2J"), r"The category of a task has the character U\+001B"),
        (("bus", "sub\u202e"), r"The category of a task has the character U\+202E"),
        (("bus", ""), "The category of a task must have 1 to 200 characters, not 0"),
        (("bus", "b" * 201), "not 201"),
        (("v\u00e9lo", "ve\u0301lo"), r"\(U\+0076 U\+00E9 .*look the same"),
    ],
)
def test_categories_that_people_cannot_choose_between(names, words, parties):
    protocol = sdp.find("histogram", "k-rr").calibrate(
        users=1000, epsilon=2, delta=1e-6, categories=sdp.Categories(names)
    )
    with pytest.raises(ParameterError, match=words):
        parties.around(protocol, 1)


def test_reports_that_are_too_long_for_the_format(parties):
    """Also where the protocol has a largest number of messages."""
    size = 65_536
    protocol = sdp.find("histogram", "balcer-cheu").calibrate(users=1000, epsilon=1, delta=1e-6, domain_size=size)
    with pytest.raises(ParameterError, match="has 1 to 65,536 messages, not 65,537"):
        parties.around(protocol, size + 1)
    with pytest.raises(ParameterError, match="not 0"):
        parties.around(protocol, 0)


def test_one_line_feed_and_no_more(parties, tasks, tmp_path):
    """Whichever way a task is read."""
    content = tasks[NAMES[0]].signed(parties.author).to_bytes()
    path = tmp_path / "task.json"
    for end in (b"", b"\n"):
        path.write_bytes(content + end)
        assert load_authentic(path, [parties.author.public])[1] == content
        assert SignedTask.load(path).task == tasks[NAMES[0]]
    for end in (b"\n\n", b"\r\n", b" ", b" \n", b"\0"):
        path.write_bytes(content + end)
        for read in (
            lambda: load_authentic(path, [parties.author.public]),
            lambda: SignedTask.load(path),
            lambda content=content + end: authentic_task(content, parties.author.public),
        ):
            with pytest.raises(ParameterError):
                read()


@pytest.mark.parametrize("name", [name for name in COLLECTED if sdp.find(*name.split("/")).trust == "local"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, math.pi, 5.0])
def test_local_tasks_have_a_margin_for_last_digits(name, epsilon, parties):
    """Another machine's logarithm may be larger: hadamard-response at epsilon = pi had no margin at all."""
    task = parties.task(name, epsilon=epsilon)
    assert task.protocol.target.epsilon == task.epsilon == epsilon
    assert 5e-10 < 1 - task.protocol.guarantee.local_epsilon / epsilon < 2e-9


@pytest.mark.parametrize("name", COLLECTED)
def test_nobody_honest(name):
    """Refused for every protocol, also where nothing is divided by the number of honest users."""
    good = next(case["protocol"] for case in RANDOMIZERS if case["protocol"]["protocol"] == name and case["guarantee"])
    part = "terms" if "terms" in good["parameters"] else "noise"
    bad = put(good, ("parameters", part, "honest_fraction"), repr(0.5 / good["parameters"][part]["users"]))
    with pytest.raises(ParameterError, match="honest"):
        from_document(bad)


def test_times(parties):
    now = parties.rest()["opens"]
    with pytest.raises(ParameterError, match="before it opens"):
        parties.task(NAMES[0], opens=now, closes=now)
    with pytest.raises(ParameterError, match="no fraction of a second"):
        parties.task(NAMES[0], opens=now + timedelta(microseconds=1))


def test_ids_tell_tasks_apart(parties):
    rest = parties.rest()
    one = parties.task(NAMES[0], **rest)
    assert parties.task(NAMES[0], **rest).id == one.id
    for change in ({"name": "Other"}, {"analyzer": SealingKey.create().public}, {"population": "land"}):
        assert parties.task(NAMES[0], **{**rest, **change}).id != one.id


def test_files(parties, tasks, tmp_path):
    path = tmp_path / "task.json"
    path.write_bytes(tasks[NAMES[0]].signed(parties.author).to_bytes() + b"\n")
    assert SignedTask.load(path).task == tasks[NAMES[0]]
    with pytest.raises(DataError, match="Cannot read the task"):
        SignedTask.load(tmp_path / "none.json")
    with path.open("wb") as file:
        file.truncate(MAX_TASK_BYTES + 1)
    with pytest.raises(DataError, match="too large"):
        SignedTask.load(path)


def test_a_task_is_what_it_was_calibrated_for(parties):
    task = parties.task("histogram/cheu", users=500, epsilon=0.8)
    assert isinstance(task, Task)
    assert (task.minimum_users, task.maximum_users, task.messages_per_report) == (500, 2500, 4)
    assert task.guarantee.epsilon == 0.8
