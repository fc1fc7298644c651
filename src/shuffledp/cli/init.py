"""``shuffledp init``: initialize the work directory of a new analyzer."""

from __future__ import annotations

import typer

from shuffledp.cli.options import ConfigOption, JsonOption
from shuffledp.cli.screen import print_json, say
from shuffledp.cli.serve import analyzer_settings

init_app = typer.Typer(help="Initialize the work directory of a new server, once.", no_args_is_help=True)


@init_app.callback()
def _group() -> None:
    """Initialize the work directory of a new server, once."""


@init_app.command("analyzer")
def init_analyzer(
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Initialize the work directory of a new analyzer: an empty ledger, nothing spent.

    The analyzer does not start in an uninitialized directory, such as the mount point of a missing volume.

    Example: shuffledp init analyzer --config analyzer.toml
    """
    from shuffledp.collection.analyzer.directory import initialize

    settings = analyzer_settings(config)
    initialize(settings.work)
    if as_json:
        print_json({"role": "analyzer", "work": str(settings.work)})
    else:
        say(f"Initialized {settings.work}: the ledger is empty, and every population has its whole budget.")
