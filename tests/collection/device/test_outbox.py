"""What a device keeps: durable, its own, and once it is there never drawn again, wherever a crash falls."""

import os
import stat
import threading

import pytest

from shuffledp.collection.device.outbox import Outbox, State
from shuffledp.errors import DataError, OutputError

TASK, OTHER = b"\x01" * 32, b"\x02" * 32
FINAL = [State.DELIVERED, State.CLOSED, State.REFUSED]


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_modes(mask, tmp_path):
    before = os.umask(mask)
    try:
        outbox = Outbox(tmp_path / "new" / "device")
        with outbox.locked(TASK):
            outbox.put(TASK, b"sealed")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "device") == 0o700
    files = list((tmp_path / "new" / "device").iterdir())
    assert {each.suffix for each in files} == {".lock", ".report"}
    assert {mode(each) for each in files} == {0o600}


@pytest.mark.parametrize("bits", [0o755, 0o770, 0o701, 0o722])
def test_a_folder_that_others_can_reach_is_refused(bits, tmp_path):
    (tmp_path / "device").mkdir()
    (tmp_path / "device").chmod(bits)
    with pytest.raises(OutputError, match="chmod 700"):
        Outbox(tmp_path / "device")


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "device"):
        with pytest.raises(OutputError):
            Outbox(path)


@pytest.mark.parametrize("end", FINAL)
def test_states(end, tmp_path):
    outbox = Outbox(tmp_path / "device")
    assert outbox.state(TASK) is State.NONE
    with outbox.locked(TASK):
        outbox.put(TASK, b"sealed")
    assert outbox.state(TASK) is State.PENDING
    assert outbox.state(OTHER) is State.NONE
    assert Outbox(tmp_path / "device").pending(TASK) == b"sealed"
    with outbox.locked(TASK):
        outbox.finish(TASK, end, "why")
    again = Outbox(tmp_path / "device")
    assert (again.state(TASK), again.note(TASK), again.note(OTHER)) == (end, "why", "")
    assert b"sealed" not in b"".join(each.read_bytes() for each in (tmp_path / "device").iterdir())
    with pytest.raises(DataError, match="Cannot read the stored report"):
        again.pending(TASK)


class KilledError(BaseException):
    """As if the process ended here."""


def killed_at(monkeypatch, step: int) -> list[str]:
    """From the step-th call on that touches the disk, none happens any more."""
    calls: list[str] = []
    for name in ("open", "fsync", "replace", "unlink", "mkdir"):
        real = getattr(os, name)

        def call(*arguments, real=real, name=name, **options):
            calls.append(name)
            if len(calls) > step:
                raise KilledError
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)
    return calls


def test_a_crash_at_any_step(tmp_path, monkeypatch):
    """Whatever was seen as pending is there after the crash, unchanged; a finished report never comes back."""
    seen_states = set()
    for step in range(60):
        folder = tmp_path / str(step)
        reached = []
        with monkeypatch.context() as patch:
            calls = killed_at(patch, step)
            try:
                outbox = Outbox(folder)
                with outbox.locked(TASK):
                    outbox.put(TASK, b"first")
                    reached.append(State.PENDING)  # from here on it may be sent
                with outbox.locked(TASK):
                    assert outbox.pending(TASK) == b"first"
                    outbox.finish(TASK, State.DELIVERED)
                    reached.append(State.DELIVERED)
            except KilledError:
                pass
        again = Outbox(folder)
        found = again.state(TASK)
        seen_states.add(found)
        if reached:
            assert found in (reached[-1], State.DELIVERED)
        if found is State.PENDING:
            assert again.pending(TASK) == b"first"
        with again.locked(TASK):
            if found is State.NONE:
                again.put(TASK, b"second")
        left = {each.suffix for each in folder.iterdir()}
        assert ".new" not in left  # what was not finished is gone
        assert not {".report", ".delivered"} <= left
        if len(calls) <= step:
            break
    assert seen_states == {State.NONE, State.PENDING, State.DELIVERED}
    assert step > 15


def test_errors_are_one_line_and_leave_what_was(tmp_path, monkeypatch):
    outbox = Outbox(tmp_path / "device")

    def full(*_):
        raise OSError(28, "No space left on device")

    with outbox.locked(TASK):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OutputError, match="No space left"):
                outbox.put(TASK, b"sealed")
        assert outbox.state(TASK) is State.NONE
        outbox.put(TASK, b"sealed")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="No space left"):
            outbox.pending(TASK)  # not sent while it may not be durable


def test_not_to_know_is_not_no(tmp_path, monkeypatch):
    outbox = Outbox(tmp_path / "device")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "lstat", denied)
    with pytest.raises(OutputError, match="Permission denied"):
        outbox.state(TASK)


def test_a_lock_that_cannot_be_had(tmp_path):
    outbox = Outbox(tmp_path / "device")
    (tmp_path / "device" / f"{TASK.hex()}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="Cannot lock"), outbox.locked(TASK):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_one_at_a_time(tmp_path):
    inside, most = [0], [0]

    def work():
        outbox = Outbox(tmp_path / "device")
        for _ in range(20):
            with outbox.locked(TASK):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1]
