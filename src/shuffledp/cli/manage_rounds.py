"""``shuffledp rounds``: what the operator of a running server sees of its rounds, and can do to them."""

from __future__ import annotations

import os
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import JsonOption
from shuffledp.cli.screen import plain, print_json, say
from shuffledp.cli.serve import need_packages
from shuffledp.errors import ParameterError

__all__ = ["abandon_round", "cancel_round", "close_round", "list_rounds", "rounds_app"]

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


_ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The settings that the server runs with."),
]
_RoleOption = Annotated[
    Server | None,
    typer.Option("--role", help="Which server, if the settings are those of both or in the environment."),
]
_TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The first digits of the task's id.")]
_YesOption = Annotated[bool, typer.Option("--yes", help="Confirm that reports or messages are destroyed.")]


@rounds_app.command("list")
def list_rounds(
    config: _ConfigOption = None,
    role: _RoleOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exact numbers of reports, also below the minimum of a round.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the rounds of a server with their states, and why one does not go on.

    Below its minimum a round's number of reports is rounded down to a multiple of ten: it tells whose report has just
    arrived.

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
    for each in overview["rounds"]:
        say(f"{each['task'][:16]}  {each['state']}  {plain(each['name'] or '(task missing)')}")
        for line in (_progress(each), each["error"], each.get("reason")):
            if line:
                say(f"    {plain(line)}")
    for each in overview.get("populations", []):
        shown = "?" if each["spent_epsilon"] is None else f"{each['spent_epsilon']:.4g}"
        say(f"{plain(each['name'])}: epsilon {shown} of {each['epsilon']:g} spent in {each['releases']:,} releases.")


@rounds_app.command("close")
def close_round(
    task: _TaskArgument, config: _ConfigOption = None, role: _RoleOption = None, as_json: JsonOption = False
) -> None:
    """Close a round of a shuffler before its time; below its minimum it is refused.

    Example: shuffledp rounds close 5d1ff4a0 --config shuffler.toml
    """
    _act("close", task, config, role, as_json)


@rounds_app.command("cancel")
def cancel_round(
    task: _TaskArgument,
    yes: _YesOption = False,
    config: _ConfigOption = None,
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
    config: _ConfigOption = None,
    role: _RoleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up what does not go on by itself, and destroy what is left of it.

    Of a shuffler: a round that is damaged or keeps failing, or a batch that the analyzer does not accept. Of an
    analyzer: a batch whose chunks do not come, or whose release keeps failing.

    Example: shuffledp rounds abandon 5d1ff4a0 --yes --config analyzer.toml
    """
    _confirm("abandon", yes)
    _act("abandon", task, config, role, as_json)


def _confirm(action: str, yes: bool) -> None:
    if not yes:
        raise ParameterError(f"rounds {action} destroys what the server has of the round, for good; add --yes.")


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
    """The whole id of the task that begins with some digits."""
    matching = [each["task"] for each in rounds if word and each["task"].startswith(word.lower())]
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
            return Server.shuffler  # whoever reads the settings next says what is wrong with the file
        if len(roles := [each for each in Server if each.value in tables]) == 1:
            return roles[0]
    raise ParameterError("Say which server is meant: --role shuffler or --role analyzer.")


def _progress(each: dict[str, Any]) -> str:
    """How far a round is, in few words; nothing if there is nothing to wait for."""
    if each["state"] == "collecting":
        needed = "" if each["minimum_users"] is None else f" of {each['minimum_users']:,} needed"
        closes = f"; closes {each['closes']}" if each["closes"] else ""
        return f"{each['reports']:,} reports{needed}{closes}"
    if each["state"] == "receiving":
        return f"{each['chunks'] - each['missing']:,} of {each['chunks']:,} chunks are here"
    return ""
