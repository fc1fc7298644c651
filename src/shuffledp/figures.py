"""Figures: one specification to PNG, SVG or a stand-alone HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import OutputError
from shuffledp.output import check_writable

__all__ = ["FORMATS", "bars", "check_figure_path", "curves", "frontier"]

FORMATS = (".png", ".svg", ".html")

_MOST_BARS = 60
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
            "label": f"{values[i]:,.0f}" if abs(values[i]) >= 100 or not signed else f"{values[i]:,.4g}",
        }
        | ({} if truth is None else {"truth": float(truth[i])})
        for i in shown
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("name:N", sort=[names[i] for i in shown], title=None, axis=alt.Axis(labelLimit=260, ticks=False))
    )
    columns = base.mark_bar(color=_BAR_COLOUR, height={"band": 0.72}).encode(
        x=alt.X("value:Q", title=value_title, axis=alt.Axis(format="~g" if signed else ",.0f", tickCount=6))
    )
    lines = base.mark_errorbar(
        color=_INK, ticks={"color": _INK, "size": 13, "thickness": 1.5}, rule={"size": 2}
    ).encode(x=alt.X("low:Q", title=value_title), x2="high:Q")
    labels = base.mark_text(align="left", dx=6, color=_INK).encode(x=alt.X("high:Q"), text="label:N")
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

    Of points that share a name, only the first is labelled.
    """
    import altair as alt

    models = list(dict.fromkeys(model for _, model, _, _, _ in points))
    seen: set[tuple[str, str]] = set()
    rows = []
    for name, model, calibration, x, y in points:
        label = "" if (name, model) in seen else name
        seen.add((name, model))
        rows.append({"name": label, "model": model, "calibration": calibration, "x": x, "y": y})
    scale, axis = alt.Scale(type="log", nice=True), alt.Axis(format="~s", tickCount=6)
    axis_x = alt.X("x:Q", title=x_title, scale=scale, axis=axis)
    axis_y = alt.Y("y:Q", title=y_title, scale=scale, axis=axis)
    colour = alt.Color(
        "model:N",
        title="model",
        scale=alt.Scale(domain=models, range=list(_CURVE_COLOURS)),
        legend=alt.Legend(orient="bottom"),
    )
    chart = alt.Chart(alt.Data(values=rows))
    dots = chart.mark_point(filled=True, size=70, opacity=0.9).encode(
        x=axis_x, y=axis_y, color=colour, shape=alt.Shape("calibration:N", legend=alt.Legend(orient="bottom"))
    )
    labels = chart.mark_text(align="left", dx=8, dy=-5, fontSize=11).encode(
        x=axis_x, y=axis_y, color=colour, text="name:N"
    )
    line = (
        alt.Chart(alt.Data(values=[{"x": x, "y": y} for x, y in edge]))
        .mark_line(color=_INK, strokeDash=[5, 4], opacity=0.6, interpolate="step-after")
        .encode(x=axis_x, y=axis_y)
    )
    return _render(alt.layer(line, dots, labels), suffix, title, caption, height=420)


def _render(chart: Any, suffix: str, title: str, caption: list[str], height: int) -> bytes:
    import altair as alt
    import vl_convert

    finished = (
        chart.properties(
            width=520,
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
