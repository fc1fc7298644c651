"""Series with chains, carriers and augmented shufflers, end to end: kills, a cancelled round, no key left."""

import json
import random
import threading
import time
from datetime import timedelta

import pytest

from shuffledp.collection.device.policy import Policy

WAIT_SECONDS = 120.0
TRAPS_AT_ONCE = """
from shuffledp.collection.shuffler import traps
traps._SHARE_OF_THE_ROUND = 0.0
"""
KEEP_KEYS = """
from shuffledp.collection.server.round_keys import RoundKeyDirectory
RoundKeyDirectory.destroy = lambda self, public: None
"""
MANY_MESSAGES = """
from shuffledp.collection.analyzer import counting
from shuffledp.collection.shuffler import shuffling
shuffling._CHUNK_BYTES, counting._MIN_MESSAGES_FOR_PROCESSES = 1 << 22, 10**9
"""
"""Large chunks, and no processes of the analyzer's own, which servers that are forked for tests cannot have."""
ROUNDS = 3


def until(condition, what):
    end = time.monotonic() + WAIT_SECONDS
    while not (result := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return result


def killer(year, fault):
    """Kills every server once, at a random moment and in random order, and starts it again."""

    def run():
        for role in random.sample(year.roles, len(year.roles)):
            time.sleep(random.uniform(0.0, 1.0))
            year.kill(role)
            year.start(role, fault=fault)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def report(year, index, moment):
    """All devices of a round report; their number."""
    members = [device for each in range(len(year.names)) if index in (device := year.device(each)).participation.rounds]
    for device in members:
        assert device.report(random.randrange(3), now=moment) == index
        year.send(device, index)
    return len(members)


def accepted_traps(year, task):
    directories = [year.folder / f"shuffler{each}" / ".traps" / task.id.hex() for each in year.suffixes[1:]]
    return sum(len(list(each.glob("*.answer"))) for each in directories)


def keys_of(year, index):
    """The files of the private keys of a round that are left, of all servers."""
    directories = ("analyzer-keys", *(f"shuffler-keys{each}" for each in year.suffixes))
    names = {f"{key.id}.key" for key in year.series.keys[index].all}
    return [file for each in directories for file in (year.folder / each).iterdir() if file.name in names]


def play(year, *, fault=TRAPS_AT_ONCE):
    """Three rounds with kills; a fourth is cancelled while it is open."""
    year.budgets = {}
    year.publish("series", year.signed)
    for role in year.roles:
        year.start(role, fault=fault)
    series, path = year.series, f"/v2/series/{year.series.id.hex()}"
    for index in range(ROUNDS + 1):
        task = series.task(index)
        moment = task.opens + timedelta(seconds=0.9 * series.open_seconds)
        year.at(moment)
        until(lambda at=index: year.reaches(0, path, lambda s, c: year.current_round(s, c) == at), f"round {index}")
        if index == ROUNDS:
            break
        kills = killer(year, fault)
        reports = report(year, index, moment)
        assert reports >= task.minimum_users
        traps = year.traps * (len(year.suffixes) - 1)
        until(lambda of=task, wanted=traps: accepted_traps(year, of) == wanted, "traps")
        if index == 1:
            kills.join()
            kills = killer(year, fault)  # while the round is mixed and delivered
        year.at(task.closes + timedelta(seconds=1))
        where = f"/v1/releases/{task.id.hex()}"
        until(lambda at=where: year.reaches(1, at, lambda s, _: s == 200), f"release {index}")
        kills.join()
        until(lambda at=where: year.reaches(1, at, lambda s, _: s == 200), f"release {index} after the kills")
        check_release(year, index, reports, json.loads(year.get(1, where)[1]))
        until(lambda at=index: not keys_of(year, at), f"the keys of round {index} are left")
    check_cancelled(year, moment)


def check_release(year, index, reports, document):
    """Every report was counted once, and nothing else."""
    task, found = year.series.task(index), document["messages"]
    assert document["series"] == {"id": year.series.id.hex(), "round": index}
    assert document["reports"] == reports
    assert document["rejected"] == {}
    if task.protocol.trust == "augmented":  # the dummies of every shuffler are counted as messages
        assert reports <= found["counted"] <= reports + task.hops * task.protocol.most_dummies
    elif task.carriers is not None:
        longer = task.max_messages_per_report - task.messages_per_report
        carriers, rest = divmod(found["counted"] + found["dummies"] - reports * task.messages_per_report, longer)
        assert rest == 0
        assert task.carriers.minimum <= carriers <= reports
    else:
        assert found["counted"] == reports


def check_cancelled(year, moment):
    """A round that is open and has reports is cancelled: nothing of it is released, and no key of any round is left."""
    task = year.series.task(ROUNDS)
    assert report(year, ROUNDS, moment)
    year.publish("cancel", year.cancel(ROUNDS, year.author))
    until(lambda: not any(keys_of(year, index) for index in range(year.rounds)), "the keys of cancelled rounds")
    year.at(task.closes + timedelta(seconds=1))
    until(lambda: year.reaches(0, f"/v2/tasks/{task.id.hex()}", lambda s, _: s == 404), "cancelled")
    assert year.get(1, f"/v1/releases/{task.id.hex()}")[0] == 404


def play_series(series_year, folder, *, devices=8, users=4, fault="", **settings):
    year = series_year.Year(folder, rounds=ROUNDS + 2, per_device=ROUNDS + 2, devices=devices, users=users, **settings)
    try:
        play(year, fault=TRAPS_AT_ONCE + fault)
    finally:
        year.stop()


def test_a_series_with_a_chain(series_year, tmp_path):
    """Two shufflers, traps, two kills of every server in one of the rounds and one in the others."""
    play_series(series_year, tmp_path, hops=2, traps=6)


@pytest.mark.slow
def test_keys_that_are_not_destroyed_are_seen(series_year, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "WAIT_SECONDS", 30.0)
    with pytest.raises(AssertionError, match="the keys of round 0 are left"):
        play_series(series_year, tmp_path, hops=2, fault=KEEP_KEYS)


@pytest.mark.slow
def test_an_augmented_series_with_a_chain(series_year, tmp_path):
    policy = Policy(allow_augmented=True)
    play_series(series_year, tmp_path, hops=2, protocol="shuffler-laplace", policy=policy)


@pytest.mark.slow
def test_a_series_with_carriers(series_year, tmp_path):
    """Carriers are missing only with the probability that is part of delta; a round has about 30,000 messages."""
    settings = {"protocol": "correlated-noise", "options": {"carriers": 0.9}, "policy": Policy(min_users=1)}
    play_series(series_year, tmp_path, devices=30, users=30, fault=MANY_MESSAGES, **settings)
