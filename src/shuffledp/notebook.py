"""HTML for notebooks: a card of tables and sentences, in which every value is escaped.

It needs no package beyond the standard library, since ``_repr_html_`` must work in a base installation. Colours are
those of the notebook, so that a card is readable on light and dark backgrounds.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from shuffledp.display import printable, shortened

MAX_ROWS = 20
"""Rows of a table in a notebook; data frames have all."""
_LONGEST_CELL = 60
_STYLE = """
.shuffledp { max-width: 60em; font-size: 0.95em; line-height: 1.45; }
.shuffledp h4 { margin: 0.2em 0 0.5em; font-size: 1.1em; }
.shuffledp p { margin: 0.45em 0; }
.shuffledp table { margin: 0.4em 0; border: 0; border-collapse: collapse; font-size: inherit; }
.shuffledp th, .shuffledp td { padding: 0.2em 0.9em 0.2em 0; border: 0; text-align: right; white-space: nowrap; }
.shuffledp thead th { border-bottom: 1px solid rgba(128, 128, 128, 0.6); vertical-align: bottom; }
.shuffledp tbody tr + tr > * { border-top: 1px solid rgba(128, 128, 128, 0.2); }
.shuffledp tbody th { vertical-align: top; }
.shuffledp td { font-variant-numeric: tabular-nums; }
.shuffledp .words { text-align: left; }
.shuffledp td.words { white-space: normal; overflow-wrap: anywhere; }
.shuffledp .note { opacity: 0.85; }
.shuffledp .warning { padding: 0.3em 0.7em; border-left: 4px solid #d1431f; background: rgba(209, 67, 31, 0.14); }
.shuffledp summary { cursor: pointer; }
"""


class Html(str):
    """HTML in which values are escaped already; only the functions of this module make it."""

    __slots__ = ()


def card(title: str, *parts: Html, warnings: Iterable[str] = ()) -> Html:
    """The HTML of one result: its title, warnings that stand out, then the parts."""
    shown = [_element("p", warning, style="warning") for warning in warnings]
    heading = [_element("h4", title)] if title else []
    return Html(f'<div class="shuffledp"><style>{_STYLE}</style>{"".join([*heading, *shown, *parts])}</div>')


def note(sentence: str) -> Html:
    """A paragraph; nothing if the sentence is empty."""
    return _element("p", sentence, style="note") if sentence else Html()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: Iterable[int] = (0,)) -> Html:
    """A table; the columns at the positions ``words`` hold words, which are aligned left, the others numbers."""
    styles = ["words" if position in set(words) else "" for position in range(len(header))]
    titles = (_element("th", name, style=style) for name, style in zip(header, styles, strict=True))
    lines = (
        f"<tr>{''.join(_element('td', value, style=style) for value, style in zip(row, styles, strict=True))}</tr>"
        for row in rows
    )
    return Html(f"<table><thead><tr>{''.join(titles)}</tr></thead><tbody>{''.join(lines)}</tbody></table>")


def facts(rows: Iterable[tuple[str, str]]) -> Html:
    """A table of names and values, one fact per row."""
    lines = (
        f"<tr>{_element('th', name, style='words')}{_element('td', value, style='words')}</tr>" for name, value in rows
    )
    return Html(f"<table><tbody>{''.join(lines)}</tbody></table>")


def folded(summary: str, *parts: Html) -> Html:
    """Parts that are shown when the reader opens them."""
    return Html(f"<details>{_element('summary', summary)}{''.join(parts)}</details>")


def cell(value: str) -> str:
    """A name of any length, shortened to fit into a table."""
    return shortened(value, _LONGEST_CELL)


def _element(tag: str, value: str, *, style: str = "") -> Html:
    """An element with an escaped value."""
    attribute = f' class="{style}"' if style else ""
    return Html(f"<{tag}{attribute}>{html.escape(printable(value))}</{tag}>")
