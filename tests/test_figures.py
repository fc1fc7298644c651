"""Figures: written whole, refused early."""

import os
import re

import numpy as np
import pytest

from shuffledp import figures
from shuffledp.errors import OutputError
from shuffledp.output import check_writable, write_all, write_whole


def draw(suffix, *, names=("a", "b"), **more):
    return figures.bars(
        suffix,
        names=list(names),
        values=np.array([3.0, -1.0]),
        intervals=np.array([[2.0, 4.0], [0.0, 1.0]]),
        title="Title",
        value_title="users",
        caption=["caption"],
        **more,
    )


def test_bars_with_and_without_truth():
    assert draw(".svg") != draw(".svg", truth=np.array([3.0, 0.0]))
    assert b"Title" in draw(".svg")
    assert draw(".png").startswith(b"\x89PNG")


def test_curves():
    drawing = figures.curves(
        ".svg",
        lines={"first": [(0.0, 1.0), (1.0, 0.1)], "second": [(0.0, 1.0), (1.0, 0.0)]},
        title="t",
        x_title="x",
        y_title="y",
        caption=[],
    )
    assert b"first" in drawing


def test_a_page_needs_no_network():
    page = draw(".html").decode()
    assert "<html" in page
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page)


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_a_value_cannot_smuggle_in_a_script(suffix):
    """A respondent's answer becomes a label, never code."""
    planted = "</script><script>alert(1)</script><!--"
    drawing = draw(suffix, names=(planted, "b")).decode()
    assert "<script>alert(1)" not in drawing
    assert "alert(1)" in drawing


@pytest.mark.parametrize("name", ["figure.pdf", "figure", "missing/figure.png"])
def test_what_cannot_be_drawn_is_refused(tmp_path, name):
    with pytest.raises(OutputError):
        figures.check_figure_path(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_whole(tmp_path):
    target = tmp_path / "file.bin"
    write_whole(target, b"one")
    write_whole(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    assert target.stat().st_mode & 0o600 == 0o600
    with pytest.raises(OutputError):
        check_writable(tmp_path)


def test_all_files_or_none(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError):
        write_all({tmp_path / "a": b"1", tmp_path / "folder": b"2"})
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}
    write_all({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert (tmp_path / "b").read_bytes() == b"2"


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    real = os.chmod

    def full(name, mode):
        if ".b." in str(name):
            raise OSError(28, "No space left on device")
        real(name, mode)

    monkeypatch.setattr(os, "chmod", full)
    with pytest.raises(OutputError, match="No space left"):
        write_all({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert list(tmp_path.iterdir()) == []


def test_rights_and_links_are_kept(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"old")
    secret.chmod(0o600)
    (tmp_path / "link").symlink_to(secret)
    write_whole(tmp_path / "link", b"new")
    assert secret.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert secret.stat().st_mode & 0o777 == 0o600
