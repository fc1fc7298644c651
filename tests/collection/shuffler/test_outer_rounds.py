"""Rounds of wire version 2: outer seals that open while mixing, round keys, and versions side by side."""

import json
import os
import re
import secrets
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shuffledp.collection.server.operator import ask_server
from shuffledp.collection.server.round_keys import KeylessError, RoundKeyDirectory
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.collection.wire.formats import HEADER_SIZE, Manifest
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.errors import DataError, RefusedError


@pytest.fixture
def keys(place):
    directory = place.folder / "round-keys"
    directory.mkdir(mode=0o700)
    return directory


def save(key, keys):
    key.save(keys / f"{key.public.id}.key")
    return key


@pytest.fixture
def round_key(keys):
    return save(SealingKey.create(), keys)


def sealed_reports(form, count):
    """Reports, and the messages in each."""
    messages = [[secrets.token_bytes(form.sealed_size) for _ in range(form.messages)] for _ in range(count)]
    return [form.build(secrets.token_bytes(16), each) for each in messages], messages


def garbage(form):
    """A report of the right form that was sealed to nobody."""
    report, _ = sealed_reports(form, 1)
    return report[0][:HEADER_SIZE] + os.urandom(form.size - HEADER_SIZE)


def state(here, form):
    return here.shuffler.store.state(form.task_id)


def test_both_versions_side_by_side(place, serve, keys, round_key, until):
    """Each under its own paths; unopenable reports are counted and left out, and the key is destroyed."""
    first, second = place.task(maximum=10), place.task(maximum=10, round_key=round_key)
    here = serve(round_keys=keys)
    old = [place.report(first) for _ in range(10)]
    reports, messages = sealed_reports(second, 8)
    assert second.size == first.size + 48
    for form, other in ((first, "v2"), (second, "v1")):
        name = form.task_id.hex()
        assert here.get(f"/v{form.version}/tasks/{name}").status_code == 200
        assert here.get(f"/{other}/tasks/{name}").status_code == 404
        assert here.request("POST", f"/{other}/tasks/{name}/reports", b"").status_code == 404
    assert here.post(second, place.report(first)).status_code == 422
    for form, bodies in ((first, old), (second, [*reports, garbage(second), garbage(second)])):
        assert {here.post(form, body).status_code for body in bodies} == {201}
    until(lambda: state(here, first) is state(here, second) is RoundState.DELIVERED and not place.files())
    name = second.task_id.hex()
    manifest = Manifest.verified(place.analyzer.manifests[name], place.key.public, 2)
    assert (manifest.reports, manifest.counts.unopenable) == (8, 2)
    assert Counter(place.analyzer.messages(name)) == Counter(message for each in messages for message in each)
    assert Counter(place.analyzer.messages(first.task_id.hex())) == Counter(place.messages_of(first, old))
    assert list(keys.glob("*.key")) == []


def test_reports_that_do_not_open_do_not_count_for_the_minimum(place, serve, keys, round_key, until):
    form = place.task(users=5, maximum=8, round_key=round_key)
    here = serve(round_keys=keys)
    reports, _ = sealed_reports(form, 4)
    assert {here.post(form, each).status_code for each in [*reports, *(garbage(form) for _ in range(4))]} == {201}
    until(lambda: state(here, form) is RoundState.DESTROYED and not place.files())
    until(lambda: not list(keys.glob("*.key")))
    assert place.analyzer.requests == []


def test_the_key_of_a_cancelled_round_is_destroyed(place, serve, keys, round_key, until):
    form = place.task(round_key=round_key)
    here = serve(round_keys=keys)
    assert here.post(form, sealed_reports(form, 1)[0][0]).status_code == 201
    here.shuffler.operator.cancel(form.task_id.hex())
    until(lambda: not list(keys.glob("*.key")))


def test_a_round_without_its_key_is_not_opened(place, serve, keys, until):
    """Devices get 404, the operator one line; once the key is there, the round opens."""
    key = SealingKey.create()
    form = place.task(round_key=key)
    here = serve(round_keys=keys)
    report = sealed_reports(form, 1)[0][0]
    assert here.post(form, report).status_code == 404
    save(key, keys)
    until(lambda: here.post(form, report).status_code in (200, 201))


