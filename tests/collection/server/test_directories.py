"""Directories of a server: what can be read and written, and by whom."""

import os

import pytest

from shuffledp.collection.server import directories
from shuffledp.collection.server.directories import check_directory, lock_directory, make_private
from shuffledp.errors import DataError


def test_a_folder_that_is_only_read_need_not_be_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(directories.os, "access", lambda _, mode: not mode & os.W_OK)  # root may write everything
    check_directory(tmp_path, writable=False)
    with pytest.raises(DataError, match="cannot be written"):
        check_directory(tmp_path)
    monkeypatch.setattr(directories.os, "access", lambda _, mode: not mode & os.R_OK)
    with pytest.raises(DataError, match="cannot be read"):
        check_directory(tmp_path, writable=False)


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(DataError, match="no directory"):
        check_directory(tmp_path / "missing")


def test_one_process_at_a_time(tmp_path):
    lock = lock_directory(tmp_path)
    with pytest.raises(DataError, match="Another process uses"):
        lock_directory(tmp_path)
    lock.release()
    lock_directory(tmp_path).release()


def test_other_users_lose_their_access(tmp_path):
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
