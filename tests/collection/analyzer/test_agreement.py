"""What the analyzer keeps agrees, or it does not start: a lost ledger never lets the budget start anew."""

import json
import logging
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from shuffledp.collection.analyzer import publishing
from shuffledp.collection.analyzer.agreement import check_agreement
from shuffledp.collection.analyzer.estimating import NotReleasedError
from shuffledp.collection.analyzer.overview import directory_overview
from shuffledp.collection.server.batches import BatchOutcome, BatchState
from shuffledp.collection.wire.formats import digest
from shuffledp.errors import DataError

FORMS = ("json", "csv", "html")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(publishing, "release_page", lambda *_: b"a page")


@pytest.fixture
def work(collection):
    return collection.folder / "work"


@pytest.fixture
def new_batch(collection):
    def make(task=None, **changes):
        task = task or collection.task("histogram/k-rr", **changes)
        return collection.batch(task, collection.sealed(task, np.arange(220) % 4), chunk_records=60)

    return make


@pytest.fixture
def release(collection, deliver):
    def run(*batches):
        analyzer = collection.open()
        states = []
        for batch in batches:
            deliver(analyzer, batch)
            states.append(analyzer.releaser.release(batch.task.id))
        entries = [analyzer.ledger.entry(batch.task.id) for batch in batches]
        analyzer.close()
        assert states == [BatchState.RELEASED if entry.granted else BatchState.REFUSED for entry in entries]
        return entries

    return run


