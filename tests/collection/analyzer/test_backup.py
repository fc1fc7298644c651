"""A backup is consistent while the server runs; restored, it never lets the budget or a round start anew."""

import json
import os
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer import backup as backup_module
from shuffledp.collection.analyzer import publishing
from shuffledp.collection.analyzer.backup import back_up, restore, undecided_tasks
from shuffledp.collection.analyzer.directory import MARKER, initialize, read_marker
from shuffledp.collection.analyzer.ledger import entries_in, spent_in
from shuffledp.collection.analyzer.overview import directory_overview
from shuffledp.collection.analyzer.server import tasks_of
from shuffledp.collection.server.batches import BatchOutcome, BatchState, batches_in
from shuffledp.errors import DataError, OutputError

FORMS = ("json", "csv", "html")
DEADLINE = 60.0


def rounds_and_budgets(settings):
    overview = directory_overview(settings)
    return overview["rounds"], overview["populations"]


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
    def run(*batches, **settings):
        analyzer = collection.open(**settings)
        for batch in batches:
            deliver(analyzer, batch)
            analyzer.releaser.release(batch.task.id)
        analyzer.close()

    return run


@pytest.fixture
def restored(collection):
    """Restore a backup into a new directory, with decisions; the settings of the analyzer there."""

    def run(backup, **decisions):
        settings = collection.settings(work=collection.folder / "restored")
        tasks = tasks_of(settings)
        tasks.load()
        released = {batch.task.id: decision == "released" for decision, each in decisions.items() for batch in each}
        restore(backup, settings.work, tasks, released)
        return settings

    return run


def published(work):
    return {file.name: file.read_bytes() for file in (work / "releases").iterdir()}


def entries_without_log(ledger):
    """What a copy of the file alone would have."""
    with closing(sqlite3.connect(f"file:{ledger}?immutable=1", uri=True)) as connection:
        return connection.execute("SELECT count(*) FROM releases").fetchone()[0]


def test_what_is_in_the_log_is_in_the_backup(collection, deliver, work, new_batch):
    """The release is in ledger.db-wal alone: a copy of ledger.db has no entry."""
    analyzer = collection.open()
    batch = new_batch()
    analyzer.tasks.refresh()
    deliver(analyzer, batch)
    analyzer.releaser.release(batch.task.id)
    assert entries_without_log(work / "ledger.db") == 0, "the reason why files are not simply copied"
    backup = collection.folder / "backup"
    made = back_up(work, backup)
    assert (made.entries, made.releases) == (1, 1)
    assert entries_without_log(backup / "ledger.db") == 1
    assert entries_in(backup / "ledger.db") == entries_in(work / "ledger.db")
    assert published(backup) == published(work)
    analyzer.close()


def test_only_what_has_to_be_kept_is_in_it(collection, deliver, work, new_batch):
    """No key, no message, nothing of batches that are not finished; and nobody else can read it."""
    finished, complete = new_batch(), new_batch()
    analyzer = collection.open()
    for batch in (finished, complete):
        deliver(analyzer, batch)
    analyzer.releaser.release(finished.task.id)
    receiving = new_batch()
    analyzer.batches.put_manifest(receiving.manifest, receiving.signed)
    backup = collection.folder / "backup"
    back_up(work, backup)
    analyzer.close()
    files = {str(file.relative_to(backup)) for file in backup.rglob("*") if file.is_file()}
    releases = {f"releases/{finished.task.id.hex()}.{form}" for form in FORMS}
    assert files == {"ledger.db", "analyzer.db", MARKER, *releases}
    assert set(batches_in(backup)) == {finished.task.id}
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in (backup, *backup.rglob("*"))} == {0}
    content = b"".join((backup / file).read_bytes() for file in files)
    assert collection.analyzer.secret not in content
    assert not any(chunk[:32] in content for chunk in complete.chunks)


