"""Figures: one specification to PNG, SVG or a stand-alone HTML page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import OutputError
from shuffledp.output import check_writable

__all__ = ["FORMATS", "bars", "check_figure_path", "curves", "frontier", "place_labels"]

FORMATS = (".png", ".svg", ".html")

_MOST_BARS = 60
_WIDTH_FRONTIER, _HEIGHT_FRONTIER = 700, 480
_LABEL_HEIGHT, _LETTER_WIDTH = 13, 6.1
_BAR_COLOUR = "#4477aa"
_INK = "#222222"
_SECOND_COLOUR = "#cc3311"
_CURVE_COLOURS = ("#4477aa", "#cc3311", "#228833", "#aa3377", "#ccbb44", "#66ccee")  # colour-blind safe


def check_figure_path(path: str | Path) -> Path:
    """Refuse, before any work is done, a figure that cannot be written."""
    target = check_writable(path)
    if target.suffix.lower() not in FORMATS:
        raise OutputError(
            f"Cannot draw {target}: a figure ends in {', '.join(FORMATS)}, not {target.suffix or 'nothing'!r}.",
            path=str(target),
        )
    return target


def bars(
    suffix: str,
    *,
    names: list[str],
    values: NDArray[np.float64],
    intervals: NDArray[np.float64],
    title: str,
    value_title: str,
    caption: list[str],
    truth: NDArray[np.float64] | None = None,
    signed: bool = False,
) -> bytes:
    """One horizontal bar per name with its interval; with ``truth``, a mark where the true value lies.

    Beyond sixty names only the largest are drawn, and the caption says so.
    """
    import altair as alt

    shown = np.arange(len(names))
    if len(names) > _MOST_BARS:
        shown = np.argsort(-values, kind="stable")[:_MOST_BARS]
        caption = [*caption, f"The {_MOST_BARS} largest of {len(names):,} categories."]
    rows = [
        {
            "name": names[i],
            "value": float(values[i]) if signed else max(float(values[i]), 0.0),
            "low": float(intervals[i, 0]),
            "high": float(intervals[i, 1]),
            "end": max(float(intervals[i, 1]), 0.0),
            "label": f"{values[i]:,.0f}" if abs(values[i]) >= 100 or not signed else f"{values[i]:,.4g}",
        }
        | ({} if truth is None else {"truth": float(truth[i])})
        for i in shown
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("name:N", sort=[names[i] for i in shown], title=None, axis=alt.Axis(labelLimit=260, ticks=False))
    )
    columns = base.mark_bar(color=_BAR_COLOUR, height={"band": 0.72}).encode(
        x=alt.X("value:Q", title=value_title, axis=alt.Axis(format=",~f" if signed else ",.0f", tickCount=6))
    )
    lines = base.mark_errorbar(
        color=_INK, ticks={"color": _INK, "size": 13, "thickness": 1.5}, rule={"size": 2}
    ).encode(x=alt.X("low:Q", title=value_title), x2="high:Q")
    labels = base.mark_text(align="left", dx=6, color=_INK).encode(x=alt.X("end:Q"), text="label:N")
    layers = [columns, lines, labels]
    if truth is not None:
        layers.append(
            base.mark_point(color=_SECOND_COLOUR, shape="triangle-up", filled=True, size=45, yOffset=11).encode(
                x=alt.X("truth:Q")
            )
        )
    return _render(alt.layer(*layers), suffix, title, caption, height=max(120, 26 * len(rows)))


def curves(
    suffix: str,
    *,
    lines: dict[str, list[tuple[float, float]]],
    title: str,
    x_title: str,
    y_title: str,
    caption: list[str],
) -> bytes:
    """One line per name with its label at the end; the vertical axis is logarithmic."""
    import altair as alt

    rows = [{"curve": name, "x": x, "y": y} for name, points in lines.items() for x, y in points if y > 0]
    ends = [
        {"curve": name, "x": points[-1][0], "y": points[-1][1]}
        for name, line in lines.items()
        if (points := [point for point in line if point[1] > 0])
    ]
    colour = alt.Color("curve:N", legend=None, scale=alt.Scale(domain=list(lines), range=list(_CURVE_COLOURS)))
    x = alt.X("x:Q", title=x_title)
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e", tickCount=8))
    strokes = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour)
    labels = (
        alt.Chart(alt.Data(values=ends)).mark_text(align="left", dx=6).encode(x=x, y=y, color=colour, text="curve:N")
    )
    return _render(alt.layer(strokes, labels), suffix, title, caption, height=320)


def frontier(
    suffix: str,
    *,
    points: list[tuple[str, str, str, float, float]],
    edge: list[tuple[float, float]],
    title: str,
    x_title: str,
    y_title: str,
    caption: list[str],
) -> bytes:
    """Candidates as points (name, model, calibration, x, y) on logarithmic axes, and the line of the best ones.

    Of points that share a name and a model, only the first is labelled. The paper's constants are drawn as far as
    they lie among the others; the caption says how many do not.
    """
    import altair as alt

    points, left_out = _within_tight(points)
    if left_out:
        caption = [*caption, f"Not drawn: {left_out} with a paper's constants, which lie far outside."]
    models = list(dict.fromkeys(model for _, model, _, _, _ in points))
    across = _LogAxis.over([x for *_, x, _ in points], _WIDTH_FRONTIER)
    upward = _LogAxis.over([y for *_, y in points], _HEIGHT_FRONTIER)
    rows = [{"model": model, "calibration": kind, "x": x, "y": y} for _, model, kind, x, y in points]
    first = {(name, model): (x, y) for name, model, _, x, y in reversed(points)}
    texts, leaders = [], []
    pixels = {key: (across.pixel(x), upward.pixel(y)) for key, (x, y) in first.items()}
    dots_at = [(across.pixel(x), upward.pixel(y)) for *_, x, y in points]
    for (name, model), (left, low) in place_labels(pixels, dots_at, _WIDTH_FRONTIER, _HEIGHT_FRONTIER).items():
        texts.append({"x": across.value(left), "y": upward.value(low), "name": name, "model": model})
        x, y = first[name, model]
        end = left if left > across.pixel(x) else left + _LETTER_WIDTH * len(name)
        if abs(low - upward.pixel(y)) > _LABEL_HEIGHT or abs(end - across.pixel(x)) > 12:
            leaders.append({"x": across.value(end), "y": upward.value(low), "x2": x, "y2": y, "model": model})
    axis = alt.Axis(format="~s", tickCount=6)
    x_axis = alt.X("x:Q", title=x_title, scale=across.scale(), axis=axis)
    y_axis = alt.Y("y:Q", title=y_title, scale=upward.scale(), axis=axis)
    colour = alt.Color(
        "model:N",
        title="model",
        scale=alt.Scale(domain=models, range=list(_CURVE_COLOURS)),
        legend=alt.Legend(orient="bottom"),
    )
    dots = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(x=x_axis, y=y_axis, color=colour, shape=alt.Shape("calibration:N", legend=alt.Legend(orient="bottom")))
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
        .mark_line(color=_INK, strokeDash=[5, 4], opacity=0.7, interpolate="step-after")
        .encode(x=x_axis, y=y_axis)
    )
    layers = alt.layer(line, lines, dots, labels)
    return _render(layers, suffix, title, caption, height=_HEIGHT_FRONTIER, width=_WIDTH_FRONTIER)


Point = tuple[str, str, str, float, float]


def _within_tight(points: list[Point]) -> tuple[list[Point], int]:
    """Without those of the paper's constants that cost or err more than all others; and how many these are."""
    tight = [point for point in points if point[2] != "paper"] or points
    most_x, most_y = max(point[3] for point in tight), max(point[4] for point in tight)
    kept = [point for point in points if point[3] <= most_x and point[4] <= most_y]
    return kept, len(points) - len(kept)


