"""The page of a release: self-contained, no script, no network, light and dark."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

import numpy as np

from shuffledp.collection.analyzer.estimating import Result
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.display import percent
from shuffledp.figures import DARK, LIGHT, bars

__all__ = ["release_page"]

_MOST_ROWS = 200
_WITHHELD_ERROR = "The standard error of such a count is the largest that any count as small as this can have."
_REASONS = {
    "cannot-be-opened": "not sealed to this analyzer and task",
    "malformed": "neither a message nor a dummy",
    "outside-domain": "not a message of the protocol",
    "repeated": "a copy of another message",
    "wrong-size": "of the wrong length",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #555; --line: #ddd; --paper: #fff; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #b0b4ba; --line: #33373d; --paper: #16181c; --card: #1e2126; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; margin: 0 auto;
  max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p { max-width: 48rem; } .soft { color: var(--soft); } h1 + p { margin-top: 0; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
dl div { background: var(--card); border-radius: .5rem; padding: .6rem .9rem; }
dt { color: var(--soft); font-size: .86rem; } dd { font-size: 1.25rem; font-variant-numeric: tabular-nums; margin: 0; }
dd small { color: var(--soft); display: block; font-size: .8rem; line-height: 1.35; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; overflow-x: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem 1.2rem .25rem 0; text-align: right; }
th { color: var(--soft); } th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
code { font-size: .85em; overflow-wrap: anywhere; }
"""


def release_page(result: Result, entry: Entry, confidence: float) -> bytes:
    """What was found, how sure it is, and what it cost in privacy."""
    task, estimate = result.task, result.estimate
    body = [
        f"<h1>{html.escape(task.name)}</h1>",
        f'<p class="soft">{html.escape(task.description)}</p>' if task.description else "",
        _cards(result, entry),
        _picture(result, confidence),
        _table(result, confidence),
        "<h2>What this says about one person</h2>",
        f"<p>{html.escape(estimate.guarantee.sentence())}</p>",
        f'<p class="soft">{html.escape(_budget(result, entry))}</p>',
        "<h2>How it was made</h2>",
        f"<p>{html.escape(_made(result))}</p>",
        *(f"<p>{html.escape(caveat)}</p>" for caveat in estimate.caveats),
        _rejected(result),
        f'<p class="soft">Task <code>{task.id.hex()}</code></p>',
    ]
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(task.name)} · shuffledp</title><style>{_STYLE}</style></head><body>",
        *filter(None, body),
        "</body></html>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _cards(result: Result, entry: Entry) -> str:
    spent = f"of {entry.budget.epsilon:g} for {result.task.population}, delta {entry.budget.delta:g}"
    refused = result.counted.refused
    cards = [
        ("Reports", f"{result.reports:,}", f"minimum {result.task.minimum_users:,}"),
        ("Rejected messages", f"{refused:,}", f"of {refused + result.counted.messages + result.counted.dummies:,}"),
        ("Privacy", f"ε = {result.estimate.guarantee.epsilon:g}", f"delta {result.estimate.guarantee.delta:g}"),
        ("Spent in all", f"ε = {entry.spent_epsilon:.4g}", spent),
    ]
    inner = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{html.escape(note)}</small></dd></div>" for name, value, note in cards
    )
    return f"<dl>{inner}</dl>"


def _budget(result: Result, entry: Entry) -> str:
    releases = "release" if entry.releases == 1 else "releases"
    return (
        f"Each release about the same people adds to what can be learnt of one of them. After {entry.releases:,} "
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


def _rejected(result: Result) -> str:
    if not result.counted.refused:
        return "<p>No message was rejected.</p>"
    rows = [
        [f"{reason}: {_REASONS.get(reason, '')}".rstrip(": "), f"{number:,}"]
        for reason, number in sorted(result.counted.rejected.items())
    ]
    return _cells(["rejected messages", "number"], rows)


def _picture(result: Result, confidence: float) -> str:
    light = _drawing(result, confidence)
    description = f"Estimates with {percent(confidence)} confidence intervals; the table has the numbers."
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_inlined(_darkened(light))}">'
        f'<img src="{_inlined(light)}" alt="{html.escape(description)}"></picture></figure>'
    )


def _drawing(result: Result, confidence: float) -> bytes:
    estimate = result.estimate
    if result.task.protocol.question == "sum":
        return bytes(estimate.figure(".svg", confidence=confidence, title="The estimated sum"))
    if result.task.protocol.question == "histogram":
        values, errors, intervals = estimate.counts, estimate.standard_errors, estimate.interval(confidence)
    else:
        values, errors = np.array([estimate.value]), np.array([estimate.standard_error])
        intervals = np.array([estimate.interval(confidence)])
    return bars(
        ".svg",
        names=_names(result),
        values=values,
        errors=errors,
        intervals=intervals,
        withheld_below=estimate.withheld_below(confidence),
        users=result.users,
        title="The estimated number of users",
        value_title=f"users (of {result.users:,})",
        caption=[f"Lines: {percent(confidence)} confidence."],
    )


def _darkened(drawing: bytes) -> bytes:
    """The same drawing in the colours of the dark theme."""
    for name in ("background", "ink", "soft_ink", "grid"):
        drawing = drawing.replace(getattr(LIGHT, name).encode(), getattr(DARK, name).encode())
    return drawing.replace(LIGHT.curves[0].encode(), DARK.curves[0].encode())


def _inlined(drawing: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode()


def _table(result: Result, confidence: float) -> str:
    estimate, names = result.estimate, _names(result)
    if result.task.protocol.question == "histogram":
        estimate = estimate.part(0, _MOST_ROWS)
    numbers = estimate.shown(confidence)
    head = ["", "estimate", "standard error", f"{percent(confidence)} interval"]
    rows = [[name, each.text, each.error, each.interval] for name, each in zip(names, numbers, strict=False)]
    if result.task.protocol.question != "sum":
        head.append("share")
        rows = [[*row, each.share] for row, each in zip(rows, numbers, strict=True)]
    left = len(names) - len(rows)
    more = f'<p class="soft">... and {left:,} more; the JSON and CSV forms have all.</p>' if left > 0 else ""
    withheld = html.escape(result.estimate.withheld_sentence(confidence))
    return _cells(head, rows) + more + (f"<p>{withheld} {_WITHHELD_ERROR}</p>" if withheld else "")


def _names(result: Result) -> Sequence[str]:
    """Of what is estimated: the categories of a histogram, or the single number."""
    if result.task.protocol.question == "histogram":
        categories: Sequence[str] = result.estimate.categories
        return categories
    return ["yes" if result.task.protocol.question == "count" else "sum"]


def _cells(head: list[str], rows: list[list[str]]) -> str:
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
