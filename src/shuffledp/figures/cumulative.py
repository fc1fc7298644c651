"""Figure of a cumulative distribution: shares of users below each number, with a band and some quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.figures.rendering import LIGHT, load_altair, render

if TYPE_CHECKING:
    from shuffledp.quantile_estimate import EstimatedNumber

_MOST_POINTS = 600


def cumulative(
    suffix: str,
    *,
    edges: NDArray[np.float64],
    shares: NDArray[np.float64],
    band: NDArray[np.float64],
    quantiles: list[tuple[float, EstimatedNumber]],
    title: str,
    caption: list[str],
) -> bytes:
    """Draw the shares of users below each edge with their band, and a dot with its interval per quantile."""
    alt = load_altair()
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), _MOST_POINTS)).astype(np.int64))
    rows: list[dict[str, Any]] = [
        {"edge": float(edges[i]), "share": float(shares[i]), "low": float(band[i, 0]), "high": float(band[i, 1])}
        for i in chosen.tolist()
    ]
    marks = [
        {"share": share, "value": number.value, "low": number.low, "high": number.high} for share, number in quantiles
    ]
    scale = alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False, zero=False)
    x = alt.X("edge:Q", title="value", scale=scale, axis=alt.Axis(format=",~f", tickCount=6))
    y = alt.Y(
        "share:Q",
        title="share of users below",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=5),
    )
    base = alt.Chart(alt.Data(values=rows))
    area = base.mark_area(color=LIGHT.curves[0], opacity=0.25).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    line = base.mark_line(color=LIGHT.curves[0], strokeWidth=2).encode(x=x, y=y)
    points = alt.Chart(alt.Data(values=marks))
    spans = points.mark_rule(color=LIGHT.ink, strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y)
    dots = points.mark_point(color=LIGHT.ink, filled=True, size=45, opacity=1).encode(x=alt.X("value:Q"), y=y)
    return render(alt.layer(area, line, spans, dots), suffix, title, caption, height=300)
