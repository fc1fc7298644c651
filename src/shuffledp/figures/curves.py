"""Line charts in one or several panels: measured curves with dots and error bars, formulas dashed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shuffledp.figures.axes import Axis
from shuffledp.figures.colours import curve_colours
from shuffledp.figures.labels import LABEL_HEIGHT, spread_out
from shuffledp.figures.rendering import LIGHT, Theme, load_altair, render

_KINDS = ("measured", "formula", "computed", "mark")
_DASH = [6, 4]
_NEAR_EDGE = 40
"""A curve that ends at most this many pixels before the right edge can have its name beside its end."""
_MAX_SHIFT = LABEL_HEIGHT
"""A name that is further than this from the end of its curve, in pixels, no longer reads as its label."""
_LEGEND_START, _LEGEND_LENGTH = 10, 24
"""Start and length of the line samples of a legend, in pixels right of the panel."""


@dataclass(frozen=True)
class Curve:
    """One line of a figure: its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = "measured"
    """``measured`` (dots), ``computed`` (exact numbers, a plain line), ``formula`` (a bound or a rate, dashed) or
    ``mark`` (single points, drawn as diamonds without a line)."""
    spread: Sequence[tuple[float, float]] = ()
    """The interval of each point, drawn as an error bar."""
    group: str = ""
    """Curves of one group have one colour, such as a measurement and its formula."""
    labelled: bool = True

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"The kind of a curve must be one of {', '.join(_KINDS)}, not {self.kind!r}.")
        if self.spread and len(self.spread) != len(self.points):
            raise ValueError(f"The curve {self.name!r} has {len(self.points)} points but {len(self.spread)} bars.")


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    curves: Sequence[Curve]


def curves(
    suffix: str,
    *,
    lines: dict[str, list[tuple[float, float]]],
    title: str,
    x_title: str,
    y_title: str,
    caption: list[str],
    mark: tuple[str, tuple[float, float]] | None = None,
) -> bytes:
    """Draw one line per name on a logarithmic vertical axis; ``mark`` is a named point to highlight."""
    drawn = [Curve(name, points, kind="computed") for name, points in lines.items()]
    if mark is not None:
        drawn.append(Curve(mark[0], [mark[1]], kind="mark"))
    return panels(
        suffix,
        panels=[Panel("", drawn)],
        title=title,
        x_title=x_title,
        y_title=y_title,
        caption=caption,
        x_log=False,
        size=(520, 320),
    )


def panels(
    suffix: str,
    *,
    panels: Sequence[Panel],
    title: str,
    x_title: str,
    y_title: str,
    caption: list[str],
    x_log: bool = True,
    y_log: bool = True,
    columns: int = 2,
    size: tuple[int, int] = (460, 340),
    theme: Theme = LIGHT,
) -> bytes:
    """Draw panels of curves, ``columns`` in a row, all with the same vertical axis.

    Points that a logarithmic axis cannot show (0 or less) are left out.
    """
    alt = load_altair()

    shown = [Panel(panel.title, [_showable(curve, x_log, y_log) for curve in panel.curves]) for panel in panels]
    upward = Axis.over(_heights(shown), size[1], log=y_log, margins=(1.5, 1.5))
    colours = _colours(shown, theme)
    axes = [_across(panel, size[0], x_log) for panel in shown]
    with_legend = any(not _end_labels_fit(panel, across, upward) for panel, across in zip(shown, axes, strict=True))
    charts = [
        _panel(
            panel,
            across,
            upward,
            colours,
            theme,
            (x_title, "" if position % columns else y_title),
            with_legend=with_legend,
        )
        for position, (panel, across) in enumerate(zip(shown, axes, strict=True))
    ]
    if len(charts) == 1:
        return render(charts[0], suffix, title, caption, width=size[0], height=size[1], theme=theme)
    sized = [chart.properties(width=size[0], height=size[1]) for chart in charts]
    return render(alt.concat(*sized, columns=columns, spacing=30), suffix, title, caption, width=None, theme=theme)


def _showable(curve: Curve, x_log: bool, y_log: bool) -> Curve:
    showable = [
        index
        for index, (x, y) in enumerate(curve.points)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not x_log) and (y > 0 or not y_log)
    ]
    points = [curve.points[index] for index in showable]
    spread = [curve.spread[index] for index in showable] if curve.spread else ()
    return Curve(curve.name, points, curve.kind, spread, curve.group, curve.labelled)


def _heights(shown: Sequence[Panel]) -> list[float]:
    points = [y for panel in shown for curve in panel.curves for _, y in curve.points]
    return points + [end for panel in shown for curve in panel.curves for bar in curve.spread for end in bar]


def _across(panel: Panel, width: int, x_log: bool) -> Axis:
    return Axis.over([x for curve in panel.curves for x, _ in curve.points], width, log=x_log, margins=(1.25, 1.25))


def _colours(shown: Sequence[Panel], theme: Theme) -> dict[str, str]:
    return curve_colours((curve.group or curve.name for panel in shown for curve in panel.curves), theme)


