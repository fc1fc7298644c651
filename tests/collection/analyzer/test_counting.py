"""Opening and counting: every message once, what is wrong is rejected alone, and pieces add up on any cores."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.analyzer import counting
from shuffledp.collection.analyzer.counting import (
    OUTSIDE_DOMAIN,
    REPEATED,
    Piece,
    ShutdownError,
    count_messages,
    pieces_of,
)
from shuffledp.collection.server.duplicates import find_duplicates
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.errors import DataError
from shuffledp.messages import Messages

pytestmark = pytest.mark.kernels


def file_of(tmp_path: Path, sealed: list[bytes]) -> list[tuple[Path, int]]:
    file = tmp_path / "messages"
    file.write_bytes(b"".join(sealed))
    return [(file, file.stat().st_size)]


def count(collection, task, files, **options):
    return count_messages(task, collection.analyzer, list(pieces_of(task, files)), **options)


@pytest.mark.parametrize("name", ["histogram/uniform-blanket", "histogram/hadamard-response", "count/balcer-cheu"])
def test_every_message_is_counted_once(collection, tmp_path, name):
    task = collection.task(name, users=100)
    messages = task.protocol.randomize_all(np.arange(300) % 2)
    packed = task.protocol.message_format.pack(messages.values)
    sealed = [collection.seal_raw(task, b"\x01" + row.tobytes()) for row in packed]
    sealed += [collection.seal_raw(task, bytes(1 + task.message_size)) for _ in range(7)]
    counted = count(collection, task, file_of(tmp_path, sealed))
    expected = task.protocol.tally(messages)
    assert np.array_equal(counted.tally.counts, expected.counts)
    assert (counted.messages, counted.dummies, counted.total_rejected) == (len(packed), 7, 0)


def test_what_is_wrong_is_rejected_alone_and_by_its_reason(collection, tmp_path):
    task, other = collection.task(categories=["a", "b", "c"]), collection.task()
    good = collection.sealed(task, np.arange(60) % 3)
    clean = count(collection, task, file_of(tmp_path, good))
    size = task.message_size
    wrong = [
        os.urandom(task.sealed_size),
        bytes(task.sealed_size),
        good[0][:-1] + bytes([good[0][-1] ^ 1]),
        collection.seal_raw(other, b"\x01" + bytes(size)),
        collection.seal_raw(task, b"\x02" + bytes(size)),
        collection.seal_raw(task, b"\x00" + b"\x01" * size),
        collection.seal_raw(task, b"\x01" + b"\xff" * size),
        collection.seal_raw(task, b"\x01" + b"\xc0" + bytes(size - 1)),
    ]
    mixed = [*good, *wrong]
    np.random.default_rng().shuffle(mixed)
    counted = count(collection, task, file_of(tmp_path, mixed))
    assert counted.tally == clean.tally
    assert (counted.messages, counted.dummies) == (clean.messages, clean.dummies)
    assert counted.rejected == {"cannot-be-opened": 4, "malformed": 2, OUTSIDE_DOMAIN: 2}


def test_nothing_but_messages_outside_the_domain(collection, tmp_path):
    task = collection.task(categories=["a", "b", "c"])
    bad = [collection.seal_raw(task, b"\x01" + b"\xff" * task.message_size) for _ in range(50)]
    counted = count(collection, task, file_of(tmp_path, bad))
    assert counted.rejected == {OUTSIDE_DOMAIN: 50}
    assert counted.tally.counts.sum() == counted.messages == 0


def test_the_wrong_key_opens_nothing(collection, tmp_path):
    task = collection.task()
    files = file_of(tmp_path, collection.sealed(task, np.zeros(20, dtype=int)))
    pieces = list(pieces_of(task, files))
    counted = count_messages(task, SealingKey.create(), pieces)
    assert counted.rejected == {"cannot-be-opened": 20 * task.messages_per_report}


def test_cores_pieces_and_progress_make_no_difference(collection, tmp_path, monkeypatch):
    task = collection.task()
    sealed = [*collection.sealed(task, np.arange(200) % 4), os.urandom(task.sealed_size)]
    files = file_of(tmp_path, sealed)
    here = count(collection, task, files)
    monkeypatch.setattr(counting, "_MIN_MESSAGES_FOR_PROCESSES", 0)
    monkeypatch.setattr(counting, "_MIN_PIECE_MESSAGES", 64)
    seen = []
    children = set(multiprocessing.active_children())  # of other tests
    there = count(collection, task, files, processes=2, progress=seen.append)
    assert len(seen) == -(-len(sealed) // 64)
    assert sum(each.messages for each in seen) == here.messages
    assert (there.tally, there.messages, there.dummies, there.rejected) == (
        here.tally,
        here.messages,
        here.dummies,
        here.rejected,
    )
    assert set(multiprocessing.active_children()) <= children
    with pytest.raises(ShutdownError):
        count(collection, task, files, processes=2, stopping=lambda: True)
    with pytest.raises(DataError, match="truncated"):
        count_messages(task, collection.analyzer, [Piece(files[0][0], 0, len(sealed) + 1)], processes=1)


def test_a_tally_of_no_messages_exists_for_every_message_form(collection):
    for name in ("histogram/cheu", "histogram/solh", "sum/split-and-mix", "histogram/count-min"):
        settings = {} if name.startswith("histogram") else {"domain": _unit()}
        task = collection.task(name, users=2000, settings=settings)
        tally = counting.no_messages(task.protocol)
        assert tally == task.protocol.tally(Messages(task.protocol.message_format.empty(0), 0))
        assert not tally.counts.any()


def _unit():
    from shuffledp.domain import Interval

    return Interval(0.0, 1.0)


PARENT = """
import sys, time
from types import SimpleNamespace
from shuffledp.collection.analyzer import counting
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.protocols.documents import from_document

