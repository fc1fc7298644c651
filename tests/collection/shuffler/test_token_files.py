"""Reading the hashes of tokens: only what was appended, in groups, while reports are stored."""

import os
import threading

import pytest

from shuffledp.collection.shuffler import enrolment
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.store.interface import Incoming, ReportOutcome
from shuffledp.collection.shuffler.store.sqlite import SqliteStore
from shuffledp.collection.wire.tokens import token_id
from shuffledp.errors import DataError


class Reader:
    """A folder of tokens, and the groups of hashes that it gave."""

    def __init__(self, directory):
        self.file = directory / "task.tokens"
        self.folder = TokenDirectory(directory)
        self.given: list[list[bytes]] = []

    def write(self, hashes, *, mode: str = "w", end: str = "\n") -> None:
        """A new file in place of the old one, as the command does; or more at the end of the old one."""
        text = "\n".join(each.hex() for each in hashes) + end
        if mode == "a":
            with self.file.open("a") as file:
                file.write(text)
            return
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def bring(self) -> list[bytes]:
        self.given.clear()
        self.folder.load_new("task", self.given.append)
        return sorted(each for group in self.given for each in group)

    def known(self, hashes) -> set[bool]:
        return {self.folder.find("task", token_id(each)) == each for each in hashes}


@pytest.fixture
def reader(tmp_path) -> Reader:
    return Reader(tmp_path)


def hashes_of(count: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(count)]


@pytest.mark.parametrize("how", ["replaced", "appended"])
def test_only_new_ones_are_given(reader, how):
    """One token more than 30,000: one hash is read, parsed and stored."""
    hashes = hashes_of(30_000)
    reader.write(hashes)
    assert reader.bring() == sorted(hashes)
    assert reader.bring() == []
    for number in range(3):
        more = hashes_of(1)
        hashes += more
        reader.write(hashes) if how == "replaced" else reader.write(more, mode="a")
        assert reader.bring() == more, number
        assert reader.known(hashes) == {True}
    assert reader.known(hashes_of(100)) == {False}


def test_groups_are_small(reader):
    reader.write(hashes_of(30_000))
    reader.bring()
    assert max(map(len, reader.given)) <= 2_000


def test_a_file_whose_beginning_changed_is_read_anew(reader):
    hashes = hashes_of(5_000)
    reader.write(hashes)
    reader.bring()
    changed = hashes_of(1) + hashes[1:]
    reader.write(changed)
    assert reader.bring() == sorted(changed)
    assert reader.known(hashes[:1]) == {False}
    assert reader.known(changed) == {True}
    reader.write(changed[:100])
    assert reader.bring() == sorted(changed[:100])
    assert reader.known(changed[100:]) == {False}


def test_a_last_line_without_its_end(reader):
    hashes = hashes_of(10)
    reader.write(hashes, end="")
    assert reader.bring() == sorted(hashes)
    more = hashes_of(2)
    with reader.file.open("a") as file:
        file.write("\n" + more[0].hex() + "\r\n\n  " + more[1].hex())
    assert set(more) <= set(reader.bring())
    assert reader.known(hashes + more) == {True}
    reader.write(hashes_of(1), end=" ")
    with reader.file.open("a") as file:
        file.write("ab")
    with pytest.raises(DataError, match="Token 2 of"):
        reader.bring()


def test_what_the_store_did_not_take_is_given_again(reader):
    hashes = hashes_of(10)
    reader.write(hashes)

    def fail(_):
        raise DataError("no")

    with pytest.raises(DataError):
        reader.folder.load_new("task", fail)
    assert reader.known(hashes) == {False}
    assert reader.bring() == sorted(hashes)


@pytest.mark.parametrize("junk", [b"x" * 1_000_000, b"\xff\n", b"ab" * 31 + b"\n", b"AB" * 32 + b"\n"])
def test_what_is_no_hash(reader, junk):
    reader.file.write_bytes(junk)
    with pytest.raises(DataError, match=r"task\.tokens"):
        reader.bring()
    assert reader.given == []


def test_reports_are_stored_while_tokens_are_added(reader, tmp_path, monkeypatch):
    """Between two groups others have the round: a report does not wait for the last."""
    monkeypatch.setattr(enrolment, "_HASHES_PER_TRANSACTION", 10)
    task, hashes = os.urandom(32), hashes_of(2_000)
    store = SqliteStore(tmp_path / "store")
    store.open_round(task, maximum=100, tokens=True)
    store.add_tokens(task, hashes[:1])
    reader.write(hashes)
    begun, stored = threading.Event(), threading.Event()
    groups: list[bool] = []

    def add(group) -> None:
        store.add_tokens(task, group)
        begun.set()
        groups.append(stored.is_set())

    thread = threading.Thread(target=lambda: reader.folder.load_new("task", add))
    thread.start()
    assert begun.wait(30)
    assert store.accept([Incoming(task, bytes(16), b"report", hashes[0])]) == [ReportOutcome.NEW]
    stored.set()
    thread.join()
    assert len(groups) == 200
    assert groups.count(True) > 0, "the report had to wait for the last group"
    store.close()