def test_backups_under_load_are_restored(collection, work, serve, new_batch, restored):
    """Made again and again while batches arrive and are released: each is a moment of the ledger's past."""
    collection.budgets(people=(50.0, 1e-5))
    batches = [new_batch() for _ in range(8)]
    here = serve()

    def send():
        for batch in batches:
            here.deliver(batch)
            here.wait(batch)
            before, deadline = len(backups), time.monotonic() + DEADLINE
            while len(backups) < before + 2:  # one of them was begun after the release
                assert time.monotonic() < deadline
                time.sleep(0.005)

    backups = []
    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive() or not backups:
        backup = collection.folder / f"backup-{len(backups)}"
        back_up(work, backup)
        backups.append(backup)
    sender.join(DEADLINE)
    backups.append(collection.folder / "backup-last")
    assert back_up(work, backups[-1]).releases == len(batches)
    order = [batch.task.id for batch in batches]
    final = entries_in(work / "ledger.db")
    assert len({len(entries_in(each / "ledger.db")) for each in backups}) >= len(batches), "some were made in between"
    for each in backups:
        entries, states = entries_in(each / "ledger.db"), batches_in(each)
        assert list(entries) == order[: len(entries)]
        assert entries == {task: final[task] for task in entries}
        assert {state.state for state in states.values()} <= {BatchState.RELEASED}
        assert set(published(each)) == {f"{task.hex()}.{form}" for task in states for form in FORMS}
    settings = restored(backups[-1])
    assert spent_in(settings.work / "ledger.db", "people", 1e-5) == spent_in(work / "ledger.db", "people", 1e-5)
    assert published(settings.work) == published(work)
    assert rounds_and_budgets(settings) == rounds_and_budgets(collection.settings())
    there, last = serve(work=settings.work), new_batch()
    there.analyzer.tasks.refresh()
    there.deliver(last)
    there.wait(last)
    assert there.get(f"/v1/releases/{last.task.id.hex()}").json()["budget"]["releases"] == len(batches) + 1
    assert there.get(f"/v1/releases/{order[0].hex()}").json()["budget"]["releases"] == 1


def test_a_round_released_after_the_backup_still_counts_and_is_not_released_again(
    collection, work, release, new_batch, restored, deliver
):
    collection.budgets(people=(2.5, 1e-5))
    first, after, third = new_batch(), new_batch(), new_batch()
    release(first)
    backup = collection.folder / "backup"
    back_up(work, backup)
    release(after)
    spent = spent_in(work / "ledger.db", "people", 1e-5)
    with pytest.raises(DataError, match=r"2 tasks may have been released after the backup.*state for each"):
        restored(backup)
    assert not (collection.folder / "restored").exists()
    settings = restored(backup, released=[after], unreleased=[third])
    assert spent_in(settings.work / "ledger.db", "people", 1e-5) == spent
    analyzer = collection.open(work=settings.work)
    for again in (after, new_batch(after.task)):
        assert analyzer.batches.put_manifest(again.manifest, again.signed) is BatchOutcome.CONFLICT
    deliver(analyzer, third)
    assert analyzer.releaser.release(third.task.id) is BatchState.REFUSED, "the budget did not grow"
    analyzer.close()


def test_a_round_that_was_not_released_goes_on(collection, work, release, new_batch, restored):
    """Its batch was here and complete; the shuffler that still has it delivers it again."""
    batch = new_batch()
    analyzer = collection.open()
    analyzer.batches.put_manifest(batch.manifest, batch.signed)
    back_up(work, collection.folder / "backup")
    analyzer.close()
    settings = restored(collection.folder / "backup", unreleased=[batch])
    release(batch, work=settings.work)
    assert set(published(settings.work)) == {f"{batch.task.id.hex()}.{form}" for form in FORMS}


def test_a_release_that_comes_from_elsewhere_is_taken_up(collection, work, release, new_batch, restored):
    """The published file of a later release is the better witness: it has the entry's manifest."""
    first, after = new_batch(), new_batch()
    release(first)
    back_up(work, collection.folder / "backup")
    release(after)
    entries = entries_in(work / "ledger.db")
    settings = restored(collection.folder / "backup", unreleased=[after])
    for form in FORMS:
        shutil.copy(work / "releases" / f"{after.task.id.hex()}.{form}", settings.work / "releases")
    with pytest.raises(DataError, match="lacks 1 of the releases"):
        collection.open(work=settings.work)
    collection.open(work=settings.work, restore_from_releases=True).close()
    assert entries_in(settings.work / "ledger.db") == entries


