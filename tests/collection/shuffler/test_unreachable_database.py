"""A database that is not there yet is waited for, and what the pool logs about it can be read."""

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from shuffledp.cli import main
from shuffledp.collection.server.logs import JsonLinesFormatter
from shuffledp.collection.shuffler import server
from shuffledp.collection.shuffler.store.interface import StoreError, UnreachableStoreError
from shuffledp.collection.shuffler.store.postgres_errors import PoolLog
from shuffledp.collection.shuffler.store.sqlite import SqliteStore

_spec = importlib.util.spec_from_file_location("store_fixtures", Path(__file__).parent / "store" / "conftest.py")
_store_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_store_fixtures)
WAIT_SECONDS = 60.0
postgres_server, postgres_location = _store_fixtures.postgres_server, _store_fixtures.postgres_location


@pytest.fixture
def absent(place, postgres_location, tmp_path_factory):
    """Settings of a database whose server is not there, and what makes it appear."""
    sockets = tmp_path_factory.mktemp("s")
    parts = psycopg.conninfo.conninfo_to_dict(postgres_location)
    secret = place.folder / "dsn"
    secret.touch(mode=0o600)
    secret.write_text(f"postgresql://shuffledp:secret@/{parts['dbname']}?host={sockets}\n")

    def appear() -> None:
        (sockets / ".s.PGSQL.5432").symlink_to(Path(parts["host"]) / ".s.PGSQL.5432")

    return {"store": "postgres", "store_folder": None, "store_dsn_file": secret}, appear


def test_a_server_waits_for_it(place, start, until, absent):
    settings, appear = absent
    form = place.task(users=3)
    running = []

    def watch() -> None:
        until(lambda: running and running[0].event("database-unreachable"))
        appear()

    thread = threading.Thread(target=watch)
    thread.start()
    process = start(running=running, **settings)
    thread.join()
    told = process.event("database-unreachable")
    assert told["level"] == "error"
    assert "nothing answers at its address" in told["reason"]
    assert process.event("database-reachable")
    assert process.post(form, place.report(form)) == 201
    assert process.stop() == 0
    assert not any("secret" in line for line in process.lines)


def test_sigterm_while_it_waits(place, absent):
    settings, _ = absent
    command = [sys.executable, "-m", "shuffledp", "serve", "shuffler", "--config", str(place.config(**settings))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr)
            assert any("database-unreachable" in line for line in lines)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
            assert not any("Traceback" in line for line in lines)
        finally:
            process.kill()


def test_the_check_fails_at_once(place, absent, capsys, monkeypatch):
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)
    settings, _ = absent
    assert main._run(["serve", "shuffler", "--config", str(place.config(**settings)), "--check"]) == 1
    told = capsys.readouterr()
    assert told.err == "error: The PostgreSQL server cannot be used: nothing answers at its address.\n"


@pytest.mark.parametrize("method", ["rounds", "open_round"])
def test_a_server_also_waits_if_it_is_lost_while_it_starts(place, monkeypatch, method):
    place.task(users=3)
    attempts, original = [], getattr(SqliteStore, method)

    def sometimes(*arguments, **settings):
        attempts.append(1)
        if len(attempts) <= 2:
            raise UnreachableStoreError("nothing answers")
        return original(*arguments, **settings)

    monkeypatch.setattr(SqliteStore, method, sometimes)
    shuffler = place.shuffler()
    try:
        assert len(attempts) > 2
        assert len(list(shuffler.tasks)) == 1
    finally:
        shuffler.close()


def test_pauses_grow_and_lines_are_few(place, absent, monkeypatch, caplog):
    settings, _ = absent
    caplog.set_level(logging.INFO, "shuffledp.collection")
    slept = []
    opened = object()

    def attempt(_):
        if len(slept) < 2000:
            raise UnreachableStoreError("nothing answers")
        return opened

    monkeypatch.setattr(server, "store_of", attempt)
    assert server.open_when_reachable(place.settings(**settings), sleep=slept.append) is opened
    assert all(longest / 2 <= pause <= longest for pause, longest in zip(slept, (0.25, 0.5, 1.0), strict=False))
    assert 2.5 <= min(slept[5:]) <= max(slept) <= 5.0
    assert [each.msg for each in caplog.records].count("database-unreachable") <= 2000 / 12 + 1
    assert caplog.records[-1].msg == "database-reachable"


@pytest.mark.parametrize("error", [StoreError("it refused the user or the password")])
def test_what_time_does_not_mend_ends_it(place, absent, monkeypatch, error):
    settings, _ = absent

    def attempt(_):
        raise error

    monkeypatch.setattr(server, "store_of", attempt)
    with pytest.raises(StoreError, match="refused"):
        server.open_when_reachable(place.settings(**settings), sleep=lambda _: pytest.fail("it waited"))


def test_what_the_pool_logs(caplog, monkeypatch):
    """45 lines without a text in 20 seconds before: now one of each kind in a minute, with text and reason."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    now = 0.0
    handler = PoolLog(lambda: now)
    logger = logging.getLogger("a-pool")
    logger.addHandler(handler)
    logger.propagate = False
    refused = psycopg.OperationalError('connection to "10.1.2.3", user "me" failed: Connection refused')
    for second in range(120):
        now = float(second)
        logger.warning("error connecting in %r: %s", "pool-1", refused)
        logger.warning("discarding closed connection: %s", "<psycopg.Connection [BAD] at 0x7f>")
        logger.warning("rollback failed: %s: %s. Discarding connection %s", "OperationalError", refused, "<10.1.2.3>")
        logger.warning("reconnection attempt in pool %r failed after %s sec", "pool-1", 10)
        logger.info("connection requested from %r", "pool-1")
    lines = [json.loads(JsonLinesFormatter().format(each)) for each in caplog.records]
    assert [line["text"] for line in lines] == 2 * [
        "error connecting",
        "discarding closed connection",
        "rollback failed",
        "reconnection attempt failed",
    ]
    assert [line["left_out"] for line in lines] == [0] * 4 + [59] * 4
    assert [line["reason"] for line in lines[:2]] == ["nothing answers at its address", None]
    assert not any(secret in json.dumps(lines) for secret in ("10.1.2.3", "0x7f", "pool-1"))
