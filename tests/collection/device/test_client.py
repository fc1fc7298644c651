"""A device reports once: after restarts, crashes and races the bytes that leave it are always the same."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from shuffledp.collection.device import Client, Patience, Policy, State, sealed_report
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SigningKey, VerifyingKey, to_base64
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.privacy_pass import parse_header
from shuffledp.errors import (
    DataError,
    DomainError,
    OutputError,
    ParameterError,
    PolicyError,
    RefusedError,
    UnreachableError,
)
from tests.collection.test_privacy_pass import Issuer

SECOND = "reported to this task already"


def stored(client: Client) -> bytes:
    return client._outbox.pending(client.task.id)


def test_report_and_send(device, server, task, parties):
    client = device()
    assert client.state is State.NONE
    client.report("bike")
    assert client.state is State.PENDING
    report = stored(client)
    assert client.send(server.url) is State.DELIVERED
    assert server.bodies == [report]
    assert server.paths == [f"/v1/tasks/{task.id.hex()}/reports"]
    form = ReportFormat.of(task)
    assert len(form.report_id(report)) == 16
    records = form.records(report)
    sealed = [bytes(records[at : at + form.sealed_size]) for at in range(0, len(records), form.sealed_size)]
    opened = Opener(parties.analyzer, task.id, task.message_size).open(sealed)
    packed = np.array([list(each) for each in opened.messages], dtype=np.uint8).reshape(-1, task.message_size)
    messages = task.protocol.message_format.unpack(packed)
    assert 1 in messages.tolist()  # balcer-cheu sends the own value, and tokens of all
    assert len(messages) + opened.dummies == task.messages_per_report


def test_once_delivered_only_that_is_kept(device, server, tmp_path):
    client = device()
    client.report("bus")
    client.send(server.url)
    files = [each for each in (tmp_path / "device").iterdir() if each.name != "budget"]
    assert {each.suffix for each in files} == {".lock", ".delivered"}
    assert all(each.stat().st_size == 0 for each in files)
    for again in (client, device()):
        with pytest.raises(PolicyError, match=rf"{SECOND} \(delivered\)"):
            again.report("bus")
        assert again.send(server.url) is State.DELIVERED
    assert len(server.bodies) == 1


def test_a_second_report_is_refused_before_and_after_a_restart(device):
    client = device()
    client.report("bus")
    first = stored(client)
    for again in (client, device()):
        with pytest.raises(PolicyError, match=rf"{SECOND} \(pending\)"):
            again.report("car")
        assert stored(again) == first


def test_every_attempt_sends_the_same_bytes(device, server, pauses, quick):
    client = device()
    client.report("car")
    server.answers = [503] * 5
    with pytest.raises(UnreachableError):
        client.send(server.url, patience=quick, wait=pauses)
    assert client.state is State.PENDING
    server.answers = [lambda handler: setattr(handler, "close_connection", True), 429]
    assert device().send(server.url, patience=quick, wait=pauses) is State.DELIVERED
    assert len(server.bodies) == 5 + 3
    assert len(set(server.bodies)) == 1


@pytest.mark.parametrize(
    ("status", "name", "state"),
    [(410, "closed", State.CLOSED), (409, "conflict", State.REFUSED), (422, "malformed", State.REFUSED)],
)
def test_the_end(status, name, state, device, server):
    client = device()
    client.report("car")
    server.answers = [server.problem(status, name, "the reason")]
    with pytest.raises(RefusedError, match="the reason"):
        client.send(server.url)
    again = device()
    assert again.state is state
    assert "the reason" in again.note
    assert again.send(server.url) is state
    assert len(server.bodies) == 1
    with pytest.raises(PolicyError, match=rf"{SECOND} \({state.value}\)"):
        again.report("car")
    with pytest.raises(DataError):
        stored(again)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_may_yet_be_mended(status, device, server):
    client = device()
    client.report("car")
    server.answers = [server.problem(status, "token-missing")]
    with pytest.raises(RefusedError):
        client.send(server.url)
    assert device().send(server.url, token="0123456789abcdef") is State.DELIVERED
    assert len(set(server.bodies)) == 1
    assert server.headers[1]["Authorization"] == "Bearer 0123456789abcdef"


def test_closed_after_an_answer_got_lost(device, server, pauses, quick):
    """The report may have been counted: it is not drawn again."""
    client = device()
    client.report("car")
    server.answers = [lambda handler: setattr(handler, "close_connection", True), server.problem(410, "closed")]
    with pytest.raises(RefusedError):
        client.send(server.url, patience=quick, wait=pauses)
    with pytest.raises(PolicyError, match=SECOND):
        device().report("car")


def test_times(device, task):
    client = device()
    for moment in (task.opens - timedelta(seconds=1), task.closes, task.closes + timedelta(days=1)):
        with pytest.raises(PolicyError, match="The round is open from"):
            client.report("bus", now=moment)
    assert client.state is State.NONE
    client.report("bus", now=task.opens)


@pytest.mark.parametrize("value", ["plane", "", 0, 3, -1, 1.0, None, True, ["bus"], b"bus", float("nan")])
def test_values_outside_the_domain(value, device):
    client = device()
    with pytest.raises(DomainError):
        client.report(value)
    assert client.state is State.NONE
    client.report(np.str_("train"))


def test_values_of_other_questions(parties):
    count, total = parties.task("count/cheu"), parties.task("sum/cheu", epsilon=2.0, delta=1e-5)
    numbered = parties.task("histogram/k-rr")
    numbered = dataclasses.replace(numbered, protocol=dataclasses.replace(numbered.protocol, categories=None))
    for task, good, bad in [
        (count, (0, 1, True, False), (2, -1, 0.5, "yes", None)),
        (total, (-1, 4.0, np.float32(0.5)), (4.01, -1.01, float("nan"), float("inf"), "1", None)),
        (numbered, ("0", "3", 0, 3, " 1", np.int64(2), 3.0), ("4", "03", "-1", "bus", "\uff11", 4, 1e3, 0.5, True)),
    ]:
        for value in good:
            assert len(sealed_report(task, value)) == ReportFormat.of(task).size
        for value in bad:
            with pytest.raises(DomainError):
                sealed_report(task, value)


def test_a_huge_domain_is_not_listed(parties):
    """A device must not list 10^9 names to find one."""
    import shuffledp as sdp

    protocol = sdp.find("histogram", "k-rr").calibrate(users=1000, domain_size=10**9, epsilon=1, delta=1e-6)
    task = parties.around(protocol, 1)
    started = time.process_time()
    sealed_report(task, "999999999")
    with pytest.raises(DomainError):
        sealed_report(task, "1000000000")
    assert time.process_time() - started < 2  # to list them would take minutes


def test_reports_differ(task):
    """Ids, keys and noise are fresh every time."""
    reports = [sealed_report(task, "bus") for _ in range(50)]
    form = ReportFormat.of(task)
    assert len({form.report_id(each) for each in reports}) == 50
    assert len({bytes(form.records(each))[:32] for each in reports}) == 50


def test_the_raw_value_is_not_stored(parties, tmp_path):
    """Sealed bytes are random; a name this long does not turn up in them by chance."""
    import shuffledp as sdp
    from shuffledp.collection.task.task import Task

    names = ["a-very-telling-answer", "another-telling-answer"]
    task = Task.create(
        kind=sdp.find("histogram", "balcer-cheu"),
        settings={"users": 1000, "domain_size": 2, "categories": sdp.Categories.of(names)},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=2000,
        **parties.rest(),
    )
    client = Client(task.signed(parties.author).to_bytes(), author=parties.author.public, state=tmp_path / "device")
    client.report(names[0])
    kept = b"".join(each.name.encode() + each.read_bytes() for each in (tmp_path / "device").iterdir())
    assert names[0].encode() not in kept


def test_a_damaged_report_is_not_sent(device, server, tmp_path, task):
    client = device()
    client.report("bus")
    path = tmp_path / "device" / f"{task.id.hex()}.report"
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", b"X" + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="is damaged"):
            client.send(server.url)
    assert (server.bodies, client.state) == ([], State.PENDING)


def test_tasks_it_must_not_answer(parties, content, tmp_path):
    stranger = SigningKey.create()
    for bad, author in [(content, stranger.public), (content[:-1], parties.author.public), (b"", stranger.public)]:
        with pytest.raises(ParameterError):
            Client(bad, author=author, state=tmp_path / "device")
    assert not (tmp_path / "device").exists()


def test_a_key_that_anybody_could_open(parties, tmp_path):
    """It is refused before anything is randomized, let alone sealed."""
    envelope = json.loads(parties.task().signed(parties.author).to_bytes())
    for weak in (bytes(32), (1).to_bytes(32, "little")):
        key = VerifyingKey(weak)  # which may be anything; a sealing key of these bytes cannot be made
        identifier = hashlib.sha256(b"shuffledp sealing key\n" + weak).hexdigest()[:16]
        envelope["task"]["analyzer"] = key.to_document() | {"kind": "sealing", "id": identifier}
        signature = parties.author.sign(b"shuffledp task v1\n" + canonical(envelope["task"]))
        content = canonical({**envelope, "signature": to_base64(signature)})
        with pytest.raises(ParameterError, match="low order"):
            Client(content, author=parties.author.public, state=tmp_path / "d")


def test_tasks_do_not_get_in_each_others_way(parties, tmp_path, server):
    clients = [
        Client(
            parties.task(name=name).signed(parties.author).to_bytes(),
            author=parties.author.public,
            state=tmp_path / "d",
        )
        for name in ("one", "two")
    ]
    for client in clients:
        client.report("bus")
    assert clients[0].send(server.url) is State.DELIVERED
    assert clients[1].state is State.PENDING


def test_a_folder_that_cannot_be_written(device, tmp_path, monkeypatch):
    client = device()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OutputError, match="No space left"):
            client.report("bus")
    assert client.state is State.NONE
    client.report("bus")


def test_threads_report_once(device, server):
    client = device()
    outcomes: list = []

    def work():
        try:
            device().report("bus")
            outcomes.append("reported")
        except PolicyError:
            outcomes.append("refused")
        device().send(server.url)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["reported"]
    assert len(server.bodies) == 1
    assert client.state is State.DELIVERED


def test_reporting_does_not_wait_for_a_slow_delivery(device, server):
    client = device()
    client.report("bus")
    inside, end = threading.Event(), threading.Event()

    def slow(handler):
        inside.set()
        end.wait(10)
        handler.answer(201)

    server.answers = [slow]
    sending = threading.Thread(target=client.send, args=(server.url,))
    sending.start()
    assert inside.wait(10)
    with pytest.raises(PolicyError, match=rf"{SECOND} \(pending\)"):
        device().report("car")
    end.set()
    sending.join()
    assert device().state is State.DELIVERED


DEVICE = """
import sys
from pathlib import Path
from shuffledp.collection import Client, Patience, VerifyingKey
folder, url = Path(sys.argv[1]), sys.argv[2]
author = VerifyingKey.load(folder / "author.pub")
client = Client((folder / "task.json").read_bytes(), author=author, state=folder / "d")
print("ready", flush=True)
sys.stdin.readline()
try:
    client.report("bus")
    print("reported")
