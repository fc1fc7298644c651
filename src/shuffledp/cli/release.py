"""``shuffledp release``: fetch and show the release that an analyzer has published."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import AuthorOption, HttpOptions, JsonOption, TaskOption, takes_groups
from shuffledp.cli.screen import note, print_histogram, print_json, print_table, say, waiting
from shuffledp.cli.task_files import read_authentic
from shuffledp.cli.times import seconds_of
from shuffledp.display import error_sentence, percent, show_counts, show_number, visible, withheld_sentence
from shuffledp.errors import OutputError, RefusedError, UnreachableError
from shuffledp.output import check_writable, write_whole

if TYPE_CHECKING:
    from shuffledp.collection.device import Connection
    from shuffledp.collection.device.release import PublishedRelease
    from shuffledp.collection.task.task import Task

_PAUSE_SECONDS = (0.5, 10.0)  # between requests, growing from the first to the second
_PAUSE_GROWTH = 1.5
_SHOWN_STRINGS = 50


@takes_groups
def release(
    task: TaskOption,
    author: AuthorOption,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The analyzer: https://analyzer.example.")],
    http: HttpOptions,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="Maximum time to wait for a release: 30s, 10m, 2h.")
    ] = "0s",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Save the release: .json, .csv, or .html for the page."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the release of a task that the analyzer published: the estimate with its error bars, and the guarantee.

    Checked: that the release belongs to this task and states its guarantee. The numbers themselves cannot be checked
    without the messages; the analyzer is trusted for them.

    Example: shuffledp release --task task.json --author author.key.pub --server https://analyzer.example --wait 2h
    """
    from shuffledp.collection.device import Connection
    from shuffledp.collection.device.release import FORMS, fetch_form

    form = _form(out, tuple(FORMS)) if out is not None else ""
    seconds = seconds_of(wait)
    verified = read_authentic(task, author)
    with Connection(server, insecure_http=http.insecure_http, authorities=http.ca) as connection:
        with waiting("Waiting for the release"):
            published = _wait_for(connection, verified, seconds)
        if out is not None:
            write_whole(out, fetch_form(connection, verified, form) or b"")
            note(f"wrote {out}")
    if as_json:
        print_json(published.document)
    else:
        _show(published)


def _form(out: Path, forms: tuple[str, ...]) -> str:
    form = check_writable(out).suffix.lower().removeprefix(".")
    if form not in forms:
        raise OutputError(f"A release can be saved as .{', .'.join(forms)}, not as {out.name}.")
    return form


def _wait_for(connection: Connection, task: Task, seconds: float) -> PublishedRelease:
    """Poll until the release is published or the time is over; an analyzer that does not answer may be restarting."""
    from shuffledp.collection.device.release import fetch_release

    end = time.monotonic() + seconds
    pause, longest = _PAUSE_SECONDS
    while True:
        failure: UnreachableError | None = None
        try:
            published = fetch_release(connection, task)
            if published is not None:
                return published
        except UnreachableError as error:
            failure = error
        remaining = end - time.monotonic()
        if remaining <= 0:
            raise failure or RefusedError(
                f"There is no release of this task, or not yet; its round closes at {task.closes:%Y-%m-%d %H:%M} UTC."
            )
        time.sleep(min(pause, remaining))
        pause = min(longest, pause * _PAUSE_GROWTH)


def _show(published: PublishedRelease) -> None:
    document, task = published.document, published.task
    try:
        rejected = document["messages"]["rejected"]
        counted = f"{document['reports']:,} reports were counted, and {rejected:,} messages rejected."
        _show_estimate(document, task.protocol.question)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RefusedError(
            "The answer of the analyzer is not a release of this version; --json shows it as it is."
        ) from None
    say(counted)
    say(task.guarantee.sentence())


def _show_estimate(document: dict[str, Any], question: str) -> None:
    confidence = float(document["confidence"])
    withheld_below = document.get("withheld_below")
    if question == "sum":
        number = show_number(document["value"], document["standard_error"], document["interval"])
        say(f"The sum is {number.text} (standard error {number.error}).")
        say(f"Between {number.low} and {number.high} with {percent(confidence)} confidence.")
        return
    users = document["users"]
    if question == "strings":
        _show_strings(document, users, confidence)
        return
    if question == "quantiles":
        _show_quantiles(document["quantiles"], users, confidence)
        return
    if question == "strings":
        _show_strings(document, users, confidence)
        return
    if question == "count":
        names, counts, errors = [""], [document["value"]], [document["standard_error"]]
        intervals = [document["interval"]]
    else:
        names, counts, errors = document["categories"], document["counts"], document["standard_errors"]
        intervals = document["intervals"]
    numbers = show_counts(counts, errors, intervals, users=users, withheld_below=withheld_below)
    if question == "count":
        say(f"The count is {numbers[0].text} of {users:,} users (standard error {numbers[0].error}).")
        say(f"Between {numbers[0].low} and {numbers[0].high} with {percent(confidence)} confidence.")
    else:
        if len(names) != len(numbers):
            raise ValueError("categories and counts differ in length")
        print_histogram("category", names, numbers, confidence)
        say(error_sentence(errors, counts, withheld_below))
    if withheld_below is not None and 0 in counts:
        say(withheld_sentence(withheld_below, confidence))


def _show_strings(document: dict[str, Any], users: int, confidence: float) -> None:
    names, counts, errors = document["strings"], document["counts"], document["standard_errors"]
    if len(names) != len(counts):
        raise ValueError("strings and counts differ in length")
    numbers = show_counts(counts, errors, document["intervals"], users=users)
    rows = [
        [visible(str(name)), number.text, number.interval, number.share]
        for name, number in zip(names[:_SHOWN_STRINGS], numbers, strict=False)
    ]
    if rows:
        print_table(["string", "users", f"{percent(confidence)} interval", "share"], rows)
    if len(names) > len(rows):
        say(f"... and {len(names) - len(rows):,} more strings; --json or --out has all.")
    hidden = int(document["hidden"])
    say(f"{len(names):,} strings of {users:,} users were found" + (f", and {hidden:,} hidden." if hidden else "."))
    least = document["found_from"]
    if None not in least:
        say(
            f"A string of any length that {math.ceil(max(least)):,} or more users hold is in this list with "
            f"probability {percent(float(document['found_with']))}."
        )
    if numbers:
        say(error_sentence(errors, counts, None))


def _show_quantiles(quantiles: list[dict[str, Any]], users: int, confidence: float) -> None:
    rows = []
    for entry in quantiles:
        low, high = entry["interval"]
        number = show_number(entry["value"], (high - low) / 4, (low, high))
        rows.append([f"{float(entry['quantile']):g}", number.text, number.interval])
    print_table(["quantile", "estimate", f"{percent(confidence)} interval"], rows)
    say(f"Of the numbers of {users:,} users; the JSON and CSV forms have the whole distribution.")
