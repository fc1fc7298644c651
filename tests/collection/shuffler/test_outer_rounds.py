"""Rounds of wire version 2: outer seals that open while mixing, round keys, and versions side by side."""

import json
import os
import secrets
from collections import Counter

import pytest

from shuffledp.collection.shuffler.round_keys import KeylessError, RoundKeyDirectory
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.wire.formats import HEADER_SIZE, Manifest
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.errors import DataError


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
    assert list(keys.iterdir()) == []


def test_reports_that_do_not_open_do_not_count_for_the_minimum(place, serve, keys, round_key, until):
    form = place.task(users=5, maximum=8, round_key=round_key)
    here = serve(round_keys=keys)
    reports, _ = sealed_reports(form, 4)
    assert {here.post(form, each).status_code for each in [*reports, *(garbage(form) for _ in range(4))]} == {201}
    until(lambda: state(here, form) is RoundState.DESTROYED and not place.files())
    until(lambda: not list(keys.iterdir()))
    assert place.analyzer.requests == []


def test_the_key_of_a_cancelled_round_is_destroyed(place, serve, keys, round_key, until):
    form = place.task(round_key=round_key)
    here = serve(round_keys=keys)
    assert here.post(form, sealed_reports(form, 1)[0][0]).status_code == 201
    here.shuffler.operator.cancel(form.task_id.hex())
    until(lambda: not list(keys.iterdir()))


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
