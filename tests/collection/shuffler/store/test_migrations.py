"""A store of an older layout is brought up to date with what it holds; one of a newer layout is refused."""

import os
import sqlite3
from contextlib import closing

import psycopg
import pytest

from shuffledp.collection.server.databases import pending_migrations
from shuffledp.collection.shuffler.store import (
    Incoming,
    ReportOutcome,
    StoreError,
    open_store,
    postgres_schema,
    sqlite,
    sqlite_round,
)
from shuffledp.collection.shuffler.store.interface import RoundState

INDEX_STEP = ("ALTER TABLE rounds ADD COLUMN colour TEXT NOT NULL DEFAULT 'green'",)
ROUND_STEP = ("ALTER TABLE reports ADD COLUMN colour TEXT NOT NULL DEFAULT 'green'",)
POSTGRES_STEP = ("ALTER TABLE shuffledp.rounds ADD COLUMN colour text NOT NULL DEFAULT 'green'",)


def fill(location: str) -> list[bytes]:
    """A round that collects and one that is closed, each with a report."""
    store = open_store(location)
    tasks = [os.urandom(32), os.urandom(32)]
    for task in tasks:
        store.open_round(task, maximum=9, tokens=False)
        store.accept([Incoming(task, bytes(16), b"an old report")])
    store.close_round(tasks[1])
    store.close()
    return tasks


def check(location: str, tasks: list[bytes]) -> None:
    store = open_store(location)
    assert store.rounds() == {tasks[0]: RoundState.COLLECTING, tasks[1]: RoundState.CLOSED}
    assert store.accept([Incoming(tasks[0], bytes(16), b"an old report")]) == [ReportOutcome.SAME]
    assert list(store.reports(tasks[1])) == [b"an old report"]
    store.close()


def test_pending_migrations():
    steps = [("one",), ("two",), ("three",)]
    assert pending_migrations(0, steps, "here", error=StoreError) == [(1, ("one",)), (2, ("two",)), (3, ("three",))]
    assert pending_migrations(2, steps, "here", error=StoreError) == [(3, ("three",))]
    assert pending_migrations(3, steps, "here", error=StoreError) == []
    with pytest.raises(StoreError, match=r"version 4 .* up to 3"):
        pending_migrations(4, steps, "here", error=StoreError)


def versions(folder) -> dict[str, int]:
    found = {}
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            found[file.name[:5]] = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def test_an_older_sqlite_store_is_migrated(tmp_path, monkeypatch):
    """This version plays the old one; a made-up next version adds a column to each kind of file."""
    tasks = fill(str(tmp_path))
    index, round_ = len(sqlite.SQLITE_INDEX), len(sqlite_round.SQLITE_ROUND)
    assert versions(tmp_path) == {"index": index, "round": round_}
    monkeypatch.setattr(sqlite, "SQLITE_INDEX", (*sqlite.SQLITE_INDEX, INDEX_STEP))
    monkeypatch.setattr(sqlite_round, "SQLITE_ROUND", (*sqlite_round.SQLITE_ROUND, ROUND_STEP))
    store = open_store(str(tmp_path))
    assert list(store.reports(tasks[1])) == [b"an old report"]
    store.close()
    assert versions(tmp_path) == {"index": index + 1, "round": round_ + 1}
    monkeypatch.undo()
    with pytest.raises(StoreError, match=rf"version {index + 1} .* up to {index}"):
        open_store(str(tmp_path))


def test_a_step_that_fails_leaves_the_old_version(tmp_path, monkeypatch):
    tasks = fill(str(tmp_path))
    broken = (*sqlite.SQLITE_INDEX, (*INDEX_STEP, "ALTER TABLE missing ADD COLUMN colour"))
    monkeypatch.setattr(sqlite, "SQLITE_INDEX", broken)
    with pytest.raises(StoreError, match="no such table"):
        open_store(str(tmp_path))
    monkeypatch.undo()
    assert versions(tmp_path)["index"] == len(sqlite.SQLITE_INDEX)
    check(str(tmp_path), tasks)


