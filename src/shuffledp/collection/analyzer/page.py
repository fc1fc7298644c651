"""The HTML page of a release: the numbers and sentences that ``pages`` renders."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shuffledp.collection.analyzer.estimating import Result
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.display import percent, show_counts
from shuffledp.estimate import CountEstimate, HistogramEstimate, QuantileEstimate, SumEstimate
from shuffledp.pages import Bar, CurvePoint, bar_chart, cumulative_chart, interval_chart, render_page

_MAX_ROWS = 200
_MAX_BARS = 60
_MAX_POINTS = 600
_REASONS = {
    "cannot-be-opened": "not sealed to this analyzer and task",
    "malformed": "neither a message nor a dummy",
    "outside-domain": "not a message of the protocol",
    "repeated": "a copy of another message",
    "wrong-size": "of the wrong length",
}


def release_page(result: Result, entry: Entry, confidence: float) -> bytes:
    """The estimate, its accuracy, and its privacy cost, as one HTML page without scripts and external resources."""
    task, estimate = result.task, result.estimate
    names = _names(result)
    head, rows = _table(result, names, confidence)
    return render_page(
        "release.html",
        name=task.name,
        description=task.description,
        cards=_cards(result, entry),
        chart=_chart(result, names, confidence),
        head=head,
        rows=rows,
        more_rows=len(names) - len(rows),
        withheld=estimate.withheld_sentence(confidence),
        guarantee=estimate.guarantee.sentence(),
        budget=_budget(result, entry),
        made=_made(result),
        caveats=estimate.caveats,
        rejected=[
            [f"{reason}: {_REASONS.get(reason, '')}".rstrip(": "), f"{number:,}"]
            for reason, number in sorted(result.counted.rejected.items())
        ],
        task=task.id.hex(),
    )


def _cards(result: Result, entry: Entry) -> list[tuple[str, str, str]]:
    guarantee, counted = result.estimate.guarantee, result.counted
    messages = counted.refused + counted.messages + counted.dummies
    spent = f"of {entry.budget.epsilon:g} for {result.task.population}, delta {entry.budget.delta:g}"
    return [
        ("Reports", f"{result.reports:,}", f"minimum {result.task.minimum_users:,}"),
        ("Rejected messages", f"{counted.refused:,}", f"of {messages:,}"),
        ("Privacy", f"ε = {guarantee.epsilon:g}", f"delta {guarantee.delta:g}"),
        ("Spent in all", f"ε = {entry.spent_epsilon:.4g}", spent),
    ]


def _budget(result: Result, entry: Entry) -> str:
    releases = "release" if entry.releases == 1 else "releases"
    return (
        f"Each release about the same people adds to what can be learned about each of them. After {entry.releases:,} "
        f"{releases} about {result.task.population}, epsilon = {entry.spent_epsilon:.4g} is spent of "
        f"{entry.budget.epsilon:g}, at delta = {entry.budget.delta:g}. A release beyond that is refused."
    )


def _made(result: Result) -> str:
    task = result.task
    return (
        f"Reports were taken from {task.opens:%Y-%m-%d %H:%M} UTC until {task.closes:%Y-%m-%d %H:%M} UTC at the "
        f"latest. {result.reports:,} devices randomized their values with the protocol {task.protocol.name} and sent "
        f"them sealed. A shuffler that could not read them mixed all messages; only then were they opened and counted."
    )


def _chart(result: Result, names: Sequence[str], confidence: float) -> str:
    description = f"Estimates with {percent(confidence)} confidence intervals; the table has the numbers."
    estimate = result.estimate
    if isinstance(estimate, SumEstimate):
        (number,), (low, high) = estimate.shown(confidence), estimate.interval(confidence)
        bounds = estimate.bounds if all(map(math.isfinite, estimate.bounds)) else (low, high)
        return interval_chart(
            Bar("sum", number.value, low, high, number.text),
            bounds,
            title="The estimated sum",
            axis_title=f"sum over {result.users:,} users",
            description=description,
        )
    if isinstance(estimate, QuantileEstimate):
        return _distribution(estimate, confidence, description)
    notes = [f"Lines: {percent(confidence)} confidence."]
    if len(names) > _MAX_BARS:
        notes.append(f"The {_MAX_BARS} largest of {len(names):,} categories.")
    return bar_chart(
        _bars(result, names, confidence),
        title="The estimated number of users",
        axis_title=f"users (of {result.users:,})",
        notes=notes,
        description=description,
    )


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


def _bars(result: Result, names: Sequence[str], confidence: float) -> list[Bar]:
    """One bar per category in the order of the domain; if there are too many, the largest, in descending order."""
    estimate = result.estimate
    if isinstance(estimate, HistogramEstimate):
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
        users=result.users,
        withheld_below=estimate.withheld_below(confidence),
    )
    return [
        Bar(names[index], number.value, low, high, number.text)
        for index, number, (low, high) in zip(chosen.tolist(), numbers, ends, strict=True)
    ]


def _table(result: Result, names: Sequence[str], confidence: float) -> tuple[list[str], list[list[str]]]:
    """The header and the first rows of the table."""
    estimate = result.estimate
    if isinstance(estimate, HistogramEstimate):
        estimate = estimate.part(0, _MAX_ROWS)
    numbers = estimate.shown(confidence)
    if isinstance(estimate, QuantileEstimate):
        head = ["quantile", "estimate", f"{percent(confidence)} interval"]
        return head, [[name, number.text, number.interval] for name, number in zip(names, numbers, strict=True)]
    head = ["", "estimate", "standard error", f"{percent(confidence)} interval"]
    rows = [[name, number.text, number.error, number.interval] for name, number in zip(names, numbers, strict=False)]
    if not isinstance(estimate, SumEstimate):
        head.append("share")
        rows = [[*row, number.share] for row, number in zip(rows, numbers, strict=True)]
    return head, rows


def _names(result: Result) -> Sequence[str]:
    """The names of the estimated numbers: the categories of a histogram, or one name."""
    if isinstance(result.estimate, HistogramEstimate):
        return result.estimate.categories
    if isinstance(result.estimate, QuantileEstimate):
        return [f"{share:g}" for share in result.estimate.asked]
    return ["sum" if isinstance(result.estimate, SumEstimate) else "yes"]
