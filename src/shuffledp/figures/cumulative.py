"""Figure of a cumulative distribution: shares of users below each number, with a band and some quantiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.figures.axes import Axis
from shuffledp.figures.labels import place_labels
from shuffledp.figures.rendering import LIGHT, load_altair, render

_WIDTH, _HEIGHT = 520, 300
_MAX_POINTS = 600
_MAX_LABELS = 12
_STEP = 4.0  # pixels between two points of a line that labels must not cover


@dataclass(frozen=True)
class MarkedQuantile:
    """A quantile to draw: the share of users, the value with its interval, and a label."""

    share: float
    value: float
    low: float
    high: float
    label: str


def cumulative(
    suffix: str,
    *,
    edges: NDArray[np.float64],
    shares: NDArray[np.float64],
    band: NDArray[np.float64],
    quantiles: list[MarkedQuantile],
    title: str,
    caption: list[str],
) -> bytes:
    """Draw the shares of users below each edge with their band, and a dot with its interval per quantile.

    Quantiles have labels if they are few.
    """
    alt = load_altair()
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), _MAX_POINTS)).astype(np.int64))
    rows: list[dict[str, Any]] = [
        {"edge": float(edges[i]), "share": float(shares[i]), "low": float(band[i, 0]), "high": float(band[i, 1])}
        for i in chosen.tolist()
    ]
    marks = [{"share": mark.share, "value": mark.value, "low": mark.low, "high": mark.high} for mark in quantiles]
    across, upward = Axis(float(edges[0]), float(edges[-1]), _WIDTH, log=False), Axis(0.0, 1.0, _HEIGHT, log=False)
    ticks = alt.Axis(format=",~f", tickCount=6)
    y_ticks = alt.Axis(format="%", tickCount=5)

    def x(field: str) -> Any:
        return alt.X(f"{field}:Q", title="value", scale=across.scale(), axis=ticks)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title="share of users below", scale=upward.scale(), axis=y_ticks)

    base = alt.Chart(alt.Data(values=rows))
    area = base.mark_area(color=LIGHT.curves[0], opacity=0.25).encode(x=x("edge"), y=y("low"), y2="high:Q")
    line = base.mark_line(color=LIGHT.curves[0], strokeWidth=2).encode(x=x("edge"), y=y("share"))
    points = alt.Chart(alt.Data(values=marks))
    spans = points.mark_rule(color=LIGHT.ink, strokeWidth=2).encode(x=x("low"), x2="high:Q", y=y("share"))
    ends = [
        points.mark_tick(color=LIGHT.ink, orient="vertical", thickness=2, size=10).encode(x=x(end), y=y("share"))
        for end in ("low", "high")
    ]
    dots = points.mark_point(color=LIGHT.ink, filled=True, size=45, opacity=1).encode(x=x("value"), y=y("share"))
    spots = _label_spots(rows, quantiles, across, upward) if len(quantiles) <= _MAX_LABELS else []
    labels = (
        alt.Chart(alt.Data(values=spots))
        .mark_text(align="left", baseline="middle", fontSize=11, color=LIGHT.ink)
        .encode(x=x("x"), y=y("y"), text="label:N")
    )
    layers = alt.layer(area, line, spans, *ends, dots, labels)
    return render(layers, suffix, title, caption, width=_WIDTH, height=_HEIGHT)


def _label_spots(
    rows: list[dict[str, Any]], quantiles: list[MarkedQuantile], across: Axis, upward: Axis
) -> list[dict[str, Any]]:
    """Where the label of each quantile begins: clear of the curve, of all dots and intervals, and of other labels."""
    curve = [(across.pixel(row["edge"]), upward.pixel(row["share"])) for row in rows]
    occupied = list(_along(curve))
    for mark in quantiles:
        height = upward.pixel(mark.share)
        occupied += _along([(across.pixel(mark.low), height), (across.pixel(mark.high), height)])
    points = {(mark.label, ""): (across.pixel(mark.value), upward.pixel(mark.share)) for mark in quantiles}
    placed = place_labels(points, occupied, _WIDTH, _HEIGHT)
    return [
        {"x": across.value(left), "y": upward.value(height), "label": label}
        for (label, _), (left, height) in placed.items()
    ]


def _along(corners: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Points along a line through the corners, in pixels."""
    for (x, y), (next_x, next_y) in itertools.pairwise(corners):
        steps = max(1, int(max(abs(next_x - x), abs(next_y - y)) / _STEP))
        for step in range(steps + 1):
            yield x + (next_x - x) * step / steps, y + (next_y - y) * step / steps