def test_a_round_of_a_newer_version_is_refused(tmp_path):
    fill(str(tmp_path))
    for file in tmp_path.glob("round-*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match=r"version 7 .* up to 1"):
        open_store(str(tmp_path))


def test_version_zero_is_an_empty_store(tmp_path, postgres_location):
    """The layout is not there at all: an empty file, and a schema that an administrator made."""
    (tmp_path / "index.db").touch()
    check(str(tmp_path), fill(str(tmp_path)))
    with psycopg.connect(postgres_location) as connection:
        connection.execute("CREATE SCHEMA shuffledp")
        connection.execute("CREATE TABLE shuffledp.layout (version integer NOT NULL)")
        connection.execute("INSERT INTO shuffledp.layout VALUES (0)")
    check(postgres_location, fill(postgres_location))


def test_an_older_database_is_migrated_and_a_newer_one_refused(postgres_location, monkeypatch):
    tasks = fill(postgres_location)
    newest = len(postgres_schema.POSTGRES)
    monkeypatch.setattr(postgres_schema, "POSTGRES", (*postgres_schema.POSTGRES, POSTGRES_STEP))
    check(postgres_location, tasks)
    with psycopg.connect(postgres_location) as connection:
        assert connection.execute("SELECT DISTINCT colour FROM shuffledp.rounds").fetchall() == [("green",)]
        assert connection.execute("SELECT version FROM shuffledp.layout").fetchall() == [(newest + 1,)]
    monkeypatch.undo()
    with pytest.raises(StoreError, match=rf"version {newest + 1} .* up to {newest}"):
        open_store(postgres_location)


def test_a_step_that_fails_leaves_the_database_as_it_was(postgres_location, monkeypatch):
    tasks = fill(postgres_location)
    broken = (*postgres_schema.POSTGRES, (*POSTGRES_STEP, "ALTER TABLE shuffledp.nothing ADD COLUMN colour text"))
    monkeypatch.setattr(postgres_schema, "POSTGRES", broken)
    with pytest.raises(StoreError, match="does not exist"):
        open_store(postgres_location)
    monkeypatch.undo()
    check(postgres_location, tasks)


def test_a_database_of_version_1_whose_sequence_is_used_up(postgres_location):
    """Numbers of rounds were 32 bits wide, and taken at every look at a round."""
    tasks = [os.urandom(32), os.urandom(32)]
    with psycopg.connect(postgres_location) as connection:
        connection.execute("CREATE SCHEMA shuffledp")
        connection.execute("CREATE TABLE shuffledp.layout (version integer NOT NULL)")
        connection.execute("INSERT INTO shuffledp.layout VALUES (1)")
        for statement in postgres_schema.POSTGRES[0]:
            connection.execute(statement)
        connection.execute("SELECT setval('shuffledp.rounds_number_seq', 2147483645)")
        for task, state in zip(tasks, ("collecting", "closed"), strict=True):
            insert = (
                "INSERT INTO shuffledp.rounds (task_id, maximum, tokens, state, reports) VALUES (%s, 9, false, %s, 1)"
            )
            connection.execute(insert, (task, state))
            number = connection.execute("SELECT max(number) FROM shuffledp.rounds").fetchone()[0]
            connection.execute(f"CREATE TABLE shuffledp.reports_{number} (report_id bytea PRIMARY KEY, body bytea)")
            connection.execute(f"INSERT INTO shuffledp.reports_{number} VALUES (%s, 'an old report')", (bytes(16),))
            connection.execute(f"CREATE TABLE shuffledp.tokens_{number} (hash bytea PRIMARY KEY, spent boolean)")
    assert number == 2**31 - 1
    check(postgres_location, tasks)
    store = open_store(postgres_location)
    new = os.urandom(32)
    store.open_round(new, maximum=1, tokens=False)
    assert store.accept([Incoming(new, bytes(16), b"a new report")]) == [ReportOutcome.NEW]
    assert store.close_round(new) == 1
    assert list(store.reports(new)) == [b"a new report"]
    store.close()


def test_a_directory_of_version_1(tmp_path):
    tasks = [os.urandom(32), os.urandom(32), os.urandom(32)]
    states = ("collecting", "closed", "shuffled")
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        for statement in sqlite.SQLITE_INDEX[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        for task, state in zip(tasks, states, strict=True):
            row = (task, state, 9, 0, None if state == "collecting" else 1)
            connection.execute(
                "INSERT INTO rounds (task_id, state, maximum, tokens, reports) VALUES (?, ?, ?, ?, ?)", row
            )
        connection.commit()
    for task in tasks:
        with closing(sqlite3.connect(tmp_path / f"round-{task.hex()}.db")) as connection:
            for statement in sqlite_round.SQLITE_ROUND[0]:
                connection.execute(statement)
            connection.execute("PRAGMA user_version = 1")
            connection.execute("INSERT INTO reports VALUES (?, ?)", (bytes(16), b"an old report"))
            connection.commit()
    store = open_store(str(tmp_path))
    assert [(each.state.value, each.reports, each.error) for each in store.snapshot().rounds.values()] == sorted_as(
        store, tasks, states
    )
    assert store.accept([Incoming(tasks[0], bytes(16), b"an old report")]) == [ReportOutcome.SAME]
    assert list(store.reports(tasks[1])) == [b"an old report"]
    store.give_up(tasks[2], RoundState.ABANDONED)
    store.close()
    again = open_store(str(tmp_path))
    assert again.state(tasks[2]) is RoundState.ABANDONED
    again.close()


def sorted_as(store, tasks, states):
    """What each round is to be, in the order of the store."""
    known = dict(zip(tasks, states, strict=True))
    return [(known[task], 1, None) for task in store.rounds()]
