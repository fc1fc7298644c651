"""Task directories: a bad file does not affect the others, and a task that was admitted stays."""

import logging
import os
from pathlib import Path

import pytest

from shuffledp import durable_files
from shuffledp.collection.server.task_directory import RefusedFile, TaskDirectory, WatchedDirectory
from shuffledp.durable_files import open_regular
from shuffledp.errors import DataError, ParameterError


class Reader:
    """Takes files as servers take tasks: bad content is one kind of error, what cannot be read another."""

    def __init__(self, folder: Path) -> None:
        self.watched, self.taken = WatchedDirectory(folder), []

    def take(self, path: Path) -> None:
        try:
            with open_regular(path) as file:
                content = file.read()
        except OSError as error:
            raise DataError(f"Cannot read {path}: {error.strerror}.") from None
        if content == b"bad":
            raise ParameterError("bad")
        if content == b"worse":
            raise ZeroDivisionError("with data in it")
        self.taken.append(path.name)

    def look(self) -> tuple[list[str], list[str]]:
        """The names of files that were taken and of those that were refused."""
        self.taken.clear()
        refused = self.watched.scan(self.take)
        return list(self.taken), [each.path.name for each in refused]


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "a.json").write_text("good")
    (tmp_path / "z.json").write_text("good")
    return Reader(tmp_path)


def pipe(path):
    os.mkfifo(path)


def dangling(path):
    path.symlink_to("nothing")


def loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [pipe, dangling, loop, Path.mkdir], ids=["pipe", "dangling", "loop", "folder"])
def test_what_is_no_file_is_named_once(reader, tmp_path, make):
    make(tmp_path / "m.json")
    assert reader.look() == (["a.json", "z.json"], ["m.json"])
    assert reader.look() == ([], [])
    (tmp_path / "n.json").write_text("good")
    assert reader.look() == (["n.json"], [])
    (tmp_path / "m.json").rmdir() if make is Path.mkdir else (tmp_path / "m.json").unlink()
    (tmp_path / "m.json").write_text("good")
    assert reader.look() == (["m.json"], [])


def test_a_link_whose_file_comes_later(reader, tmp_path):
    (tmp_path / "m.json").symlink_to("later")
    reader.look()
    (tmp_path / "later").write_text("good")
    assert reader.look() == (["m.json"], [])


def test_a_file_that_may_not_be_read_yet(reader, tmp_path, monkeypatch):
    """Rights do not change the time of a file."""
    (tmp_path / "m.json").write_text("good")
    opened = os.open

    def forbid(path, *rest):
        if Path(path).name == "m.json":
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest)

    with monkeypatch.context() as changed:
        changed.setattr(durable_files.os, "open", forbid)
        assert reader.look() == (["a.json", "z.json"], ["m.json"])
        assert reader.look() == ([], [])
    assert reader.look() == (["m.json"], [])


def test_a_file_that_goes_while_it_is_looked_at(reader, tmp_path, monkeypatch):
    (tmp_path / "m.json").write_text("good")
    stat = Path.stat

    def vanish(path, **options):
        if path.name == "m.json":
            path.unlink(missing_ok=True)
        return stat(path, **options)

    with monkeypatch.context() as changed:
        changed.setattr(Path, "stat", vanish)
        assert reader.look() == (["a.json", "z.json"], [])
    assert reader.look() == ([], [])
    (tmp_path / "m.json").write_text("good")
    assert reader.look() == (["m.json"], [])


def test_a_file_that_was_away_is_told_again(reader, tmp_path):
    reader.look()
    (tmp_path / "a.json").rename(tmp_path / "elsewhere")
    assert reader.look() == ([], [])
    (tmp_path / "elsewhere").rename(tmp_path / "a.json")
    assert reader.look() == (["a.json"], [])


def test_bad_content_is_told_once_until_it_changes(reader, tmp_path):
    (tmp_path / "m.json").write_text("bad")
    (tmp_path / "n.json").write_text("worse")
    refused = reader.watched.scan(reader.take)
    assert refused == [
        RefusedFile(tmp_path / "m.json", "bad"),
        RefusedFile(tmp_path / "n.json", "ZeroDivisionError"),
    ]
    assert [str(each) for each in refused] == [f"{tmp_path}/m.json: bad", f"{tmp_path}/n.json: ZeroDivisionError"]
    assert reader.look() == ([], [])
    os.utime(tmp_path / "m.json")
    assert reader.look() == ([], ["m.json"])


def test_a_folder_that_is_gone_is_logged_once(reader, tmp_path, caplog):
    folder = tmp_path / "tasks"
    folder.mkdir()
    watched = WatchedDirectory(folder)
    watched.check()
    folder.rename(tmp_path / "away")
    with pytest.raises(DataError, match="no directory of tasks"):
        watched.check()
    with caplog.at_level(logging.ERROR, "shuffledp.collection"):
        for _ in range(3):
            watched.rescan(reader.take)
        (tmp_path / "away").rename(folder)
        watched.rescan(reader.take)
        folder.rename(tmp_path / "away")
        watched.rescan(reader.take)
    assert [each.msg for each in caplog.records] == ["tasks-unreadable"] * 2


class Numbers(TaskDirectory[int]):
    """Files of numbers instead of tasks; the name of a file is the id."""

    def _read(self, path):
        content = path.read_text()
        if not content.isdigit():
            raise ParameterError("bad")
        return path.stem, int(content)

    def _fields(self, task):
        return {"number": task}


def refuse_odd(number):
    if number % 2:
        raise ParameterError("odd")


def test_tasks_are_admitted_once_and_stay(tmp_path, caplog):
    for name, content in (("a", "2"), ("b", "3"), ("c", "x")):
        (tmp_path / f"{name}.json").write_text(content)
    tasks = Numbers(tmp_path)
    with caplog.at_level(logging.INFO, "shuffledp.collection"):
        tasks.load(refuse_odd)
        assert (list(tasks), len(tasks), tasks.find("a"), tasks.find("b")) == ([2], 1, 2, None)
        assert {(each.path.name, each.reason) for each in tasks.refused} == {("b.json", "odd"), ("c.json", "bad")}
        tasks.refresh(refuse_odd)  # for the same reason: nothing is logged
        assert [each.msg for each in caplog.records] == ["task"]
        tasks.refresh()
        assert sorted(tasks) == [2, 3]
        (tmp_path / "a.json").unlink()
        (tmp_path / "b.json").write_text("4")
        tasks.refresh()
        assert sorted(tasks) == [2, 3], "the task of an id does not change"


def test_a_task_that_is_postponed_is_offered_again(tmp_path, caplog):
    (tmp_path / "a.json").write_text("2")
    tasks = Numbers(tmp_path)
    tasks.load()
    with caplog.at_level(logging.ERROR, "shuffledp.collection"):
        tasks.postpone("a", "later")
    assert [each.msg for each in caplog.records] == ["task-refused"]
    assert list(tasks) == []
    tasks.refresh()
    assert list(tasks) == [2]
