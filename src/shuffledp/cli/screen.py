"""Terminal output: paragraphs, tables, notes, warnings, JSON and progress bars."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shuffledp.display import ShownNumber, percent

if TYPE_CHECKING:
    from shuffledp.engines.table import Progress

MAX_ROWS = 40
"""Maximum number of categories that are printed."""

_READABLE_NAME, _SHORTEST_NAME = 16, 8
"""Least widths of names: if the first does not fit, headings are wrapped; then, rows become blocks."""
_BORDER = 3  # cells between two columns: a line and a blank on each side of it
_CHARACTERS_PER_CELL = 4  # accents take no cell of their own; more than this cannot be a name


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str = "") -> None:
    """Print a paragraph on standard output, wrapped to the terminal."""
    _console().print(text, markup=False)


def one_line(text: str) -> str:
    """Join the lines of a string, and replace characters that are not printable."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def plain(text: str) -> str:
    """Replace characters that are not printable: strings from outside must not control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def note(text: str) -> None:
    """Print a note on standard error, which leaves standard output to the result."""
    _console(stderr=True).print(f"note: {text}", markup=False, style="yellow")


def note_warnings(warnings: Iterable[str]) -> None:
    """Print warnings about a weak target or guarantee on standard error."""
    for warning in warnings:
        _console(stderr=True).print(f"warning: {warning}", markup=False, style="yellow")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None, words: int = 0
) -> None:
    """Print a table: names in the first column, words in the column with index ``words``, numbers in all others.

    Numbers are never truncated or wrapped: words are wrapped first, then long names are shortened, then headings are
    wrapped; if the table is still too wide, every row becomes a block of lines.
    """
    if title:
        say(title)
    console = _console()
    heads = [_encodable(plain(name), console) for name in columns]
    cells = [
        [_encodable(_name(row[0]), console), *(_encodable(plain(cell), console) for cell in row[1:])] for row in rows
    ]
    widths = _column_widths(heads, cells, words, console.width)
    if widths is None:
        _print_blocks(console, heads, cells)
        return
    table = Table()
    for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(
            Text(_shortened(head, width, console) if index == 0 else head),
            justify="left" if index == 0 else "right",
            width=width,
            overflow="fold",
        )
    for name, row in zip(_distinctly_shortened([row[0] for row in cells], widths[0], console), cells, strict=True):
        table.add_row(Text(name), *(Text(cell) for cell in row[1:]))
    console.print(table)


def _name(text: str) -> str:
    """A printable name; a blank one is quoted, so that its row does not look like a gap."""
    shown = plain(text)
    return shown if shown.strip() else f'"{shown}"'


def _encodable(text: str, console: Console) -> str:
    """The string with "?" for characters that the encoding of the output lacks."""
    return text.encode(console.encoding, "replace").decode(console.encoding)


def _column_widths(heads: list[str], cells: list[list[str]], words: int, available: int) -> list[int] | None:
    """The width of each column, or None if the numbers do not fit side by side."""
    available -= _BORDER * len(heads) + 1
    columns = [[row[index] for row in cells] for index in range(len(heads))]
    natural = [max(map(cell_len, (head, *column))) for head, column in zip(heads, columns, strict=True)]
    wrapped = [
        max(_longest_word(head), *(map(_longest_word if index == words else cell_len, column)), 1)
        for index, (head, column) in enumerate(zip(heads, columns, strict=True))
    ]
    if words:
        remaining = available - sum(natural) + natural[words]
        natural[words] = min(natural[words], max(wrapped[words], remaining))
    for numbers, least in ((natural[1:], _READABLE_NAME), (wrapped[1:], _SHORTEST_NAME)):
        remaining = available - sum(numbers)
        if remaining >= min(natural[0], least):
            return [min(natural[0], remaining), *numbers]
    return None


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _print_blocks(console: Console, heads: list[str], cells: list[list[str]]) -> None:
    """Print every row as its name, followed by a line for each number."""
    indent = max((cell_len(head) for head in heads[1:]), default=0) + 2
    names = _distinctly_shortened([row[0] for row in cells], max(console.width, 1), console)
    for name, row in zip(names, cells, strict=True):
        lines = [
            name,
            *(f"  {set_cell_size(head, indent)}{cell}" for head, cell in zip(heads[1:], row[1:], strict=True)),
        ]
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)


def _distinctly_shortened(names: list[str], width: int, console: Console) -> list[str]:
    """The names, shortened to the width; if shortened names become equal, their middle is removed instead."""
    shortened = [_shortened(name, width, console) for name in names]
    times = Counter(shortened)
    return [
        _without_middle(name, width, console) if times[short] > 1 and short != name else short
        for name, short in zip(names, shortened, strict=True)
    ]


def _shortened(name: str, width: int, console: Console) -> str:
    """The beginning of a name and an ellipsis, if it is too wide. A character takes zero, one or two cells."""
    if cell_len(name) <= width and len(name) <= _CHARACTERS_PER_CELL * width:
        return name
    sign = _ellipsis(console)
    beginning = set_cell_size(name[: _CHARACTERS_PER_CELL * width], max(width - len(sign), 0))
    return (beginning.rstrip() + sign)[: _CHARACTERS_PER_CELL * width]


def _without_middle(name: str, width: int, console: Console) -> str:
    sign = _ellipsis(console)
    ending, ending_width = "", 0
    for character in reversed(name[-_CHARACTERS_PER_CELL * width :]):
        ending_width += cell_len(character)
        if ending_width > (width - len(sign)) // 2:
            break
        ending = character + ending
    beginning = set_cell_size(name[: _CHARACTERS_PER_CELL * width], max(width - len(sign) - cell_len(ending), 0))
    return beginning.rstrip() + sign + ending


def _ellipsis(console: Console) -> str:
    return "..." if console.options.ascii_only else "…"


def print_histogram(heading: str, names: Sequence[str], numbers: Sequence[ShownNumber], confidence: float) -> None:
    """Print the first ``MAX_ROWS`` counts with their intervals and shares; ``numbers`` has these or all."""
    rows = [
        [str(name), number.text, number.interval, number.share]
        for name, number in zip(names[:MAX_ROWS], numbers[:MAX_ROWS], strict=True)
    ]
    print_table([heading, "users", f"{percent(confidence)} interval", "share"], rows)
    if len(names) > len(rows):
        say(f"... and {len(names) - len(rows):,} more categories; --json or --out has all.")


def print_list(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels with their contents, wrapped beside the label."""
    console = _console()
    indent = max(len(label) for label, _ in rows) + 2
    for label, content in rows:
        for line in Text(content).wrap(console, max(20, console.width - indent)):
            console.print(f"{label:<{indent}}{line.plain.rstrip()}", markup=False, soft_wrap=True)
            label = ""


def _console(*, stderr: bool = False) -> Console:
    """A console that prints strings unchanged: no markup, no highlighting, no emoji."""
    return Console(stderr=stderr, highlight=False, emoji=False)


def progress_of_reading(data: Sequence[str], engine: str) -> AbstractContextManager[Progress]:
    """A progress bar while this process reads files; Spark shows its stages itself."""
    from shuffledp.engines.paths import data_files, files_shown

    if engine == "spark":
        return nullcontext(lambda _: None)
    return progress_bar(f"Reading {files_shown(data_files(data))}")


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """Show a progress bar on standard error if that is a terminal."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda fraction: bar.update(task, completed=fraction)


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Show a spinner on standard error during work of unknown length, if that is a terminal."""
    console = _console(stderr=True)
    if console.is_terminal:
        with console.status(description):
            yield
    else:
        yield
