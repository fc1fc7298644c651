"""Rounds that wait cost the database next to nothing, and rounds that cannot go on are seen."""

import importlib.util
import logging
import threading
import time
from pathlib import Path

import psycopg
import pytest

from shuffledp.collection.shuffler.store import open_store
from shuffledp.collection.shuffler.store.interface import RoundState, StoreError
from shuffledp.collection.shuffler.store.sqlite import SqliteStore

_spec = importlib.util.spec_from_file_location("store_fixtures", Path(__file__).parent / "store" / "conftest.py")
_store_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_store_fixtures)
postgres_server, postgres_location = _store_fixtures.postgres_server, _store_fixtures.postgres_location

ROUNDS, TICKS, MAX_IN_A_TICK = 100, 10, 20


def transactions(server: str, location: str) -> int:
    """Those of a database so far, as far as its processes have told; asked through another database."""
    name = psycopg.conninfo.conninfo_to_dict(location)["dbname"]
    with psycopg.connect(server.format("postgres")) as connection:
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        return connection.execute(query, (name,)).fetchone()[0]


def last_number(location: str) -> int:
    with psycopg.connect(location) as connection:
        return connection.execute("SELECT last_value FROM shuffledp.rounds_number_seq").fetchone()[0]


def test_a_hundred_idle_rounds_and_two_shufflers(place, serve, until, postgres_server, postgres_location):
    """At one tick a second: at most 20 transactions a second, and no number of the sequence."""
    for number in range(ROUNDS):
        place.task(users=5, name=f"round {number}")
    both = []
    snapshots = [0, 0]
    for number in range(2):
        work = place.folder / f"work-{number}"
        work.mkdir()
        store = open_store(postgres_location)
        count_snapshots(store, snapshots, number)
        both.append(serve(store=store, work=work, tick=0.1))
    until(lambda: min(snapshots) >= 3)
    assert last_number(postgres_location) == ROUNDS
    time.sleep(1.1)  # a process of the server tells its numbers once a second
    before, begun = transactions(postgres_server, postgres_location), list(snapshots)
    until(lambda: all(now - then >= TICKS for now, then in zip(snapshots, begun, strict=True)))
    for each in both:
        each.close()  # which has the rest told
        each.close = lambda: None
    ticks = (sum(snapshots) - sum(begun)) / 2
    spent = transactions(postgres_server, postgres_location) - before
    assert spent <= MAX_IN_A_TICK * ticks, f"{spent} transactions in {ticks} ticks"
    assert last_number(postgres_location) == ROUNDS


def count_snapshots(store, snapshots: list[int], number: int) -> None:
    snapshot = store.snapshot

    def counted():
        snapshots[number] += 1
        return snapshot()

    store.snapshot = counted


class Failing(SqliteStore):
    """A store of which some steps fail for as long as one wishes."""

    steps: frozenset[str] = frozenset()

    def _fail(self, step: str) -> None:
        if step in self.steps:
            raise StoreError("nextval: reached maximum value of sequence")

    def close_round(self, task_id):
        self._fail("close_round")
        return super().close_round(task_id)

    def snapshot(self):
        self._fail("snapshot")
        return super().snapshot()


@pytest.mark.parametrize("step", ["close_round", "snapshot"])
def test_a_server_whose_rounds_cannot_go_on_is_not_ready(place, serve, until, step, caplog):
    caplog.set_level(logging.INFO, "shuffledp.collection")
    form = place.task(users=3, maximum=5)
    store = Failing(place.folder / "store")
    here = serve(store=store)
    until(lambda: here.get("/readyz").status_code == 200)
    store.steps = frozenset({step})
    assert {here.post(form, place.report(form)).status_code for _ in range(5)} == {201}
    until(lambda: here.get("/readyz").status_code == 503)
    assert here.get("/healthz").status_code == 200
    assert any(each.levelname == "ERROR" and "nextval" in each.fields["reason"] for each in caplog.records)
    store.steps = frozenset()
    until(lambda: here.get("/readyz").status_code == 200)
    until(lambda: store.state(form.task_id) is RoundState.DELIVERED)


def test_a_bad_list_of_tokens_concerns_one_round_only(place, serve, until, caplog):
    """The round still closes in time, and the server is ready."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    form = place.task(users=3)
    now = [0.0]
    here = serve(enrolment=place.folder / "enrolment", clock=lambda: time.time() + now[0], grace_seconds=0.0)
    (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text("not a hash\n")

    def failures() -> float:
        (line,) = [
            each
            for each in here.get("/metrics").text.splitlines()
            if each.startswith("shuffledp_shuffler_round_failures_total ")
        ]
        return float(line.split()[1])

    until(lambda: failures() >= 5)
    assert [each.msg for each in caplog.records].count("round-fails") == 1
    assert here.get("/readyz").status_code == 200
    now[0] = 3601.0
    until(lambda: here.shuffler.store.state(form.task_id) is RoundState.DESTROYED)


def test_a_snapshot_that_is_older_than_a_step_is_not_believed(place, serve, until, caplog):
    """A round is closed once, although a snapshot from before arrives when its batch is being offered."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    armed, taken, go_on = threading.Event(), threading.Event(), threading.Event()

    class Slow(SqliteStore):
        def snapshot(self):
            told = super().snapshot()
            if armed.is_set():
                taken.set()
                go_on.wait(30)
            return told

    def said(name: str) -> int:
        return [each.msg for each in caplog.records].count(name)

    form = place.task(users=3, maximum=5)
    here = serve(store=Slow(place.folder / "store"))
    until(lambda: here.shuffler.scheduler._scheduled)
    assert {here.post(form, place.report(form)).status_code for _ in range(4)} == {201}
    armed.set()
    assert taken.wait(30)
    place.analyzer.refuse = {"PUT": 503}
    assert [here.post(form, place.report(form)).status_code for _ in range(2)] == [201, 410]
    until(lambda: said("round-fails"))
    armed.clear()
    go_on.set()
    until(lambda: len(place.analyzer.requests) >= 4)
    place.analyzer.refuse = {}
    until(lambda: said("delivered"))
    assert [said(name) for name in ("closed", "shuffled", "delivered")] == [1, 1, 1]
