"""What is in the folders of a shuffler when it starts, and what ``--check`` says of it."""

import json
import logging
import os
import sqlite3
from contextlib import closing

import pytest

from shuffledp.cli import main
from shuffledp.collection.server import directories
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.shuffler.store.sqlite import SqliteStore
from shuffledp.collection.task.task import SignedTask
from shuffledp.collection.wire.keys import SigningKey


@pytest.fixture
def check(place, capfd, monkeypatch):
    """``serve shuffler --check`` with some settings: status, output, lines of errors."""
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def run(*options, **changes):
        status = main._run(["serve", "shuffler", "--config", str(place.config(**changes)), "--check", *options])
        told = capfd.readouterr()
        return status, told.out, told.err.splitlines()

    return run


@pytest.fixture
def refusals(caplog):
    """The files that were refused so far, with their reasons."""
    caplog.set_level(logging.INFO, "shuffledp.collection")
    return lambda: [
        (each.fields["file"], each.fields["reason"]) for each in caplog.records if each.msg == "task-refused"
    ]


def hashes_of(place, form):
    return place.folder / "enrolment" / f"{form.task_id.hex()}.tokens"


def spoil(place):
    """One file of each kind that is no good."""
    tasks = place.folder / "tasks"
    place.task(author=SigningKey.create(), file="author.json")
    place.task(shuffler=SigningKey.create(), file="shuffler.json")
    place.task(file="changed.json")
    content = (tasks / "changed.json").read_bytes()
    (tasks / "changed.json").write_bytes(content.replace(b'"population":"tests"', b'"population":"tesTs"'))
    (tasks / "brace.json").write_text("{")
    (tasks / "dangling.json").symlink_to("nothing")
    (tasks / "folder.json").mkdir()
    os.mkfifo(tasks / "pipe.json")


REASONS = {
    "author.json": "not signed by a key that is trusted",
    "brace.json": "not valid JSON",
    "changed.json": "signature",
    "dangling.json": "No such file",
    "folder.json": "not a regular file",
    "pipe.json": "not a regular file",
    "shuffler.json": "is for the shuffler's key",
}


class TestBadTasks:
    def test_at_the_start_they_are_left_out(self, place, serve, until, refusals):
        good = place.task(name="good")
        spoil(place)
        here = serve()
        assert here.get(f"/v1/tasks/{good.task_id.hex()}").status_code == 200
        assert [file for file, _ in refusals()] == sorted(REASONS)
        assert all(REASONS[file] in reason for file, reason in refusals())
        new = place.task(name="new")
        until(lambda: here.get(f"/v1/tasks/{new.task_id.hex()}").status_code == 200)
        assert len(here.shuffler.tasks) == 2
        assert len(refusals()) == len(REASONS), "each is said once"

    def test_later_too(self, place, serve, until, refusals):
        good = place.task()
        here = serve()
        spoil(place)
        new = place.task(file="z.json")
        until(lambda: here.get(f"/v1/tasks/{new.task_id.hex()}").status_code == 200)
        until(lambda: set(dict(refusals())) == set(REASONS))
        assert here.get(f"/v1/tasks/{good.task_id.hex()}").status_code == 200
        # a file that was read while it was being written was refused before, for another reason
        until(lambda: all(REASONS[file] in reason for file, reason in dict(refusals()).items()))

    def test_a_process_starts_and_stops_with_them(self, place, start):
        good = place.task()
        spoil(place)
        process = start()
        assert process.request("GET", f"/v1/tasks/{good.task_id.hex()}")[0] == 200
        assert {each["file"] for each in process.events if each["event"] == "task-refused"} == set(REASONS)
        assert process.stop() == 0
        assert all(line.startswith("{") for line in process.lines)

    def test_the_check_names_each(self, place, check):
        good = place.task(name="the good one")
        spoil(place)
        status, out, lines = check()
        assert status == 1
        assert "it serves 1 task." in " ".join(out.split())
        assert "the good one" in out
        assert len(lines) == len(REASONS)
        for line, (file, reason) in zip(lines, sorted(REASONS.items()), strict=True):
            assert line.startswith("error: ")
            assert f"tasks/{file}" in line
            assert reason in line
        status, out, _ = check("--json")
        told = json.loads(out)
        assert status == 1
        assert [each["task"] for each in told["tasks"]] == [good.task_id.hex()]
        assert len(told["refused"]) == len(REASONS)


