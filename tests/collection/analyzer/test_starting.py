"""What is in the folders of an analyzer when it starts, and what ``--check`` says of it."""

import json
import logging
import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer.server import check_analyzer
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.errors import DataError, ShuffledpError

REASONS = {
    "author.json": "not signed by a key that is trusted",
    "brace.json": "not valid JSON",
    "budget.json": "without a budget",
    "dangling.json": "No such file",
    "key.json": "which is not configured",
    "pipe.json": "not a regular file",
}


def spoil(collection):
    """One file of each kind that is no good."""
    tasks = collection.folder / "tasks"
    made = {
        "author.json": collection.task("histogram/k-rr", publish=False).signed(SigningKey.create()),
        "budget.json": collection.task("histogram/k-rr", publish=False, population="x").signed(collection.author),
        "key.json": collection.task("histogram/k-rr", publish=False, analyzer=SealingKey.create().public).signed(
            collection.author
        ),
    }
    for name, task in made.items():
        (tasks / name).write_bytes(task.to_bytes())
    (tasks / "brace.json").write_text("{")
    (tasks / "dangling.json").symlink_to("nothing")
    os.mkfifo(tasks / "pipe.json")


@pytest.fixture
def refusals(caplog):
    """The files that were refused so far, with their reasons."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    return lambda: {each.fields["file"]: each.fields["reason"] for each in caplog.records if each.msg == "task-refused"}


@pytest.fixture
def check(collection, capsys, monkeypatch):
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def run(*options):
        status = main._run(["serve", "analyzer", "--config", str(collection.config()), "--check", *options])
        told = capsys.readouterr()
        return status, told.out, told.err.splitlines()

    return run


def test_bad_tasks_are_left_out_at_the_start_and_later(collection, serve, refusals):
    collection.task("histogram/k-rr")
    spoil(collection)
    here = serve()
    assert set(refusals()) == set(REASONS)
    assert all(REASONS[file] in reason for file, reason in refusals().items())
    assert len(here.analyzer.tasks) == 1
    new = collection.task("histogram/k-rr")
    here.analyzer.tasks.refresh()
    assert here.analyzer.tasks.get(new.id) is not None
    batch = collection.batch(new, collection.sealed(new, np.zeros(200, dtype=int)))
    here.deliver(batch)
    here.wait(batch)


def test_the_check_names_each(collection, check):
    collection.task("histogram/k-rr", name="the good one")
    spoil(collection)
    status, out, lines = check()
    assert status == 1
    assert "1 task," in " ".join(out.split())
    assert "the good one: waiting." in out
    for line, (file, reason) in zip(lines, sorted(REASONS.items()), strict=True):
        assert line.startswith("error: ")
        assert f"tasks/{file}" in line
        assert reason in line
    status, out, _ = check("--json")
    assert status == 1
    assert len(json.loads(out)["refused"]) == len(REASONS)


def test_batches_of_an_author_who_is_trusted_no_more_stay(collection, deliver):
    """Neither released nor lost; signed anew the task has the same id, and its batch goes on."""
    task = collection.task("histogram/k-rr")
    analyzer = collection.open()
    deliver(analyzer, collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int))))
    analyzer.close()
    other = SigningKey.create()
    other.public.save(collection.folder / "other.pub")
    authors = (collection.folder / "other.pub",)
    analyzer = collection.open(authors=authors)
    assert len(analyzer.tasks) == 0
    with pytest.raises(ShuffledpError, match="missing from the task directory, or refused"):
        analyzer.releaser.release(task.id)
    assert analyzer.batches.get(task.id).state is BatchState.COMPLETE
    (collection.folder / "tasks" / f"{task.id.hex()}.json").write_bytes(task.signed(other).to_bytes())
    analyzer.tasks.refresh()
    assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    analyzer.close()


@pytest.mark.parametrize("name", ["ledger.db", "analyzer.db"])
def test_what_a_newer_program_wrote(collection, check, name):
    collection.task("histogram/k-rr")
    collection.open().close()
    work = collection.folder / "work"
    before = sorted(each.name for each in work.iterdir())
    assert check()[0] == 0
    assert sorted(each.name for each in work.iterdir()) == before
    with closing(sqlite3.connect(work / name)) as connection:
        connection.execute("PRAGMA user_version = 99")
    status, out, (line,) = check()
    assert (status, out) == (1, "")
    assert f"{name} has version 99" in line
    with pytest.raises(DataError, match="has version 99"):
        collection.open()


def test_a_certificate_that_is_none(collection):
    for name in ("junk.pem", "junk.key"):
        (collection.folder / name).touch(0o600)
        (collection.folder / name).write_text("junk")
    files = {"tls_certificate": collection.folder / "junk.pem", "tls_key": collection.folder / "junk.key"}
    with pytest.raises(DataError, match="does not contain a certificate"):
        check_analyzer(collection.settings(**files))
