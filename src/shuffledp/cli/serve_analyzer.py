"""``shuffledp serve analyzer``: opens, counts and publishes what a shuffler hands over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import JsonOption, whole_number
from shuffledp.cli.screen import one_line, print_json, say

if TYPE_CHECKING:
    from shuffledp.collection.analyzer.settings import AnalyzerSettings

__all__ = ["fail_for_each", "say_fewer_connections", "serve_analyzer"]


def serve_analyzer(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings: TOML with a table [analyzer].")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on, instead of the settings'.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", parser=whole_number, metavar="N", help="Port to listen on; 0 for any.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Look whether everything is in order, and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Open and count the messages of finished rounds, and publish each round once, within its population's budget.

    Settings come from the file, then the environment (SHUFFLEDP_ANALYZER_PORT and so on), then the options.
    It stops gracefully on SIGTERM. With --check it also tells how far each task is, and why one was refused.

    Example: shuffledp serve analyzer --config analyzer.toml --check
    """
    from shuffledp.collection.analyzer.settings import AnalyzerSettings
    from shuffledp.collection.server.logs import configure_logs
    from shuffledp.collection.server.settings import read_settings

    settings = read_settings(
        AnalyzerSettings,
        role="analyzer",
        file=config,
        environment=os.environ,
        options={"host": host, "port": port},
    )
    if check:
        _check(settings, as_json)
        return
    from shuffledp.collection.analyzer.app import create_app
    from shuffledp.collection.analyzer.server import Analyzer
    from shuffledp.collection.server.running import clean_stop, listen, serve

    with clean_stop():
        configure_logs(level=settings.log_level)
        listener = listen(settings.host, settings.port)
        analyzer = Analyzer(settings)
        serve(create_app(analyzer), settings, role="analyzer", stopping=analyzer.stop, listener=listener)


def _check(settings: AnalyzerSettings, as_json: bool) -> None:
    from shuffledp.collection.analyzer.overview import overview
    from shuffledp.collection.server.descriptors import possible_connections

    told = overview(settings) | {"connections": possible_connections(settings.connections)}
    if as_json:
        print_json(told)
    else:
        others = f", but for {len(told['refused']):,} files of tasks" if told["refused"] else ""
        counts = f"{len(told['tasks']):,} tasks, {len(told['populations']):,} populations"
        say(f"The settings are in order{others}: {counts}.")
        for task in told["tasks"]:
            say(f"{task['name']}: {_state(task)}")
        for name, spent in told["populations"].items():
            shown = "?" if spent["spent_epsilon"] is None else f"{spent['spent_epsilon']:.4g}"
            say(f"{name}: epsilon {shown} of {spent['epsilon']:g} spent in {spent['releases']:,} releases.")
        say_fewer_connections(settings.connections, told["connections"])
    fail_for_each(told["refused"])


def say_fewer_connections(wanted: int, possible: int) -> None:
    """A line if the limit on open files leaves fewer connections than the settings ask for."""
    if possible < wanted:
        say(
            f"Only {possible:,} of {wanted:,} connections are possible: raise the hard limit on open files "
            "(ulimit -Hn, LimitNOFILE= of systemd) or lower the setting connections."
        )


def fail_for_each(problems: Sequence[str]) -> None:
    """One line for every problem; if there is one, end with status 1."""
    for each in problems:
        typer.echo(f"error: {one_line(each)}", err=True)
    if problems:
        raise typer.Exit(1)


def _state(task: dict[str, Any]) -> str:
    return f"{task['state']}. {task['reason']}".rstrip() if task["reason"] else f"{task['state']}."