except Exception as error:
    assert "already" in str(error)
    print("refused")
client.send(url, patience=Patience(attempts=50, first_pause=0.001, longest_pause=0.002))
"""


@pytest.fixture
def start_process(content, parties, server, tmp_path):
    """The device as a process that is ready to report."""
    (tmp_path / "task.json").write_bytes(content)
    parties.author.public.save(tmp_path / "author.pub")

    def start() -> subprocess.Popen:
        command = [sys.executable, "-c", DEVICE, str(tmp_path), server.url]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def test_processes_report_once(start_process, server):
    processes = [start_process() for _ in range(3)]
    for each in processes:
        each.stdin.write("\n")
        each.stdin.flush()
    outcomes = [each.communicate(timeout=60)[0] for each in processes]
    assert sorted(outcomes) == ["refused\n"] * 2 + ["reported\n"]
    assert len(server.bodies) == 1


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(start_process, server, tmp_path, kills):
    """kill -9 while it draws, stores, sends and tidies: whatever leaves the device is one and the same report."""
    server.answers = [503] * 100_000  # never delivered while processes are killed
    random = np.random.default_rng()
    for _ in range(kills):
        process = start_process()
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(float(random.uniform(0.0, 0.06)))
        process.kill()
        process.communicate()
    with server.lock:
        server.answers = []
    process = start_process()
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert len(server.bodies) >= 1
    assert len(set(server.bodies)) == 1
    files = {each.name: each.suffix for each in (tmp_path / "d").iterdir()}
    assert files.pop("budget") == ""  # it was charged at least once; again if it was killed before it stored a report
    assert set(files.values()) == {".lock", ".delivered"}


def test_the_clock_is_the_devices(parties, tmp_path):
    now = datetime.now(UTC).replace(microsecond=0)
    later = parties.task(opens=now + timedelta(hours=1), closes=now + timedelta(hours=2))
    client = Client(later.signed(parties.author).to_bytes(), author=parties.author.public, state=tmp_path / "d")
    with pytest.raises(PolicyError, match="open from"):
        client.report("bus")
    assert Policy() == Policy(max_epsilon=1.0)
    assert Patience().attempts == 12


def test_a_privacy_pass_token_is_for_the_stored_report(device, server, parties, task):
    issuer = Issuer()
    client = device()
    with pytest.raises(PolicyError, match="There is no report to send"):
        client.token_input(issuer.public)
    client.report("bike")
    token = issuer.token(client.token_input(issuer.public))
    assert client.send(server.url, token=token) is State.DELIVERED
    sent = parse_header(server.headers[0]["Authorization"].encode())
    assert sent == token
    assert issuer.public.verify(sent, task.id, server.bodies[0])
    with pytest.raises(PolicyError, match="delivered"):
        client.token_input(issuer.public)
