"""``shuffledp report``: report to a collection, as one device or as many simulated ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shuffledp.cli.options import (
    AuthorOption,
    BudgetOption,
    DropMissingOption,
    EqualsOption,
    FileOptions,
    HttpOptions,
    JsonOption,
    MissingOption,
    OptionalColumnOption,
    OptionalTaskOption,
    PolicyOptions,
    as_flags,
    integer,
    missing_markers,
    takes_groups,
)
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.cli.task_files import errors_in, read_authentic, read_task_bytes, read_tokens, read_verifying_key
from shuffledp.domain import Bit, EqualTo
from shuffledp.errors import DataError, ParameterError, RefusedError, StoppedError, UnreachableError

if TYPE_CHECKING:
    from shuffledp.collection.device import Connection, DeviceBudget, Patience, Policy
    from shuffledp.collection.device.series import SeriesClient
    from shuffledp.collection.task.task import Task

_MAX_VALUE_BYTES = 1 << 16


class _Sending(NamedTuple):
    """How reports are sent: connection, retries and tokens."""

    connect: Callable[[], Connection]
    patience: Patience
    tokens: list[str] | None


class _Limits(NamedTuple):
    """What this device allows: per task, and for all tasks together."""

    policy: Policy
    budget: DeviceBudget | None


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Files with the values of simulated devices."""

    csv: Annotated[
        str | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Instead: a simulated device for every row of a file, of the files of a quoted pattern, or of "
            "standard input (-).",
        ),
    ] = None
    column: OptionalColumnOption = None
    equals: EqualsOption = None
    drop_missing: DropMissingOption = False
    missing: MissingOption = None
    devices: Annotated[
        int | None, typer.Option("--devices", parser=integer, metavar="N", help="With --csv: maximum number of rows.")
    ] = None
    connections: Annotated[
        int,
        typer.Option("--connections", parser=integer, metavar="N", help="With --csv: number of parallel connections."),
    ] = 8


@dataclass(frozen=True, kw_only=True)
class RelayOptions:
    """Sending through a relay, so that the shuffler does not learn the address of the device."""

    relay: Annotated[
        str | None,
        typer.Option(
            "--relay",
            metavar="URL",
            help="Send through this Oblivious HTTP relay, so that the shuffler does not see this device's address.",
        ),
    ] = None
    gateway_keys: Annotated[
        Path | None,
        typer.Option(
            "--gateway-keys",
            metavar="FILE",
            help="With --relay: public keys of the gateway of the shuffler (application/ohttp-keys).",
        ),
    ] = None

    def connector(self, server: str, http: HttpOptions) -> Callable[[], Connection]:
        """A function that connects to the server, directly or through the relay."""
        from shuffledp.collection.device import Connection, GatewayKey, ObliviousConnection

        if self.relay is None and self.gateway_keys is None:
            return lambda: Connection(server, insecure_http=http.insecure_http, authorities=http.ca)
        if self.relay is None or self.gateway_keys is None:
            raise ParameterError("--relay URL and --gateway-keys FILE belong together.")
        relay, gateway = self.relay, GatewayKey.load(self.gateway_keys)
        return lambda: ObliviousConnection(
            server, relay=relay, gateway=gateway, insecure_http=http.insecure_http, authorities=http.ca
        )


