"""An analyzer starts only where one was initialized: an empty directory, as of an unmounted volume, is refused."""

import json
import logging
import os
import shutil
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer import publishing
from shuffledp.collection.analyzer.agreement import has_ledger
from shuffledp.collection.analyzer.directory import MARKER, initialize, read_marker
from shuffledp.collection.analyzer.overview import directory_overview
from shuffledp.errors import DataError, OutputError


@pytest.fixture
def work(collection):
    return collection.folder / "work"


@pytest.fixture
def run(collection, capsys, monkeypatch):
    """A command of the analyzer with its settings: status, standard output, lines of standard error."""
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def command(*words):
        status = main._run([*words, "--config", str(collection.config())])
        told = capsys.readouterr()
        return status, told.out, told.err.splitlines()

    return command


def empty(directory):
    shutil.rmtree(directory)
    directory.mkdir()


def release_one(collection, deliver, monkeypatch):
    monkeypatch.setattr(publishing, "release_page", lambda *_: b"a page")
    task = collection.task("histogram/k-rr")
    analyzer = collection.open()
    deliver(analyzer, collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int))))
    analyzer.releaser.release(task.id)
    entry = analyzer.ledger.entry(task.id)
    analyzer.close()
    return task, entry


def refuse_to_start(collection, words):
    """Neither the server nor the check accepts the directory; both say so in one line and change nothing."""
    before = sorted((collection.folder / "work").rglob("*"))
    for start in (collection.open, lambda: directory_overview(collection.settings())):
        with pytest.raises(DataError, match=words) as error:
            start()
        assert len(str(error.value).splitlines()) == 1
    assert sorted((collection.folder / "work").rglob("*")) == before


@pytest.mark.parametrize("left", [(), ("lost+found",), ("ledger.db",), ("analyzer.db", ".lock"), ("releases/",)])
def test_an_empty_directory_does_not_restart_the_budget(collection, deliver, monkeypatch, work, left):
    """Also with what a file system or a killed process may leave behind: files without any content."""
    release_one(collection, deliver, monkeypatch)
    empty(work)
    for name in left:
        (work / name).mkdir() if name.endswith(("/", "+found")) else (work / name).touch()
    refuse_to_start(collection, r"has no ledger.*mount its volume.*shuffledp init analyzer")
    with pytest.raises(DataError, match="has no ledger"):
        collection.open(restore_from_releases=True)


def test_the_first_start_is_explicit(collection, work, run):
    empty(work)
    status, out, (line,) = run("serve", "analyzer", "--check")
    assert (status, out) == (1, "")
    assert line.startswith("error: ")
    assert "shuffledp init analyzer" in line
    status, out, lines = run("init", "analyzer")
    assert (status, lines) == (0, [])
    assert "ledger is empty" in " ".join(out.split())
    assert run("serve", "analyzer", "--check")[0] == 0
    assert stat.S_IMODE(work.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in work.iterdir()} == {0o600}
    collection.open().close()
    status, out, (line,) = run("init", "analyzer")
    assert (status, out) == (1, "")
    assert "was initialized at 20" in line
    shutil.rmtree(work)
    status, out, _ = run("init", "analyzer", "--json")
    assert status == 0, "a directory that is missing is created"
    assert json.loads(out) == {"role": "analyzer", "work": str(work)}


def test_nothing_is_initialized_where_data_is(collection, deliver, monkeypatch, work):
    release_one(collection, deliver, monkeypatch)
    (work / MARKER).unlink()
    for lost in ("ledger.db", "analyzer.db", "releases"):
        with pytest.raises(DataError, match="contains the data of an analyzer"):
            initialize(work)
        shutil.rmtree(work / lost) if (work / lost).is_dir() else (work / lost).unlink()
    initialize(work)


def test_nothing_is_initialized_beside_a_running_analyzer(collection, work):
    analyzer = collection.open()
    (work / MARKER).unlink()
    with pytest.raises(DataError, match="Another process"):
        initialize(work)
    analyzer.close()


def test_where_nothing_can_be_created(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "none" / "work"):
        with pytest.raises(OutputError, match="Cannot create"):
            initialize(path)


def test_a_directory_of_an_earlier_version_is_marked(collection, deliver, monkeypatch, work, caplog):
    """It has a ledger and no marker. What it has spent stays spent."""
    task, entry = release_one(collection, deliver, monkeypatch)
    (work / MARKER).unlink()
    assert [each["releases"] for each in directory_overview(collection.settings())["populations"]] == [1]
    assert read_marker(work) is None, "the check changes nothing"
    with caplog.at_level(logging.INFO, "shuffledp.collection"):
        analyzer = collection.open()
    assert [record.msg for record in caplog.records].count("directory-marked") == 1
    assert analyzer.ledger.entry(task.id) == entry
    analyzer.close()
    assert read_marker(work) is not None
    empty(work)
    refuse_to_start(collection, "has no ledger")


def test_a_directory_of_an_earlier_version_without_releases_is_marked(collection, work):
    """It was started before, and nothing was released yet."""
    (work / MARKER).unlink()
    assert has_ledger(work)
    collection.open().close()
    assert read_marker(work) is not None


def test_a_ledger_that_is_gone_is_noticed_before_the_first_release(collection, work):
    """The marker alone is no ledger: nothing was released that could tell, but the file was there."""
    for truncate in (False, True):
        for file in work.glob("ledger.db*"):
            file.unlink()
        if truncate:
            (work / "ledger.db").touch()
        refuse_to_start(collection, r"There is no ledger .*restore")
        with pytest.raises(DataError, match=r"There is no ledger .*restore the backup"):
            collection.open(restore_from_releases=True)  # there is nothing to restore it from


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"kind": "shuffler", "version": 1}', b"\xff", b"[" * 4000, b"null"]
)
def test_a_marker_that_is_none(collection, work, content):
    (work / MARKER).write_bytes(content)
    refuse_to_start(collection, "not a valid marker")


def test_a_marker_of_a_newer_version(collection, work):
    document = json.loads((work / MARKER).read_bytes())
    (work / MARKER).write_text(json.dumps(document | {"version": 2}))
    refuse_to_start(collection, "has version 2; this program reads 1")


def test_a_killed_initialization_can_be_repeated(tmp_path, monkeypatch):
    """Ended before the marker is there, whatever else is."""

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", die)
        with pytest.raises(Killed):
            initialize(tmp_path / "work")
    assert read_marker(tmp_path / "work") is None
    initialize(tmp_path / "work")
    assert read_marker(tmp_path / "work") is not None
    with closing(sqlite3.connect(tmp_path / "work" / "ledger.db")) as ledger, ledger:
        assert ledger.execute("SELECT count(*) FROM releases").fetchone() == (0,)
    ledger.close()
