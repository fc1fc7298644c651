"""Curves with their names at their ends, in panels, light and dark."""

import itertools
import re

import pytest

from shuffledp.figures import DARK, LIGHT, Curve, Panel, panels
from shuffledp.figures.axes import Axis
from shuffledp.figures.labels import spread_out


def draw(suffix=".svg", shown=None, **more):
    lines = [
        Curve("measured", [(10.0, 5.0), (1e6, 6.0)], spread=[(4.0, 6.0), (5.0, 7.0)], group="a"),
        Curve("bound", [(10.0, 50.0), (1e6, 60.0)], "formula", group="a"),
    ]
    words = {"title": "Title", "x_title": "domain size", "y_title": "error (users)", "caption": ["one"]} | more
    return panels(suffix, panels=shown or [Panel("left", lines), Panel("right", lines[:1])], **words)


def test_formats_and_themes():
    assert draw(".png").startswith(b"\x89PNG")
    light, dark = draw(theme=LIGHT), draw(theme=DARK)
    assert LIGHT.background.encode() in light
    assert DARK.background.encode() in dark
    assert LIGHT.curves[0].encode() not in dark


def test_everything_is_named():
    drawing = draw().decode()
    for word in ("Title", "left", "right", "measured", "bound", "domain size", "error (users)", "1e5"):
        assert word in drawing, word
    assert "stroke-dasharray" in drawing


def test_points_that_cannot_be_shown_are_left_out():
    curve = Curve("zero", [(1.0, 0.0), (2.0, 1.0), (3.0, float("inf")), (4.0, 2.0)])
    assert b"zero" in draw(shown=[Panel("", [curve])])
    assert b"nothing" not in draw(shown=[Panel("", [Curve("nothing", [(1.0, 0.0)]), curve])])


def test_a_curve_is_checked():
    with pytest.raises(ValueError, match="measured, formula"):
        Curve("c", [], "guessed")
    with pytest.raises(ValueError, match="1 points but 2 bars"):
        Curve("c", [(1.0, 1.0)], spread=[(1.0, 1.0), (1.0, 1.0)])


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.9, 1.1e6), ["1", "10", "100", "1,000", "10,000", "1e5", "1e6"]),
        ((0.09, 1.2), ["0.1", "0.2", "0.5", "1"]),
        ((1e-9, 1e-3), ["1e-9", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3"]),
        ((900, 3000), ["1,000", "1,500", "2,000", "3,000"]),
    ],
)
def test_ticks_are_readable(ends, words):
    expression = Axis(*ends, 100).ticks().to_dict()["labelExpr"]
    assert re.findall(r"'([^']*)'", expression)[: len(words)] == words


def test_very_wide_axes_are_thinned():
    ticks = Axis(1.0, 1e30, 100).ticks().to_dict()["values"]
    assert 4 <= len(ticks) <= 8


@pytest.mark.parametrize("log", [True, False])
def test_pixels_there_and_back(log):
    axis = Axis.over([2.0, 50.0], 300, log=log)
    for value in (2.0, 7.0, 50.0):
        assert axis.value(axis.pixel(value)) == pytest.approx(value)
    assert 0 < axis.pixel(2.0) < axis.pixel(50.0) < 300


def test_labels_keep_their_distance_and_order():
    wanted = [10.0, 11.0, 12.0, 100.0, 99.0, 300.0]
    placed = spread_out(wanted, 13, 6, 294)
    ordered = [placed[place] for place in sorted(range(6), key=lambda place: wanted[place])]
    assert all(after - before >= 13 - 1e-9 for before, after in itertools.pairwise(ordered))
    assert min(placed) >= 6
    assert max(placed) <= 294
    assert spread_out([50.0], 13, 6, 294) == [50.0]