@takes_groups
def report(
    author: AuthorOption,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The shuffler: https://shuffler.example.")],
    file: SimulationOptions,
    form: FileOptions,
    limits: PolicyOptions,
    http: HttpOptions,
    relay: RelayOptions,
    task: OptionalTaskOption = None,
    series: Annotated[
        Path | None,
        typer.Option(
            "--series",
            metavar="FILE",
            help="Instead of --task: a signed series; this device takes part in some of its rounds, which it draws.",
        ),
    ] = None,
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
        typer.Option("--state", metavar="DIR", help="Directory of this device's state, of mode 0700."),
    ] = None,
    budget: BudgetOption = None,
    rotation: Annotated[
        list[Path] | None,
        typer.Option(
            "--rotation",
            metavar="FILE",
            help="A signed rotation of the author's key, to accept for good; may be given several times.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Enrolment tokens, one per line; a device uses one."),
    ] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", parser=integer, metavar="N", help="Maximum attempts to send a report.")
    ] = 12,
    as_json: JsonOption = False,
) -> None:
    """Verify a task, randomize a value once, seal it and send it; or do so for every row of a file.

    A report that could not be sent stays in --state; the same command, also without --value, sends it again unchanged.
    Simulated devices (--csv) have no state and no budget: running the command again would report for them twice.

    Example: shuffledp report --task task.json --author author.key.pub --server https://shuffler.example
    --value bus --state device
    """
    from shuffledp.collection.device import DeviceBudget, Patience

    policy = limits.policy()
    limit = None if budget is None else DeviceBudget.load(budget)
    connect = relay.connector(server, http)
    with connect():  # refuses an invalid URL
        sending = _Sending(connect, Patience(attempts=attempts), read_tokens(token_file))
    if (task is None) == (series is None):
        raise ParameterError("Give --task FILE, or --series FILE for the rounds of a series.")
    if rotation and state is None:
        raise ParameterError("--rotation needs --state DIR, where the device keeps the keys that it trusts.")
    if file.csv is None:
        if file != SimulationOptions(connections=file.connections) or form != FileOptions():
            raise ParameterError(
                "--column, --equals, --devices, --missing, --drop-missing, --delimiter, --encoding, --no-header and "
                "--decimal belong to --csv."
            )
        if state is None:
            raise ParameterError(
                "Give --value and --state DIR, the directory of this device, or --csv FILE and --column C."
            )
        _follow_rotations(rotation or [], author, state)
        if series is not None:
            _report_to_series(series, author, value, state, _Limits(policy, limit), sending, as_json)
        elif task is not None:
            _report_once(task, author, value, state, _Limits(policy, limit), sending, as_json)
        return
    if task is None:
        raise ParameterError("--csv goes with --task: simulated devices have no state, and so cannot draw rounds.")
    if value is not None or state is not None or budget is not None or file.column is None:
        raise ParameterError(
            "--csv goes with --column C, and without --value, --state and --budget: its devices are simulated."
        )
    verified = read_authentic(task, author)
    policy.check(verified)
    values = _read_values(verified, file.csv, file.column, file, form)
    _simulate(verified, values, file.connections, sending, as_json)


def _follow_rotations(rotations: Sequence[Path], author: Path, state: Path) -> None:
    """Accept rotations of the author's key."""
    from shuffledp.collection.device.authors import PinnedAuthors
    from shuffledp.collection.device.outbox import Outbox
    from shuffledp.collection.task.key_documents import MAX_KEY_DOCUMENT_BYTES
    from shuffledp.durable_files import read_limited

    if not rotations:
        return
    Outbox(state)  # creates the directory, or refuses one that others can access
    for path in rotations:
        content = read_limited(path, MAX_KEY_DOCUMENT_BYTES, "rotation")
        with errors_in(path):
            PinnedAuthors(state).follow(content, read_verifying_key(author))


def _read_values(task: Task, paths: str, column: str, options: SimulationOptions, form: FileOptions) -> list[Any]:
    """Read the values of a column, one per device, and check them before anything is sent."""
    from shuffledp.engines.files import FileTable  # takes a while to load
    from shuffledp.engines.local import Column

    domain = task.protocol.domain
    if options.equals is not None:
        if not isinstance(domain, Bit):
            raise ParameterError(f"--equals belongs to a count; the question of this task is {task.protocol.question}.")
        domain = EqualTo(options.equals)
    if options.devices is not None and options.devices < 1:
        raise ParameterError(f"--devices must be at least 1, not {options.devices}.")
    markers = missing_markers(options.missing)
    table = FileTable(paths, form.dialect())
    file = Column(table, column, options.drop_missing, markers, remark=lambda remark: note(as_flags(remark)))
    return file.values(domain, limit=options.devices)


def _read_value() -> str:
    """Read a value from standard input, which must be a single line."""
    try:
        text = sys.stdin.buffer.read(_MAX_VALUE_BYTES + 1).decode("utf-8-sig")
    except UnicodeError:
        raise DataError("The value on standard input is not UTF-8.") from None
    lines = text.splitlines()
    if len(text) > _MAX_VALUE_BYTES or len(lines) > 1:
        raise DataError("Standard input must contain one value: a single line.")
    if not text.strip():
        raise DataError("There is no value on standard input.")
    return lines[0]


def _simulate(task: Task, values: Sequence[Any], connections: int, sending: _Sending, as_json: bool) -> None:
    """Report as one simulated device per value; the summary is shown after an interrupt too."""
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
            f"interrupted; {summary.delivered:,} reports were confirmed by the shuffler. Simulated devices have no "
            "state: running the command again would report for them twice."
        )
    if summary.delivered < summary.devices:
        raise typer.Exit(1)


