"""The operator of a running analyzer sees its rounds, and can give up a batch that is lost."""

import json
import os
import socket
import stat
import threading
import time

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer import publishing
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.server.operator import SOCKET, ask_server
from shuffledp.errors import DataError, RefusedError, UnreachableError

DEADLINE = 60.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(publishing, "release_page", lambda *_: b"a page")


@pytest.fixture
def rounds(collection, capsys, monkeypatch):
    """``shuffledp rounds``: status, standard output, lines of standard error."""
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def run(*words):
        status = main._run(["rounds", *words, "--config", str(collection.config())])
        told = capsys.readouterr()
        return status, told.out, told.err.splitlines()

    return run


@pytest.fixture
def listed(rounds):
    def run():
        status, out, lines = rounds("list", "--json")
        assert (status, lines) == (0, [])
        document = json.loads(out)
        return document, {each["name"]: each for each in document["rounds"]}

    return run


def new_batch(collection, **changes):
    task = collection.task("histogram/k-rr", **changes)
    return collection.batch(task, collection.sealed(task, np.arange(220) % 4), chunk_records=60)


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_states_of_all_rounds(collection, serve, listed, rounds, documented_rounds, keys_of):
    collection.budgets(people=(1.5, 1e-5))
    first, second, third = (new_batch(collection, name=name) for name in ("first", "second", "third"))
    collection.task("histogram/k-rr", name="fourth")
    here = serve()
    for batch, state in ((first, "released"), (second, "refused")):
        here.deliver(batch)
        here.wait(batch, state)
    path = f"/v1/batches/{third.task.id.hex()}"
    here.put(path, third.signed)
    here.put(f"{path}/chunks/0", third.chunks[0])
    document, names = listed()
    assert document["role"] == "analyzer"
    assert document["ready"] is True
    assert keys_of(document) == documented_rounds("analyzer")
    assert {name: each["state"] for name, each in names.items()} == {
        "first": "released", "second": "refused", "third": "receiving", "fourth": "waiting",
    }  # fmt: skip
    assert names["first"]["release"] == f"/v1/releases/{first.task.id.hex()}"
    assert "the budget of the population is 1.5" in names["second"]["reason"]
    assert (names["third"]["chunks"], names["third"]["missing"]) == (4, 3)
    (population,) = document["populations"]
    assert (population["name"], population["releases"]) == ("people", 1)
    status, out, lines = rounds("list")
    assert (status, lines) == (0, [])
    shown = " ".join(out.split())
    assert "The analyzer is ready; 4 rounds." in shown
    assert f"{third.task.id.hex()[:16]} receiving third 1 of 4 chunks have arrived" in shown


def test_a_batch_whose_chunks_never_come_is_given_up(collection, serve, listed, rounds):
    batch = new_batch(collection, name="lost")
    here = serve()
    path = f"/v1/batches/{batch.task.id.hex()}"
    here.put(path, batch.signed)
    here.put(f"{path}/chunks/1", batch.chunks[1])
    one = batch.task.id.hex()[:16]
    status, out, (line,) = rounds("abandon", one)
    assert (status, out) == (2, "")
    assert line.endswith("add --yes to confirm.")
    assert listed()[1]["lost"]["state"] == "receiving"
    status, out, lines = rounds("abandon", one, "--yes", "--json")
    assert (status, lines) == (0, [])
    assert json.loads(out)["state"] == "refused"
    assert listed()[1]["lost"]["reason"] == "Abandoned by the operator."
    assert list((collection.folder / "work" / "batches").iterdir()) == [], "its messages are deleted"
    wait_until(lambda: 'batches{state="receiving"} 0.0' in here.get("/metrics").text)
    answer = here.put(path, batch.signed)  # the shuffler that comes again is told, and forgets it too
    assert (answer.status, answer.json()["state"]) == (200, "refused")
    assert here.put(f"{path}/chunks/0", batch.chunks[0]).status == 200
    assert list((collection.folder / "work" / "batches").iterdir()) == []
    status, _, (line,) = rounds("abandon", one, "--yes")
    assert status == 1
    assert "is refused already" in line
    here.close()
    collection.open().close()  # it agrees with itself


def test_a_release_that_keeps_failing_is_given_up(collection, serve, listed, rounds, monkeypatch):
    batch = new_batch(collection, name="broken")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publishing, "write_durably", full)
    here = serve()
    here.deliver(batch)
    wait_until(lambda: listed()[1]["broken"]["failures"] > 1)
    assert "No space left" in listed()[1]["broken"]["error"]
    deadline = time.monotonic() + DEADLINE
    while (answer := rounds("abandon", batch.task.id.hex(), "--yes"))[0]:  # unless it is just being tried again
        assert "try again later" in answer[2][0]
        assert time.monotonic() < deadline
    told = listed()[1]["broken"]
    assert (told["state"], told["failures"], told["error"]) == ("refused", 0, None)
    assert here.get(f"/v1/releases/{batch.task.id.hex()}").status == 404
    assert here.analyzer.ledger.entry(batch.task.id).granted, "what was entered counts, although nothing was published"


