"""What was accepted survives kill -9 and is accepted once across processes; what was destroyed is gone."""

import hashlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from shuffledp.collection.shuffler.store import Incoming, ReportOutcome, RoundState, StoreError, open_store, sqlite

# sends reports of the numbers from sys.argv[3] on, or of any below 4096, and says which were new once they are durable
SENDER = """
import hashlib, random, sys
from shuffledp.collection.shuffler.store import Incoming, ReportOutcome, open_store
location, task, start = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
store = open_store(location)
store.open_round(task, maximum=10**9, tokens=True)
print("ready", flush=True)
if "told" in sys.argv:  # so that several begin together
    sys.stdin.readline()
outcomes, waiting = [], []
while ReportOutcome.CLOSED not in outcomes:
    if "anywhere" in sys.argv:
        start = 16 * random.randrange(256)
    ids = [number.to_bytes(16, "big") for number in range(start, start + 16)]
    tokens = [hashlib.sha256(each).digest() for each in ids]
    store.add_tokens(task, tokens) if "tokens" in sys.argv else None
    batch = [Incoming(task, i, hashlib.shake_256(i).digest(900), token) for i, token in zip(ids, tokens)]
    if "early" in sys.argv:  # the planted fault: says so one batch before it is true
        batch, waiting = waiting, batch
    outcomes = store.accept(batch) if batch else [ReportOutcome.NEW] * 16
    print(*[n for n, outcome in zip(range(start, start + 16), outcomes) if outcome is ReportOutcome.NEW], flush=True)
    start += 16
"""


def body(number: int) -> bytes:
    return hashlib.shake_256(number.to_bytes(16, "big")).digest(900)


