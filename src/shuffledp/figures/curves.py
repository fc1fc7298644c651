"""Curves with their names at their ends: measured ones with dots and bars, formulas dashed; in one panel or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shuffledp.figures.axes import Axis
from shuffledp.figures.labels import LABEL_HEIGHT, spread_out
from shuffledp.figures.rendering import LIGHT, Theme, render

__all__ = ["Curve", "Panel", "curves", "panels"]

_KINDS = ("measured", "formula", "computed")
_DASH = [6, 4]


@dataclass(frozen=True)
class Curve:
    """One line of a figure, by its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = "measured"
    """``measured`` (dots), ``computed`` (exact numbers, a plain line) or ``formula`` (a bound or a rate, dashed)."""
    spread: Sequence[tuple[float, float]] = ()
    """From where to where each point may be, drawn as a bar."""
    group: str = ""
    """Curves of one group have one colour: what is measured, and the formula for it."""
    labelled: bool = True

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"A curve is {', '.join(_KINDS)}, not {self.kind!r}.")
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
) -> bytes:
    """One line per name with its label at the end; the vertical axis is logarithmic."""
    drawn = [Curve(name, points, kind="computed") for name, points in lines.items()]
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
    """Panels of curves, ``columns`` beside each other, all with the same vertical axis.

    Points that a logarithmic axis cannot show (0 or less) are left out.
    """
    import altair as alt

    shown = [Panel(panel.title, [_showable(curve, x_log, y_log) for curve in panel.curves]) for panel in panels]
    upward = Axis.over(_heights(shown), size[1], log=y_log, margins=(1.5, 1.5))
    colours = _colours(shown, theme)
    charts = [
        _panel(
            panel,
            _across(panel, size[0], x_log),
            upward,
            colours,
            theme,
            (x_title, "" if place % columns else y_title),
        )
        for place, panel in enumerate(shown)
    ]
    if len(charts) == 1:
        return render(charts[0], suffix, title, caption, width=size[0], height=size[1], theme=theme)
    sized = [chart.properties(width=size[0], height=size[1]) for chart in charts]
    return render(alt.concat(*sized, columns=columns, spacing=30), suffix, title, caption, width=None, theme=theme)


def _showable(curve: Curve, x_log: bool, y_log: bool) -> Curve:
    kept = [
        place
        for place, (x, y) in enumerate(curve.points)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not x_log) and (y > 0 or not y_log)
    ]
    spread = [curve.spread[place] for place in kept] if curve.spread else ()
    return Curve(curve.name, [curve.points[place] for place in kept], curve.kind, spread, curve.group, curve.labelled)


def _heights(shown: Sequence[Panel]) -> list[float]:
    points = [y for panel in shown for curve in panel.curves for _, y in curve.points]
    return points + [end for panel in shown for curve in panel.curves for bar in curve.spread for end in bar]


def _across(panel: Panel, width: int, x_log: bool) -> Axis:
    return Axis.over([x for curve in panel.curves for x, _ in curve.points], width, log=x_log, margins=(1.25, 1.25))


def _colours(shown: Sequence[Panel], theme: Theme) -> dict[str, str]:
    groups = dict.fromkeys(curve.group or curve.name for panel in shown for curve in panel.curves)
    return {group: theme.curves[place % len(theme.curves)] for place, group in enumerate(groups)}


def _panel(
    panel: Panel, across: Axis, upward: Axis, colours: dict[str, str], theme: Theme, titles: tuple[str, str]
) -> Any:
    """One layer for all marks of a kind: a layer for each curve would take seconds to draw."""
    import altair as alt

    x = alt.X("x:Q", title=titles[0], scale=across.scale(), axis=across.ticks())
    y = alt.Y("y:Q", title=titles[1] or None, scale=upward.scale(), axis=upward.ticks(8))
    colour = alt.Color("colour:N", scale=None)
    dots: list[dict[str, Any]] = []
    strokes: dict[str, list[dict[str, Any]]] = {"plain": [], "dashed": []}
    bars: list[dict[str, Any]] = []
    for place, curve in enumerate(panel.curves):
        shade = colours[curve.group or curve.name]
        rows = [{"curve": place, "x": px, "y": py, "colour": shade} for px, py in curve.points]
        strokes["dashed" if curve.kind == "formula" else "plain"] += rows
        dots += rows if curve.kind == "measured" else []
        bars += [
            {"x": px, "y": max(low, upward.start), "y2": min(high, upward.end), "colour": shade}
            for (px, _), (low, high) in zip(curve.points, curve.spread, strict=False)
        ]
    leaders, names = _end_labels(panel, across, upward, colours)
    marks: list[tuple[list[dict[str, Any]], str, dict[str, Any], dict[str, Any]]] = [
        (strokes["plain"], "line", {"strokeWidth": 2}, {"detail": "curve:N"}),
        (strokes["dashed"], "line", {"strokeWidth": 2, "strokeDash": _DASH}, {"detail": "curve:N"}),
        (bars, "rule", {"strokeWidth": 1.5}, {"y2": "y2:Q"}),
        (dots, "point", {"filled": True, "size": 36, "opacity": 1}, {}),
        (leaders, "line", {"strokeWidth": 0.8, "opacity": 0.6}, {"detail": "curve:N"}),
        (names, "text", {"align": "left", "baseline": "middle", "dx": 5, "fontSize": 11}, {"text": "name:N"}),
    ]
    layers = [
        getattr(alt.Chart(alt.Data(values=rows)), f"mark_{mark}")(**style).encode(x=x, y=y, color=colour, **more)
        for rows, mark, style, more in marks
        if rows
    ]
    heading = alt.TitleParams(text=panel.title, anchor="start", fontSize=13, color=theme.ink, fontWeight="normal")
    return alt.layer(*layers).properties(title=heading)


def _end_labels(
    panel: Panel, across: Axis, upward: Axis, colours: dict[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The names of the curves right of the panel, each at the height of its curve's end, and lines that lead there."""
    named = [curve for curve in panel.curves if curve.points and curve.labelled]
    wanted = [upward.pixel(curve.points[-1][1]) for curve in named]
    placed = spread_out(wanted, LABEL_HEIGHT, LABEL_HEIGHT / 2, upward.length - LABEL_HEIGHT / 2)
    leaders: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    for place, (curve, height) in enumerate(zip(named, placed, strict=True)):
        shade = colours[curve.group or curve.name]
        end_x, end_y = curve.points[-1]
        label = {"x": across.end, "y": upward.value(height), "colour": shade}
        names.append(label | {"name": curve.name})
        if across.pixel(end_x) < across.length - 3 or abs(upward.pixel(end_y) - height) > 3:
            start = {"x": end_x, "y": end_y, "colour": shade}
            leaders += [start | {"curve": place}, label | {"curve": place}]
    return leaders, names
