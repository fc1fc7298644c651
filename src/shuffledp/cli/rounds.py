"""``shuffledp rounds``: list, close, cancel or abandon the rounds of a running server."""

from __future__ import annotations

import os
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import ConfigOption, JsonOption
from shuffledp.cli.screen import plain, print_json, say
from shuffledp.cli.serve import need_packages
from shuffledp.errors import ParameterError

rounds_app = typer.Typer(
    help="List, close, cancel or abandon the rounds of a server that runs on this machine.", no_args_is_help=True
)


@rounds_app.callback()
def _rounds() -> None:
    """List, close, cancel or abandon the rounds of a server that runs on this machine."""
    need_packages()


class Server(StrEnum):
    """Which server is asked."""

    shuffler = "shuffler"
    analyzer = "analyzer"


_RoleOption = Annotated[
    Server | None,
    typer.Option("--role", help="Which server, if the settings are those of both or in the environment."),
]
_TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The first digits of the task's id.")]
_YesOption = Annotated[bool, typer.Option("--yes", help="Confirm that reports or messages are destroyed.")]


@rounds_app.command("list")
def list_rounds(
    config: ConfigOption = None,
    role: _RoleOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exact numbers of reports, also below the minimum of a round.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the rounds of a server with their states, and why one makes no progress.

    Below the minimum of a round, the number of reports is rounded down to a multiple of ten, since exact numbers would
    reveal whose report has just arrived.

    Example: shuffledp rounds list --config shuffler.toml
    """
    server, work = _server(config, role)
    overview = _overview(work, exact=exact)
    if as_json:
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
def close_round(
    task: _TaskArgument, config: ConfigOption = None, role: _RoleOption = None, as_json: JsonOption = False
) -> None:
    """Close a round of a shuffler before its time; below its minimum it is refused.

    Example: shuffledp rounds close 5d1ff4a0 --config shuffler.toml
    """
    _act("close", task, config, role, as_json)


@rounds_app.command("cancel")
def cancel_round(
    task: _TaskArgument,
    yes: _YesOption = False,
    config: ConfigOption = None,
    role: _RoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a round of a shuffler that is not mixed yet: its reports are destroyed, and nothing of it is released.

    Example: shuffledp rounds cancel 5d1ff4a0 --yes --config shuffler.toml
    """
    _confirm("cancel", yes)
    _act("cancel", task, config, role, as_json)


@rounds_app.command("abandon")
def abandon_round(
    task: _TaskArgument,
    yes: _YesOption = False,
    config: ConfigOption = None,
    role: _RoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up a round that cannot finish by itself, and destroy the rest of its data.

    Of a shuffler: a round that is damaged or keeps failing, or a batch that the analyzer does not accept. Of an
    analyzer: a batch whose chunks do not come, or whose release keeps failing.

    Example: shuffledp rounds abandon 5d1ff4a0 --yes --config analyzer.toml
    """
    _confirm("abandon", yes)
    _act("abandon", task, config, role, as_json)


def _confirm(action: str, yes: bool) -> None:
    if not yes:
        raise ParameterError(f"rounds {action} permanently destroys the data of the round; add --yes to confirm.")


def _act(action: str, word: str, config: Path | None, role: Server | None, as_json: bool) -> None:
    from shuffledp.collection.server.operator import ask_server

    server, work = _server(config, role)
    task = _find(word, _overview(work)["rounds"], server)
    result = ask_server(work, "POST", f"/operator/v1/rounds/{task}/{action}")
    if as_json:
        print_json(result)
    else:
        say(f"The round {task[:16]} is {result['state']}.")


def _overview(work: Path, *, exact: bool = False) -> dict[str, Any]:
    from shuffledp.collection.server.operator import ask_server

    return ask_server(work, "GET", f"/operator/v1/overview{'?exact=true' if exact else ''}")


def _find(word: str, rounds: list[dict[str, Any]], server: Server) -> str:
    """The full id of the task that begins with the digits."""
    matching = [entry["task"] for entry in rounds if word and entry["task"].startswith(word.lower())]
    if len(matching) != 1:
        count = f"{len(matching):,} rounds have" if matching else "no round has"
        raise ParameterError(
            f"{word!r} must be the first digits of one task's id; {count} such an id on this {server.value}."
        )
    return str(matching[0])


def _server(config: Path | None, role: Server | None) -> tuple[Server, Path]:
    """Which server is meant, and its work directory."""
    from shuffledp.collection.analyzer.settings import AnalyzerSettings
    from shuffledp.collection.server.settings import read_settings
    from shuffledp.collection.shuffler.settings import ShufflerSettings

    server = role or _only_role(config)
    kind: type[AnalyzerSettings | ShufflerSettings] = (
        ShufflerSettings if server is Server.shuffler else AnalyzerSettings
    )
    settings = read_settings(kind, role=server.value, file=config, environment=os.environ, options={})
    return server, settings.work


def _only_role(config: Path | None) -> Server:
    if config is not None:
        try:
            tables = tomllib.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Server.shuffler  # read_settings then reports what is wrong with the file
        if len(roles := [server for server in Server if server.value in tables]) == 1:
            return roles[0]
    raise ParameterError("Say which server is meant: --role shuffler or --role analyzer.")


def _progress(entry: dict[str, Any]) -> str:
    """The progress of a round; empty if there is nothing to wait for."""
    if entry["state"] == "collecting":
        needed = "" if entry["minimum_users"] is None else f" of {entry['minimum_users']:,} needed"
        closes = f"; closes {entry['closes']}" if entry["closes"] else ""
        return f"{entry['reports']:,} reports{needed}{closes}"
    if entry["state"] == "receiving":
        return f"{entry['chunks'] - entry['missing']:,} of {entry['chunks']:,} chunks have arrived"
    return ""