@dataclass(frozen=True)
class _LogAxis:
    """A logarithmic axis of known ends and length, so that labels can be placed in pixels."""

    start: float
    end: float
    length: int

    @classmethod
    def over(cls, values: list[float], length: int) -> _LogAxis:
        positive = [value for value in values if value > 0] or [1.0]
        return cls(min(positive) / 2.5, max(positive) * 1.6, length)

    def pixel(self, value: float) -> float:
        share = math.log(max(value, self.start) / self.start) / math.log(self.end / self.start)
        return self.length * share

    def value(self, pixel: float) -> float:
        return float(self.start * (self.end / self.start) ** (pixel / self.length))

    def scale(self) -> Any:
        import altair as alt

        return alt.Scale(type="log", domain=[self.start, self.end], nice=False)


Label = tuple[str, str]
Spot = tuple[float, float]


def place_labels(labels: dict[Label, Spot], dots: list[Spot], width: int, height: int) -> dict[Label, Spot]:
    """Where each label begins, near its point and, as far as there is room, clear of points and other labels."""
    taken: list[tuple[float, float, float, float]] = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    placed: dict[Label, Spot] = {}
    for (name, model), (x, y) in sorted(labels.items(), key=lambda item: -item[1][1]):
        wide = _LETTER_WIDTH * len(name)
        spots = [
            (x + aside, y + rise * _LABEL_HEIGHT)
            for rise in range(-12, 13)
            for aside in (9, 25, 45, 70, 100, 140, -9 - wide, -25 - wide)
        ]
        spots.sort(key=lambda spot: _distance(spot, wide, x, y))
        inside = [
            (left, low)
            for left, low in spots
            if left >= 0 and left + wide <= width + 30 and _LABEL_HEIGHT / 2 <= low <= height - _LABEL_HEIGHT / 2
        ]
        choice = next((spot for spot in inside if _is_free(spot, wide, taken)), (x + 9, y))
        placed[name, model] = choice
        taken.append(_box(choice, wide))
    return placed


