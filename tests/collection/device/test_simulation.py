"""Many simulated devices: each its own report, over a few connections; refusals counted by reason."""

import signal
import threading
import time

import pytest

from shuffledp.collection.device import Connection, Devices, Patience
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.errors import DomainError, ParameterError

QUICK = Patience(attempts=3, first_pause=0.001, longest_pause=0.002)
LOST_AFTER_SECONDS = 20
STOPS_WITHIN_SECONDS = 300


def devices(task, server, count=40, **options) -> Devices:
    values = (["bus", "bike", "car", "train"] * count)[:count]
    usual = {"connect": lambda: Connection(server.url), "connections": 4, "patience": QUICK}
    return Devices(task, values, **usual | options)


def test_every_device_has_its_own_report(task, server):
    seen = []
    summary = devices(task, server, progress=seen.append).report()
    assert summary.to_json() == {"devices": 40, "delivered": 40, "refused": {}, "unsent": 0}
    form = ReportFormat.of(task)
    assert len({form.report_id(each) for each in server.bodies}) == 40
    assert server.connections == 4
    assert (seen, seen[-1]) == (sorted(seen), 1.0)


def test_refusals_are_counted_by_reason(task, server):
    server.answers = [
        server.problem(403, "token-spent"),
        server.problem(403, "token-unknown"),
        server.problem(409, "conflict"),
        (400, {}, b"<html>"),
        503,
    ]
    summary = devices(task, server).report()
    assert summary.refused == {"403 token-spent": 1, "403 token-unknown": 1, "409 conflict": 1, "400": 1}
    assert (summary.delivered, summary.unsent) == (36, 0)
    assert len(server.bodies) == 41


@pytest.mark.parametrize(("status", "name"), [(410, "full"), (404, "unknown-task")])
def test_it_ends_when_the_round_does(status, name, task, server):
    server.answers = [201] * 10 + [server.problem(status, name)] * 1000
    summary = devices(task, server, count=500).report()
    assert summary.delivered == 10
    assert 1 <= summary.refused[f"{status} {name}"] <= 4
    assert summary.unsent == 490 - summary.refused.total()


def test_it_ends_when_nobody_answers(task, server):
    server.answers = [503] * 10_000
    summary = devices(task, server, count=500).report()
    assert summary.delivered == 0
    assert 1 <= summary.refused["unreachable"] <= 4
    assert len(server.bodies) <= 4 * 3 * 2


def test_tokens(task, server):
    tokens = [f"token-of-device-{index}" for index in range(41)]
    devices(task, server, tokens=tokens).report()
    assert {each["Authorization"] for each in server.headers} == {f"Bearer {each}" for each in tokens[:40]}
    with pytest.raises(ParameterError, match="39 tokens are too few for 40 devices"):
        devices(task, server, tokens=tokens[:39])


def test_a_fault_is_told(task, server):
    before = threading.active_count()
    with pytest.raises(DomainError, match="plane"):
        Devices(task, ["bus", "plane"], connect=lambda: Connection(server.url)).report()
    with pytest.raises(ParameterError, match="number of connections must be at least 1"):
        devices(task, server, connections=0)
    assert threading.active_count() <= before + 8  # handlers of the server


@pytest.fixture
def interruptible():
    """A job in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("whose", ["main", "worker"])
def test_an_interruption_stops_all(whose, task, server):
    """Ctrl-C while they wait, whichever thread the system gives it to: no further report begins."""
    server.answers = [503] * 100_000
    patience = Patience(attempts=1000, first_pause=600.0, longest_pause=600.0)
    ended = threading.Event()
    threads = {"main": threading.main_thread().ident}

    def connect() -> Connection:
        threads["worker"] = threading.get_ident()
        return Connection(server.url)

    def interrupt() -> None:
        while len(server.bodies) < 4:
            time.sleep(0.001)
        time.sleep(0.02)
        signal.pthread_kill(threads[whose], signal.SIGINT)
        while not ended.wait(LOST_AFTER_SECONDS):  # lost where it came during a callback of the garbage collector
            signal.pthread_kill(threads[whose], signal.SIGINT)

    many = devices(task, server, count=500, connect=connect, patience=patience)
    sender = threading.Thread(target=interrupt)
    sender.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        many.report()
    ended.set()
    sender.join()
    assert time.monotonic() - started < STOPS_WITHIN_SECONDS
    assert len(server.bodies) == 4
    assert many.summary.unsent == 500
