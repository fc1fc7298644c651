"""Rounds with carriers at the shuffler: two lengths of reports and no third, and the minimum number of carriers."""

import logging
import os
import secrets
from collections import Counter

import pytest

from shuffledp.collection.server.logs import event
from shuffledp.collection.shuffler import shuffling
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.wire.formats import HEADER_SIZE, Manifest
from shuffledp.collection.wire.keys import SealingKey

USERS, MAXIMUM = 12, 16


@pytest.fixture
def keys(place):
    directory = place.folder / "round-keys"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def form(place, keys):
    key = SealingKey.create()
    key.save(keys / f"{key.public.id}.key")
    return place.task(users=USERS, maximum=MAXIMUM, size=2, round_key=key, carriers=0.75)


def sealed(form, messages):
    """A report of so many random messages, and these."""
    contents = [secrets.token_bytes(form.sealed_size) for _ in range(messages)]
    return form.build(secrets.token_bytes(16), contents), contents


def state(here, form):
    return here.shuffler.store.state(form.task_id)


def minimum_of(here):
    (served,) = here.shuffler.tasks
    return served.task.carriers.minimum


@pytest.fixture
def logged(monkeypatch):
    """What is logged about shuffling, by the name of the event."""
    found = {}

    def record(name, *, level=logging.INFO, **fields):
        found[name] = fields | {"level": level}
        event(name, level=level, **fields)

    monkeypatch.setattr(shuffling, "event", record)
    return found


def test_two_lengths_and_no_third(place, serve, keys, form):
    """Between them, shorter, longer: refused in one line; of the right length is the header checked as ever."""
    here = serve(round_keys=keys)
    assert form.carrier_size - form.size == (form.carrier_messages - 1) * form.sealed_size
    short, long = sealed(form, 1)[0], sealed(form, form.carrier_messages)[0]
    for wrong in (short[:-1], short + b"x", long[:-1], short + bytes(form.sealed_size), long[: -form.sealed_size]):
        answer = here.post(form, wrong)
        assert answer.status_code == 422
        assert f"{form.size:,} or {form.carrier_size:,} bytes" in answer.json()["detail"]
    assert here.post(form, long + b"x").status_code == 413
    assert here.post(form, b"X" + long[1:]).status_code == 422
    assert here.post(form, short[:5] + bytes(32) + short[37:]).status_code == 422
    assert {here.post(form, report).status_code for report in (short, long)} == {201}
    assert {here.post(form, report).status_code for report in (short, long)} == {200}
    changed = short[:HEADER_SIZE] + long[HEADER_SIZE:]  # the same id with the other length
    assert here.post(form, changed).status_code == 409


def test_carriers_are_counted_and_everything_is_mixed(place, serve, keys, form, until, logged):
    """Those that do not open are left out, whatever their length."""
    here = serve(round_keys=keys)
    minimum = minimum_of(here)
    carriers = minimum + 1
    reports = [sealed(form, form.carrier_messages) for _ in range(carriers)]
    reports += [sealed(form, 1) for _ in range(MAXIMUM - carriers - 2)]
    garbage = [each[:HEADER_SIZE] + os.urandom(len(each) - HEADER_SIZE) for each, _ in (reports[0], reports[-1])]
    garbage = [each[:37] + secrets.token_bytes(16) + each[HEADER_SIZE:] for each in garbage]
    for report in [*(report for report, _ in reports), *garbage]:
        assert here.post(form, report).status_code == 201
    until(lambda: state(here, form) is RoundState.DELIVERED and not place.files())
    name = form.task_id.hex()
    manifest = Manifest.verified(place.analyzer.manifests[name], place.key.public, 2)
    assert (manifest.reports, manifest.carriers, manifest.counts.unopenable) == (MAXIMUM - 2, carriers, 2)
    assert manifest.messages == MAXIMUM - 2 + carriers * (form.carrier_messages - 1)
    assert Counter(place.analyzer.messages(name)) == Counter(message for _, each in reports for message in each)
    assert logged["shuffled"]["carriers"] == carriers
    until(lambda: f"shuffledp_shuffler_carriers_total {carriers}.0" in here.get("/metrics").text)
    assert not list(keys.glob("*.key"))


def fill(here, form, carriers):
    for number in range(MAXIMUM):
        report, _ = sealed(form, form.carrier_messages if number < carriers else 1)
        assert here.post(form, report).status_code == 201


def test_a_round_with_too_few_carriers_is_destroyed(place, serve, keys, form, until, logged):
    here = serve(round_keys=keys)
    minimum = minimum_of(here)
    assert 1 < minimum < USERS
    fill(here, form, minimum - 1)
    until(lambda: state(here, form) is RoundState.DESTROYED and not place.files())
    until(lambda: not list(keys.glob("*.key")))
    assert place.analyzer.requests == []
    few = {"task": form.task_id.hex(), "carriers": minimum - 1, "minimum": minimum, "level": logging.ERROR}
    assert logged["too-few-carriers"] == few
    assert "destroyed" in logged


def test_reports_of_carriers_that_do_not_open_do_not_count(place, serve, keys, form, until):
    here = serve(round_keys=keys)
    minimum = minimum_of(here)
    for number in range(MAXIMUM):
        report, _ = sealed(form, form.carrier_messages if number < minimum else 1)
        report = report[:-1] + bytes([report[-1] ^ 1]) if number == 0 else report
        assert here.post(form, report).status_code == 201
    until(lambda: state(here, form) is RoundState.DESTROYED)
    assert place.analyzer.requests == []


def test_a_shuffler_without_the_minimum_is_seen(place, serve, keys, form, until, monkeypatch):
    """The planted fault: it does not look, and the manifest that it signs is one that no analyzer takes."""
    permute = RoundShuffler._permute
    monkeypatch.setattr(Manifest, "check_task", lambda self, task, hop=None: None)

    def careless(self, served):
        object.__setattr__(served.task.carriers, "minimum", 0)
        return permute(self, served)

    monkeypatch.setattr(RoundShuffler, "_permute", careless)
    here = serve(round_keys=keys)
    minimum = minimum_of(here)
    fill(here, form, minimum - 1)
    until(lambda: state(here, form) is RoundState.DELIVERED)  # the fake analyzer checks nothing
    assert place.analyzer.manifest(form.task_id.hex()).carriers == minimum - 1


def test_what_operators_see(place, serve, keys, form):
    here = serve(round_keys=keys)
    (entry,) = here.shuffler.operator.overview(True)["rounds"]
    assert entry["carriers"] == {"messages_per_report": form.carrier_messages, "minimum": minimum_of(here)}
    assert entry["messages_per_report"] == 1
