"""``shuffledp rounds``: list, close, cancel or abandon the rounds of a running server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import ConfigOption, JsonOption, find_task_id, takes_groups
from shuffledp.cli.screen import plain, print_json, say
from shuffledp.cli.serve import analyzer_settings, need_packages, shuffler_settings
from shuffledp.errors import DataError, ParameterError

rounds_app = typer.Typer(
    help="List, close, cancel or abandon the rounds of a server that runs on this machine.", no_args_is_help=True
)


@rounds_app.callback()
def _rounds() -> None:
    """List, close, cancel or abandon the rounds of a server that runs on this machine."""
    need_packages()


class ServerRole(StrEnum):
    """The server to ask."""

    shuffler = "shuffler"
    analyzer = "analyzer"


@dataclass(frozen=True, kw_only=True)
class RoundsOptions:
    """The server to ask, and the form of the output."""

    config: ConfigOption = None
    role: Annotated[
        ServerRole | None,
        typer.Option("--role", help="Which server; needed if the file does not say so."),
    ] = None
    as_json: JsonOption = False


_TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The first digits of the task's id.")]
_YesOption = Annotated[bool, typer.Option("--yes", help="Confirm that reports or messages are destroyed.")]


@rounds_app.command("list")
@takes_groups
def list_rounds(
    options: RoundsOptions,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exact numbers of reports, also below the minimum of a round.")
    ] = False,
) -> None:
    """List the rounds of a server with their states, and why one makes no progress.

    Below the minimum of a round, the number of reports is rounded down to a multiple of ten, since exact numbers would
    reveal whose report has just arrived.

    Example: shuffledp rounds list --config shuffler.toml
    """
    server, work = _server(options)
    overview = _overview(work, exact=exact)
    if options.as_json:
        print_json(overview)
        return
    ready = "is ready" if overview["ready"] else "is not ready"
    count = len(overview["rounds"])
    say(f"The {server.value} {ready}; {count:,} round{'' if count == 1 else 's'}.")
    for entry in overview["rounds"]:
        say(f"{entry['task'][:16]}  {entry['state']}  {plain(entry['name'] or '(task missing)')}")
        for line in (_progress(entry), entry["error"], entry.get("reason")):
            if line:
                say(f"    {plain(line)}")
    for entry in overview.get("populations", []):
        spent = "?" if entry["spent_epsilon"] is None else f"{entry['spent_epsilon']:.4g}"
        say(f"{plain(entry['name'])}: epsilon {spent} of {entry['epsilon']:g} spent in {entry['releases']:,} releases.")


@rounds_app.command("close")
@takes_groups
def close_round(task: _TaskArgument, options: RoundsOptions) -> None:
    """Close a round of a shuffler before its time; refused if the round is below its minimum.

    Example: shuffledp rounds close 5d1ff4a0 --config shuffler.toml
    """
    _act("close", task, options)


@rounds_app.command("cancel")
@takes_groups
def cancel_round(task: _TaskArgument, options: RoundsOptions, yes: _YesOption = False) -> None:
    """End a round of a shuffler that is not shuffled yet: its reports are destroyed, and nothing of it is released.

    Example: shuffledp rounds cancel 5d1ff4a0 --yes --config shuffler.toml
    """
    _confirm("cancel", yes)
    _act("cancel", task, options)


@rounds_app.command("abandon")
@takes_groups
def abandon_round(task: _TaskArgument, options: RoundsOptions, yes: _YesOption = False) -> None:
    """Give up a round that cannot finish by itself, and destroy its remaining data.

    Of a shuffler: a round that is damaged or keeps failing, or a batch that the analyzer does not accept. Of an
    analyzer: a batch whose chunks do not come, or whose release keeps failing.

    Example: shuffledp rounds abandon 5d1ff4a0 --yes --config analyzer.toml
    """
    _confirm("abandon", yes)
    _act("abandon", task, options)


def _confirm(action: str, yes: bool) -> None:
    if not yes:
        raise ParameterError(f"rounds {action} permanently destroys the data of the round; add --yes to confirm.")


def _act(action: str, digits: str, options: RoundsOptions) -> None:
    from shuffledp.collection.server.operator import ask_server

    server, work = _server(options)
    ids = (entry["task"] for entry in _overview(work)["rounds"])
    task = find_task_id(digits, ids, f" on this {server.value}")
    result = ask_server(work, "POST", f"/operator/v1/rounds/{task}/{action}")
    if options.as_json:
        print_json(result)
    else:
        say(f"The round {task[:16]} is {result['state']}.")


def _overview(work: Path, *, exact: bool = False) -> dict[str, Any]:
    from shuffledp.collection.server.operator import ask_server

    return ask_server(work, "GET", f"/operator/v1/overview{'?exact=true' if exact else ''}")


def _server(options: RoundsOptions) -> tuple[ServerRole, Path]:
    """Which server is meant, and its work directory."""
    server = options.role or _only_role(options.config)
    read = shuffler_settings if server is ServerRole.shuffler else analyzer_settings
    return server, read(options.config).work


def _only_role(config: Path | None) -> ServerRole:
    from shuffledp.collection.server.settings import read_toml

    if config is not None:
        try:
            tables = read_toml(config, "settings file")
        except (DataError, ParameterError):
            return ServerRole.shuffler  # read_settings then reports what is wrong with the file
        if len(roles := [server for server in ServerRole if server.value in tables]) == 1:
            return roles[0]
    raise ParameterError("Say which server is meant: --role shuffler or --role analyzer.")


def _progress(entry: dict[str, Any]) -> str:
    """The progress of a round; empty if there is nothing to wait for."""
    if entry["state"] == "collecting" and entry["hop"]:
        return f"the batch of the shuffler before it has not arrived yet; the round closes {entry['closes']}"
    if entry["state"] == "collecting":
        needed = "" if entry["minimum_users"] is None else f" of {entry['minimum_users']:,} needed"
        closes = f"; closes {entry['closes']}" if entry["closes"] else ""
        return f"{entry['reports']:,} reports{needed}{closes}"
    if entry["state"] == "receiving":
        return f"{entry['chunks'] - entry['missing']:,} of {entry['chunks']:,} chunks have arrived"
    return ""
