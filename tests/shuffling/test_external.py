"""The permutation through files is uniform at every level, bounded in memory, and leaves nothing behind."""

import math
import os
import tracemalloc
from bisect import bisect_left
from itertools import count, permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffledp import durable_files
from shuffledp.errors import OutputError, ParameterError
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness
from shuffledp.shuffling import external
from shuffledp.shuffling.external import permute_file
from shuffledp.testing.statistics import ALPHA, p_value

RECORD = 3

pytestmark = pytest.mark.usefixtures("path")


def names(folder) -> list[str]:
    return [each.name for each in folder.iterdir()]


def memory_for(records: int, record_size: int = RECORD) -> int:
    """A limit under which just so many records are in memory at once."""
    return 1 + bisect_left(range(1, 1 << 40), records, key=lambda memory: external._records_in(memory, record_size))


@pytest.fixture
def quick(monkeypatch):
    """Thousands of runs: nothing has to be durable, and two buckets make many levels."""
    monkeypatch.setattr(durable_files.os, "fsync", lambda _: None)
    monkeypatch.setattr(external, "_BUCKETS", 2)


def permuted(folder, count: int, *, in_memory: int, per_block: int = 1) -> tuple[int, ...]:
    records = [bytes((number,)) * RECORD for number in range(count)]
    blocks = [b"".join(records[start : start + per_block]) for start in range(0, count, per_block)]
    out = folder / "out"
    assert permute_file(blocks, RECORD, out, scratch=folder, memory=memory_for(in_memory)) == count
    content = out.read_bytes()
    assert all(
        content[place : place + RECORD] == content[place : place + 1] * RECORD for place in range(0, count, RECORD)
    )
    return tuple(content[::RECORD])


def permutation_table(folder, size: int, trials: int, **how) -> np.ndarray:
    places = {order: place for place, order in enumerate(permutations(range(size)))}
    table = np.zeros(len(places))
    for _ in range(trials):
        table[places[permuted(folder, size, **how)]] += 1
    return table


def uniform(size: int) -> np.ndarray:
    return np.full(math.factorial(size), 1 / math.factorial(size))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("size", "in_memory", "per_block"),
    [pytest.param(3, 1, 1, marks=pytest.mark.slow), (4, 1, 2), (4, 2, 1), (4, 4, 4), (4, 5, 1)],
    ids=lambda number: str(number),
)
def test_all_permutations_are_equally_likely_at_every_level(tmp_path, size, in_memory, per_block):
    table = permutation_table(tmp_path, size, 400, in_memory=in_memory, per_block=per_block)
    assert p_value(table, uniform(size)) > ALPHA


@pytest.mark.usefixtures("quick")
def test_buckets_that_are_not_permuted_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(external, "permute", lambda *_: None)
    assert p_value(permutation_table(tmp_path, 4, 600, in_memory=2), uniform(4)) < ALPHA


@pytest.mark.usefixtures("quick")
def test_labels_that_favour_a_bucket_are_noticed(tmp_path, monkeypatch):
    """A record that is always in the first bucket comes first too often, however well buckets are permuted."""

    def unfair(piece, groups, source):
        gathered, bounds = group(piece, groups, source)
        place = next((place for place, record in enumerate(gathered.tolist()) if record == bytes(RECORD)), 0)
        if place >= bounds[1]:  # not in the first bucket of two
            gathered[[place, bounds[1]]] = gathered[[bounds[1], place]]
            bounds[1] += 1
        return gathered, bounds

    group = external.group_randomly
    monkeypatch.setattr(external, "group_randomly", unfair)
    assert p_value(permutation_table(tmp_path, 4, 600, in_memory=3), uniform(4)) < ALPHA


@pytest.mark.usefixtures("quick")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 7), max_size=20), st.integers(1, 9), st.integers(1, 40))
def test_every_record_comes_out_once(tmp_path, blocks, record_size, in_memory):
    numbers = iter(range(1000))
    content = [b"".join(next(numbers).to_bytes(record_size + 1, "big")[1:] for _ in range(size)) for size in blocks]
    out = tmp_path / "out"
    memory = memory_for(in_memory, record_size)
    assert permute_file(content, record_size, out, scratch=tmp_path, memory=memory) == sum(blocks)
    whole, result = b"".join(content), out.read_bytes()
    cut = range(0, len(whole), record_size)
    assert sorted(result[i : i + record_size] for i in cut) == sorted(whole[i : i + record_size] for i in cut)
    assert names(tmp_path) == ["out"]


def reports(count: int, messages: int, record_size: int):
    """Blocks of one report each; a record begins with its number."""
    for first in range(0, count * messages, messages):
        block = np.zeros((messages, record_size), dtype=np.uint8)
        block[:, :8] = np.arange(first, first + messages, dtype=np.uint64)[:, None].view(np.uint8)
        yield block.tobytes()


def numbers_in(file, record_size: int) -> np.ndarray:
    return np.fromfile(file, dtype=np.uint8).reshape(-1, record_size)[:, :8].copy().view(np.uint64).ravel().astype(int)


