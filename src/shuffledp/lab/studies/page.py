"""HTML pages of studies: what the page of one study and the index of all show; ``pages`` renders them."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shuffledp.lab.studies.checks import Check
from shuffledp.lab.studies.study import Outcome, Study
from shuffledp.pages import render_page

if TYPE_CHECKING:
    from shuffledp.lab.studies.reproduce import Report

_MAX_ROWS = 60
_SIGNS = {"<=": "≤", ">=": "≥", "=": "="}


@dataclass(frozen=True)
class Picture:
    """A figure for a page: its alternative text, and SVG for light and dark pages."""

    description: str
    light_svg: bytes
    dark_svg: bytes

    @property
    def light(self) -> str:
        """The data URL of the light figure."""
        return _data_url(self.light_svg)

    @property
    def dark(self) -> str:
        """The data URL of the dark figure."""
        return _data_url(self.dark_svg)


@dataclass(frozen=True)
class _Column:
    name: str
    is_text: bool


@dataclass(frozen=True)
class _Table:
    """A table as it is shown: formatted cells of the first rows, and the file with all of them."""

    columns: Sequence[_Column]
    rows: Sequence[Sequence[str]]
    total: int
    file: str = ""


def study_page(study: Study, outcome: Outcome, pictures: Sequence[Picture], report: Report) -> bytes:
    """The page of one study."""
    return render_page(
        "study.html",
        study=study,
        measured=outcome.measured,
        pictures=pictures,
        tables=[
            _formatted(list(table.columns), table.rows, file=report.table_file(name))
            for name, table in outcome.tables.items()
        ],
        checks=_check_table(outcome.checks),
        failed=_failed(outcome.checks),
        run=_how_run(report),
    )


def index_page(reports: Sequence[Report], pictures: Sequence[Picture]) -> bytes:
    """The index of all studies, each with its main figure."""
    checks = [check for report in reports for check in report.checks]
    return render_page(
        "study_index.html",
        studies=list(zip(reports, pictures, strict=True)),
        checks=len(checks),
        failed=_failed(checks),
    )


def _failed(checks: Sequence[Check]) -> int:
    return sum(not check.holds for check in checks)


def _data_url(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _check_table(checks: Sequence[Check]) -> _Table:
    """All checks, the failed ones first."""
    rows = [
        (
            "holds" if check.holds else "FAILS",
            check.claim,
            check.where,
            f"{_cell(check.measured)} {_SIGNS[check.relation]} {_cell(check.bound)}",
            check.evidence,
        )
        for check in sorted(checks, key=lambda check: check.holds)
    ]
    return _formatted(["", "claim", "where", "measured and bound", "judged by"], rows, max_rows=len(rows))


def _formatted(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, file: str = "", max_rows: int = _MAX_ROWS
) -> _Table:
    shown = rows[:max_rows]
    columns = [
        _Column(name, any(isinstance(row[position], str) for row in shown)) for position, name in enumerate(names)
    ]
    return _Table(columns, [[_cell(value) for value in row] for row in shown], len(rows), file)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def _how_run(report: Report) -> str:
    form = "quick" if report.quick else "full"
    randomness = "secure randomness" if report.seed is None else f"seed {report.seed}"
    return (
        f"shuffledp {report.version}, {form} form, {randomness}, {report.seconds:.0f} s. "
        f"Run again: shuffledp reproduce {report.study} --out DIR{' --quick' if report.quick else ''}"
    )