def _panel(
    panel: Panel,
    across: Axis,
    upward: Axis,
    colours: dict[str, str],
    theme: Theme,
    titles: tuple[str, str],
    *,
    with_legend: bool,
) -> Any:
    """One layer for all marks of a kind: a layer for each curve would take seconds to draw."""
    alt = load_altair()

    x = alt.X("x:Q", title=titles[0], scale=across.scale(), axis=across.ticks())
    y = alt.Y("y:Q", title=titles[1] or None, scale=upward.scale(), axis=upward.ticks(8))
    colour = alt.Color("colour:N", scale=None)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("plain", "dashed", "bars", "dots", "diamonds")}
    for position, curve in enumerate(panel.curves):
        shade = colours[curve.group or curve.name]
        _add(rows, curve, [{"curve": position, "x": px, "y": py, "colour": shade} for px, py in curve.points])
        rows["bars"] += [
            {"x": px, "y": max(low, upward.start), "y2": min(high, upward.end), "colour": shade}
            for (px, _), (low, high) in zip(curve.points, curve.spread, strict=False)
        ]
    names = (
        _legend(panel, across, upward, colours, rows) if with_legend else _end_labels(panel, across, upward, colours)
    )
    marks: list[tuple[list[dict[str, Any]], str, dict[str, Any], dict[str, Any]]] = [
        (rows["plain"], "line", {"strokeWidth": 2}, {"detail": "curve:N"}),
        (rows["dashed"], "line", {"strokeWidth": 2, "strokeDash": _DASH}, {"detail": "curve:N"}),
        (rows["bars"], "rule", {"strokeWidth": 1.5}, {"y2": "y2:Q"}),
        (rows["dots"], "point", {"filled": True, "size": 36, "opacity": 1}, {}),
        (rows["diamonds"], "point", {"filled": True, "shape": "diamond", "size": 110, "opacity": 1}, {}),
        (names, "text", {"align": "left", "baseline": "middle", "dx": 5, "fontSize": 11}, {"text": "name:N"}),
    ]
    layers = [
        getattr(alt.Chart(alt.Data(values=values)), f"mark_{mark}")(**style).encode(x=x, y=y, color=colour, **more)
        for values, mark, style, more in marks
        if values
    ]
    heading = alt.TitleParams(text=panel.title, anchor="start", fontSize=13, color=theme.ink, fontWeight="normal")
    return alt.layer(*layers).properties(title=heading)


def _add(rows: dict[str, list[dict[str, Any]]], curve: Curve, points: list[dict[str, Any]]) -> None:
    """Add points to the layers in which a curve of this kind is drawn."""
    if curve.kind == "mark":
        rows["diamonds"] += points
        return
    rows["dashed" if curve.kind == "formula" else "plain"] += points
    rows["dots"] += points if curve.kind == "measured" else []


def _labelled(panel: Panel) -> list[Curve]:
    return [curve for curve in panel.curves if curve.points and curve.labelled]


def _end_heights(curves: Sequence[Curve], upward: Axis) -> tuple[list[float], list[float]]:
    """The heights of the ends of the curves, in pixels, and the nearest ones at which their names do not overlap."""
    ends = [upward.pixel(curve.points[-1][1]) for curve in curves]
    return ends, spread_out(ends, LABEL_HEIGHT, LABEL_HEIGHT / 2, upward.length - LABEL_HEIGHT / 2)


def _end_labels_fit(panel: Panel, across: Axis, upward: Axis) -> bool:
    """Whether every name fits beside the end of its curve, so that no legend is needed."""
    curves = _labelled(panel)
    ends, heights = _end_heights(curves, upward)
    near_edge = all(across.length - across.pixel(curve.points[-1][0]) <= _NEAR_EDGE for curve in curves)
    shifts = [abs(height - end) for end, height in zip(ends, heights, strict=True)]
    return near_edge and all(shift <= _MAX_SHIFT for shift in shifts)


def _end_labels(panel: Panel, across: Axis, upward: Axis, colours: dict[str, str]) -> list[dict[str, Any]]:
    """The names of the curves right of the last point, each at the height of the end of its curve."""
    curves = _labelled(panel)
    _, heights = _end_heights(curves, upward)
    last = max((curve.points[-1][0] for curve in curves), default=across.end)
    return [
        {
            "x": last,
            "y": upward.value(height),
            "colour": colours[curve.group or curve.name],
            "name": curve.name,
        }
        for curve, height in zip(curves, heights, strict=True)
    ]


def _legend(
    panel: Panel, across: Axis, upward: Axis, colours: dict[str, str], rows: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """A legend right of the panel, in the order of the ends of the curves; adds line samples to ``rows``."""
    curves = sorted(_labelled(panel), key=lambda curve: -curve.points[-1][1])
    line_height = LABEL_HEIGHT * 1.25
    top = upward.length - LABEL_HEIGHT / 2
    left, right = (across.value(across.length + pixel) for pixel in (_LEGEND_START, _LEGEND_START + _LEGEND_LENGTH))
    middle = across.value(across.length + _LEGEND_START + _LEGEND_LENGTH / 2)
    names: list[dict[str, Any]] = []
    for position, curve in enumerate(curves):
        sample = {"y": upward.value(top - position * line_height), "colour": colours[curve.group or curve.name]}
        _add_sample(rows, curve, f"legend {position}", [sample | {"x": x} for x in (left, middle, right)])
        names.append(sample | {"x": right, "name": curve.name})
    return names


def _add_sample(rows: dict[str, list[dict[str, Any]]], curve: Curve, sample: str, points: list[dict[str, Any]]) -> None:
    left, middle, right = points
    if curve.kind == "mark":
        rows["diamonds"].append(middle)
        return
    rows["dashed" if curve.kind == "formula" else "plain"] += [left | {"curve": sample}, right | {"curve": sample}]
    rows["dots"] += [middle] if curve.kind == "measured" else []