def _distance(spot: Spot, wide: float, x: float, y: float) -> float:
    """From the point to the nearer end of the label; heights count more, so that labels stay beside it."""
    left, low = spot
    return math.hypot(min(abs(left - x), abs(left + wide - x)), 1.5 * (low - y))


def _box(spot: Spot, wide: float) -> tuple[float, float, float, float]:
    left, low = spot
    return left - 2, low - _LABEL_HEIGHT / 2, left + wide + 2, low + _LABEL_HEIGHT / 2


def _is_free(spot: Spot, wide: float, taken: list[tuple[float, float, float, float]]) -> bool:
    left, low, right, high = _box(spot, wide)
    return all(right <= a or c <= left or high <= b or d <= low for a, b, c, d in taken)


def _render(chart: Any, suffix: str, title: str, caption: list[str], height: int, width: int = 520) -> bytes:
    import altair as alt
    import vl_convert

    finished = (
        chart.properties(
            width=width,
            height=height,
            padding={"left": 12, "top": 12, "right": 48, "bottom": 12},
            background="white",
            title=alt.TitleParams(
                text=title, subtitle=caption, anchor="start", fontSize=17, subtitleFontSize=11, subtitleColor="#555555"
            ),
        )
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, gridColor="#e6e6e6")
    )
    specification: str = finished.to_json()
    if suffix == ".svg":
        drawing: str = vl_convert.vegalite_to_svg(specification)
        return drawing.encode()
    if suffix == ".html":
        return _page(specification)
    picture: bytes = vl_convert.vegalite_to_png(specification, scale=2)
    return picture


def _page(specification: str) -> bytes:
    """A page that needs no network. A value of the data must not be able to end the script it stands in."""
    import vl_convert

    stand_in = "\ue0fc"  # private use: whether written out or escaped, it comes back as an escaped "<"
    page: str = vl_convert.vegalite_to_html(specification.replace("<", stand_in), bundle=True)
    return page.replace(stand_in, "\\u003c").replace("\\ue0fc", "\\u003c").encode()
