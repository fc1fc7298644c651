"""Curves with their names at their ends or in a key, in panels, light and dark."""

import itertools
import re

import pytest

from shuffledp.figures import DARK, LIGHT, Curve, Panel, curves, panels
from shuffledp.figures.axes import Axis
from shuffledp.figures.colours import curve_colours
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


EARLY_END = [
    Curve("long", [(1.0, 1.0), (10.0, 2.0), (1000.0, 3.0)], "computed"),
    Curve("short", [(1.0, 5.0), (2.0, 6.0)], "computed"),
]


def test_no_leader_crosses_the_panel():
    """A curve that ends early is named in a key; each curve has one line in the panel and one sample beside it."""
    drawing = draw(shown=[Panel("", EARLY_END)]).decode()
    paths = re.findall(r'<path[^>]* d="(M[^"]*)"[^>]*stroke-width="2"', drawing)
    ends = sorted(float(re.split("[ML,]", path)[-2]) for path in paths)
    assert len(paths) == 4
    assert ends[0] < 200, "the short curve ends where its data end"
    assert "0.8" not in re.findall(r'stroke-width="([^"]*)"', drawing), "leaders were drawn so thin"


def test_names_stand_at_the_ends_where_they_fit():
    near = [Curve("up", [(1.0, 1.0), (10.0, 90.0)]), Curve("down", [(1.0, 90.0), (10.0, 1.0)])]
    crowded = [Curve(f"curve {i}", [(1.0, 1.0), (10.0, 50.0 + i / 10)]) for i in range(6)]
    assert count_paths(draw(shown=[Panel("", near)])) == 2
    assert count_paths(draw(shown=[Panel("", crowded)])) == 12, "too many names at one end: a key with samples"


def count_paths(drawing):
    return drawing.count(b'aria-roledescription="line mark"')


def test_a_protocol_has_one_colour_in_all_figures():
    first = curve_colours(["cheu [8]", "balcer-cheu Theorem 12", "Lemma 23"], LIGHT)
    second = curve_colours(["central", "balcer-cheu", "cheu, many bits", "correlated noise (bits)"], LIGHT)
    assert first["cheu [8]"] == second["cheu, many bits"]
    assert first["balcer-cheu Theorem 12"] == second["balcer-cheu"]
    assert len(set(first.values())) == 3
    assert len(set(second.values())) == 4


def test_colours_within_a_figure_differ_as_long_as_there_are_enough():
    names = [*"abcdefgh", "shuffled", "local", "central", "tight"]
    assert len(set(curve_colours(names, DARK).values())) == len(names)


def test_a_mark_is_a_point_without_a_line():
    plain = {"lines": {"curve": [(0.0, 1.0), (1.0, 0.1)]}, "title": "t", "x_title": "x", "y_title": "y", "caption": []}
    marked = curves(".svg", **plain, mark=("target", (0.5, 0.3))).decode()
    assert "target" in marked
    assert count_paths(marked.encode()) == 2, "the curve and its sample in the key"