def test_nothing_is_given_up_that_goes_on(collection, serve, rounds, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def page(*_):
        begun.set()
        assert go_on.wait(DEADLINE)
        return b"a page"

    monkeypatch.setattr(publishing, "release_page", page)
    under_way, waiting = new_batch(collection), new_batch(collection)
    here = serve()
    here.deliver(under_way)
    assert begun.wait(DEADLINE)
    here.deliver(waiting)
    for batch, reason in (
        (under_way, "is being released at the moment"),
        (waiting, "about to be released"),
    ):
        status, _, (line,) = rounds("abandon", batch.task.id.hex(), "--yes")
        assert status == 1
        assert reason in line
    go_on.set()
    for batch in (under_way, waiting):
        here.wait(batch)
    assert here.analyzer.batches.get(waiting.task.id).state is BatchState.RELEASED


def test_what_an_analyzer_cannot_do(collection, serve, rounds):
    task = collection.task("histogram/k-rr")
    serve()
    one = task.id.hex()
    for words, reason in (
        (("close", one), "can abandon a round, not 'close'"),
        (("cancel", one, "--yes"), "can abandon a round, not 'cancel'"),
        (("abandon", one, "--yes"), "There is no batch"),
        (("abandon", "zz", "--yes"), "no task has such an id on this analyzer"),
        (("abandon", "", "--yes"), "no task has"),
    ):
        status, out, (line,) = rounds(*words)
        assert status in (1, 2), words
        assert out == ""
        assert reason in line


def test_a_batch_without_its_task_is_listed(collection, serve, listed, rounds):
    """Its file was removed too early; the batch waits for it, or is given up."""
    batch = new_batch(collection)
    analyzer = collection.open()
    analyzer.batches.put_manifest(batch.manifest, batch.signed)
    analyzer.close()
    (collection.folder / "tasks" / f"{batch.task.id.hex()}.json").unlink()
    serve()
    assert listed()[1][None]["state"] == "receiving"
    assert "(task missing)" in rounds("list")[1]
    assert rounds("abandon", batch.task.id.hex()[:8], "--yes")[0] == 0


def test_nobody_but_the_owner_can_connect(collection, serve):
    here = serve()
    path = collection.folder / "work" / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert here.get("/operator/v1/overview").status == 404, "it is not on the port"
    here.close()
    assert not path.exists()


def test_a_server_that_does_not_run(collection, rounds):
    work = collection.folder / "work"
    status, out, (line,) = rounds("list")
    assert (status, out) == (1, "")
    assert f"No server runs in {work}" in line
    with socket.socket(socket.AF_UNIX) as left:  # of a process that was killed
        left.bind(str(work / SOCKET))
    with pytest.raises(UnreachableError, match="No server runs"):
        ask_server(work, "GET", "/operator/v1/overview")


def test_a_socket_that_was_left_is_replaced(collection, serve, listed):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(collection.folder / "work" / SOCKET))
    serve()
    assert listed()[0]["rounds"] == []


def test_a_directory_of_a_long_name(collection, serve):
    """Longer than the address of a socket can be."""
    work = collection.folder.joinpath(*["directory" * 5] * 4)
    work.mkdir(parents=True)
    (collection.folder / "work").rename(work / "work")
    serve(work=work / "work")
    assert ask_server(work / "work", "GET", "/operator/v1/overview")["role"] == "analyzer"


def test_a_socket_that_cannot_be_made_does_not_stop_the_server(collection, serve, caplog):
    (collection.folder / "work" / SOCKET).mkdir()
    here = serve()
    assert here.get("/readyz").status == 200
    assert [record.msg for record in caplog.records].count("operator-unavailable") == 1


def test_a_socket_that_cannot_be_removed_does_not_keep_the_server_from_stopping(collection, serve):
    here = serve()
    path = collection.folder / "work" / SOCKET
    path.unlink()
    path.mkdir()
    here.close()
    here.close = lambda: None
    collection.open().close()  # the directory was let go of


def test_answers_that_are_none(collection):
    work = collection.folder / "work"
    for content, error in ((b"hello", DataError), (b'{"title": "no"}', RefusedError), (b"", UnreachableError)):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(work / SOCKET))
            server.listen()

            def answer(server=server, content=content):
                connection, _ = server.accept()
                connection.recv(4096)
                head = b"HTTP/1.1 404 no\r\nContent-Length: %d\r\n\r\n" % len(content)
                connection.sendall(head + content if content else b"")
                connection.close()

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(error):
                ask_server(work, "GET", "/operator/v1/overview")
            thread.join(DEADLINE)
        (work / SOCKET).unlink()


def test_which_server_is_meant(collection, serve, rounds, capsys):
    collection.task("histogram/k-rr")
    serve()
    file = collection.config()
    both = file.with_name("both.toml")
    both.write_text(file.read_text() + "[shuffler]\n")
    assert main._run(["rounds", "list", "--config", str(both), "--role", "analyzer"]) == 0
    capsys.readouterr()
    for words in (["--config", str(both)], []):
        assert main._run(["rounds", "list", *words]) == 2
        assert "--role shuffler or --role analyzer" in capsys.readouterr().err
    assert rounds("list", "--role", "shuffler")[0] == 2
    assert main._run(["rounds", "list", "--config", str(file.with_name("missing.toml"))]) != 0
    assert "missing.toml" in capsys.readouterr().err
