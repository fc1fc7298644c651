"""``shuffledp serve``: run the servers of a collection, and create enrolment tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import ConfigOption, JsonOption, integer, takes_groups
from shuffledp.cli.screen import one_line, print_json, say
from shuffledp.cli.task_files import read_task_bytes
from shuffledp.errors import ParameterError
from shuffledp.extras import check_extra

if TYPE_CHECKING:
    from shuffledp.collection.analyzer.settings import AnalyzerSettings
    from shuffledp.collection.shuffler.settings import ShufflerSettings

serve_app = typer.Typer(help="Run the servers of a collection, and create enrolment tokens.", no_args_is_help=True)


@serve_app.callback()
def _serve() -> None:
    """Run the servers of a collection, and create enrolment tokens."""
    need_packages()


def need_packages() -> None:
    """Raise an error if a package of the servers is missing."""
    check_extra("collection", "Serving", "starlette", "uvicorn", "httptools", "jinja2", "prometheus_client")


def shuffler_settings(config: Path | None, **options: Any) -> ShufflerSettings:
    """The settings of the shuffler, from the file, then the environment, then the options."""
    from shuffledp.collection.server.settings import read_settings
    from shuffledp.collection.shuffler.settings import ShufflerSettings

    return read_settings(ShufflerSettings, role="shuffler", file=config, environment=os.environ, options=options)


def analyzer_settings(config: Path | None, **options: Any) -> AnalyzerSettings:
    """The settings of the analyzer, from the file, then the environment, then the options."""
    from shuffledp.collection.analyzer.settings import AnalyzerSettings
    from shuffledp.collection.server.settings import read_settings

    return read_settings(AnalyzerSettings, role="analyzer", file=config, environment=os.environ, options=options)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of both servers."""

    config: ConfigOption = None
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on, instead of the one in the settings.")
    ] = None
    port: Annotated[
        int | None, typer.Option("--port", parser=integer, metavar="N", help="Port to listen on; 0 for any.")
    ] = None
    check: Annotated[bool, typer.Option("--check", help="Check the configuration and exit.")] = False
    as_json: JsonOption = False


@serve_app.command("shuffler")
@takes_groups
def serve_shuffler(
    options: ServerOptions,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="all; ingest, to receive reports without any key; or mixer, to open, shuffle and deliver rounds.",
        ),
    ] = None,
) -> None:
    """Receive sealed reports, shuffle the messages of each round, and deliver them to the analyzer.

    Settings come from the file, then the environment (SHUFFLEDP_SHUFFLER_PORT and so on), then the options.
    SIGTERM stops it gracefully.

    Example: shuffledp serve shuffler --config shuffler.toml --check
    """
    settings = shuffler_settings(options.config, host=options.host, port=options.port, role=role)
    if options.check:
        _check_shuffler(settings, options.as_json)
        return
    from shuffledp.collection.shuffler.app import run_shuffler

    run_shuffler(settings)


@serve_app.command("analyzer")
@takes_groups
def serve_analyzer(options: ServerOptions) -> None:
    """Open and count the messages of finished rounds, and publish each round once, within its population's budget.

    Settings come from the file, then the environment (SHUFFLEDP_ANALYZER_PORT and so on), then the options.
    SIGTERM stops it gracefully. With --check it also shows the state of each task, and why one was refused.

    Example: shuffledp serve analyzer --config analyzer.toml --check
    """
    settings = analyzer_settings(options.config, host=options.host, port=options.port)
    if options.check:
        _check_analyzer(settings, options.as_json)
        return
    from shuffledp.collection.analyzer.app import run_analyzer

    run_analyzer(settings)


def _check_shuffler(settings: ShufflerSettings, as_json: bool) -> None:
    from shuffledp.collection.server.running import possible_connections
    from shuffledp.collection.shuffler.operator import task_fields
    from shuffledp.collection.shuffler.server import check_shuffler, check_store_of
    from shuffledp.collection.wire.keys import SigningKey

    key, served_tasks = check_shuffler(settings)
    key_id = key.public.id if isinstance(key, SigningKey) else key.id
    check_store_of(settings)
    connections = possible_connections(settings.connections)
    refused = [str(reason) for reason in served_tasks.refused]
    tasks = [task_fields(entry) for entry in served_tasks]
    if as_json:
        state = {"role": "shuffler", "key": key_id, "tasks": tasks, "refused": refused}
        print_json(state | {"connections": connections})
    else:
        except_files = f", except for {_counted(len(refused), 'task file')}" if refused else ""
        served = _counted(len(tasks), "task")
        say(f"The shuffler with the key {key_id} is configured correctly{except_files}; it serves {served}.")
        for task in tasks:
            say(f"{task['task'][:16]}  closes {task['closes']}  {task['name']}")
        _say_fewer_connections(settings.connections, connections)
    _fail_for_each(refused)


