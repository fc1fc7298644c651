"""Scatter plot of error against communication, with the Pareto frontier."""

from __future__ import annotations

from itertools import pairwise

from shuffledp.figures.axes import Axis
from shuffledp.figures.colours import curve_colours
from shuffledp.figures.labels import LABEL_HEIGHT, LABEL_OVERHANG, LETTER_WIDTH, place_labels
from shuffledp.figures.rendering import LIGHT, Theme, load_altair, render

_WIDTH, _HEIGHT = 700, 480
_LEGEND_OFFSET = LABEL_OVERHANG + 12


def frontier(
    suffix: str,
    *,
    points: list[tuple[str, str, str, float, float]],
    edge: list[tuple[float, float]],
    title: str,
    x_title: str,
    y_title: str,
    caption: list[str],
    theme: Theme = LIGHT,
) -> bytes:
    """Draw candidates as points (name, trust, calibration, x, y) on logarithmic axes, and the frontier ``edge``.

    Of points that share a name and a trust, only the first is labelled. Points with a paper's constants that lie
    beyond all others are left out; the caption says how many.
    """
    alt = load_altair()

    points, left_out = _within_tight(points)
    if left_out:
        caption = [*caption, f"Not drawn: {left_out} with a paper's constants, which lie far outside."]
    trusts = curve_colours((trust for _, trust, _, _, _ in points), theme)
    horizontal = Axis.over([x for *_, x, _ in points], _WIDTH)
    vertical = Axis.over([y for *_, y in points], _HEIGHT)
    rows = [{"trust": trust, "calibration": kind, "x": x, "y": y} for _, trust, kind, x, y in points]
    first = {(name, trust): (x, y) for name, trust, _, x, y in reversed(points)}
    texts, leaders = [], []
    pixels = {key: (horizontal.pixel(x), vertical.pixel(y)) for key, (x, y) in first.items()}
    dots_at = [(horizontal.pixel(x), vertical.pixel(y)) for *_, x, y in points]
    dots_at += _along([(horizontal.pixel(x), vertical.pixel(y)) for x, y in edge])
    for (name, trust), (left, low) in place_labels(pixels, dots_at, _WIDTH, _HEIGHT).items():
        texts.append({"x": horizontal.value(left), "y": vertical.value(low), "name": name, "trust": trust})
        x, y = first[name, trust]
        end = left if left > horizontal.pixel(x) else left + LETTER_WIDTH * len(name)
        if abs(low - vertical.pixel(y)) > LABEL_HEIGHT or abs(end - horizontal.pixel(x)) > 12:
            leaders.append({"x": horizontal.value(end), "y": vertical.value(low), "x2": x, "y2": y, "trust": trust})
    x_axis = alt.X("x:Q", title=x_title, scale=horizontal.scale(), axis=horizontal.ticks(6))
    y_axis = alt.Y("y:Q", title=y_title, scale=vertical.scale(), axis=vertical.ticks(6))
    colour = alt.Color(
        "trust:N",
        title="trust",
        scale=alt.Scale(domain=list(trusts), range=list(trusts.values())),
        legend=alt.Legend(orient="right", offset=_LEGEND_OFFSET, symbolOpacity=1),
    )
    shape = alt.Shape(
        "calibration:N",
        legend=alt.Legend(
            orient="right",
            offset=_LEGEND_OFFSET,
            symbolFillColor=theme.ink,
            symbolStrokeColor=theme.ink,
            symbolOpacity=1,
        ),
    )
    dots = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(x=x_axis, y=y_axis, color=colour, shape=shape)
    )
    labels = (
        alt.Chart(alt.Data(values=texts))
        .mark_text(align="left", baseline="middle", fontSize=11)
        .encode(x=x_axis, y=y_axis, color=colour, text="name:N")
    )
    lines = (
        alt.Chart(alt.Data(values=leaders))
        .mark_rule(opacity=0.5, strokeWidth=0.8)
        .encode(x=x_axis, y=y_axis, x2="x2:Q", y2="y2:Q", color=colour)
    )
    line = (
        alt.Chart(alt.Data(values=[{"x": x, "y": y} for x, y in edge]))
        .mark_line(color=theme.ink, strokeDash=[5, 4], opacity=0.7, interpolate="step-after")
        .encode(x=x_axis, y=y_axis)
    )
    layers = alt.layer(line, lines, dots, labels)
    return render(layers, suffix, title, caption, height=_HEIGHT, width=_WIDTH, theme=theme)


Point = tuple[str, str, str, float, float]
_STEP = 8.0


def _along(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points along the stepped line, in pixels, that labels must not cover."""
    spots: list[tuple[float, float]] = []
    for (left, high), (right, low) in pairwise(corners):
        spots += [(left + _STEP * step, high) for step in range(int((right - left) / _STEP) + 1)]
        spots += [(right, low + _STEP * step) for step in range(int(max(high - low, 0.0) / _STEP) + 1)]
    return spots


def _within_tight(points: list[Point]) -> tuple[list[Point], int]:
    """The points, except those with a paper's constants that lie beyond all others; and the number left out."""
    tight = [point for point in points if point[2] != "paper"] or points
    max_x, max_y = max(point[3] for point in tight), max(point[4] for point in tight)
    inside = [point for point in points if point[3] <= max_x and point[4] <= max_y]
    return inside, len(points) - len(inside)
