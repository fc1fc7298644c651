"""Batches as they arrive: in any order, again and again, at the same time, after a restart, with a broken disk."""

import random
import shutil
import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from shuffledp.collection.server.batches import (
    Batches,
    BatchOutcome,
    BatchState,
    ExpectedBatch,
)
from shuffledp.collection.wire.formats import MAX_MANIFEST_BYTES
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.errors import DataError, ParameterError


@pytest.fixture
def batch(collection):
    task = collection.task()
    return collection.batch(task, collection.sealed(task, np.arange(250) % 4), chunk_records=40)


def test_chunks_in_any_order_and_more_than_once(collection, batch):
    batches, task_id = Batches(collection.folder / "work"), batch.task.id
    assert batches.put_chunk(task_id, 0, batch.chunks[0]) is BatchOutcome.UNKNOWN
    assert batches.put_manifest(batch.manifest, batch.signed) is BatchOutcome.NEW
    assert batches.put_manifest(batch.manifest, batch.signed) is BatchOutcome.SAME
    order = list(range(len(batch.chunks)))
    random.shuffle(order)
    left = set(order)
    for place in order:
        assert batches.missing(task_id, 1000) == sorted(left)
        assert batches.get(task_id).state is BatchState.RECEIVING
        assert batches.put_chunk(task_id, place, batch.chunks[place]) is BatchOutcome.NEW
        assert batches.put_chunk(task_id, place, batch.chunks[place]) is BatchOutcome.SAME
        left.discard(place)
    assert batches.get(task_id).state is BatchState.COMPLETE
    assert batches.missing(task_id, 1000) == []
    assert b"".join(file.read_bytes() for file, _ in batches.chunk_files(task_id)) == b"".join(batch.chunks)
    batches.close()


def test_what_is_not_the_chunk_of_the_manifest_is_not_kept(collection, batch):
    batches, task_id = Batches(collection.folder / "work"), batch.task.id
    batches.put_manifest(batch.manifest, batch.signed)
    for place, content in ((0, batch.chunks[1]), (0, b""), (0, batch.chunks[0][:-1])):
        assert batches.put_chunk(task_id, place, content) is BatchOutcome.CONFLICT
    for place in (-1, len(batch.chunks)):
        assert batches.put_chunk(task_id, place, batch.chunks[0]) is BatchOutcome.UNKNOWN
    assert batches.missing(task_id, 3) == [0, 1, 2]
    batches.close()


def test_a_second_manifest_is_refused_before_and_after_the_release(collection, batch):
    batches, task_id = Batches(collection.folder / "work"), batch.task.id
    other = collection.batch(batch.task, collection.sealed(batch.task, np.zeros(250, dtype=int)))
    batches.put_manifest(batch.manifest, batch.signed)
    assert batches.put_manifest(other.manifest, other.signed) is BatchOutcome.CONFLICT
    for place, chunk in enumerate(batch.chunks):
        batches.put_chunk(task_id, place, chunk)
    batches.finish(task_id, BatchState.RELEASED)
    assert batches.put_manifest(other.manifest, other.signed) is BatchOutcome.GONE
    assert batches.put_manifest(batch.manifest, batch.signed) is BatchOutcome.SAME
    assert batches.put_chunk(task_id, 0, batch.chunks[0]) is BatchOutcome.SAME
    assert batches.get(task_id).state is BatchState.RELEASED
    assert list((collection.folder / "work" / "batches").iterdir()) == [], "the messages are gone"
    batches.finish(task_id, BatchState.REFUSED, "too late")
    assert batches.get(task_id).state is BatchState.RELEASED
    batches.close()


def test_a_restart_goes_on_where_it_was(collection, batch):
    work, task_id = collection.folder / "work", batch.task.id
    batches = Batches(work)
    batches.put_manifest(batch.manifest, batch.signed)
    for place in (1, 3):
        batches.put_chunk(task_id, place, batch.chunks[place])
    batches.close()
    folder = work / "batches" / task_id.hex()
    (folder / ".2.chunk.77").write_bytes(b"half of it")
    (work / "batches" / ("ab" * 32)).mkdir()
    batches = Batches(work)
    assert batches.missing(task_id, 1000) == [0, 2, *range(4, len(batch.chunks))]
    assert not list(folder.glob(".*"))
    assert [each.name for each in (work / "batches").iterdir()] == [task_id.hex()]
    for place in (0, 2, *range(4, len(batch.chunks))):
        batches.put_chunk(task_id, place, batch.chunks[place])
    with batches._lock:
        batches._advance(task_id, BatchState.COMPLETE, BatchState.RECEIVING)  # killed before this was written
    batches.close()
    batches = Batches(work)
    assert batches.get(task_id).state is BatchState.COMPLETE
    batches.close()