def _report_to_series(
    path: Path, author: Path, value: str | None, state: Path, limits: _Limits, sending: _Sending, as_json: bool
) -> None:
    """Report to the round that is open, if this device takes part in it and its moment has come."""
    from shuffledp.collection.device import State
    from shuffledp.collection.device.series import SeriesClient
    from shuffledp.collection.task.series import MAX_SERIES_BYTES
    from shuffledp.durable_files import read_limited

    key, content = read_verifying_key(author), read_limited(path, MAX_SERIES_BYTES, "series")
    with errors_in(path):
        device = SeriesClient(content, author=key, state=state, policy=limits.policy, budget=limits.budget)
    domain = device.series.first.protocol.domain
    if value not in (None, "-"):
        domain.encode(domain.parse(value))  # refused now, not only when the moment of a round has come
    with sending.connect() as connection:
        try:
            device.update(connection)
        except (RefusedError, UnreachableError) as error:
            note(f"whether the series was cancelled could not be asked: {error}")
        now = datetime.now(UTC)
        index = device.round_at(now)
        if index is None or now < device.moment(index):
            _show_waiting(device, index, as_json)
            return
        client = device.client(index)
        if client.state is State.NONE:
            if value is None:
                raise ParameterError("There is no report to send; give --value.")
            parsed = domain.parse(_read_value() if value == "-" else value)
            domain.encode(parsed)  # refuses a value outside the domain before anything is stored
            client.report(parsed)
        token = sending.tokens[0] if sending.tokens else None
        final = client.send(connection, token=token, patience=sending.patience)
    if as_json:
        print_json(
            {"series": device.series.id.hex(), "round": index, "task": client.task.id.hex()}
            | {"state": final.value, "from": None}
        )
    elif final is State.DELIVERED:
        say(f"The report to round {index} was delivered. Its value stays on this device.")
    else:
        say(f"The report to round {index} was rejected, and is not sent again: {final.value}.")


def _show_waiting(device: SeriesClient, index: int | None, as_json: bool) -> None:
    """Say why there is nothing to report now, and when there is."""
    cancelled = device.participation.cancelled_from
    now = datetime.now(UTC)
    rounds = [each for each in device.participation.rounds if cancelled is None or each < cancelled]
    moments = [device.moment(each) for each in rounds if now < device.series.task(each).closes]
    coming = min((each for each in moments if index is not None or each > now), default=None)
    if as_json:
        print_json(
            {
                "series": device.series.id.hex(),
                "round": index,
                "task": None,
                "state": "waiting",
                "from": None if coming is None else f"{coming:%Y-%m-%dT%H:%M:%SZ}",
            }
        )
    elif coming is None:
        say("This device takes part in no further round of the series.")
    else:
        say(f"Nothing to report now. This device reports next from {coming:%Y-%m-%d %H:%M:%S} UTC on.")


def _report_once(
    task: Path, author: Path, value: str | None, state: Path, limits: _Limits, sending: _Sending, as_json: bool
) -> None:
    """Report as this device unless it has reported already, and send the report."""
    from shuffledp.collection.device import Client, State

    key, content = read_verifying_key(author), read_task_bytes(task)
    with errors_in(task):
        client = Client(content, author=key, state=state, policy=limits.policy, budget=limits.budget)
    if client.state is State.NONE and value is None:
        raise ParameterError("There is no report to send; give --value.")
    if client.state in (State.CLOSED, State.REFUSED) and value is None:
        raise RefusedError(f"The report of this device was rejected, and is not sent again: {client.state.value}.")
    if client.state is not State.PENDING and value is not None:
        parsed = client.task.protocol.domain.parse(_read_value() if value == "-" else value)
        client.task.protocol.domain.encode(parsed)  # refuses a value outside the domain before anything is stored
        client.report(parsed)
    elif value is not None:
        note("an earlier report has not been sent yet; it is sent unchanged, and --value is ignored.")
    token = sending.tokens[0] if sending.tokens else None
    with sending.connect() as connection:
        final = client.send(connection, token=token, patience=sending.patience)
    if as_json:
        print_json({"task": client.task.id.hex(), "state": final.value})
    else:
        say("The report was delivered. Its value stays on this device; the shuffler cannot read what it got.")
