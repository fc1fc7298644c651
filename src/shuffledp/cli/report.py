"""``shuffledp report``: take part in a collection, as one device or as many simulated ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shuffledp.cli.options import JsonOption, missing_markers, number, whole_number
from shuffledp.cli.report_values import read_tokens, read_value, read_values, value_of
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.cli.tasks import AuthorOption, naming, read_authentic, read_task_bytes, read_verifying_key
from shuffledp.errors import ParameterError, RefusedError, StoppedError

if TYPE_CHECKING:
    from shuffledp.collection.device import Connection, Patience, Policy
    from shuffledp.collection.task.task import Task

__all__ = ["report"]


class _Sending(NamedTuple):
    """How reports get to the server."""

    connect: Callable[[], Connection]
    patience: Patience
    tokens: list[str] | None


def report(
    task: Annotated[Path, typer.Option("--task", metavar="FILE", help="The signed task.")],
    author: AuthorOption,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The shuffler: https://shuffler.example.")],
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            metavar="V",
            help="This device's value, randomized before it is sent; - reads it from standard input, "
            "since other users of the machine see command lines.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="Where this device keeps what it has reported; of mode 0700."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Instead: a simulated device for every row of a file.")
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="C", help="With --csv: the column with the values.")
    ] = None,
    equals: Annotated[
        str | None, typer.Option("--equals", metavar="VALUE", help="With --csv and a count: yes means this value.")
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="With --csv: leave out rows without a value.")
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option("--missing", metavar="A,B", help="With --csv: values that mean a missing one, such as NA,?."),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option("--devices", parser=whole_number, metavar="N", help="With --csv: at most so many rows."),
    ] = None,
    connections: Annotated[
        int, typer.Option("--connections", parser=whole_number, metavar="N", help="With --csv: so many at once.")
    ] = 8,
    max_epsilon: Annotated[
        float, typer.Option("--max-epsilon", parser=number, metavar="E", help="Refuse a task with a larger epsilon.")
    ] = 1.0,
    max_delta: Annotated[
        float, typer.Option("--max-delta", parser=number, metavar="D", help="Refuse a task with a larger delta.")
    ] = 1e-5,
    min_users: Annotated[
        int,
        typer.Option(
            "--min-users", parser=whole_number, metavar="N", help="Refuse a task that hides among fewer honest users."
        ),
    ] = 100,
    max_messages: Annotated[
        int,
        typer.Option("--max-messages", parser=whole_number, metavar="M", help="Refuse a task with longer reports."),
    ] = 65_536,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Enrolment tokens, one a line; a device uses one."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust instead of the system's.")
    ] = None,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Allow plain HTTP to another machine: listeners see who reports.")
    ] = False,
    attempts: Annotated[
        int, typer.Option("--attempts", parser=whole_number, metavar="N", help="Attempts to send a report.")
    ] = 12,
    as_json: JsonOption = False,
) -> None:
    """Verify a task, randomize a value once, seal it and send it; or do so for every row of a file.

    What could not be sent is kept in --state; the same command, also without --value, sends it again unchanged. Devices
    of --csv keep nothing: the same command again would report for them twice.

    Example: shuffledp report --task task.json --author author.key.pub --server https://shuffler.example
    --value bus --state device
    """
    from shuffledp.collection.device import Connection, Patience, Policy

    policy = Policy(max_epsilon=max_epsilon, max_delta=max_delta, min_users=min_users, max_messages=max_messages)

    def connect() -> Connection:
        return Connection(server, insecure_http=insecure_http, authorities=ca)

    with connect():  # refuses an address that is none
        sending = _Sending(connect, Patience(attempts=attempts), read_tokens(token_file))
    if csv is None:
        if column is not None or equals is not None or devices is not None or drop_missing or missing is not None:
            raise ParameterError("--column, --equals, --devices, --missing and --drop-missing belong to --csv.")
        if state is None:
            raise ParameterError(
                "Give --value and --state DIR, the folder of this device, or --csv FILE and --column C."
            )
        _one(task, author, value, state, policy, sending, as_json)
        return
    if value is not None or state is not None or column is None:
        raise ParameterError("--csv goes with --column C, and without --value and --state: its devices are simulated.")
    found = read_authentic(task, author)
    policy.check(found)
    values = read_values(
        found,
        csv,
        column,
        equals=equals,
        missing=missing_markers(missing),
        drop_missing=drop_missing,
        devices=devices,
    )
    _many(found, values, connections, sending, as_json)


def _many(task: Task, values: Sequence[Any], connections: int, sending: _Sending, as_json: bool) -> None:
    """Simulated devices, one for each value; a summary is shown also if it is broken off."""
    from shuffledp.collection.device import Devices

    started = time.monotonic()
    stopped = False
    with progress_bar(f"Reporting for {len(values):,} devices") as progress:
        devices = Devices(
            task,
            values,
            connect=sending.connect,
            connections=connections,
            patience=sending.patience,
            tokens=sending.tokens,
            progress=progress,
        )
        try:
            devices.report()
        except KeyboardInterrupt:
            stopped = True
    summary, seconds = devices.summary, time.monotonic() - started
    if as_json:
        print_json({"task": task.id.hex(), **summary.to_json(), "seconds": round(seconds, 3)})
    else:
        say(f"{summary.delivered:,} of {summary.devices:,} reports were delivered in {seconds:.1f} s.")
        rows = [[reason, f"{count:,}"] for reason, count in sorted(summary.refused.items())]
        rows += [["not sent, or interrupted", f"{summary.unsent:,}"]] if summary.unsent else []
        if rows:
            print_table(["not delivered because", "devices"], rows)
    if stopped:
        raise StoppedError(
            f"interrupted; {summary.delivered:,} reports are known to be with the shuffler. Simulated devices keep "
            "nothing: the same command again would report for them twice."
        )
    if summary.delivered < summary.devices:
        raise typer.Exit(1)


def _one(
    task: Path, author: Path, value: str | None, state: Path, policy: Policy, sending: _Sending, as_json: bool
) -> None:
    """This device: report if it has not, and deliver."""
    from shuffledp.collection.device import Client, State

    key, content = read_verifying_key(author), read_task_bytes(task)
    with naming(task):
        client = Client(content, author=key, state=state, policy=policy)
    if client.state is State.NONE and value is None:
        raise ParameterError("There is no report to send; give --value.")
    if client.state in (State.CLOSED, State.REFUSED) and value is None:
        raise RefusedError(f"The report of this device was not taken, and is not sent again: {client.state.value}.")
    if client.state is not State.PENDING and value is not None:
        client.report(value_of(client.task, read_value() if value == "-" else value))
    elif value is not None:
        note("a report from before waits to be sent; it is sent unchanged, and --value is not looked at.")
    token = sending.tokens[0] if sending.tokens else None
    with sending.connect() as connection:
        reached = client.send(connection, token=token, patience=sending.patience)
    if as_json:
        print_json({"task": client.task.id.hex(), "state": reached.value})
    else:
        say("The report was delivered. Its value stays on this device; the shuffler cannot read what it got.")
