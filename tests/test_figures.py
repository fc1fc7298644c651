"""Figures: written whole, refused early."""

import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from shuffledp import figures
from shuffledp.errors import OutputError
from shuffledp.figures.text_extent import text_boxes, text_width
from shuffledp.output import check_writable, write_all, write_whole


def draw(suffix, *, names=("a", "b"), **more):
    words = {"title": "Title", "value_title": "users", "caption": ["caption"]} | more
    values, intervals = np.array([3.0, -1.0]), np.array([[2.0, 4.0], [0.0, 1.0]])
    errors = np.array([0.5, 0.5])
    return figures.bars(suffix, names=list(names), values=values, errors=errors, intervals=intervals, users=4, **words)


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


LONG = "Ambulatory monitoring with maximum WWW traffic"


def view(drawing):
    left, _, width, _ = map(float, re.search(r'viewBox="([^"]*)"', drawing)[1].split())
    return left, left + width


def reach(drawing):
    boxes = list(text_boxes(drawing))
    return min(box[0] for box in boxes), max(box[2] for box in boxes)


def test_no_text_of_an_svg_is_cut_in_another_font():
    """Names and captions are as long as they can be: as it was laid out, the drawing would cut them."""
    drawing = draw(".svg", names=(LONG[:40], "b"), title=LONG * 2, caption=[LONG * 3]).decode()
    left, right = view(drawing)
    low, high = reach(drawing)
    assert left <= low < high <= right
    narrow = drawing.replace(re.search(r'viewBox="[^"]*"', drawing)[0], 'viewBox="0 0 600 200"')
    assert reach(narrow)[1] > view(narrow)[1], "the fault is there to be seen"


def test_the_background_covers_the_widened_view():
    drawing = draw(".svg", names=(LONG[:40], "b")).decode()
    left, right = view(drawing)
    x, width = re.search(r'<rect x="([-0-9]+)" width="([0-9]+)"', drawing).groups()
    assert (float(x), float(x) + float(width)) == (left, right)


@pytest.mark.parametrize(
    ("text", "size", "at_least"),
    [("mmmm", 10, 38.9), ("0000", 10, 25.4), ("HHHH", 10, 30.1), ("aaaa", 10, 24.5), ("漢字", 10, 20.0)],
)
def test_widths_are_those_of_the_widest_fonts(text, size, at_least):
    """Advance widths of Verdana and DejaVu Sans, the larger of the two."""
    assert at_least <= text_width(text, size) < 1.3 * at_least
    assert text_width(text, size, bold=True) > text_width(text, size)


def test_a_rotated_title_is_measured_upwards():
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg"><text transform="translate(50,100) rotate(-90)">aaaa</text></svg>'
    )
    ((left, top, right, bottom),) = text_boxes(drawing)
    assert bottom == pytest.approx(100)
    assert top < 80
    assert 30 < left < right < 60


def test_a_number_is_a_point_on_the_scale_of_its_bounds():
    def number(interval):
        return figures.number_line(
            ".svg",
            value=49.9989,
            interval=interval,
            bounds=(0.0, 120.0),
            label="49.999",
            title="t",
            value_title="minutes",
            caption=[],
        ).decode()

    wide, short = number((30.0, 70.0)), number((49.9988, 49.9990))
    assert re.findall(r">(\d+)<", wide)[:7] == ["0", "20", "40", "60", "80", "100", "120"]
    assert "enlarged" not in wide
    assert "enlarged" in short, "too short to be seen on the scale of the bounds"


@pytest.mark.parametrize(
    "character",
    ["\x00", *(pytest.param(each, marks=pytest.mark.slow) for each in ("\x0b", "\x1b", "\ufffe")), "\ud800"],
)
def test_characters_that_xml_lacks_are_drawn_as_others(character):
    """The renderer aborted the process, after the noise was drawn and before anything was written."""
    for place in ({"names": (f"a{character}", "b")}, {"title": character}, {"caption": [character]}):
        ElementTree.fromstring(draw(".svg", **place))
        assert draw(".png", **place).startswith(b"\x89PNG")


def test_long_names_that_differ_at_their_end_have_different_labels():
    drawing = draw(".svg", names=(LONG + "x", LONG + "y")).decode()
    labels = [label for label in re.findall(r"<text[^>]*>([^<]*)</text>", drawing) if "…" in label]
    assert len(set(labels)) == 2
    assert {label[-1] for label in labels} == {"x", "y"}
    same_ends = draw(".svg", names=(LONG * 3 + "x" + LONG * 3, LONG * 3 + "y" + LONG * 3)).decode()
    assert same_ends.count('aria-roledescription="bar"') == 2, "a bar each, whatever its label"


def test_quantiles_of_a_distribution_have_labels_that_do_not_overlap():
    """Also close together, with wide intervals, and at the right edge."""
    edges = np.linspace(0.0, 120.0, 65)
    shares = (edges / 120) ** 6
    band = np.stack((np.clip(shares - 0.1, 0, 1), np.clip(shares + 0.1, 0, 1)), axis=1)
    asked = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    marks = [
        figures.MarkedQuantile(share, 120 * share ** (1 / 6), 40.0, 120.0, f"{share:g}: {120 * share ** (1 / 6):.2f}")
        for share in asked
    ]
    words = {"edges": edges, "shares": shares, "band": band, "title": "Title", "caption": ["caption"]}
    drawing = figures.cumulative(".svg", quantiles=marks, **words)
    assert all(mark.label.encode() in drawing for mark in marks)
    boxes = list(text_boxes(drawing.decode()))
    overlaps = [
        (one, other)
        for index, one in enumerate(boxes)
        for other in boxes[:index]
        if one[0] < other[2] - 1 and other[0] < one[2] - 1 and one[1] < other[3] - 3 and other[1] < one[3] - 3
    ]
    assert overlaps == []
    many = [figures.MarkedQuantile(k / 20, 6.0 * k, 5.0 * k, 7.0 * k, f"words {k}") for k in range(1, 20)]
    assert b"words" not in figures.cumulative(".svg", quantiles=many, **words)  # too many to be read