class TestAnAuthorIsTrustedNoMore:
    """Its key was stolen and removed from the settings; its tasks are still in the folder, and rounds are open."""

    @pytest.fixture
    def orphan(self, place, serve):
        """A round with reports, whose time is over when the key is removed."""
        form = place.task(users=5, maximum=10, file="old.json")
        here = serve()
        reports = [place.report(form) for _ in range(6)]
        assert {here.post(form, each).status_code for each in reports} == {201}
        here.close()
        other = SigningKey.create()
        other.public.save(place.folder / "other.pub")
        return form, reports, other

    def test_its_rounds_stay_as_they_are_and_others_go_on(self, place, start, orphan, until):
        form, reports, other = orphan
        new = place.task(author=other, file="new.json")
        process = start(authors=(place.folder / "other.pub",))
        assert process.event("task-refused", file="old.json")
        assert until(lambda: process.event("round-without-task"))["task"] == form.task_id.hex()
        assert process.post(new, place.report(new)) == 201
        assert process.post(form, place.report(form)) == 404
        assert process.stop() == 0
        assert place.analyzer.manifests == {}
        store = SqliteStore(place.folder / "store")
        assert store.state(form.task_id) is RoundState.COLLECTING
        assert store.count(form.task_id) == len(reports)
        store.close()

    def test_a_task_that_is_signed_anew_goes_on(self, place, start, orphan, until):
        """It has the same id, whoever signed it."""
        form, reports, other = orphan
        process = start(authors=(place.folder / "other.pub",))
        until(lambda: process.event("round-without-task"))
        task = SignedTask.load(place.folder / "tasks" / "old.json").task
        (place.folder / "tasks" / "anew.new").write_bytes(task.signed(other).to_bytes())
        (place.folder / "tasks" / "anew.new").rename(place.folder / "tasks" / "old.json")
        until(lambda: process.event("task", task=form.task_id.hex()))
        more = [place.report(form) for _ in range(4)]
        assert {process.post(form, each) for each in more} == {201}  # which makes it full
        until(lambda: process.event("delivered", task=form.task_id.hex()))
        found = place.analyzer.messages(form.task_id.hex())
        assert sorted(found) == sorted(place.messages_of(form, reports + more))


class TestTokens:
    def test_a_bad_list_keeps_one_task_back(self, place, serve, until, refusals):
        bad, good = place.task(file="bad.json"), place.task()
        hashes_of(place, bad).write_text("a token in clear\n")
        here = serve(enrolment=place.folder / "enrolment")
        assert here.get(f"/v1/tasks/{good.task_id.hex()}").status_code == 200
        assert here.get(f"/v1/tasks/{bad.task_id.hex()}").status_code == 404
        ((file, reason),) = refusals()
        assert file == "bad.json"
        assert "is not the SHA-256" in reason
        assert "in clear" not in reason
        hashes_of(place, bad).write_text("ab" * 32 + "\n")
        until(lambda: here.get(f"/v1/tasks/{bad.task_id.hex()}").status_code == 200)
        assert len(refusals()) == 1

    def test_a_pipe_keeps_nobody_waiting(self, place, check):
        os.mkfifo(hashes_of(place, place.task()))
        status, _, (line,) = check(enrolment=place.folder / "enrolment")
        assert status == 1
        assert "Cannot read the tokens" in line

    def test_their_folder_is_only_read(self, place, check, monkeypatch):
        """The unit and the compose file make it read-only."""
        place.task()
        access = os.access

        def read_only(path, mode):
            return not (os.fspath(path).endswith("enrolment") and mode & os.W_OK) and access(path, mode)

        monkeypatch.setattr(directories.os, "access", read_only)
        assert check(enrolment=place.folder / "enrolment")[0] == 0


class TestTheStore:
    def test_of_a_newer_version(self, place, check):
        form = place.task()
        place.shuffler().close()
        assert check()[0] == 0
        for name, version in (("index.db", 2), (f"round-{form.task_id.hex()}.db", 1)):
            with closing(sqlite3.connect(place.folder / "store" / name)) as connection:
                connection.execute("PRAGMA user_version = 99")
            status, out, (line,) = check()
            assert (status, out) == (1, "")
            assert f"{name} has version 99" in line
            with closing(sqlite3.connect(place.folder / "store" / name)) as connection:
                connection.execute(f"PRAGMA user_version = {version}")
        assert check()[0] == 0

    def test_in_use(self, place, check, serve):
        place.task()
        serve()
        before = sorted((place.folder / "store").iterdir())
        assert check()[0] == 0
        assert sorted((place.folder / "store").iterdir()) == before

    def test_damaged_or_lost(self, place, check):
        place.task()
        place.shuffler().close()
        index = place.folder / "store" / "index.db"
        index.write_bytes(b"junk" * 100)
        assert "not an SQLite database" in check()[2][0]
        index.unlink()
        status, _, (line,) = check()
        assert status == 1
        assert "no index.db" in line

    @pytest.mark.parametrize("harm", ["missing", "empty"])
    def test_without_the_reports_of_a_round(self, place, check, harm):
        form = place.task()
        place.shuffler().close()
        assert check()[0] == 0
        file = place.folder / "store" / f"round-{form.task_id.hex()}.db"
        file.unlink() if harm == "missing" else file.write_bytes(b"")
        status, _, (line,) = check()
        assert status == 1
        assert str(file) in line

    def test_where_none_can_be(self, place, check):
        (place.folder / "file").touch()
        status, _, (line,) = check(store_folder=place.folder / "file" / "store")
        assert status == 1
        assert "Cannot open the store" in line


def test_a_certificate_that_is_none(place, check):
    for name in ("junk.pem", "junk.key"):
        (place.folder / name).touch(0o600)
        (place.folder / name).write_text("junk")
    status, out, (line,) = check(tls_certificate=place.folder / "junk.pem", tls_key=place.folder / "junk.key")
    assert (status, out) == (1, "")
    assert "junk.pem does not contain a certificate" in line
