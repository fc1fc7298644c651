"""The memory of SQLite for pages is one budget, however many rounds are open and busy."""

import os
import subprocess
import sys

import pytest

from shuffledp.collection.shuffler.store import Incoming, RoundState
from shuffledp.collection.shuffler.store.sqlite import SqliteStore

BUDGET = 1 << 26

FILL = """
import os, sys
from shuffledp.collection.shuffler.store.interface import Incoming
from shuffledp.collection.shuffler.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], cache_bytes=int(sys.argv[2]))
tasks = [os.urandom(32) for _ in range(6)]
for task in tasks:
    store.open_round(task, maximum=10**6, tokens=False)

def memory():
    lines = open("/proc/self/status").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

body = bytes(40_000)
store.accept([Incoming(task, os.urandom(16), body) for task in tasks])
before = memory()
for _ in range(50):
    for task in tasks:
        store.accept([Incoming(task, os.urandom(16), body) for _ in range(10)])
print(memory() - before)
"""


def caches(store) -> list[int]:
    """The bytes that each open round may have."""
    rounds = [each for each in store._rounds.values() if each.connection is not None]
    return [-1024 * each.connection.execute("PRAGMA cache_size").fetchone()[0] for each in rounds]


def test_rounds_that_come_and_go_share_it(tmp_path):
    store = SqliteStore(tmp_path, cache_bytes=BUDGET)
    tasks = [os.urandom(32) for _ in range(12)]
    for number, task in enumerate(tasks, start=1):
        store.open_round(task, maximum=9, tokens=False)
        assert len(caches(store)) == number
        assert 0.99 * BUDGET <= sum(caches(store)) <= BUDGET
    for task in tasks[:4]:
        store.close_round(task)
        assert 0.99 * BUDGET <= sum(caches(store)) <= BUDGET
    store.destroy(tasks[0])
    store.give_up(tasks[4], RoundState.CANCELLED)
    store.give_up(tasks[5], RoundState.ABANDONED)
    assert len(caches(store)) == 6
    assert 0.99 * BUDGET <= sum(caches(store)) <= BUDGET
    store.close()
    again = SqliteStore(tmp_path, cache_bytes=BUDGET)
    assert caches(again) == caches(again)[:1] * 6
    assert 0.99 * BUDGET <= sum(caches(again)) <= BUDGET
    again.close()


def test_a_round_has_a_few_pages_in_any_case(tmp_path):
    store = SqliteStore(tmp_path, cache_bytes=1)
    task = os.urandom(32)
    store.open_round(task, maximum=1000, tokens=True)
    hashes = [os.urandom(32) for _ in range(1000)]
    store.add_tokens(task, hashes)
    batch = [Incoming(task, os.urandom(16), bytes(3000), each) for each in hashes]
    assert {each.value for each in store.accept(batch)} == {"new"}
    assert caches(store) == [1 << 16]
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_busy_rounds(tmp_path):
    """Six rounds of 20 MB: a budget of 24 MB is kept to, and one that is larger is used."""
    grown = {
        budget: 1024
        * int(
            subprocess.run(
                [sys.executable, "-c", FILL, str(tmp_path / str(budget)), str(budget)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for budget in (24 << 20, 240 << 20)
    }
    assert grown[24 << 20] < 40 << 20
    assert grown[240 << 20] > 60 << 20  # the test of the test: without one budget it is more
