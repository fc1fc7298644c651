"""Charts of pages: numbers are where the axis says, whatever they are, and text is escaped."""

import re
from xml.etree import ElementTree

import pytest

from shuffledp.pages import Bar, CurvePoint, bar_chart, cumulative_chart, interval_chart

TEXTS = {"title": "title", "axis_title": "axis", "description": "description"}


def ticks(drawing):
    """Numbers on the axis with their positions."""
    found = re.findall(r'<text x="([\d.]+)" [^>]*text-anchor="middle"[^>]*>([\d,.\u2212-]+)</text>', drawing)
    return [(float(text.replace(",", "").replace("\u2212", "-")), float(x)) for x, text in found]


def position(drawing, number):
    """Where a number is, by the first and the last tick."""
    (first, start), *_, (last, end) = ticks(drawing)
    return start + (end - start) * (number - first) / (last - first)


@pytest.mark.parametrize("scale", [1e-6, 0.37, 1.0, 12_345.0, 1e12])
@pytest.mark.parametrize(("low", "value", "high"), [(3.0, 5.0, 8.0), (-2.0, 0.0, 1.0), (-9.0, -7.0, -6.5), (5, 5, 5)])
def test_a_bar_and_its_interval_are_where_the_axis_says(scale, low, value, high):
    drawing = bar_chart([Bar("a", value * scale, low * scale, high * scale, "5")], notes=["note"], **TEXTS)
    ElementTree.fromstring(drawing)
    x, width = map(float, re.search(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing).groups())
    assert (x, x + width) == pytest.approx(sorted((position(drawing, 0.0), position(drawing, value * scale))), abs=0.1)
    start, end = map(float, re.search(r'd="M([\d.]+) [\d.]+H([\d.]+)M', drawing).groups())
    assert (start, end) == pytest.approx([position(drawing, low * scale), position(drawing, high * scale)], abs=0.1)
    assert 3 <= len(ticks(drawing)) <= 9


def test_nothing_but_zeros():
    drawing = bar_chart([Bar("a", 0.0, 0.0, 0.0, "0")], notes=[], **TEXTS)
    assert 'width="0.00"' in drawing


def test_text_is_escaped_and_long_names_are_shortened():
    names = ['<b>"&', "x" * 500, "y" * 300 + "1", "y" * 300 + "2"]
    drawing = bar_chart([Bar(name, 1.0, 0.5, 2.0, "<1") for name in names], notes=["<note>"], **TEXTS)
    tree = ElementTree.fromstring(drawing)
    texts = [each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {names[0], "<1", "<note>", "title"} <= set(texts)
    assert any(re.fullmatch("x+…", text) for text in texts)
    assert {text[-1] for text in texts if text.startswith("yyy")} == {"1", "2"}
    assert max(map(len, texts)) < 60


@pytest.mark.parametrize(
    ("interval", "bounds", "axes"), [((40, 60), (0, 100), 1), ((50, 51), (0, 100), 2), ((5, 5), (5, 5), 1)]
)
def test_one_number_on_its_range(interval, bounds, axes):
    drawing = interval_chart(Bar("sum", 50.5, *interval, "50.5"), bounds, **TEXTS)
    ElementTree.fromstring(drawing)
    assert drawing.count("<circle") == axes
    assert drawing.count(">50.5</text>") >= 1
    assert (", enlarged" in drawing) == (axes == 2)


def test_a_distribution_and_its_band_are_where_the_axes_say():
    points = [CurvePoint(10.0 * i, i / 10, max(0.0, i / 10 - 0.05), min(1.0, i / 10 + 0.05)) for i in range(11)]
    drawing = cumulative_chart(points, [(0.5, Bar("0.5", 50.0, 40.0, 70.0, ""))], notes=["<note>"], **TEXTS)
    ElementTree.fromstring(drawing)
    heights = {text: float(y) - 4 for y, text in re.findall(r'y="([\d.]+)" text-anchor="end"[^>]*>(\d+%)<', drawing)}
    assert list(heights) == ["0%", "25%", "50%", "75%", "100%"]
    (line,) = re.findall(r'd="M([^"Z]+)" stroke="var\(--bar\)"', drawing)
    (band,) = re.findall(r'd="M([^"]+)Z"', drawing)
    drawn = [tuple(map(float, point.split())) for point in line.split("L")]
    assert len(drawn) == 11
    assert len(band.split("L")) == 22
    for point, (x, y) in zip(points, drawn, strict=True):
        assert x == pytest.approx(position(drawing, point.x), abs=0.1)
        assert y == pytest.approx(heights["0%"] + point.share * (heights["100%"] - heights["0%"]), abs=0.1)
    cx, cy = map(float, re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing).groups())
    assert (cx, cy) == pytest.approx((position(drawing, 50.0), heights["50%"]), abs=0.1)
    start, end = map(float, re.search(r'd="M([\d.]+) [\d.]+H([\d.]+)M', drawing).groups())
    assert (start, end) == pytest.approx([position(drawing, 40.0), position(drawing, 70.0)], abs=0.1)


def test_the_same_numbers_give_the_same_bytes():
    bars = [Bar("a", 1 / 3, 0.1, 0.9, "0.3"), Bar("b", 2e5, 1e5, 3e5, "200,000")]
    assert bar_chart(bars, notes=[], **TEXTS) == bar_chart(list(bars), notes=[], **TEXTS)
