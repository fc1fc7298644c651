"""Publishing of a release as JSON, CSV and an HTML page; the same round always gives the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from shuffledp.collection.analyzer.estimating import Result
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.display import spreadsheet_safe
from shuffledp.durable_files import write_durably
from shuffledp.estimate import HistogramEstimate, StringsEstimate
from shuffledp.pages import render_page
from shuffledp.pages.estimates import estimate_chart, estimate_table

_TIME = "%Y-%m-%dT%H:%M:%SZ"
RELEASE_FORMS = ("json", "csv", "html")
_ID = re.compile("[0-9a-f]{64}")
_ROWS = 1 << 13  # of a column that are written at once
_SEPARATOR = ",\n    "
_LEAST_EXPONENTIAL, _LEAST_DECIMAL_POWER = 1e10, -6  # where numbers of a CSV file change to an exponent
_REASONS = {
    "cannot-be-opened": "not sealed to this analyzer and task",
    "malformed": "neither a message nor a dummy",
    "outside-domain": "not a message of the protocol",
    "repeated": "a copy of another message",
    "wrong-size": "of the wrong length",
}


def release_document(result: Result, entry: Entry, confidence: float) -> dict[str, Any]:
    """The documented JSON form: that of ``shuffledp run``, and the provenance of the release."""
    task, counted = result.task, result.counted
    document: dict[str, Any] = result.estimate.to_document(confidence)
    return document | {
        "task": task.id.hex(),
        "name": task.name,
        "description": task.description,
        "question": task.protocol.question,
        "population": task.population,
        "opens": task.opens.strftime(_TIME),
        "closes": task.closes.strftime(_TIME),
        **({} if task.wire is None or task.wire.series is None else {"series": task.wire.series.to_document()}),
        "manifest": entry.manifest.hex() if entry.manifest else "",
        "reports": result.reports,
        "messages": {"counted": counted.messages, "dummies": counted.dummies, "rejected": counted.total_rejected},
        "rejected": dict(sorted(counted.rejected.items())),
        "budget": {
            "epsilon": entry.budget.epsilon,
            "delta": entry.budget.delta,
            "spent_epsilon": entry.spent_epsilon,
            "releases": entry.releases,
        },
    }


@dataclass(frozen=True)
class Releases:
    """The files of published releases, in a directory. They are public and get the default access rights."""

    directory: Path

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        for leftover in self.directory.glob(".*"):  # of a killed process
            leftover.unlink()

    def publish(self, result: Result, entry: Entry, confidence: float) -> None:
        """Write all forms durably; they are served once the batch is in the state released."""
        contents: tuple[bytes | Iterable[bytes], ...] = (
            json_pieces(release_document(result, entry, confidence)),
            _table_pieces(result.estimate, confidence),
            release_page(result, entry, confidence),
        )
        for kind, content in zip(RELEASE_FORMS, contents, strict=True):
            write_durably(self.file(result.task.id, kind), content, mode=0o666)

    def file(self, task_id: bytes, kind: str) -> Path:
        """The path of a form of a release: json, csv or html."""
        return self.file_in(self.directory, task_id, kind)

    @staticmethod
    def file_in(directory: Path, task_id: bytes, kind: str) -> Path:
        """The path of a form of a release in a directory."""
        return directory / f"{task_id.hex()}.{kind}"

    def open(self, task_id: bytes, kind: str) -> BinaryIO | None:
        """The file of a form of a release, if it exists."""
        try:
            return self.file(task_id, kind).open("rb")
        except FileNotFoundError:
            return None


def published_in(directory: Path) -> set[bytes]:
    """The ids of tasks with a release in a directory, whatever the state of their batches."""
    return {bytes.fromhex(file.stem) for file in directory.glob("*.json") if _ID.fullmatch(file.stem)}


def json_pieces(document: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of ``json.dumps`` with an indentation of 2, in pieces, so that long columns take little memory."""
    before = "{"
    for key, value in document.items():
        yield f"{before}\n  {json.dumps(key)}: ".encode()
        if isinstance(value, tuple | np.ndarray) and len(value):
            yield from _column_pieces(value)
        else:
            plain = value.tolist() if isinstance(value, np.ndarray) else value
            encoded = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
            yield encoded.replace("\n", "\n  ").encode()
        before = ","
    yield b"\n}\n"


def _column_pieces(column: tuple[str, ...] | NDArray[Any]) -> Iterator[bytes]:
    before = "[\n    "
    for start in range(0, len(column), _ROWS):
        part = column[start : start + _ROWS]
        values = part.ravel().tolist() if isinstance(part, np.ndarray) else list(part)
        encoded = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(_SEPARATOR, ": "))[1:-1]
        if isinstance(part, np.ndarray) and part.ndim == 2:
            numbers = encoded.split(_SEPARATOR)
            pairs = zip(numbers[::2], numbers[1::2], strict=True)
            encoded = _SEPARATOR.join(f"[\n      {low},\n      {high}\n    ]" for low, high in pairs)
        yield f"{before}{encoded}".encode()
        before = _SEPARATOR
    yield b"\n  ]"