def test_two_rounds_cannot_share_a_key(place, serve, keys, round_key, capfd):
    """The first to end would destroy it."""
    first = place.task(round_key=round_key, file="b.json")
    serve(round_keys=keys).close()
    second = place.task(round_key=round_key, file="a.json")  # read first after a restart
    here = serve(round_keys=keys)
    assert here.post(first, sealed_reports(first, 1)[0][0]).status_code == 201
    assert here.post(second, sealed_reports(second, 1)[0][0]).status_code == 404
    refused = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "task-refused" in line]
    assert not refused or "belongs to another round" in refused[-1]["reason"]


@pytest.mark.parametrize(("own", "reason"), [(True, "belongs to another round"), (False, "is missing")])
def test_the_operator_is_told_why_a_task_is_refused(place, serve, keys, round_key, until, own, reason):
    """At once, and no copy of the task is kept; afterwards it is accepted if the reason is gone."""
    first, other = place.task(round_key=round_key, file="a.json"), SealingKey.create()
    here = serve(round_keys=keys)
    until(lambda: here.get(f"/v2/tasks/{first.task_id.hex()}").status_code == 200)
    second = place.task(round_key=round_key if own else other, file="b.txt")
    content, documents = (place.folder / "tasks" / "b.txt").read_bytes(), place.folder / "work" / "documents"
    until(lambda: here.shuffler.scheduler.get(first.task_id) is not None)  # the first tick is over
    with pytest.raises(RefusedError, match=reason):
        ask_server(place.folder / "work", "PUT", "/operator/v1/tasks", content)
    assert not list(documents.glob("*.json"))
    if not own:
        save(other, keys)
        assert ask_server(place.folder / "work", "PUT", "/operator/v1/tasks", content)["kind"] == "task"
        until(lambda: here.get(f"/v2/tasks/{second.task_id.hex()}").status_code == 200)


def test_a_key_is_missing_while_the_round_collects(place, serve, keys, round_key, until):
    form = place.task(users=5, maximum=6, round_key=round_key)
    here = serve(round_keys=keys)
    name = f"{round_key.public.id}.key"
    (keys / name).rename(place.folder / name)

    def alerts():
        return [alert["message"] for alert in here.shuffler.operator.overview(True)["alerts"]]

    until(lambda: any("is missing; without it the round is lost" in alert for alert in alerts()))
    reports, messages = sealed_reports(form, 6)
    assert {here.post(form, each).status_code for each in reports} == {201}
    until(lambda: any("put " in alert and "or cancel the round" in alert for alert in alerts()))
    assert (state(here, form), here.shuffler.store.count(form.task_id)) == (RoundState.CLOSED, 6)
    assert not here.shuffler.scheduler.failing  # other rounds go on
    (place.folder / name).rename(keys / name)
    until(lambda: state(here, form) is RoundState.DELIVERED)
    found = Counter(place.analyzer.messages(form.task_id.hex()))
    assert found == Counter(message for each in messages for message in each)


def test_directories_of_keys(tmp_path):
    """Missing, damaged, swapped and open keys: one line each, and nothing is opened with them."""
    key, other = SealingKey.create(), SealingKey.create()
    directory = RoundKeyDirectory(tmp_path)
    with pytest.raises(KeylessError, match="set round_keys"):
        RoundKeyDirectory().load(key.public)
    with pytest.raises(KeylessError, match="is missing: put"):
        directory.load(key.public)
    file = tmp_path / f"{key.public.id}.key"
    other.save(file)
    with pytest.raises(KeylessError, match="not the round key"):
        directory.load(key.public)
    file.unlink()
    key.save(file)
    file.chmod(0o644)
    with pytest.raises(KeylessError, match="needs mode 0600"):
        directory.load(key.public)
    file.chmod(0o600)
    assert directory.load(key.public) == key
    copy = tmp_path / "link"
    os.link(file, copy)
    directory.destroy(key.public)
    directory.destroy(key.public)
    assert not file.exists()
    assert set(copy.read_bytes()) == {0}  # overwritten, not only unlinked
    with pytest.raises(DataError):
        SealingKey.load(copy)


def moments(place, **offsets):
    now = datetime.now(UTC).replace(microsecond=0)
    return {name: now + timedelta(seconds=offset) for name, offset in offsets.items()}


def alerts(here):
    return [alert["message"] for alert in here.shuffler.operator.overview(True)["alerts"]]


