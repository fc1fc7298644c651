"""SQLite databases of the servers: migrations, durable opening, reading while in use."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from shuffledp.collection.server.databases import (
    DamagedFileError,
    database_version,
    make_database_private,
    open_database,
    read_database,
    transaction,
)
from shuffledp.errors import DataError

FIRST = ("CREATE TABLE t (a INTEGER)",)
SECOND = ("ALTER TABLE t ADD COLUMN b INTEGER",)


def test_a_new_database_is_private_durable_and_up_to_date(tmp_path):
    before = os.umask(0)
    try:
        with closing(open_database(tmp_path / "a.db", [FIRST, SECOND])) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("SELECT a, b FROM t").fetchall() == []
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600
    assert database_version(tmp_path / "a.db") == 2


def test_older_layouts_are_migrated_and_newer_ones_refused(tmp_path):
    with closing(open_database(tmp_path / "a.db", [FIRST])) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    with closing(open_database(tmp_path / "a.db", [FIRST, SECOND])) as connection:
        assert connection.execute("SELECT a, b FROM t").fetchall() == [(1, None)]
    with pytest.raises(DataError, match=r"a.db has version 2 .* versions up to 1"):
        open_database(tmp_path / "a.db", [FIRST])


def test_a_migration_that_fails_changes_nothing(tmp_path):
    open_database(tmp_path / "a.db", [FIRST]).close()
    with pytest.raises(sqlite3.OperationalError):
        open_database(tmp_path / "a.db", [FIRST, (*SECOND, "ALTER TABLE nothing ADD COLUMN c")])
    assert database_version(tmp_path / "a.db") == 1
    open_database(tmp_path / "a.db", [FIRST, SECOND]).close()


def test_without_create_what_is_missing_or_empty_is_damage(tmp_path):
    with pytest.raises(DamagedFileError, match="does not exist"):
        open_database(tmp_path / "a.db", [FIRST], create=False)
    (tmp_path / "a.db").touch()
    with pytest.raises(DamagedFileError, match="is empty"):
        open_database(tmp_path / "a.db", [FIRST], create=False)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with pytest.raises(DamagedFileError, match="no tables"):
        open_database(tmp_path / "a.db", [FIRST], create=False)


def test_an_exclusive_database_has_one_user(tmp_path):
    only = open_database(tmp_path / "a.db", [FIRST], exclusive=True)
    with closing(only), pytest.raises(sqlite3.OperationalError, match="locked"):
        open_database(tmp_path / "a.db", [FIRST], wait_seconds=0)
    open_database(tmp_path / "a.db", [FIRST], wait_seconds=0).close()


def test_a_transaction_that_raises_is_rolled_back(tmp_path):
    with closing(open_database(tmp_path / "a.db", [FIRST])) as connection:
        with pytest.raises(ZeroDivisionError), transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)").fetchone() or 1 / 0
        with transaction(connection):
            connection.execute("INSERT INTO t VALUES (2)")
        assert connection.execute("SELECT a FROM t").fetchall() == [(2,)]


def test_a_database_with_its_companions_is_made_private(tmp_path):
    make_database_private(tmp_path / "a.db")  # nothing is there yet
    with closing(open_database(tmp_path / "a.db", [FIRST])):
        files = sorted(tmp_path.iterdir())
        for file in files:
            file.chmod(0o666)
        make_database_private(tmp_path / "a.db")
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3


class TestDatabases:
    """SQLite files that are looked at from outside."""

    def make(self, path: Path, *steps: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        for step in ("PRAGMA journal_mode = WAL", *steps):
            connection.execute(step)
        return connection

    def test_closed(self, tmp_path):
        self.make(tmp_path / "a.db", "PRAGMA user_version = 258").close()
        assert database_version(tmp_path / "a.db") == 258
        assert [each.name for each in tmp_path.iterdir()] == ["a.db"]

    def test_in_the_log_of_a_process_that_has_it_for_itself(self, tmp_path):
        steps = ("PRAGMA locking_mode = EXCLUSIVE", "CREATE TABLE t (a)", "PRAGMA user_version = 7")
        with closing(self.make(tmp_path / "a.db", *steps)) as connection:
            assert database_version(tmp_path / "a.db") == 7
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
            connection.execute("PRAGMA user_version = 8")
            assert database_version(tmp_path / "a.db") == 8
            connection.execute("BEGIN")
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("PRAGMA user_version = 9")
            for _ in range(200):
                connection.execute("INSERT INTO t VALUES (randomblob(3000))")  # does not fit: it gets into the log
            assert database_version(tmp_path / "a.db") == 8
            connection.execute("COMMIT")
            assert database_version(tmp_path / "a.db") == 9

    def test_none(self, tmp_path):
        (tmp_path / "empty.db").touch()
        assert database_version(tmp_path / "empty.db") == 0
        (tmp_path / "junk.db").write_bytes(bytes(100))
        with pytest.raises(OSError, match="not an SQLite database"):
            database_version(tmp_path / "junk.db")
        (tmp_path / "empty.db-wal").write_bytes(b"short")
        assert database_version(tmp_path / "empty.db") == 0

    def test_reading_leaves_nothing_behind(self, tmp_path):
        path = tmp_path / "a #1?.db"
        self.make(path, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)").close()
        with closing(read_database(path)) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
        assert [each.name for each in tmp_path.iterdir()] == ["a #1?.db"]
        with closing(self.make(path, "INSERT INTO t VALUES (2)")), closing(read_database(path)) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,), (2,)]