def test_a_backup_is_not_a_directory_to_start_in(collection, work, release, new_batch):
    """Copied by hand, it would have forgotten what was released since."""
    release(new_batch())
    backup = collection.folder / "backup"
    back_up(work, backup)
    shutil.rmtree(work)
    shutil.copytree(backup, work)
    for start in (collection.open, lambda: directory_overview(collection.settings()), lambda: initialize(work)):
        with pytest.raises(DataError, match=r"is a backup, made at 20.*shuffledp restore analyzer"):
            start()
    with pytest.raises(DataError, match="is a backup"):
        back_up(work, collection.folder / "second")


def test_refused_by_the_ledger_but_not_yet_finished(collection, work, new_batch, deliver, restored):
    """The moment between the entry and the state of the batch: it stays refused."""
    collection.budgets(people=(1.5, 1e-5))
    first, second = new_batch(), new_batch()
    analyzer = collection.open()
    for batch in (first, second):
        deliver(analyzer, batch)
    analyzer.releaser.release(first.task.id)
    known = analyzer.batches.get(second.task.id)
    entry = analyzer.ledger.reserve(second.task, analyzer.tasks.budget(second.task), known.manifest)
    assert not entry.granted
    back_up(work, collection.folder / "backup")
    analyzer.close()
    settings = restored(collection.folder / "backup")
    state = batches_in(settings.work)[second.task.id]
    assert (state.state, state.reason) == (BatchState.REFUSED, entry.reason)


def test_granted_but_not_yet_published(collection, work, new_batch, deliver, restored):
    """The moment between the entry and the files: it counts, and belongs to its batch."""
    batch = new_batch()
    analyzer = collection.open()
    deliver(analyzer, batch)
    known = analyzer.batches.get(batch.task.id)
    entry = analyzer.ledger.reserve(batch.task, analyzer.tasks.budget(batch.task), known.manifest)
    back_up(work, collection.folder / "backup")
    analyzer.close()
    settings = restored(collection.folder / "backup")
    assert entries_in(settings.work / "ledger.db") == {batch.task.id: entry}
    analyzer = collection.open(work=settings.work)
    other = new_batch(batch.task)
    assert analyzer.batches.put_manifest(other.manifest, other.signed) is BatchOutcome.CONFLICT
    deliver(analyzer, batch)
    assert analyzer.releaser.release(batch.task.id) is BatchState.RELEASED
    analyzer.close()


def test_where_a_backup_can_go(collection, work, tmp_path):
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "there", work):
        with pytest.raises(OutputError, match="exists"):
            back_up(work, out)
    with pytest.raises(OutputError, match="is inside the directory"):
        back_up(work, work / "backup")
    with pytest.raises(OutputError, match="Cannot write"):
        back_up(work, tmp_path / "none" / "backup")
    (work / MARKER).unlink()
    (work / "ledger.db").unlink()
    with pytest.raises(DataError, match="has no ledger"):
        back_up(work, tmp_path / "backup")


