"""Traps: stored before they are sent, recognized in a batch, and an alarm exactly if one of them is missing."""

import random
import secrets
from collections import Counter
from contextlib import suppress

import pytest

import shuffledp as sdp
from shuffledp.collection.shuffler import shuffling
from shuffledp.collection.shuffler import traps as traps_module
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.traps import TrapDirectory, TrapMissingError, TrapWatch
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat, digest
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.layers import LayerOpener
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.errors import RefusedError, UnreachableError

SIZE, TRAPS, ROUNDS, REPORTS = 40, 32, 1000, 200


def watched(per_report=1, **changes):
    """A round of reports, 32 of them traps, and what watches for these."""
    reports = [[secrets.token_bytes(SIZE) for _ in range(per_report)] for _ in range(REPORTS)]
    traps = {digest(message): number for number, report in enumerate(reports[:TRAPS]) for message in report}
    return reports, TrapWatch(
        **{"traps": traps, "accepted": frozenset(range(TRAPS)), "per_report": per_report} | changes
    )


def passes(reports, watch):
    random.shuffle(reports)
    content = b"".join(message for report in reports for message in report)
    try:
        watch.without_traps(content, SIZE)
        watch.check()
    except TrapMissingError:
        return False
    return True


def passed_rounds(removed, rounds=ROUNDS, **changes):
    """How many of many rounds pass if this number of reports is removed at random."""
    passed = 0
    for _ in range(rounds):
        reports, watch = watched(**changes)
        passed += passes(random.sample(reports, REPORTS - removed), watch)
    return passed