def test_keys_that_expire_before_the_round_ends_open_no_round(place, serve, keys, until):
    """Both are refused before anybody reports; a key that lives long enough is taken."""
    soon, later = moments(place, soon=600, later=7200).values()
    short, long = (save(replace(SealingKey.create(), expires=when), keys) for when in (soon, later))
    first, second = place.task(round_key=short), place.task(round_key=long)
    here = serve(round_keys=keys)
    assert here.post(first, sealed_reports(first, 1)[0][0]).status_code == 404
    assert here.post(second, sealed_reports(second, 1)[0][0]).status_code == 201
    here.close()
    (place.folder / "shuffler.key").unlink()
    replace(place.key, expires=soon).save(place.folder / "shuffler.key")
    third = place.task(round_key=save(SealingKey.create(), keys))
    here = serve(round_keys=keys)
    assert here.post(third, sealed_reports(third, 1)[0][0]).status_code == 404
    assert here.post(second, sealed_reports(second, 1)[0][0]).status_code == 201  # open already: nothing is lost
    assert any("expires at" in alert for alert in alerts(here))


def test_authors_keys_that_expire_are_announced_until_a_rotation(place, serve, keys, until):
    public, now = place.author.public, datetime.now(UTC).replace(microsecond=0)

    def told(here):
        return [alert for alert in alerts(here) if public.id in alert]

    for days, words in ((31, []), (-1, ["expired at"]), (29, ["expires at"])):
        (place.folder / "author.pub").unlink()
        replace(public, expires=now + timedelta(days=days)).save(place.folder / "author.pub")
        here = serve(round_keys=keys)
        assert [re.search("expire[sd] at", alert)[0] for alert in told(here)] == words
        if days != 29:
            here.close()
    (place.folder / "tasks" / "rotation.json").write_bytes(sign_rotation(place.author, SigningKey.create()))
    until(lambda: not told(here))


def test_a_round_key_that_expired_opens_nothing_and_nothing_is_lost(place, serve, keys, until):
    """The clock passes the expiry before the round is mixed; with a later time in the file the round goes on."""
    (expires,) = moments(place, expires=3700).values()
    key = save(replace(SealingKey.create(), expires=expires), keys)
    form = place.task(users=5, maximum=100, closes=3600, round_key=key)
    offset = [0.0]
    here = serve(round_keys=keys, clock=lambda: time.time() + offset[0])
    reports, _ = sealed_reports(form, 6)
    assert {here.post(form, each).status_code for each in reports} == {201}
    offset[0] = 7200.0
    until(lambda: any("expired at" in alert and "Nothing was deleted" in alert for alert in alerts(here)))
    assert (state(here, form), here.shuffler.store.count(form.task_id)) == (RoundState.CLOSED, 6)
    assert not here.shuffler.scheduler.failing
    (file,) = keys.glob("*.key")
    file.unlink()
    save(replace(key, expires=expires + timedelta(days=1)), keys)
    until(lambda: state(here, form) is RoundState.DELIVERED)


def test_a_clock_that_jumps_does_not_expire_a_key(place, serve, keys, until):
    """The clock of rounds ignores a jump; the planted fault is the system clock itself."""
    (expires,) = moments(place, expires=7200).values()
    key = save(replace(SealingKey.create(), expires=expires), keys)
    form = place.task(users=5, maximum=6, round_key=key)
    offset = [0.0]
    clock = RoundClock(wall=lambda: time.time() + offset[0])
    here = serve(round_keys=keys, clock=clock)
    offset[0] = 365 * 86_400.0
    with pytest.raises(KeylessError, match="expired"):
        RoundKeyDirectory(keys, clock=lambda: time.time() + offset[0]).load(key.public)
    assert {here.post(form, each).status_code for each in sealed_reports(form, 6)[0]} == {201}
    until(lambda: state(here, form) is RoundState.DELIVERED)


def test_a_rotation_in_the_directory_of_tasks(place, serve, until):
    """Tasks of the new key are served without a restart, also if they were read first; a stranger's are not."""
    new, stranger = SigningKey.create(), SigningKey.create()
    first, foreign = place.task(author=new, file="a.json"), place.task(author=stranger, file="b.json")
    here = serve()
    assert here.post(first, place.report(first)).status_code == 404
    (place.folder / "tasks" / "r.new").write_bytes(sign_rotation(place.author, new))
    (place.folder / "tasks" / "r.new").rename(place.folder / "tasks" / "r.json")
    until(lambda: here.post(first, place.report(first)).status_code == 201)
    assert here.post(foreign, place.report(foreign)).status_code == 404
    here.close()
    here = serve()
    assert here.post(first, place.report(first)).status_code == 201
    (refused,) = here.shuffler.tasks.refused
    assert "b.json" in str(refused)