def _table_pieces(estimate: Any, confidence: float) -> Iterator[bytes]:
    """The table as CSV, some rows at a time: the bytes that Arrow writes for ``estimate.to_table()``."""
    for start, columns in _column_parts(estimate, confidence):
        lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
        rows = [[_csv_cell(value) for value in row] for row in zip(*lists, strict=True)]
        if start == 0:
            rows.insert(0, [_csv_cell(name) for name in columns])
        yield "".join(",".join(row) + "\n" for row in rows).encode()


def _column_parts(estimate: Any, confidence: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of the first row, and the columns of some rows.

    Strings come from users: those that a spreadsheet would take for a formula are escaped.
    """
    if isinstance(estimate, HistogramEstimate):
        for start in range(0, len(estimate.counts), _ROWS):
            yield start, estimate.part(start, start + _ROWS).columns(confidence)
        return
    columns = estimate.columns(confidence)
    if isinstance(estimate, StringsEstimate):
        columns["string"] = [spreadsheet_safe(text) for text in columns["string"]]
    for start in range(0, max(1, len(next(iter(columns.values())))), _ROWS):
        yield start, {name: column[start : start + _ROWS] for name, column in columns.items()}


def _csv_cell(value: str | float | bool) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    return _csv_number(value) if isinstance(value, float) else str(value)


def _csv_number(value: float) -> str:
    """The shortest digits that read back as the same number: 100, 0.00001, 1e-7, 1e+10."""
    shortest = repr(value)
    if "e" not in shortest and abs(value) < _LEAST_EXPONENTIAL:
        return shortest.removesuffix(".0")
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - estimates that are published are finite
    power = exponent + len(digits) - 1
    minus, significant = "-" * sign, "".join(map(str, digits))
    if _LEAST_DECIMAL_POWER <= power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{significant}"
    return f"{minus}{significant[0]}{'.' * (len(significant) > 1)}{significant[1:]}e{power:+d}"


def release_page(result: Result, entry: Entry, confidence: float) -> bytes:
    """The estimate, its accuracy, and its privacy cost, as one HTML page without scripts or external resources."""
    task, estimate = result.task, result.estimate
    table = estimate_table(estimate, confidence)
    return render_page(
        "release.html",
        name=task.name,
        description=task.description,
        cards=_cards(result, entry),
        chart=estimate_chart(estimate, confidence),
        head=table.head,
        rows=table.rows,
        more_rows=table.more_rows,
        withheld=estimate.withheld_sentence(confidence),
        found=_found(estimate),
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
    messages = counted.total_rejected + counted.messages + counted.dummies
    spent = f"of {entry.budget.epsilon:g} for {result.task.population}, delta {entry.budget.delta:g}"
    return [
        ("Reports", f"{result.reports:,}", f"minimum {result.task.minimum_users:,}"),
        ("Rejected messages", f"{counted.total_rejected:,}", f"of {messages:,}"),
        ("Privacy", f"ε = {guarantee.epsilon:g}", f"delta {guarantee.delta:g}"),
        ("Spent in all", f"ε = {entry.spent_epsilon:.4g}", spent),
    ]


def _found(estimate: Any) -> str:
    """What the list of strings contains, and what a missing string means."""
    if not isinstance(estimate, StringsEstimate):
        return ""
    return (
        f"{estimate.found_sentence()} A string that is missing is probably held by fewer users; that does not mean "
        "that nobody holds it."
    )


def _budget(result: Result, entry: Entry) -> str:
    releases = "release" if entry.releases == 1 else "releases"
    return (
        f"Each release about the same people adds to what can be learned about each of them. After {entry.releases:,} "
        f"{releases} about {result.task.population}, epsilon = {entry.spent_epsilon:.4g} is spent of "
        f"{entry.budget.epsilon:g}, at delta = {entry.budget.delta:g}. A release beyond that is refused."
    )


def _made(result: Result) -> str:
    task = result.task
    taken = (
        f"Reports were taken from {task.opens:%Y-%m-%d %H:%M} UTC until {task.closes:%Y-%m-%d %H:%M} UTC at the latest."
    )
    if task.wire is not None and task.wire.series is not None:
        place = task.wire.series
        taken = f"This is round {place.index} of the series {place.series.hex()[:16]}, counted from 0. {taken}"
    shuffler = "A shuffler that could not read them"
    if task.hops > 1:
        shuffler = f"Each of {task.hops} shufflers, which could not read them,"
    if task.protocol.trust == "augmented":
        sampled = "kept a random sample of them, and " if task.protocol.shuffler_keeps.fraction < 1 else ""
        return (
            f"{taken} {result.reports:,} devices sent their values sealed. {shuffler} "
            f"{sampled}added sealed dummies with the protocol {task.protocol.name} (trust: augmented) and shuffled all "
            "messages; then they were opened and counted."
        )
    return (
        f"{taken} {result.reports:,} devices randomized their values with the protocol {task.protocol.name} and sent "
        f"them sealed. {shuffler} shuffled all messages; then they were opened and counted."
    )