def test_half_of_the_reports_removed_is_always_seen():
    """None of 1,000 rounds passes, by chance with a probability below 1e-6; all pass with nothing removed.

    A shuffler that does not remember that its traps were accepted (planted) lets them all pass.
    """
    assert passed_rounds(REPORTS // 2) == 0
    assert passed_rounds(0, rounds=200) == 200
    assert passed_rounds(REPORTS // 2, rounds=20, accepted=frozenset()) == 20


def test_a_tenth_is_seen_as_often_as_computed():
    """With 32 of 200 reports, the chance that none of 20 removed ones is a trap: within 6 standard deviations."""
    chance = 1.0
    for removed in range(20):
        chance *= (REPORTS - TRAPS - removed) / (REPORTS - removed)
    passed = passed_rounds(20)
    assert abs(passed - ROUNDS * chance) < 6 * (ROUNDS * chance) ** 0.5 + 1


def test_traps_are_left_out():
    reports, watch = watched(per_report=3)
    content = b"".join(message for report in reports for message in report)
    kept = watch.without_traps(content, SIZE)
    assert kept == b"".join(message for report in reports[TRAPS:] for message in report)
    assert watch.check() == TRAPS


def test_one_message_of_a_trap_is_missing():
    reports, watch = watched(per_report=3)
    reports[5] = reports[5][:2]
    with pytest.raises(TrapMissingError, match="1 of 32 traps"):
        assert passes(reports, watch) or watch.check()


@pytest.fixture
def chain(parties):
    """A task of three shufflers with traps, and their round keys."""
    keys = [SealingKey.create() for _ in range(3)]
    signing = [SigningKey.create() for _ in range(3)]
    shufflers = tuple(ShufflerKeys(sign.public, key.public) for sign, key in zip(signing, keys, strict=True))
    task = Task.create(
        kind=sdp.find("histogram", "uniform-blanket"),
        settings={"users": 20, "domain_size": 4},
        epsilon=2.0,
        delta=0.1,
        maximum_users=100,
        **parties.rest(shuffler=signing[-1].public, wire=WireVersion2(shufflers, traps=4)),
    )
    return task, keys


@pytest.mark.parametrize("hop", [1, 2])
def test_traps_pass_the_shufflers_before_like_any_report(chain, parties, tmp_path, hop):
    """They have the size and the layers of all reports; the shuffler that made them recognizes the messages."""
    task, keys = chain
    traps = TrapDirectory(tmp_path)
    traps.prepare(task, hop)
    form = ReportFormat.of(task)
    watch = traps.watch(task)
    assert (len(watch.traps), watch.accepted) == (4 * task.messages_per_report, frozenset())
    for file in (tmp_path / task.id.hex()).glob("*.report"):
        report = file.read_bytes()
        form.report_id(report)
        content = ReportOpener(keys[0], header_size=HEADER_SIZE, report_size=form.size).open(report)
        for index in range(1, hop + 1):
            size = task.record_size(index - 1)
            opener = LayerOpener(keys[index], index, task.id, size)
            content = b"".join(opener.open(content[at : at + size]) for at in range(0, len(content), size))
        assert watch.without_traps(content, task.record_size(hop)) == b""
        if hop == 2:
            sealed = [content[at : at + task.sealed_size] for at in range(0, len(content), task.sealed_size)]
            opened = Opener(parties.analyzer, task.id, task.message_size, 2).open(sealed)
            assert (opened.messages, opened.dummies) == ([], task.messages_per_report)
    assert watch.check() == 4
    assert Counter(watch.found.values()) == {task.messages_per_report: 4}


def test_traps_are_made_once_and_kept(chain, tmp_path):
    task, _ = chain
    traps = TrapDirectory(tmp_path)
    traps.prepare(task, 1)
    before = traps.watch(task).traps
    TrapDirectory(tmp_path).prepare(task, 1)
    assert TrapDirectory(tmp_path).watch(task).traps == before
    traps.delete(task.id)
    assert list(tmp_path.iterdir()) == []


def test_a_trap_that_is_refused_does_not_keep_the_others_back(chain, tmp_path, monkeypatch):
    """Neither for now, as without a token, nor for good; and the shuffler says how many were accepted."""
    task, _ = chain
    traps = TrapDirectory(tmp_path, first_shuffler="http://127.0.0.1:9")
    traps.prepare(task, 1)
    refused = {(tmp_path / task.id.hex() / f"{n}.report").read_bytes(): final for n, final in ((0, False), (2, True))}

    def deliver(connection, path, report, **options):
        if report in refused:
            raise RefusedError("no", final=refused[report])

    monkeypatch.setattr(traps_module, "deliver", deliver)
    with pytest.raises(RefusedError):
        traps.send_due(task, task.closes.timestamp())
    assert traps.watch(task).accepted == {1, 3}
    logged = []
    monkeypatch.setattr(shuffling, "event", lambda name, **fields: logged.append((name, fields["accepted"])))
    RoundShuffler._note_traps(task, traps)
    assert logged == [("traps-not-accepted", 2)]
    refused.clear()
    traps.send_due(task, task.closes.timestamp())
    assert traps.watch(task).accepted == {0, 1, 3}  # one was refused for good


def test_a_refusal_after_an_attempt_without_an_answer_is_no_definite_one(chain, tmp_path, monkeypatch):
    """The process is killed, or the connection lost, and the round closed meanwhile: the trap may be accepted."""
    task, _ = chain
    traps = TrapDirectory(tmp_path, first_shuffler="http://127.0.0.1:9")
    traps.prepare(task, 1)
    first, second, third, fourth = ((tmp_path / task.id.hex() / f"{n}.report").read_bytes() for n in range(4))
    answers = {
        first: [KeyboardInterrupt(), RefusedError("closed", final=True)],
        second: [RefusedError("closed", final=True)],
        third: [RefusedError("no token", final=False), RefusedError("closed", final=True)],
        fourth: [UnreachableError("lost"), None],
    }

    def deliver(connection, path, report, **options):
        answer = answers[report].pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(traps_module, "deliver", deliver)
    for _ in range(10):
        with suppress(KeyboardInterrupt, RefusedError, UnreachableError):
            TrapDirectory(tmp_path, first_shuffler="http://127.0.0.1:9").send_due(task, task.closes.timestamp())
    assert not any(answers.values())
    watch = traps.watch(task)
    assert (watch.accepted, watch.unknown) == ({3}, {0})
    logged = []
    monkeypatch.setattr(
        shuffling, "event", lambda name, **fields: logged.append((fields["accepted"], fields["unknown"]))
    )
    RoundShuffler._note_traps(task, traps)
    assert logged == [(1, 1)]


def test_moments_are_spread_over_the_round(chain, tmp_path, monkeypatch):
    task, _ = chain
    traps = TrapDirectory(tmp_path, first_shuffler="http://127.0.0.1:9")
    traps.prepare(task, 1)
    due = sorted(document["due"] for document in traps._documents(task.id).values())
    assert task.opens.timestamp() <= due[0] < due[-1] <= task.closes.timestamp()
    traps.send_due(task, due[0] - 1)  # nothing is due
    with pytest.raises(UnreachableError):
        traps.send_due(task, due[-1] + 1)
    assert traps.watch(task).accepted == frozenset()
    sent = []
    monkeypatch.setattr(traps_module, "deliver", lambda *arguments, **options: sent.append(arguments[2]))
    traps.send_due(task, due[-1] + 1)
    traps.send_due(task, due[-1] + 1)
    assert len(sent) == len(set(sent)) == 4
    assert traps.watch(task).accepted == frozenset(range(4))
