"""Estimates on pages: a chart and a table of any estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shuffledp.display import percent, show_counts, visible
from shuffledp.estimate import (
    CountEstimate,
    Estimate,
    HistogramEstimate,
    QuantileEstimate,
    StringsEstimate,
    SumEstimate,
)
from shuffledp.pages.charts import Bar, CurvePoint, bar_chart, cumulative_chart, interval_chart

_MAX_ROWS = 200
_MAX_BARS = 60
_MAX_POINTS = 600


@dataclass(frozen=True)
class EstimateTable:
    """The estimated numbers as a table of strings."""

    head: list[str]
    rows: list[list[str]]
    more_rows: int
    """Number of rows that are left out."""


def estimate_chart(estimate: Estimate, confidence: float) -> str:
    """The estimate with its intervals, as inline SVG; empty if no string was found."""
    names = _names(estimate)
    description = f"Estimates with {percent(confidence)} confidence intervals; the table has the numbers."
    if isinstance(estimate, SumEstimate):
        (number,), (low, high) = estimate.shown(confidence), estimate.interval(confidence)
        bounds = estimate.bounds if all(map(math.isfinite, estimate.bounds)) else (low, high)
        return interval_chart(
            Bar(estimate.statistic, number.value, low, high, number.text),
            bounds,
            title=f"The estimated {estimate.statistic}",
            axis_title=f"{estimate.statistic} over {estimate.users:,} users",
            description=description,
        )
    if isinstance(estimate, QuantileEstimate):
        return _distribution(estimate, confidence, description)
    if not names:
        return ""
    notes = [f"Lines: {percent(confidence)} confidence."]
    if len(names) > _MAX_BARS:
        kind = "strings" if isinstance(estimate, StringsEstimate) else "categories"
        notes.append(f"The {_MAX_BARS} largest of {len(names):,} {kind}.")
    return bar_chart(
        _bars(estimate, names, confidence),
        title="The estimated number of users",
        axis_title=f"users (of {estimate.users:,})",
        notes=notes,
        description=description,
    )


def estimate_table(estimate: Estimate, confidence: float) -> EstimateTable:
    """The first rows of the table of all estimated numbers."""
    names = _names(estimate)
    if isinstance(estimate, HistogramEstimate | StringsEstimate):
        estimate = estimate.part(0, _MAX_ROWS)
    numbers = estimate.shown(confidence)
    if isinstance(estimate, QuantileEstimate):
        head = ["quantile", "estimate", f"{percent(confidence)} interval"]
        rows = [[name, number.text, number.interval] for name, number in zip(names, numbers, strict=True)]
        return EstimateTable(head, rows, 0)
    head = [
        "string" if isinstance(estimate, StringsEstimate) else "",
        "estimate",
        "standard error",
        f"{percent(confidence)} interval",
    ]
    rows = [[name, number.text, number.error, number.interval] for name, number in zip(names, numbers, strict=False)]
    if not isinstance(estimate, SumEstimate):
        head.append("share")
        rows = [[*row, number.share] for row, number in zip(rows, numbers, strict=True)]
    return EstimateTable(head, rows, len(names) - len(rows))


def _distribution(estimate: QuantileEstimate, confidence: float, description: str) -> str:
    """The cumulative distribution with its band, and the quantiles of the table."""
    edges, users = estimate.edges, float(estimate.users)
    band = np.array([[0.0, 0.0], *estimate.interval(confidence, simultaneous=True).tolist(), [users, users]])
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), _MAX_POINTS)).astype(np.int64))
    shares, ends = estimate.cumulative[chosen] / users, band[chosen] / users
    quantiles = zip(estimate.asked, estimate.quantiles(confidence=confidence), strict=True)
    return cumulative_chart(
        [CurvePoint(*numbers) for numbers in np.column_stack((edges[chosen], shares, ends)).tolist()],
        [(share, Bar(f"{share:g}", number.value, number.low, number.high, "")) for share, number in quantiles],
        title="The estimated distribution",
        axis_title="value",
        notes=[
            f"Band: with {percent(confidence)} confidence, the whole curve lies in it.",
            f"Dots and lines: the quantiles of the table, with {percent(confidence)} confidence each.",
        ],
        description=description,
    )


def _bars(estimate: Estimate, names: Sequence[str], confidence: float) -> list[Bar]:
    """One bar per category in the order of the domain; if there are too many, the largest, in descending order."""
    if isinstance(estimate, HistogramEstimate | StringsEstimate):
        values, errors, intervals = estimate.counts, estimate.standard_errors, estimate.interval(confidence)
    else:
        assert isinstance(estimate, CountEstimate)  # noqa: S101 - a sum has a chart of its own
        values, errors = np.array([estimate.value]), np.array([estimate.standard_error])
        intervals = np.array([estimate.interval(confidence)])
    chosen = np.arange(len(names))
    if len(names) > _MAX_BARS:
        chosen = np.argsort(-values, kind="stable")[:_MAX_BARS]
    ends = intervals[chosen].tolist()
    numbers = show_counts(
        values[chosen].tolist(),
        errors[chosen].tolist(),
        ends,
        users=estimate.users,
        withheld_below=estimate.withheld_below(confidence),
    )
    return [
        Bar(names[index], number.value, low, high, number.text)
        for index, number, (low, high) in zip(chosen.tolist(), numbers, ends, strict=True)
    ]


def _names(estimate: Estimate) -> Sequence[str]:
    """The names of the estimated numbers: categories, strings without hidden characters, or one name."""
    if isinstance(estimate, StringsEstimate):
        return [visible(text) for text in estimate.strings]
    if isinstance(estimate, HistogramEstimate):
        return estimate.categories
    if isinstance(estimate, QuantileEstimate):
        return [f"{share:g}" for share in estimate.asked]
    return [estimate.statistic if isinstance(estimate, SumEstimate) else "yes"]
