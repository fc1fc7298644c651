"""``shuffledp backup`` and ``shuffledp restore``: backups of an analyzer's ledger and releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.cli.options import ConfigOption, JsonOption, find_task_id
from shuffledp.cli.screen import print_json, say
from shuffledp.cli.serve import analyzer_settings
from shuffledp.errors import ParameterError

if TYPE_CHECKING:
    from shuffledp.collection.analyzer.tasks import AnalyzerTasks

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
    of its id, or with those of a series for all its rounds; what is said about a round counts more. Tasks that were
    released count as spent, and no batch of them is released again.

    Example: shuffledp restore analyzer --config analyzer.toml --from backup-2026-11-16 --released 5d1ff4a0
    """
    from shuffledp.collection.analyzer.backup import restore, tasks_for, undecided_tasks

    settings = analyzer_settings(config)
    tasks = tasks_for(backup, settings)
    decisions: dict[bytes, bool] = {}
    of_series: dict[bytes, bool] = {}
    for prefixes, decision in ((released or [], True), (unreleased or [], False)):
        for digits in prefixes:
            rounds = _rounds_of(digits, tasks)
            if not rounds:
                rounds = [bytes.fromhex(find_task_id(digits, (task.id.hex() for task in tasks)))]
            decided = of_series if len(rounds) > 1 else decisions
            if any(decided.setdefault(task_id, decision) != decision for task_id in rounds):
                raise ParameterError(f"The task {digits} cannot be both --released and --unreleased.")
    decisions = of_series | decisions  # what is said about a round counts more than what is said about its series
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


def _rounds_of(digits: str, tasks: AnalyzerTasks) -> list[bytes]:
    """The ids of all rounds of the series whose id begins with these digits; none unless there is exactly one."""
    digits = digits.lower()
    found = [accepted for accepted in tasks.series if digits and accepted.name.startswith(digits)]
    if len(found) != 1 or any(task.id.hex().startswith(digits) for task in tasks):
        return []
    return [found[0].task(index).id for index in range(found[0].rounds)]