def test_a_backup_that_failed_leaves_nothing(collection, work, tmp_path, release, new_batch, monkeypatch):
    release(new_batch())

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "_copy_file", full)
    with pytest.raises(OutputError, match="No space left"):
        back_up(work, tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_ledger_does_not_become_a_backup(collection, work, tmp_path, release, new_batch):
    release(*(new_batch() for _ in range(2)))
    content = bytearray((work / "ledger.db").read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    (work / "ledger.db").write_bytes(content)
    with pytest.raises(DataError):
        back_up(work, tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("used", [True, False])
def test_a_backup_is_restored_into_an_empty_directory_alone(collection, work, release, new_batch, used):
    batch = new_batch()
    if used:
        release(batch)
    back_up(work, collection.folder / "backup")
    tasks = tasks_of(collection.settings())
    with pytest.raises(DataError, match="is not empty"):
        restore(collection.folder / "backup", work, tasks, {})
    with pytest.raises(DataError, match="is not a backup"):
        undecided_tasks(work, tasks)


@pytest.mark.parametrize("name", ["ledger.db", "analyzer.db"])
def test_a_directory_with_an_unused_database_is_left_as_it_is(collection, work, release, new_batch, restored, name):
    release(new_batch())
    back_up(work, collection.folder / "backup")
    target = collection.folder / "restored"
    target.mkdir()
    (target / name).touch()
    with pytest.raises(DataError, match="is not empty"):
        restored(collection.folder / "backup")
    (target / name).unlink()
    restored(collection.folder / "backup")


def test_files_of_a_backup_that_are_no_releases(collection, work, release, new_batch, restored):
    """What is not named like a release is left out; a pipe named like one would never end."""
    batch = new_batch()
    release(batch)
    backup = collection.folder / "backup"
    back_up(work, backup)
    os.mkfifo(backup / "releases" / "abc")
    (backup / "releases" / f"{'a' * 64}.exe").touch()
    (backup / "releases" / "a\n..json").mkdir()
    settings = restored(backup)
    assert published(settings.work) == published(work)
    shutil.rmtree(settings.work)
    page = backup / "releases" / f"{batch.task.id.hex()}.html"
    page.unlink()
    os.mkfifo(page)
    with pytest.raises(DataError, match="not a regular file"):
        restored(backup)


def test_killed_while_restoring(collection, work, release, new_batch, restored, monkeypatch):
    """At every file: the analyzer does not start in what is there then."""

    class Killed(BaseException):
        pass

    release(new_batch())
    later = new_batch()
    back_up(work, collection.folder / "backup")
    copy = backup_module._copy_file
    for steps in range(7):  # two databases, three files, the entry, and none
        left = iter([True] * steps)

        def step(*arguments, left=left, action=copy, **options):
            if not next(left, False):
                raise Killed
            return action(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(backup_module, "_copy_file", step)
            patched.setattr(backup_module, "_enter_releases", partial(step, action=backup_module._enter_releases))
            if steps == 6:
                assert restored(collection.folder / "backup", released=[later])
                break
            with pytest.raises(Killed):
                restored(collection.folder / "backup", released=[later])
        with pytest.raises(DataError, match="is a backup"):
            collection.open(work=collection.folder / "restored")
        with pytest.raises(DataError, match="is not empty"):
            restored(collection.folder / "backup", released=[later])
        shutil.rmtree(collection.folder / "restored")
    assert read_marker(collection.folder / "restored").backup is None


def test_the_commands(collection, work, release, new_batch, capsys, monkeypatch):
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)
    config = str(collection.config())

    def run(*words):
        status = main._run([*words, "--config", config])
        told = capsys.readouterr()
        return status, told.out, told.err.splitlines()

    release(new_batch())
    task = collection.task("histogram/k-rr", name="a later one")
    backup = str(collection.folder / "backup")
    status, out, lines = run("backup", "analyzer", "--out", backup, "--json")
    assert (status, lines) == (0, [])
    told = json.loads(out)
    assert (told["out"], told["entries"], told["releases"]) == (backup, 1, 1)
    assert run("backup", "analyzer", "--out", backup)[2] == [f"error: {backup} exists; a backup is a new directory."]
    shutil.rmtree(work)
    status, out, (line,) = run("restore", "analyzer", "--from", backup)
    assert (status, out) == (2, "")
    assert f"give --released or --unreleased for each: {task.id.hex()[:16]} (a later one)" in line
    for wrong, words in (("zz", "no task has"), ("", "no task has")):
        assert words in run("restore", "analyzer", "--from", backup, "--released", wrong)[2][0]
    one = task.id.hex()[:16]
    status, _, (line,) = run("restore", "analyzer", "--from", backup, "--released", one, "--unreleased", one)
    assert status == 2
    assert "cannot be both" in line
    status, out, lines = run("restore", "analyzer", "--from", backup, "--released", one, "--json")
    assert (status, lines) == (0, [])
    assert json.loads(out) == {"work": str(work), "counted": [task.id.hex()]}
    assert run("serve", "analyzer", "--check")[0] == 0
    assert [each["releases"] for each in directory_overview(collection.settings())["populations"]] == [2]


def test_decisions_are_needed_in_the_library_too(collection, work, new_batch):
    new_batch()
    back_up(work, collection.folder / "backup")
    tasks = tasks_of(collection.settings())
    tasks.load()
    with pytest.raises(DataError, match="state for each"):
        restore(collection.folder / "backup", collection.folder / "new", tasks, {})
    (collection.folder / "tasks" / "damaged.json").write_text("{")  # it may be of a task that was released
    tasks = tasks_of(collection.settings())
    tasks.load()
    with pytest.raises(DataError, match=r"1 task files are refused.*damaged\.json"):
        restore(collection.folder / "backup", collection.folder / "new", tasks, {})