if __name__ == "__main__":
    told = SimpleNamespace(protocol=from_document({told!r}), id=bytes(32), message_size=1, sealed_size=50, version=1)
    with counting.opening_processes(told, SealingKey.create(), 2) as pool:
        for future in [pool.submit(time.sleep, 0.1) for _ in range(2)]:
            future.result()
        print(*pool._processes, flush=True)
        time.sleep(60)
"""


def test_processes_that_know_the_key_end_with_a_killed_analyzer(collection, tmp_path):
    from shuffledp.protocols.documents import to_document

    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(told=to_document(collection.task().protocol)))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        children = [int(each) for each in parent.stdout.readline().split()]
        assert len(children) >= 1
        assert all(_is_alive(child) for child in children)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(_is_alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_alive(child) for child in children)


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_copies_are_counted_once(collection, tmp_path):
    """Whoever saw a sealed report sends its messages again: the release does not show it."""
    task = collection.task(categories=["a", "b", "c"])
    good = collection.sealed(task, np.arange(60) % 3)
    clean = count(collection, task, file_of(tmp_path, good))
    again = count(collection, task, file_of(tmp_path, [*good[:5], *good, *good[10:12], good[0]]))
    assert np.array_equal(clean.tally.counts, again.tally.counts)
    assert again.rejected == {REPEATED: 8}


def test_what_only_begins_like_a_message_does_not_push_it_out(collection, tmp_path):
    task = collection.task(categories=["a", "b", "c"])
    good = collection.sealed(task, np.arange(60) % 3)
    clean = count(collection, task, file_of(tmp_path, good))
    broken = [each[:-1] + bytes([each[-1] ^ 1]) for each in good]
    counted = count(collection, task, file_of(tmp_path, [*broken, *good]))
    assert np.array_equal(clean.tally.counts, counted.tally.counts)
    assert counted.rejected == {"cannot-be-opened": len(good)}


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_copies_are_found_in_bounded_memory(tmp_path, at_once):
    """The same copies, however few messages are compared at a time, over several pieces."""
    rng = np.random.default_rng(5)
    records = [rng.bytes(20) for _ in range(50)]
    records += [records[3], records[40], records[3], records[7][:-1] + b"?"]
    (tmp_path / "messages").write_bytes(b"".join(records))
    pieces = [Piece(tmp_path / "messages", start * 20, min(20, 54 - start)) for start in range(0, 54, 20)]
    assert find_duplicates(pieces, 20, at_once=at_once) == {2: bytes(10) + b"\x01\x01\x01\x00"}


def test_messages_that_begin_alike_cost_no_more_than_others(tmp_path, monkeypatch):
    """Whoever stuffs a round with them does not have a file opened, nor a message looked at, for each."""
    beginning, size, number = os.urandom(32), 50, 20_000
    records = [beginning + os.urandom(size - 32) for _ in range(number)]
    records += [records[0]] * number
    (tmp_path / "messages").write_bytes(b"".join(records))
    pieces = [Piece(tmp_path / "messages", start * size, 4000) for start in range(0, len(records), 4000)]
    opened, looked_at = [], []
    true_open, true_hash = Path.open, hashlib.blake2b

    def open_counted(*arguments):
        opened.append(arguments)
        return true_open(*arguments)

    def hash_counted(*arguments, **options):
        looked_at.append(arguments)
        return true_hash(*arguments, **options)

    monkeypatch.setattr(Path, "open", open_counted)
    monkeypatch.setattr(hashlib, "blake2b", hash_counted)
    found = find_duplicates(pieces, size)
    assert found == {place: bytes([1]) * 4000 for place in range(5, 10)}
    assert len(opened) <= 2 * len(pieces)
    assert len(looked_at) == number + 1, "only the copies, and what they are copies of"
