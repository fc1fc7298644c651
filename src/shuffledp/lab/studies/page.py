"""One self-contained HTML page per study, and an index over all: no script, no network, light and dark."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shuffledp.lab.studies.checks import Check
from shuffledp.lab.studies.study import Outcome, Study, Table

if TYPE_CHECKING:
    from shuffledp.lab.studies.reproduce import Report

_MOST_ROWS = 60

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #555; --line: #ddd; --paper: #fff;
  --good: #1a6e2e; --bad: #b3200d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #b0b4ba; --line: #33373d; --paper: #16181c; --good: #7fc97f; --bad: #ff8f7a; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; margin: 0 auto;
  max-width: 80rem; padding: 1.5rem; }
h1, h2, p { max-width: 48rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.source { color: var(--soft); margin-top: 0; } .good { color: var(--good); }
.bad { color: var(--bad); font-weight: bold; }
.verdict { border-left: 4px solid currentColor; padding-left: .8rem; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; overflow-x: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem .25rem 0; text-align: right; vertical-align: top; }
th { color: var(--soft); } th:first-child, td:first-child, td.text, th.text { text-align: left; }
code { font-size: .92em; } a { color: inherit; } summary { cursor: pointer; } .soft { color: var(--soft); }
section.study { border-top: 1px solid var(--line); margin-top: 1.5rem; }
"""


def study_page(study: Study, outcome: Outcome, pictures: Sequence[tuple[str, bytes, bytes]], report: Report) -> bytes:
    """The page of one study. ``pictures`` are descriptions with the figure as SVG, in light and in dark."""
    body = [
        f"<h1>{html.escape(study.title)}</h1>",
        f'<p class="source">{html.escape(study.source)}</p>',
        _verdict(outcome.checks),
        "<h2>What is claimed</h2>",
        *_paragraphs(study.claimed),
        *(_picture(*picture) for picture in pictures),
        "<h2>How to read it</h2>",
        *_paragraphs(study.reading),
        "<h2>What was measured</h2>",
        *_paragraphs(outcome.measured),
        *(_table(table, report.table_file(name)) for name, table in outcome.tables.items()),
        "<h2>What was checked</h2>",
        _checks(outcome.checks),
        f'<p class="soft">{_how_run(report)}</p>',
    ]
    return _page(f"{study.title} · shuffledp", body)


def index_page(reports: Sequence[Report], pictures: Sequence[tuple[str, bytes, bytes]]) -> bytes:
    """The page over all studies, each with its main figure."""
    body = [
        "<h1>The literature, measured</h1>",
        '<p class="source">Tables, theorems and claims about differential privacy in the shuffled model, run with '
        "shuffledp. Each page says what is claimed, what was measured, and how to read it.</p>",
        _verdict([check for report in reports for check in report.checks]),
    ]
    for report, picture in zip(reports, pictures, strict=True):
        state = "holds" if report.holds else "FAILS"
        body += [
            '<section class="study">',
            f'<h2><a href="{report.study}.html">{html.escape(report.title)}</a></h2>',
            f'<p class="source">{html.escape(report.source)} · '
            f'<span class="{"good" if report.holds else "bad"}">{state}</span>, {len(report.checks):,} checks</p>',
            _picture(*picture),
            "</section>",
        ]
    return _page("The literature, measured · shuffledp", body)


def _page(title: str, body: Sequence[str]) -> bytes:
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        *body,
        "</body></html>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [f"<p>{_inline(text)}</p>" for text in texts]


def _inline(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _verdict(checks: Sequence[Check]) -> str:
    broken = sum(not check.holds for check in checks)
    if broken:
        return f'<p class="verdict bad">{broken:,} of {len(checks):,} checks fail. See below which.</p>'
    return f'<p class="verdict good">All {len(checks):,} checks hold.</p>'


def _picture(description: str, light: bytes, dark: bytes) -> str:
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_inlined(dark)}">'
        f'<img src="{_inlined(light)}" alt="{html.escape(description)}"></picture></figure>'
    )


def _inlined(drawing: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode()


def _table(table: Table, file: str) -> str:
    rows = table.rows
    shown = rows if len(rows) <= _MOST_ROWS else rows[:_MOST_ROWS]
    more = f", the first {_MOST_ROWS} of {len(rows):,} rows" if len(shown) < len(rows) else ""
    inner = _cells(list(table.columns), shown)
    link = f'<a href="{html.escape(file)}">{html.escape(file)}</a>'
    return f"<details><summary>The data ({link}{more})</summary>{inner}</details>"


def _cells(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    textual = [any(isinstance(row[place], str) for row in rows) for place in range(len(names))]
    heads = "".join(f"<th{_text(flag)}>{html.escape(name)}</th>" for name, flag in zip(names, textual, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{_text(flag)}>{_cell(value)}</td>" for value, flag in zip(row, textual, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def _text(flag: bool) -> str:
    return ' class="text"' if flag else ""


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return html.escape(str(value))


def _checks(checks: Sequence[Check]) -> str:
    if not checks:
        return "<p>Nothing here has a bound to be held against.</p>"
    ordered = sorted(checks, key=lambda check: check.holds)
    signs = {"<=": "≤", ">=": "≥", "=": "="}
    rows = [
        (
            "holds" if check.holds else "FAILS",
            check.claim,
            check.where,
            f"{_cell(check.measured)} {signs[check.relation]} {_cell(check.bound)}",
            check.evidence,
        )
        for check in ordered
    ]
    inner = _cells(["", "claim", "where", "measured and bound", "judged by"], rows)
    unfolded = " open" if any(not check.holds for check in checks) else ""
    return f"<details{unfolded}><summary>{len(checks):,} checks</summary>{inner}</details>"


def _how_run(report: Report) -> str:
    form = "quick" if report.quick else "full"
    seed = "secure randomness" if report.seed is None else f"seed {report.seed}"
    return html.escape(
        f"shuffledp {report.version}, the {form} form, {seed}, {report.seconds:.0f} s. "
        f"Again with: shuffledp reproduce {report.study} --out FOLDER{' --quick' if report.quick else ''}"
    )
