"""Processes that receive reports and one that mixes, all killed in turn under load: what is acknowledged is opened."""

import socket
import threading
from collections import Counter
from urllib.parse import urlsplit

import pytest

from shuffledp.collection.transport.connection import Connection

NORMAL, MANY = 1, 24


def play(here, schedules, until, fates, **options) -> Counter:
    """A whole round; how often each server was killed, by what it was doing."""
    with schedules.kept(here, fates, **options) as keepers:
        _wait_until_opened(here, schedules, until, keepers)
        schedules.report(here, keepers, range(len(here.reports)), pause=0.01)
        document = schedules.release(here, keepers)
    schedules.check(here, document)
    return schedules.kills_of(keepers)


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 6, id=f"many-{i}", marks=pytest.mark.slow) for i in range(6)],
)
def test_what_is_acknowledged_is_opened(new_role_round, schedules, until, rounds):
    kills: Counter = Counter()
    for _ in range(rounds):
        here = new_role_round()
        kills += play(here, schedules, until, {each: schedules.random_fates(each, 3) for each in here.shufflers})
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


def test_an_answer_before_it_is_durable_would_be_seen(new_role_round, schedules, until):
    """The same check on processes with a fault."""
    with pytest.raises(AssertionError, match="acknowledged and lost"):
        play(new_role_round(), schedules, until, {}, fault=schedules.EARLY_ANSWERS)


def test_who_receives_has_no_key_and_who_mixes_takes_no_report(new_role_round, schedules, until):
    here = new_role_round()
    text = (here.directory / "ingest.toml").read_text(encoding="utf-8")
    assert not any(word in text.partition("[analyzer]")[0] for word in ("signing_key", "round_keys", '.key"'))
    with schedules.kept(here, {}) as keepers:
        _wait_until_opened(here, schedules, until, keepers)
        with Connection(here.mixer_url, timeout=30) as mixer:
            path = f"/v2/tasks/{here.name}"
            assert mixer.request("GET", path).status == 404
            headers = {"Content-Type": "application/octet-stream"}
            assert mixer.request("POST", f"{path}/reports", here.reports[0], headers).status == 404
            assert mixer.request("GET", "/readyz").status == 200
        schedules.report(here, keepers, range(len(here.reports)), pause=0.0)
        document = schedules.release(here, keepers)
    schedules.check(here, document)
    steps = {server: {entry["event"] for entry in here.events(server)} for server in here.shufflers}
    assert {"closed", "shuffled", "delivered", "key-destroyed"} <= steps["shuffler-3"]
    for server in here.shufflers[:2]:
        assert not {"closed", "shuffled", "delivered", "key-destroyed"} & steps[server]


def test_a_port_that_another_program_has_is_waited_for(new_role_round, schedules, until):
    """As by a supervisor: ports are chosen at random, and other tests on this machine choose some, too."""
    here = new_role_round()
    taken = socket.create_server(("127.0.0.1", urlsplit(here.mixer_url).port))
    release = threading.Timer(2.0, taken.close)
    release.start()
    with schedules.kept(here, {}) as keepers:
        _wait_until_opened(here, schedules, until, keepers)
        schedules.report(here, keepers, range(len(here.reports)), pause=0.0)
        document = schedules.release(here, keepers)
    schedules.check(here, document)
    assert "Cannot listen on" in (here.directory / "shuffler-3.log").read_text()
    release.join()


def test_a_server_that_ends_by_itself_is_told_at_once(new_role_round, schedules, until):
    here = new_role_round()
    here.environments["shuffler-3"]["SHUFFLEDP_SHUFFLER_COLOUR"] = "red"
    with (
        pytest.raises(AssertionError, match="the shuffler-3 ended with 2: error: Unknown setting 'colour'"),
        schedules.kept(here, {}) as keepers,
    ):
        _wait_until_opened(here, schedules, until, keepers)


def test_without_a_mixer_no_report_is_accepted(new_role_round, schedules, until):
    """Reports of a round whose key nobody has shown to have could never be opened."""
    here = new_role_round()
    del here.environments["shuffler-3"]
    with schedules.kept(here, {}):
        until(lambda: _ready(here.urls[0]))
        with Connection(here.urls[0], timeout=30) as connection:
            headers = {"Content-Type": "application/octet-stream"}
            answer = connection.request("POST", f"/v2/tasks/{here.name}/reports", here.reports[0], headers)
            assert (answer.status, answer.problem) == (404, "unknown-task")
        until(lambda: any(entry["event"] == "task-refused" for entry in here.events("shuffler-1")))


def _wait_until_opened(here, schedules, until, keepers) -> None:
    """Wait until the mixer has opened the round, or a server ended otherwise than by a kill, which is told."""
    until(lambda: here.served() or schedules.in_trouble(keepers), what="opening the round")
    schedules.check_servers(keepers)


def _ready(url: str) -> bool:
    try:
        with Connection(url, timeout=30) as connection:
            return connection.request("GET", "/readyz").status == 200
    except OSError:
        return False
