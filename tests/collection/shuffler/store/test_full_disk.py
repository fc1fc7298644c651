"""A full disk refuses reports, and still allows rounds to be closed and destroyed."""

import os
import sqlite3
import subprocess
from itertools import cycle

import pytest

from shuffledp.collection.shuffler.store import Incoming, ReportOutcome, RoundState, StoreError
from shuffledp.collection.shuffler.store.sqlite import SqliteStore
from shuffledp.collection.shuffler.store.sqlite_files import DiskReserve

DISK_BYTES = 24 << 20


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only an administrator can make a small file system")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory) -> None:
    """Leave not one block free."""
    for number, size in enumerate((1 << 16, 1 << 12, 1)):
        with (directory / f"other-{number}").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def reports_of(task: bytes, count: int) -> list[Incoming]:
    return [Incoming(task, os.urandom(16), os.urandom(1000)) for _ in range(count)]


def test_rounds_close_and_are_destroyed_on_a_full_disk(disk):
    store = SqliteStore(disk / "store")
    tasks = [os.urandom(32) for _ in range(4)]
    for task in tasks:
        store.open_round(task, maximum=10**6, tokens=False)
    stored = dict.fromkeys(tasks, 0)

    def accept_all() -> None:
        for task in cycle(tasks):
            stored[task] += store.accept(reports_of(task, 50)).count(ReportOutcome.NEW)

    with pytest.raises(StoreError, match="full"):
        accept_all()
    fill(disk)
    for task in tasks:
        assert store.close_round(task) >= stored[task]
        assert store.state(task) is RoundState.CLOSED
    store.destroy(tasks[0])
    store.give_up(tasks[1], RoundState.CANCELLED)
    assert len(list(store.reports(tasks[2]))) >= stored[tasks[2]]
    store.advance(tasks[2], RoundState.SHUFFLED, b"a manifest")
    store.destroy(tasks[2])
    store.close()
    again = SqliteStore(disk / "store")
    states = [RoundState.DESTROYED, RoundState.CANCELLED, RoundState.SHUFFLED, RoundState.CLOSED]
    assert [again.state(task) for task in tasks] == states
    assert len(list(again.reports(tasks[3]))) == again.count(tasks[3]) >= stored[tasks[3]]
    again.close()


def test_reports_are_taken_again_once_there_is_space(disk):
    store = SqliteStore(disk / "store")
    tasks = [os.urandom(32) for _ in range(2)]
    for task in tasks:
        store.open_round(task, maximum=10**6, tokens=False)
    fill(disk)
    store.close_round(tasks[0])  # with the space that was reserved
    for refused in (lambda: store.accept(reports_of(tasks[1], 1)), store.check):
        with pytest.raises(StoreError, match=r"full: the remaining space is reserved for closing rounds. Free 8 MiB"):
            refused()
    fill(disk)  # what the round left
    store.snapshot()
    with pytest.raises(StoreError, match="full"):
        store.check()
    for file in disk.glob("other-*"):
        file.unlink()
    store.snapshot()
    store.check()
    assert store.accept(reports_of(tasks[1], 1)) == [ReportOutcome.NEW]
    assert (disk / "store" / "reserve").stat().st_blocks * 512 >= 8 << 20
    store.close()


def test_a_store_starts_on_a_full_disk(disk):
    store = SqliteStore(disk / "store")
    task = os.urandom(32)
    store.open_round(task, maximum=10**6, tokens=False)
    store.accept(reports_of(task, 10))
    store.close()
    (disk / "store" / "reserve").unlink()
    fill(disk)
    (disk / "other-2").unlink()
    (disk / "other-1").unlink()
    with (disk / "other-0").open("ab") as file:
        file.truncate(file.tell() - (1 << 20))  # as much as SQLite needs itself
    again = SqliteStore(disk / "store")
    with pytest.raises(StoreError, match="full"):
        again.accept(reports_of(task, 1))
    assert again.close_round(task) == 10
    again.close()


def test_only_a_full_disk_frees_the_reserve(tmp_path, monkeypatch):
    """Fault injection, for those who are no administrators."""
    store = SqliteStore(tmp_path)
    task = os.urandom(32)
    store.open_round(task, maximum=10, tokens=False)
    faults = [error("database is locked", sqlite3.SQLITE_BUSY), error("disk I/O error", sqlite3.SQLITE_IOERR)]
    index = store._index

    class Faulty:
        def execute(self, statement, *values):
            if statement.startswith("UPDATE rounds SET state") and faults:
                raise faults.pop()
            return index.execute(statement, *values)

        def __getattr__(self, name):
            return getattr(index, name)

    store._index = Faulty()
    for _ in range(2):
        with pytest.raises(StoreError):
            store.close_round(task)
        assert (tmp_path / "reserve").exists()
    faults.append(error("database or disk is full", sqlite3.SQLITE_FULL))
    assert store.close_round(task) == 0
    assert not (tmp_path / "reserve").exists()
    assert store.state(task) is RoundState.CLOSED
    store.close()


def error(text: str, code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError(text)
    made.sqlite_errorcode = code
    return made


def test_a_reserve_holds_its_space(tmp_path):
    reserve = DiskReserve(tmp_path / "reserve", 1 << 20)
    assert reserve.is_reserved
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
    assert (tmp_path / "reserve").stat().st_mode & 0o777 == 0o600
    assert reserve.free()
    assert not reserve.free()
    assert not (tmp_path / "reserve").exists()
    assert reserve.restore()
