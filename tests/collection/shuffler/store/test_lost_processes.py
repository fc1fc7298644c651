"""Processes that stop in the middle of a transaction, or whose machine is lost, do not hold up the others for long."""

import threading
import time

import psycopg
import pytest

from shuffledp.collection.shuffler.store import open_store, postgres
from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome

TASK = bytes(31) + b"\x01"


@pytest.fixture
def two_stores(postgres_location, monkeypatch):
    monkeypatch.setattr(postgres, "_IDLE_SECONDS", 0.5, raising=False)
    stores = [open_store(postgres_location) for _ in range(2)]
    stores[0].open_round(TASK, maximum=10, tokens=False)
    yield stores
    for store in stores:
        store.close()


def test_a_process_that_stands_still_does_not_block_the_round(two_stores):
    frozen, other = two_stores
    with frozen._pool.connection() as connection:
        connection.execute("SELECT 1 FROM shuffledp.rounds WHERE task_id = %s FOR UPDATE", (TASK,))
        started = time.monotonic()
        assert other.accept([Incoming(TASK, bytes(16), b"report")]) == [ReportOutcome.NEW]
        assert time.monotonic() - started < postgres.WAIT_SECONDS
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            connection.execute("SELECT 1")


def test_what_took_too_long_is_done_again(two_stores):
    store, _ = two_stores
    pauses = [1.5, 0.0]

    def work(connection):
        connection.execute("SELECT 1 FROM shuffledp.rounds FOR UPDATE")
        time.sleep(pauses.pop(0))
        return connection.execute("SELECT count(*) FROM shuffledp.rounds").fetchone()

    assert store._run(work) == (1,)
    assert not pauses


def test_the_server_notices_a_lost_machine(two_stores, monkeypatch):
    """The sockets of the tests are of UNIX, where the settings are accepted and have no effect."""
    store, _ = two_stores
    kept, original, here = [], postgres._keep_alive, threading.current_thread()

    def keep_alive(connection):
        original(connection)
        query = "SELECT name, source FROM pg_settings WHERE name LIKE 'tcp_keepalives%'"
        if threading.current_thread() is here:  # the pool opens connections of its own at any time
            kept.append(dict(connection.execute(query).fetchall()))

    expected = dict.fromkeys((f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")), "session")
    monkeypatch.setattr(postgres, "_keep_alive", keep_alive)
    with store.claim(TASK) as claimed:
        assert claimed
        assert kept == [expected]
    store.close_round(TASK)
    kept.clear()
    assert list(store.reports(TASK)) == []
    assert kept == [expected]
    with store._pool.connection() as connection:
        row = connection.execute("SELECT source FROM pg_settings WHERE name = 'tcp_keepalives_idle'").fetchone()
    assert row == ("session",)


@pytest.mark.parametrize(
    ("address", "idle", "timeout"),
    [
        ("postgresql://user:p%40ss@db.example/name", "30", "60000"),
        ("host=db.example keepalives_idle=5 tcp_user_timeout=0", "5", "0"),
    ],
)
def test_this_end_notices_a_lost_server_unless_the_address_says_otherwise(address, idle, timeout):
    before = psycopg.conninfo.conninfo_to_dict(address)
    parts = psycopg.conninfo.conninfo_to_dict(postgres._with_keepalives(address))
    assert (parts["keepalives_idle"], parts["tcp_user_timeout"]) == (idle, timeout)
    assert before.items() <= parts.items()