def _check_analyzer(settings: AnalyzerSettings, as_json: bool) -> None:
    from shuffledp.collection.analyzer.overview import directory_overview
    from shuffledp.collection.server.running import possible_connections

    overview = directory_overview(settings)
    state = {
        "refused": overview["refused_tasks"],
        "tasks": [entry for entry in overview["rounds"] if entry["name"] is not None],
        "populations": {entry["name"]: entry for entry in overview["populations"]},
        "alerts": overview["alerts"],
        "connections": possible_connections(settings.connections),
    }
    if as_json:
        print_json(state)
    else:
        refused, tasks = state["refused"], state["tasks"]
        except_files = f", except for {_counted(len(refused), 'task file')}" if refused else ""
        counts = f"{_counted(len(tasks), 'task')}, {_counted(len(state['populations']), 'population')}"
        say(f"The analyzer is configured correctly{except_files}: {counts}.")
        for task in tasks:
            say(f"{task['name']}: {_task_state(task)}")
        for name, spent in state["populations"].items():
            shown = "?" if spent["spent_epsilon"] is None else f"{spent['spent_epsilon']:.4g}"
            say(f"{name}: epsilon {shown} of {spent['epsilon']:g} spent in {spent['releases']:,} releases.")
        _say_fewer_connections(settings.connections, state["connections"])
    _fail_for_each(state["refused"])


def _task_state(task: dict[str, Any]) -> str:
    return f"{task['state']}. {task['reason']}".rstrip() if task["reason"] else f"{task['state']}."


def _say_fewer_connections(requested: int, possible: int) -> None:
    """Print a line if the limit on open files allows fewer connections than the settings ask for."""
    if possible < requested:
        say(
            f"Only {possible:,} of {requested:,} connections are possible: raise the hard limit on open files "
            "(ulimit -Hn, LimitNOFILE= of systemd) or lower the setting connections."
        )


def _fail_for_each(problems: Sequence[str]) -> None:
    """Print one line for every problem; if there is one, exit with status 1."""
    for problem in problems:
        typer.echo(f"error: {one_line(problem)}", err=True)
    if problems:
        raise typer.Exit(1)


@serve_app.command("tokens")
def serve_tokens(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="The signed task or series that the tokens are for.")],
    enrolment: Annotated[
        Path, typer.Option("--enrolment", metavar="DIR", help="The shuffler's directory of token hashes.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A new file for the tokens, one per line.")],
    count: Annotated[int, typer.Option("--count", parser=integer, metavar="N", help="Number of tokens.")] = 1,
    round_: Annotated[
        int | None,
        typer.Option("--round", parser=integer, metavar="I", help="Of a series: the round, numbered from 0."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create one-time enrolment tokens: devices get the tokens, the shuffler only their hashes.

    A running shuffler picks them up.

    Example: shuffledp serve tokens task.json --count 1000 --enrolment enrolment --out tokens.txt
    """
    from shuffledp.collection.shuffler.enrolment import create_tokens

    name = _name_of_round(task, round_)
    create_tokens(name, count, directory=enrolment, out=out)
    if as_json:
        print_json({"task": name, "tokens": count, "out": str(out)})
    else:
        say(f"{count:,} tokens for the task {name[:16]} are in {out}; each allows one report.")


def _name_of_round(path: Path, index: int | None) -> str:
    """The id of a signed task, or of the task of a round of a signed series."""
    from shuffledp.cli.series import read_series
    from shuffledp.collection.task.signed_documents import kind_of_document
    from shuffledp.collection.task.task import SignedTask

    if kind_of_document(read_task_bytes(path)) != "series":
        if index is not None:
            raise ParameterError("--round belongs to a series; the file has a task.")
        return SignedTask.load(path).task.id.hex()
    if index is None:
        raise ParameterError("Give --round I: tokens of a series are for one of its rounds, numbered from 0.")
    return read_series(path)[0].task(index).id.hex()


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