def test_a_chunk_that_the_disk_lost_is_asked_for_again(collection, batch):
    batches, task_id = Batches(collection.folder / "work"), batch.task.id
    batches.put_manifest(batch.manifest, batch.signed)
    for place, chunk in enumerate(batch.chunks):
        batches.put_chunk(task_id, place, chunk)
    files = [file for file, _ in batches.chunk_files(task_id)]
    files[2].write_bytes(batch.chunks[1])
    files[4].unlink()
    with pytest.raises(DataError, match="2 chunks"):
        batches.chunk_files(task_id)
    assert batches.missing(task_id, 1000) == [2, 4]
    assert batches.get(task_id).state is BatchState.RECEIVING
    for place in (2, 4):
        assert batches.put_chunk(task_id, place, batch.chunks[place]) is BatchOutcome.NEW
    assert len(batches.chunk_files(task_id)) == len(batch.chunks)
    batches.close()


def test_the_same_chunks_from_several_senders_at_once(collection, batch):
    batches, task_id = Batches(collection.folder / "work"), batch.task.id
    outcomes: list[BatchOutcome] = []

    def send():
        batches.put_manifest(batch.manifest, batch.signed)
        for place in random.sample(range(len(batch.chunks)), len(batch.chunks)):
            outcomes.append(batches.put_chunk(task_id, place, batch.chunks[place]))
            if batches.get(task_id).state is BatchState.COMPLETE:
                batches.finish(task_id, BatchState.RELEASED)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6 * len(batch.chunks)
    assert outcomes.count(BatchOutcome.NEW) == len(batch.chunks)
    assert set(outcomes) == {BatchOutcome.NEW, BatchOutcome.SAME}
    assert batches.get(task_id).state is BatchState.RELEASED
    assert list((collection.folder / "work" / "batches").iterdir()) == []
    batches.close()


def test_manifests_are_read_only_from_the_shuffler_of_the_task(collection, batch):
    task = batch.task
    assert ExpectedBatch.of_last(task).read(batch.signed) == batch.manifest
    assert ExpectedBatch.of_last(task).read(batch.manifest.signed(SigningKey.create())) is None
    broken = bytearray(batch.signed)
    broken[-10] = broken[-10] ^ 1
    other_task = collection.task()
    few = collection.batch(task, collection.sealed(task, np.zeros(100, dtype=int)))
    for content in (b"", b"{}", b"[]", batch.signed[:-1], batch.signed + b" ", few.signed):
        with pytest.raises(ParameterError):
            ExpectedBatch.of_last(task).read(content)
    with pytest.raises(ParameterError, match="another task"):
        ExpectedBatch.of_last(other_task).read(batch.signed)
    assert len(batch.signed) < ExpectedBatch.of_last(task).max_manifest_bytes < MAX_MANIFEST_BYTES


def test_a_newer_version_of_the_file_is_refused(collection):
    Batches(collection.folder / "work").close()
    with closing(sqlite3.connect(collection.folder / "work" / "analyzer.db")) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(DataError, match="version 9"):
        Batches(collection.folder / "work")


def lose_folder(folder):
    shutil.rmtree(folder)


def lose_manifest(folder):
    (folder / "manifest").unlink()


def damage_manifest(folder):
    (folder / "manifest").write_bytes(b"junk")


@pytest.mark.parametrize("harm", [lose_folder, lose_manifest, damage_manifest])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_manifest_that_is_lost_is_taken_again(collection, batch, harm, restarted):
    work, task_id = collection.folder / "work", batch.task.id
    batches = Batches(work)
    batches.put_manifest(batch.manifest, batch.signed)
    batches.put_chunk(task_id, 0, batch.chunks[0])
    harm(work / "batches" / task_id.hex())
    if restarted:
        batches.close()
        batches = Batches(work)
        assert batches.count_missing(task_id) == len(batch.chunks)
        assert batches.missing(task_id, 2) == [0, 1]
    assert batches.put_manifest(batch.manifest, batch.signed) is BatchOutcome.SAME
    assert batches.missing(task_id, 1) == ([0] if harm is lose_folder else [1])
    for place, chunk in enumerate(batch.chunks):
        batches.put_chunk(task_id, place, chunk)
    assert batches.get(task_id).state is BatchState.COMPLETE
    assert b"".join(file.read_bytes() for file, _ in batches.chunk_files(task_id)) == b"".join(batch.chunks)
    batches.close()


def test_a_batch_whose_folder_is_lost_can_be_given_up(collection, batch):
    work, task_id = collection.folder / "work", batch.task.id
    batches = Batches(work)
    batches.put_manifest(batch.manifest, batch.signed)
    batches.close()
    lose_folder(work / "batches" / task_id.hex())
    batches = Batches(work)
    batches.give_up(task_id, "lost")
    assert batches.get(task_id).state is BatchState.REFUSED
    assert batches.count_missing(task_id) == 0
    batches.close()
