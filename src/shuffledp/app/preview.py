"""The preview of a release about invented data: a chart and a table, with the truth beside the estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffledp.display import percent
from shuffledp.estimate import CountEstimate, Estimate, HistogramEstimate, QuantileEstimate, SumEstimate
from shuffledp.pages.charts import Bar, CurvePoint, bar_chart, cumulative_chart, interval_chart

PLOT_WIDTH = 300
_MAX_BARS = 12
_MAX_POINTS = 200


@dataclass(frozen=True)
class Preview:
    """One release about invented data."""

    chart: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def draw_preview(estimate: Estimate, truth: NDArray[np.float64], confidence: float) -> Preview:
    """A chart and a table of the estimate beside the true numbers, or the true quantiles, in the same order."""
    level = percent(confidence)
    head = ("", "estimate", f"{level} interval", "truth")
    note = f"Bars: estimates, with their {level} intervals. Triangles: the invented truth."
    description = "One simulated release about invented data; the table has the numbers."
    if isinstance(estimate, SumEstimate):
        (number,), (low, high) = estimate.shown(confidence), estimate.interval(confidence)
        bounds = estimate.bounds if all(map(math.isfinite, estimate.bounds)) else (low, high)
        chart = interval_chart(
            Bar(estimate.statistic, number.value, low, high, number.text, float(truth[0])),
            bounds,
            title=f"The {estimate.statistic}",
            axis_title=f"{estimate.statistic} over {estimate.users:,} users",
            description=description,
            plot_width=PLOT_WIDTH,
        )
        row = (estimate.statistic, number.text, number.interval, f"{truth[0]:,.6g}")
        note = f"Dot and line: the estimate with its {level} interval. Triangle: the invented truth."
        return Preview(chart, head, (row,), note)
    if isinstance(estimate, QuantileEstimate):
        return _quantiles(estimate, truth, confidence, head, description)
    bars = _bars(estimate, truth, confidence)
    if isinstance(estimate, HistogramEstimate) and len(estimate.counts) > len(bars):
        note += f" The first {len(bars)} of {len(estimate.counts):,} categories."
    chart = bar_chart(
        bars,
        title="Number of users",
        axis_title=f"users (of {estimate.users:,})",
        notes=(),
        description=description,
        plot_width=PLOT_WIDTH,
    )
    rows = tuple((bar.name, bar.label, f"{bar.low:,.0f} to {bar.high:,.0f}", f"{bar.truth:,.0f}") for bar in bars)
    return Preview(chart, head, rows, note)


def _bars(estimate: Estimate, truth: NDArray[np.float64], confidence: float) -> list[Bar]:
    if isinstance(estimate, HistogramEstimate):
        part = estimate.part(0, _MAX_BARS)
        names = [f"category {name}" for name in part.categories]
        numbers, intervals = part.shown(confidence), part.interval(confidence).tolist()
    else:
        assert isinstance(estimate, CountEstimate)  # noqa: S101 - the others have charts of their own
        names, numbers, intervals = ["yes"], estimate.shown(confidence), [estimate.interval(confidence)]
    return [
        Bar(name, number.value, low, high, number.text, true)
        for name, number, (low, high), true in zip(names, numbers, intervals, truth.tolist(), strict=False)
    ]


def _quantiles(
    estimate: QuantileEstimate,
    truth: NDArray[np.float64],
    confidence: float,
    head: tuple[str, ...],
    description: str,
) -> Preview:
    level, users = percent(confidence), float(estimate.users)
    band = np.array([[0.0, 0.0], *estimate.interval(confidence, simultaneous=True).tolist(), [users, users]])
    chosen = np.unique(np.linspace(0, len(estimate.edges) - 1, min(len(estimate.edges), _MAX_POINTS)).astype(np.int64))
    columns = (estimate.edges[chosen], estimate.cumulative[chosen] / users, band[chosen] / users)
    quantiles = [
        (share, Bar(f"{share:g}", number.value, number.low, number.high, "", true))
        for share, number, true in zip(
            estimate.asked, estimate.quantiles(confidence=confidence), truth.tolist(), strict=True
        )
    ]
    chart = cumulative_chart(
        [CurvePoint(*numbers) for numbers in np.column_stack(columns).tolist()],
        quantiles,
        title="The distribution",
        axis_title="value",
        notes=(),
        description=description,
        plot_width=PLOT_WIDTH,
    )
    rows = tuple(
        (bar.name, f"{bar.value:,.4g}", f"{bar.low:,.4g} to {bar.high:,.4g}", f"{bar.truth:,.4g}")
        for _, bar in quantiles
    )
    note = f"Band: the whole curve, with {level} confidence. Dots: quantiles. Triangles: the invented truth."
    return Preview(chart, ("quantile", *head[1:]), rows, note)
