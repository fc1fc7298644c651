"""The figure of what plans cost and how well they do."""

import json
import re

import pytest

from shuffledp.figures import frontier

POINTS = [
    ("cheu", "shuffled", "tight", 0.125, 5.8),
    ("cheu", "shuffled", "paper", 0.125, 30.0),
    ("pure-sum", "shuffled", "tight", 2.0, 17.0),
    ("randomized-response", "local", "tight", 0.125, 96.0),
    ("discrete-laplace", "central", "tight", 0.125, 1.4),
]


def draw(suffix=".svg", points=POINTS, edge=((0.125, 5.8), (2.0, 4.0)), **more):
    words = {"title": "What it costs", "x_title": "bytes", "y_title": "error", "caption": ["one", "two"]} | more
    return frontier(suffix, points=list(points), edge=list(edge), **words)


def test_formats():
    assert draw(".png").startswith(b"\x89PNG")
    assert b"</svg>" in draw(".svg")
    assert b"<html" in draw(".html").lower()


def test_everything_is_named():
    drawing = draw().decode()
    for words in ("cheu", "pure-sum", "randomized-response", "discrete-laplace", "local", "central", "shuffled"):
        assert words in drawing
    for words in ("What it costs", "bytes", "error", "one", "two"):
        assert words in drawing


def test_a_name_is_written_once():
    """Two calibrations of cheu: one label."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", draw().decode())
    assert texts.count("cheu") == 1


def test_names_are_text_and_not_markup():
    page = draw(".html", [("<script>alert(1)</script>", "shuffled", "tight", 1.0, 2.0)], [], title="</script><b>")
    assert b"<script>alert" not in page
    assert b"</script><b>" not in page
    drawing = draw(".svg", [("<b>", "shuffled", "tight", 1.0, 2.0)], [(1.0, 2.0)]).decode()
    assert "&lt;b&gt;" in drawing
    assert "<b>" not in drawing


@pytest.mark.parametrize("edge", [[], [(0.125, 5.8)]])
def test_a_line_of_one_point_or_none(edge):
    assert b"</svg>" in draw(edge=edge)


def test_one_point_alone():
    assert b"cheu" in draw(points=POINTS[:1], edge=[(0.125, 5.8)])


def test_points_at_the_same_place():
    assert b"</svg>" in draw(points=POINTS[:1] * 5)


def test_an_error_of_nothing_does_not_fit_a_logarithm():
    """A domain of one value is known without error; the figure is drawn all the same."""
    drawing = draw(points=[*POINTS, ("exact", "shuffled", "tight", 0.125, 0.0)], edge=[(0.125, 0.0)]).decode()
    assert "NaN" not in drawing
    assert "Infinity" not in drawing


def test_what_is_not_drawn_is_said():
    far = ("almost-central", "shuffled", "paper", 1e12, 5.0)
    assert "Not drawn: 1" in draw(points=[*POINTS, far]).decode()
    assert "Not drawn" not in draw().decode()


def test_wide_ranges():
    far = [("a", "shuffled", "tight", 1e-3, 1e-3), ("b", "shuffled", "tight", 1e9, 1e12)]
    assert "NaN" not in draw(points=far, edge=[(1e-3, 1e-3)]).decode()


def test_the_page_holds_the_numbers():
    page = draw(".html").decode()
    assert json.dumps(5.8) in page
