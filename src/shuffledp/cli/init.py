"""``shuffledp init``: the first start of a server, made explicit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.cli.options import JsonOption
from shuffledp.cli.screen import print_json, say

__all__ = ["init_analyzer", "init_app"]

init_app = typer.Typer(help="Initialize the directory of a new server, once.", no_args_is_help=True)


@init_app.callback()
def _group() -> None:
    """Initialize the directory of a new server, once."""


@init_app.command("analyzer")
def init_analyzer(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings: TOML with a table [analyzer].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Initialize the work directory of a new analyzer: an empty ledger, nothing spent.

    The analyzer does not start in a directory that was not initialized, such as that of a volume that is not mounted.

    Example: shuffledp init analyzer --config analyzer.toml
    """
    from shuffledp.collection.analyzer.directory import initialize
    from shuffledp.collection.analyzer.settings import AnalyzerSettings
    from shuffledp.collection.server.settings import read_settings

    settings = read_settings(AnalyzerSettings, role="analyzer", file=config, environment=os.environ, options={})
    initialize(settings.work)
    if as_json:
        print_json({"role": "analyzer", "work": str(settings.work)})
    else:
        say(f"Initialized {settings.work}: the ledger is empty, and every population has its whole budget.")
