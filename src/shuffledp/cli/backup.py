"""``shuffledp backup`` and ``shuffledp restore``: backups of an analyzer's ledger and releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shuffledp.cli.options import ConfigOption, JsonOption, find_task_id
from shuffledp.cli.screen import print_json, say
from shuffledp.cli.serve import analyzer_settings
from shuffledp.errors import ParameterError

backup_app = typer.Typer(help="Back up the durable state of a server.", no_args_is_help=True)
restore_app = typer.Typer(help="Restore a server from its backup.", no_args_is_help=True)


@backup_app.callback()
def _backup() -> None:
    """Back up the durable state of a server."""


@restore_app.callback()
def _restore() -> None:
    """Restore a server from its backup."""


@backup_app.command("analyzer")
def backup_analyzer(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory for the backup.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the ledger, the states of batches and the releases of an analyzer, also while it runs.

    The backup has no keys and no messages.

    Example: shuffledp backup analyzer --config analyzer.toml --out backup-2026-11-16
    """
    from shuffledp.collection.analyzer.backup import back_up

    backup = back_up(analyzer_settings(config).work, out)
    if as_json:
        print_json({"out": str(out), "made": backup.made, "entries": backup.entries, "releases": backup.releases})
    else:
        say(f"Backed up {backup.entries:,} entries of the ledger and {backup.releases:,} releases to {out}.")


@restore_app.command("analyzer")
def restore_analyzer(
    backup: Annotated[Path, typer.Option("--from", metavar="DIR", help="The backup.")],
    released: Annotated[
        list[str] | None,
        typer.Option("--released", metavar="TASK", help="This task was, or may have been, released since the backup."),
    ] = None,
    unreleased: Annotated[
        list[str] | None,
        typer.Option("--unreleased", metavar="TASK", help="This task was certainly not released since the backup."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup of an analyzer into its empty work directory.

    For every task without an entry in the backup, say whether it was released since the backup, with the first digits
    of its id. Tasks that were released count as spent, and no batch of them is released again.

    Example: shuffledp restore analyzer --config analyzer.toml --from backup-2026-11-16 --released 5d1ff4a0
    """
    from shuffledp.collection.analyzer.backup import restore, undecided_tasks
    from shuffledp.collection.analyzer.server import tasks_of

    settings = analyzer_settings(config)
    tasks = tasks_of(settings)
    tasks.load()
    decisions: dict[bytes, bool] = {}
    for prefixes, decision in ((released or [], True), (unreleased or [], False)):
        for digits in prefixes:
            task_id = bytes.fromhex(find_task_id(digits, (task.id.hex() for task in tasks)))
            if decisions.setdefault(task_id, decision) != decision:
                raise ParameterError(f"The task {digits} cannot be both --released and --unreleased.")
    if missing := [task for task in undecided_tasks(backup, tasks) if task.id not in decisions]:
        names = ", ".join(f"{task.id.hex()[:16]} ({task.name})" for task in missing)
        raise ParameterError(
            f"These tasks may have been released since the backup; give --released or --unreleased for each: {names}."
        )
    counted = restore(backup, settings.work, tasks, decisions)
    if as_json:
        print_json({"work": str(settings.work), "counted": [task.id.hex() for task in counted]})
    else:
        say(f"Restored {settings.work}; {len(counted):,} tasks count as released since the backup.")