def lose(work, name):
    for file in work.glob(f"{name}*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def contents(work):
    """Everything but the lock and what SQLite needs beside a database to read it."""
    files = [file for file in work.rglob("*") if file.is_file() and not file.name.endswith((".lock", "-shm", "-wal"))]
    return {file: file.read_bytes() for file in files}


def refused(collection, words):
    """It does not start, says so in one line, and has changed nothing."""
    before = contents(collection.folder / "work")
    for start in (collection.open, lambda: directory_overview(collection.settings())):
        with pytest.raises(DataError, match=words) as told:
            start()
        assert len(str(told.value).splitlines()) == 1
    assert contents(collection.folder / "work") == before


def restored(collection):
    collection.open(restore_from_releases=True).close()
    return collection.open()


def test_a_lost_ledger_is_noticed_and_can_be_taken_up_again(collection, work, release, new_batch, deliver):
    collection.budgets(people=(2.5, 1e-5))
    batches = [new_batch() for _ in range(2)]
    entries = release(*batches)
    published = (work / "releases" / f"{batches[1].task.id.hex()}.json").read_bytes()
    assert json.loads(published)["manifest"] == digest(batches[1].signed).hex()
    lose(work, "ledger.db")
    refused(collection, "lacks 2 of the releases that were made.*restore the backup.*restore_from_releases")
    analyzer = restored(collection)
    assert [analyzer.ledger.entry(batch.task.id) for batch in batches] == entries
    third = new_batch()
    analyzer.tasks.refresh()
    deliver(analyzer, third)
    assert analyzer.releaser.release(third.task.id) is BatchState.REFUSED, "the budget did not start anew"
    analyzer.close()


def test_an_older_ledger_is_noticed(collection, work, release, new_batch):
    first, second = new_batch(), new_batch()
    before = release(first)
    shutil.copy(work / "ledger.db", collection.folder / "backup.db")
    release(second)
    lose(work, "ledger.db")
    shutil.copy(collection.folder / "backup.db", work / "ledger.db")
    refused(collection, "lacks 1 of the releases")
    analyzer = restored(collection)
    assert [analyzer.ledger.entry(first.task.id)] == before
    assert analyzer.ledger.entry(second.task.id).releases == 2
    analyzer.close()


def test_a_lost_ledger_with_releases_that_are_gone_too(collection, work, release, new_batch):
    """The states of the batches still say what was released."""
    batch = new_batch()
    (entry,) = release(batch)
    lose(work, "ledger.db")
    lose(work, "releases")
    refused(collection, "lacks 1 of the releases")
    analyzer = restored(collection)
    assert analyzer.ledger.entry(batch.task.id) == entry
    analyzer.close()


def test_a_ledger_and_states_that_are_both_lost(collection, work, release, new_batch):
    batches = [new_batch() for _ in range(3)]
    entries = release(*batches)
    for name in ("ledger.db", "analyzer.db"):
        lose(work, name)
    refused(collection, "lacks 3 of the releases")
    analyzer = restored(collection)
    assert [analyzer.ledger.entry(batch.task.id) for batch in batches] == entries, "also their order is restored"
    other = new_batch(batches[0].task)
    assert analyzer.batches.put_manifest(other.manifest, other.signed) is BatchOutcome.GONE
    assert analyzer.batches.put_manifest(batches[0].manifest, batches[0].signed) is BatchOutcome.SAME
    analyzer.close()


def test_what_is_needed_to_restore(collection, work, release, new_batch):
    batch = new_batch()
    release(batch)
    lose(work, "ledger.db")
    task_file = collection.folder / "tasks" / f"{batch.task.id.hex()}.json"
    content = task_file.read_bytes()
    task_file.unlink()
    with pytest.raises(DataError, match="put its file back"):
        collection.open(restore_from_releases=True)
    task_file.write_bytes(content)
    results = work / "releases" / f"{batch.task.id.hex()}.json"
    whole = results.read_bytes()
    for damaged in (b"", b"{}", b"[]", whole[:100], b'{"budget": {"epsilon": "x"}}'):
        results.write_bytes(damaged)
        with pytest.raises(DataError, match="is not a valid release"):
            collection.open(restore_from_releases=True)
    results.write_bytes(whole)
    restored(collection).close()


def test_lost_states_of_batches_are_noticed(collection, work, release, new_batch, deliver):
    collection.budgets(people=(1.5, 1e-5))
    first, second, waiting = new_batch(), new_batch(), new_batch()
    granted, denied = release(first, second)
    assert granted.granted
    assert not denied.granted
    analyzer = collection.open()
    deliver(analyzer, waiting)
    analyzer.close()
    lose(work, "analyzer.db")
    refused(collection, "analyzer.db lacks 3 of the batches")
    analyzer = restored(collection)
    states = {batch.task_id: (batch.state, batch.reason) for batch in analyzer.batches.all()}
    assert states == {
        first.task.id: (BatchState.RELEASED, ""),
        second.task.id: (BatchState.REFUSED, denied.reason),
        waiting.task.id: (BatchState.COMPLETE, ""),
    }
    assert analyzer.batches.put_manifest(first.manifest, first.signed) is BatchOutcome.SAME
    analyzer.close()


def test_a_batch_that_was_confirmed_is_not_deleted_because_its_state_was_lost(collection, work, new_batch, deliver):
    batch = new_batch()
    analyzer = collection.open()
    deliver(analyzer, batch)
    analyzer.close()
    lose(work, "analyzer.db")
    refused(collection, "analyzer.db lacks 1 of the batches")
    manifest = work / "batches" / batch.task.id.hex() / "manifest"
    content = manifest.read_bytes()
    manifest.write_bytes(new_batch(batch.task).signed[:-5])
    with pytest.raises(DataError, match="missing or was replaced"):
        collection.open(restore_from_releases=True)
    manifest.write_bytes(content)
    analyzer = restored(collection)
    assert analyzer.releaser.release(batch.task.id) is BatchState.RELEASED
    analyzer.close()


def test_the_ledger_alone_binds_a_task_to_its_batch(collection, work, release, new_batch, deliver):
    batch = new_batch()
    (entry,) = release(batch)
    results = {form: (work / "releases" / f"{batch.task.id.hex()}.{form}").read_bytes() for form in FORMS}
    for name in ("analyzer.db", "releases"):
        lose(work, name)
    analyzer = collection.open()
    other = new_batch(batch.task)
    assert analyzer.batches.put_manifest(other.manifest, other.signed) is BatchOutcome.CONFLICT
    with pytest.raises(NotReleasedError, match="another batch"):
        analyzer.ledger.reserve(batch.task, entry.budget, digest(other.signed))
    deliver(analyzer, batch)
    assert analyzer.releaser.release(batch.task.id) is BatchState.RELEASED
    assert analyzer.ledger.entry(batch.task.id) == entry
    analyzer.close()
    assert results == {form: (work / "releases" / f"{batch.task.id.hex()}.{form}").read_bytes() for form in FORMS}


def test_another_batch_that_is_here_already_is_refused_by_the_ledger(collection, release, new_batch, deliver, work):
    """As if the states had come from somewhere else."""
    batch = new_batch()
    release(batch)
    for name in ("analyzer.db", "releases"):
        lose(work, name)
    analyzer = collection.open()
    analyzer.batches._entered = lambda _: None
    other = new_batch(batch.task)
    deliver(analyzer, other)
    assert analyzer.releaser.release(batch.task.id) is BatchState.REFUSED
    assert "another batch of this task" in analyzer.batches.get(batch.task.id).reason
    analyzer.close()
    with pytest.raises(DataError, match="contradict each other about 1 tasks"):
        collection.open(restore_from_releases=True)


def test_a_refused_task_that_was_published_is_a_contradiction(collection, work, release, new_batch):
    batch = new_batch()
    release(batch)
    with sqlite3.connect(work / "ledger.db") as connection:
        connection.execute("UPDATE releases SET granted = 0")
    connection.close()
    for restore in (False, True):
        with pytest.raises(DataError, match=r"contradict each other.*Restore the backup"):
            collection.open(restore_from_releases=restore)


@pytest.mark.parametrize("name", ["ledger.db", "analyzer.db"])
def test_a_damaged_file_is_said_in_one_line(collection, work, release, new_batch, name):
    release(new_batch())
    (work / name).write_bytes(b"not a database at all" * 100)
    for restore in (False, True):
        with pytest.raises(DataError, match=f"{name} cannot be read.*restore it"):
            collection.open(restore_from_releases=restore)


def test_a_state_that_no_batch_has_is_said_in_one_line(collection, work, release, new_batch):
    release(new_batch())
    with closing(sqlite3.connect(work / "analyzer.db")) as connection:
        connection.execute("UPDATE batches SET state = 'unheard of'")
        connection.commit()
    for restore in (False, True):
        with pytest.raises(DataError, match=r"analyzer.db is damaged.*restore it"):
            collection.open(restore_from_releases=restore)


def test_results_that_are_gone_are_told(collection, work, release, new_batch, caplog):
    batch = new_batch()
    release(batch)
    lose(work, "releases")
    with caplog.at_level(logging.ERROR, "shuffledp.collection"):
        collection.open().close()
    assert [record.msg for record in caplog.records] == ["release-missing"]


def test_a_ledger_of_the_first_version_is_brought_up_to_date(collection, work, release, new_batch, deliver):
    batch, waiting = new_batch(), new_batch()
    (entry,) = release(batch)
    analyzer = collection.open()
    deliver(analyzer, waiting)
    bound = analyzer.ledger.reserve(waiting.task, entry.budget, digest(waiting.signed))  # and then it was killed
    analyzer.close()
    connection = sqlite3.connect(work / "ledger.db", isolation_level=None)
    for column in ("manifest", "series", "round"):
        connection.execute(f"ALTER TABLE releases DROP COLUMN {column}")
    connection.execute("DROP TABLE series")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    check_agreement(work)
    analyzer = collection.open()
    assert analyzer.ledger.manifest(batch.task.id) is None
    assert analyzer.releaser.release(waiting.task.id) is BatchState.RELEASED
    assert analyzer.ledger.entry(waiting.task.id) == bound
    analyzer.close()


def test_nothing_to_restore(collection, work, release, new_batch):
    restored(collection).close()
    release(new_batch())
    before = (work / "ledger.db").read_bytes()
    restored(collection).close()
    assert (work / "ledger.db").read_bytes() == before
