"""Durable files: complete or absent after a failure at any step, exclusive locks, no blocking reads."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from shuffledp.durable_files import FileLock, create_directory, open_regular, write_durably


class KilledError(BaseException):
    """As if the process ended here."""


def killed_at(monkeypatch, step: int) -> list[str]:
    """Let every call that touches the disk fail from the given one on; the names of the calls."""
    calls: list[str] = []
    for name in ("open", "fsync", "replace", "link", "unlink"):
        real = getattr(os, name)

        def call(*arguments, real=real, name=name, **options):
            calls.append(name)
            if len(calls) > step:
                raise KilledError
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize("replace", [True, False])
def test_killed_at_any_step_the_file_is_complete_or_as_before(tmp_path, monkeypatch, replace):
    for step in range(20):
        path = tmp_path / f"{step}.txt"
        if replace:
            path.write_bytes(b"before")
        with monkeypatch.context() as patch:
            calls = killed_at(patch, step)
            try:
                write_durably(path, [b"af", b"ter"], replace=replace)
                finished = True
            except KilledError:
                finished = False
        content = path.read_bytes() if path.exists() else None
        assert content in (b"before" if replace else None, b"after")
        if finished:
            assert content == b"after"
            break
    publish = ["replace"] if replace else ["link", "unlink"]
    assert calls == ["open", "fsync", *publish, "open", "fsync"]  # the content before the name, the directory last


def test_an_error_leaves_the_file_as_it_was_and_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(path, b"after")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"before"


def test_an_existing_file_is_not_replaced_unless_asked(tmp_path):
    path = tmp_path / "file"
    write_durably(path, b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_durably(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    write_durably(path, b"second")
    assert path.read_bytes() == b"second"


def test_modes(tmp_path):
    before = os.umask(0o077)
    try:
        write_durably(tmp_path / "private", b"")
        write_durably(tmp_path / "masked", b"", mode=0o666)
        write_durably(tmp_path / "exact", b"", mode=0o644, preserve_access=True)
        (tmp_path / "exact").chmod(0o640)
        write_durably(tmp_path / "exact", b"again", mode=0o644, preserve_access=True)
    finally:
        os.umask(before)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {"private": 0o600, "masked": 0o600, "exact": 0o640}


def test_a_temporary_name_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        write_durably(tmp_path / "file", b"content", temporary=tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_directories_are_created_with_their_parents(tmp_path):
    create_directory(tmp_path / "a" / "b")
    create_directory(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["lock", "."])
def test_a_lock_is_exclusive_until_it_is_released(tmp_path, name):
    path = tmp_path / name
    waited = threading.Event()

    def wait() -> None:
        with FileLock(path):
            waited.set()

    with FileLock(path):
        with pytest.raises(BlockingIOError):
            FileLock(path, wait=False)
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not waited.is_set()
    waiting.join(60)
    assert waited.is_set()
    FileLock(path, wait=False).release()


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