@pytest.fixture
def sender() -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a process that sends; it is ready when this returns, and ended when the test is over."""
    processes: list[subprocess.Popen] = []

    def start(location: str, task: bytes, first: int, *how: str) -> subprocess.Popen:
        command = [sys.executable, "-c", SENDER, location, task.hex(), str(first), *how]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "ready\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def acknowledged(output: str) -> list[int]:
    """The numbers on whole lines."""
    lines = output[: output.rfind("\n") + 1].splitlines()
    return [int(number) for line in lines if line != "ready" for number in line.split()]


def send_and_kill(sender, location: str, task: bytes, *how: str) -> list[int]:
    """The numbers that were acknowledged by processes that were killed at random moments."""
    said: list[int] = []
    for _ in range(4):
        process = sender(location, task, max(said, default=0) + 1000, *how)
        first = process.stdout.readline()
        time.sleep(random.uniform(0.0, 0.2))
        process.kill()
        said += acknowledged(first + process.stdout.read())
    assert said
    return said


def test_nothing_acknowledged_is_lost_by_kill_9(location, sender):
    """Again and again: whatever was said to be durable is there, once."""
    task = os.urandom(32)
    said = send_and_kill(sender, location, task, "tokens")
    store = open_store(location)
    again = [Incoming(task, number.to_bytes(16, "big"), body(number)) for number in said]
    assert set(store.accept(again)) == {ReportOutcome.SAME}
    everything = store.close_round(task)
    found = list(store.reports(task))
    assert len(found) == len(set(found)) == everything == store.count(task)
    assert {body(number) for number in said} <= set(found)
    assert everything - len(said) <= 4 * 16  # one batch in flight each time
    store.close()


def test_an_acknowledgement_that_comes_early_is_noticed(location, sender):
    """A kill between a commit and the next acknowledgement hides the fault: each try escapes with a small chance."""
    for _ in range(8):
        task = os.urandom(32)
        said = send_and_kill(sender, location, task, "tokens", "early")
        store = open_store(location)
        store.close_round(task)
        lost = {body(number) for number in said} - set(store.reports(task))
        store.close()
        if lost:
            return
    pytest.fail("reports that were acknowledged too early were never lost")


def test_a_token_is_spent_if_and_only_if_its_report_is_there(location, sender):
    task = os.urandom(32)
    process = sender(location, task, 0, "tokens")
    time.sleep(0.2)
    process.kill()
    numbers = acknowledged(process.stdout.read())
    store = open_store(location)
    last = max(numbers, default=0) + 100
    ids = [number.to_bytes(16, "big") for number in range(last)]
    store.add_tokens(task, [hashlib.sha256(each).digest() for each in ids])
    here = [Incoming(task, each, hashlib.shake_256(each).digest(900)) for each in ids]
    there = [outcome is ReportOutcome.SAME for outcome in store.accept(here)]
    others = [Incoming(task, os.urandom(16), b"another", hashlib.sha256(each).digest()) for each in ids]
    spent = [outcome is ReportOutcome.TOKEN_SPENT for outcome in store.accept(others)]
    assert there == spent
    assert sum(there) >= len(numbers)
    store.close()


def test_two_processes_on_one_database_accept_a_report_once(postgres_location, sender):
    """Both send reports from the same few, most of them again and again, until the round is closed under them."""
    task = os.urandom(32)
    store = open_store(postgres_location)
    store.open_round(task, maximum=10**9, tokens=True)
    store.add_tokens(task, [hashlib.sha256(number.to_bytes(16, "big")).digest() for number in range(4096)])
    processes = [sender(postgres_location, task, 0, "anywhere", "told") for _ in range(2)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    while store.count(task) < 3000:
        time.sleep(0.01)
    number = store.close_round(task)
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    said = [acknowledged(output) for output in outputs]
    together = sorted(said[0] + said[1])
    assert min(len(each) for each in said) > 0
    assert len(together) == len(set(together)) == number == store.count(task)
    assert sorted(store.reports(task)) == sorted(body(each) for each in together)
    store.close()


def test_two_processes_share_the_room_and_the_claim(postgres_location):
    first, second = open_store(postgres_location), open_store(postgres_location)
    task = os.urandom(32)
    for store in (first, second):
        store.open_round(task, maximum=3, tokens=False)
    for number in range(4):
        store = (first, second)[number % 2]
        outcome = store.accept([Incoming(task, number.to_bytes(16, "big"), b"report")])[0]
        assert outcome is (ReportOutcome.NEW if number < 3 else ReportOutcome.FULL)
    with first.claim(task) as mine, second.claim(task) as also_mine:
        assert mine
        assert not also_mine
    assert second.close_round(task) == 3
    first.advance(task, RoundState.SHUFFLED, b"manifest of the first")
    with pytest.raises(StoreError, match="another note"):
        second.advance(task, RoundState.SHUFFLED, b"manifest of the second")
    assert second.note(task) == b"manifest of the first"
    first.close()
    second.close()


def files_with(folder: Path, content: bytes) -> list[str]:
    return [each.name for each in folder.rglob("*") if each.is_file() and content in each.read_bytes()]


def test_a_destroyed_round_leaves_no_bytes_in_the_folder(tmp_path):
    store = open_store(str(tmp_path / "store"))
    kept, gone = os.urandom(32), os.urandom(32)
    secret, token = os.urandom(64), os.urandom(32)
    for task in (kept, gone):
        store.open_round(task, maximum=100, tokens=True)
        store.add_tokens(task, [token])
    assert store.accept([Incoming(gone, secret[:16], secret * 5, token)]) == [ReportOutcome.NEW]
    assert files_with(tmp_path, secret)
    store.close_round(gone)
    assert files_with(tmp_path, secret)
    store.destroy(gone)
    assert files_with(tmp_path, secret) == files_with(tmp_path, secret[:16]) == []
    assert not [each for each in (tmp_path / "store").iterdir() if gone.hex() in each.name]
    assert [each for each in (tmp_path / "store").iterdir() if kept.hex() in each.name]
    store.close()


def test_a_destroyed_round_leaves_no_table(postgres_server, postgres_location):
    folder = Path(postgres_server.split("host=")[1]) / "base"
    store = open_store(postgres_location)
    task, secret = os.urandom(32), os.urandom(64)
    store.open_round(task, maximum=100, tokens=True)
    store.add_tokens(task, [secret[:32]])
    store.accept([Incoming(task, secret[:16], secret * 5, secret[:32])])
    store.close_round(task)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'shuffledp' AND tablename ~ '_[0-9]+$'"
    with psycopg.connect(postgres_location, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        assert connection.execute(tables).fetchone()[0] == 2
        assert files_with(folder, secret)
        store.destroy(task)
        assert connection.execute(tables).fetchone()[0] == 0
        connection.execute("CHECKPOINT")
        assert files_with(folder, secret) == []
    store.close()


def test_what_a_kill_left_of_a_destroyed_round_is_removed(tmp_path, monkeypatch):
    store = open_store(str(tmp_path / "store"))
    task = os.urandom(32)
    store.open_round(task, maximum=100, tokens=False)
    store.accept([Incoming(task, bytes(16), b"secret" * 9)])
    store.close_round(task)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "remove", lambda _: None)
        store.destroy(task)
    store.close()
    assert files_with(tmp_path, b"secret" * 9)
    again = open_store(str(tmp_path / "store"))
    assert again.state(task) is RoundState.DESTROYED
    assert files_with(tmp_path, b"secret" * 9) == []
    again.close()


def test_a_full_disk_refuses_whole_batches_and_loses_nothing(tmp_path):
    store = open_store(str(tmp_path / "store"))
    task = os.urandom(32)
    store.open_round(task, maximum=10**6, tokens=False)
    connection = store._rounds[task].connection
    connection.execute("PRAGMA max_page_count = 30")
    accepted: list[Incoming] = []

    def fill() -> None:
        for start in range(0, 1000, 16):
            batch = [Incoming(task, n.to_bytes(16, "big"), body(n)) for n in range(start, start + 16)]
            assert set(store.accept(batch)) == {ReportOutcome.NEW}
            accepted.extend(batch)

    with pytest.raises(StoreError, match="full"):
        fill()
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.count(task) == len(accepted) > 0
    assert store.accept([Incoming(task, b"later".ljust(16), b"later")]) == [ReportOutcome.NEW]
    assert store.close_round(task) == len(accepted) + 1
    assert sorted(store.reports(task)) == sorted([b"later", *(each.body for each in accepted)])
    store.close()


def test_one_process_uses_a_folder(tmp_path):
    folder = str(tmp_path / "store")
    store = open_store(folder)
    with pytest.raises(StoreError, match="another process uses it"):
        open_store(folder)
    code = f"from shuffledp.collection.shuffler.store import open_store; open_store({folder!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process uses it" in other.stderr
    store.close()
    open_store(folder).close()


def test_only_the_owner_can_read_the_files(tmp_path):
    store = open_store(str(tmp_path / "store"))
    store.open_round(bytes(32), maximum=1, tokens=False)
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0
    assert [each for each in (tmp_path / "store").iterdir() if each.stat().st_mode & 0o077] == []
    store.close()


def test_an_index_that_someone_removed_is_missed(tmp_path):
    folder = tmp_path / "store"
    store = open_store(str(folder))
    store.open_round(bytes(32), maximum=1, tokens=False)
    store.accept([Incoming(bytes(32), bytes(16), b"report")])
    store.close()
    for each in folder.glob("index*"):
        each.unlink()
    with pytest.raises(StoreError, match=r"[Rr]estore it"):
        open_store(str(folder))


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "index.db").write_bytes(b"something else" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        open_store(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Cannot open"):
        open_store(str(tmp_path / "file"))