@pytest.mark.parametrize(("count", "memory"), [(4_000, 1 << 23), pytest.param(10_000, 1 << 24, marks=pytest.mark.slow)])
def test_many_records_in_little_memory(tmp_path, count, memory):
    """Memory stays under the limit, every record is there, and places of origin and arrival are independent."""
    record_size, messages = 60, 100
    list(reports(1, messages, record_size))
    permute_file(reports(1, messages, record_size), record_size, tmp_path / "warm", scratch=tmp_path)
    tracemalloc.start()
    try:
        permute_file(
            reports(count, messages, record_size), record_size, tmp_path / "out", scratch=tmp_path, memory=memory
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < memory
    order = numbers_in(tmp_path / "out", record_size)
    size = count * messages
    assert np.array_equal(np.sort(order), np.arange(size))
    cells = 16
    table = np.bincount((order * cells // size) * cells + np.arange(size) * cells // size, minlength=cells**2)
    assert p_value(table, np.full(cells**2, cells**-2.0)) > ALPHA


def neighbours_of_one_report(order: np.ndarray, messages: int) -> np.ndarray:
    """How many records have a record of the same report right behind them, and how many do not."""
    owner = order // messages
    same = int((owner[1:] == owner[:-1]).sum())
    return np.array([same, len(order) - 1 - same])


def test_messages_of_one_report_are_no_nearer_than_chance(tmp_path, monkeypatch):
    """Of neighbours, a share (messages - 1) / (size - 1) belongs together by chance; buckets as they come have more."""
    record_size, count, messages = 12, 400, 50
    size = count * messages
    by_chance = (messages - 1) / (size - 1)
    distribution = [by_chance, 1 - by_chance]
    limit = memory_for(size // 20, record_size)

    def neighbours() -> np.ndarray:
        blocks = reports(count, messages, record_size)
        permute_file(blocks, record_size, tmp_path / "out", scratch=tmp_path, memory=limit)
        return neighbours_of_one_report(numbers_in(tmp_path / "out", record_size), messages)

    assert p_value(sum(neighbours() for _ in range(5)), distribution) > ALPHA
    monkeypatch.setattr(external, "permute", lambda *_: None)
    assert p_value(sum(neighbours() for _ in range(5)), distribution) < ALPHA


def test_a_seed_gives_one_result_and_the_system_does_not(tmp_path):
    def content(source) -> bytes:
        blocks = reports(200, 5, 10)
        permute_file(blocks, 10, tmp_path / "out", scratch=tmp_path, memory=memory_for(300, 10), source=source)
        return (tmp_path / "out").read_bytes()

    assert content(InsecureSeededRandomness(7)) == content(InsecureSeededRandomness(7))
    assert content(SYSTEM) != content(SYSTEM)


def test_nothing_is_left_when_the_blocks_fail(tmp_path):
    def broken():
        yield bytes(10_000)
        raise RuntimeError("the store is gone")

    (tmp_path / "out").write_bytes(b"before")
    with pytest.raises(RuntimeError, match="gone"):
        permute_file(broken(), 10, tmp_path / "out", scratch=tmp_path, memory=memory_for(100, 10))
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"before"


def test_the_result_is_for_its_owner_and_replaces_what_was_left(tmp_path):
    (tmp_path / ".out.partial").write_bytes(b"of a process that was killed")
    assert permute_file([bytes(30)], 10, tmp_path / "out", scratch=tmp_path) == 3
    assert names(tmp_path) == ["out"]
    assert permute_file([], 10, tmp_path / "empty", scratch=tmp_path) == 0
    assert (tmp_path / "empty").stat().st_size == 0
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o600


def test_bad_input_is_refused(tmp_path):
    for record_size, memory in ((0, 100), (10, 0)):
        with pytest.raises(ParameterError, match="at least 1 byte"):
            permute_file([bytes(10)], record_size, tmp_path / "out", scratch=tmp_path, memory=memory)
    with pytest.raises(ParameterError, match="multiple of the record size"):
        permute_file([bytes(20), bytes(15)], 10, tmp_path / "out", scratch=tmp_path)
    with pytest.raises(OutputError, match="Cannot permute"):
        permute_file([bytes(10)], 10, tmp_path / "nowhere" / "out", scratch=tmp_path)
    with pytest.raises(OutputError, match="Cannot permute"):
        permute_file([bytes(1000)], 10, tmp_path / "out", scratch=tmp_path / "nowhere", memory=memory_for(2, 10))
    assert names(tmp_path) == []


def spilled(tmp_path, monkeypatch):
    """How many of the first 50 records are in clear in a scratch file, after a permutation that needs several."""
    (kept := tmp_path / "kept").mkdir()
    names = (kept / str(number) for number in count())
    monkeypatch.setattr(external.tempfile, "TemporaryFile", lambda **_: next(names).open("w+b"))
    records = [os.urandom(20) for _ in range(5_000)]
    out = tmp_path / "out"
    permute_file([b"".join(records)], 20, out, scratch=tmp_path, memory=memory_for(500, 20))
    permuted = out.read_bytes()
    assert sorted(records) == sorted(permuted[at : at + 20] for at in range(0, len(permuted), 20))
    content = b"".join(file.read_bytes() for file in kept.iterdir())
    assert len(content) >= 20 * len(records)
    return sum(record in content for record in records[:50])


def test_scratch_files_are_encrypted(tmp_path, monkeypatch):
    """They have the records in the order of arrival; with a key stream of zeros, all would be found."""
    assert spilled(tmp_path, monkeypatch) == 0


def test_a_scratch_file_in_clear_is_seen(tmp_path, monkeypatch):
    class Clear:
        update = staticmethod(bytes)

    monkeypatch.setattr(external._EncryptedFile, "_cipher_at", lambda self, position: Clear)
    assert spilled(tmp_path, monkeypatch) == 50
