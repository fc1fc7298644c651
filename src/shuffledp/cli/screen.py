"""What a person sees: tables, notes and a progress bar, on the right stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from shuffledp.engines.columns import Progress

__all__ = ["note", "one_line", "plain", "print_json", "print_list", "print_table", "progress_bar", "say", "waiting"]


def print_json(value: dict[str, Any]) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str = "") -> None:
    """A paragraph on standard output, wrapped to the terminal."""
    _console().print(text, markup=False)


def one_line(text: str) -> str:
    """The text on one line; what cannot be shown, such as bytes of a broken file, stays off the screen."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


def plain(text: str) -> str:
    """What others wrote must not steer the terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def note(text: str) -> None:
    """A remark on standard error, so that standard output stays clean."""
    _console(stderr=True).print(f"note: {text}", markup=False, style="yellow")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """A table whose first column is text and whose others are numbers."""
    if title:
        say(title)
    table = Table()
    for place, name in enumerate(columns):
        table.add_column(Text(name), justify="left" if place == 0 else "right", overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def print_list(rows: Sequence[tuple[str, str]]) -> None:
    """Labels and what belongs to each, which is wrapped beside its label."""
    console = _console()
    indent = max(len(label) for label, _ in rows) + 2
    for label, content in rows:
        for line in Text(content).wrap(console, max(20, console.width - indent)):
            console.print(f"{label:<{indent}}{line.plain.rstrip()}", markup=False, soft_wrap=True)
            label = ""


def _console(*, stderr: bool = False) -> Console:
    """Text as it is: no markup, no highlighting, no emoji."""
    return Console(stderr=stderr, highlight=False, emoji=False)


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """A bar on standard error while a file is read; nothing when that is not a terminal."""
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
    """A sign of life on standard error while work of unknown length goes on; nothing off a terminal."""
    console = _console(stderr=True)
    if console.is_terminal:
        with console.status(description):
            yield
    else:
        yield
