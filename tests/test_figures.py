"""Figures: written whole, refused early."""

import numpy as np
import pytest

from shuffledp.errors import OutputError
from shuffledp.figures import draw_bars, draw_curves
from shuffledp.output import check_writable, write_whole


def bars(path, **more):
    draw_bars(
        path,
        names=["a", "b"],
        values=np.array([3.0, -1.0]),
        intervals=np.array([[2.0, 4.0], [0.0, 1.0]]),
        title="Title",
        value_title="users",
        caption=["caption"],
        **more,
    )


def test_bars_with_and_without_truth(tmp_path):
    bars(tmp_path / "a.svg")
    bars(tmp_path / "b.svg", truth=np.array([3.0, 0.0]))
    assert (tmp_path / "a.svg").read_text() != (tmp_path / "b.svg").read_text()
    assert "Title" in (tmp_path / "a.svg").read_text()


def test_curves(tmp_path):
    draw_curves(
        tmp_path / "c.svg",
        curves={"first": [(0.0, 1.0), (1.0, 0.1)], "second": [(0.0, 1.0), (1.0, 0.0)]},
        title="t",
        x_title="x",
        y_title="y",
        caption=[],
    )
    assert "first" in (tmp_path / "c.svg").read_text()


@pytest.mark.parametrize("name", ["figure.pdf", "figure", "missing/figure.png"])
def test_what_cannot_be_drawn_is_refused(tmp_path, name):
    with pytest.raises(OutputError):
        bars(tmp_path / name)
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
