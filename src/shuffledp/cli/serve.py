"""``shuffledp serve``: the servers of a collection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.cli.options import JsonOption, whole_number
from shuffledp.cli.screen import print_json, say
from shuffledp.cli.serve_analyzer import fail_for_each, say_fewer_connections, serve_analyzer
from shuffledp.extras import check_extra

if TYPE_CHECKING:
    from shuffledp.collection.shuffler.settings import ShufflerSettings

__all__ = ["need_packages", "serve_app", "serve_shuffler", "serve_tokens"]

serve_app = typer.Typer(help="The servers of a collection.", no_args_is_help=True)


@serve_app.callback()
def _serve() -> None:
    """The servers of a collection."""
    need_packages()


def need_packages() -> None:
    """Refuse to go on without the packages of the servers."""
    check_extra("collection", "Serving", "starlette", "uvicorn", "httptools", "jinja2", "prometheus_client")


@serve_app.command("shuffler")
def serve_shuffler(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings: TOML with a table [shuffler].")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on, instead of the settings'.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", parser=whole_number, metavar="N", help="Port to listen on; 0 for any.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Look whether everything is in order, and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take in sealed reports, mix the messages of each round, and hand them to the analyzer.

    Settings come from the file, then the environment (SHUFFLEDP_SHUFFLER_PORT and so on), then the options.
    It stops gracefully on SIGTERM.

    Example: shuffledp serve shuffler --config shuffler.toml --check
    """
    from shuffledp.collection.server.logs import configure_logs
    from shuffledp.collection.server.settings import read_settings
    from shuffledp.collection.shuffler.settings import ShufflerSettings

    settings = read_settings(
        ShufflerSettings,
        role="shuffler",
        file=config,
        environment=os.environ,
        options={"host": host, "port": port},
    )
    if check:
        _check(settings, as_json)
        return
    from shuffledp.collection.server.running import clean_stop, listen, serve
    from shuffledp.collection.shuffler.app import create_app
    from shuffledp.collection.shuffler.server import Shuffler
    from shuffledp.collection.shuffler.tuning import tune_process

    with clean_stop():
        tune_process()
        configure_logs(level=settings.log_level)
        listener = listen(settings.host, settings.port)  # before the store: who comes second should touch nothing
        shuffler = Shuffler(settings)
        serve(create_app(shuffler), settings, role="shuffler", stopping=shuffler.stop, listener=listener)


serve_app.command("analyzer")(serve_analyzer)  # it imports what opens messages only when it is called


def _check(settings: ShufflerSettings, as_json: bool) -> None:
    from shuffledp.collection.server.descriptors import possible_connections
    from shuffledp.collection.shuffler.server import check_shuffler, check_store_of

    key, book = check_shuffler(settings)
    check_store_of(settings)
    connections = possible_connections(settings.connections)
    refused = [str(each) for each in book.refused]
    tasks = [{"task": each.name, "name": each.task.name, "closes": each.task.closes.isoformat()} for each in book]
    if as_json:
        told = {"role": "shuffler", "key": key.public.id, "tasks": tasks, "refused": refused}
        print_json(told | {"connections": connections})
    else:
        others = f", but for {_counted(len(refused), 'file')} of tasks" if refused else ""
        say(f"The shuffler with the key {key.public.id} is in order{others}; it serves {_counted(len(tasks), 'task')}.")
        for each in tasks:
            say(f"{each['task'][:16]}  closes {each['closes']}  {each['name']}")
        say_fewer_connections(settings.connections, connections)
    fail_for_each(refused)


@serve_app.command("tokens")
def serve_tokens(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="The signed task that the tokens are for.")],
    enrolment: Annotated[
        Path, typer.Option("--enrolment", metavar="DIR", help="The shuffler's folder of hashes of tokens.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A new file for the tokens, one a line.")],
    count: Annotated[int, typer.Option("--count", parser=whole_number, metavar="N", help="How many.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Make one-time enrolment tokens: devices get the tokens, the shuffler only their hashes.

    A shuffler that runs notices them.

    Example: shuffledp serve tokens task.json --count 1000 --enrolment enrolment --out tokens.txt
    """
    from shuffledp.collection.shuffler.enrolment import create_tokens
    from shuffledp.collection.task.task import SignedTask

    name = SignedTask.load(task).task.id.hex()
    create_tokens(name, count, folder=enrolment, out=out)
    if as_json:
        print_json({"task": name, "tokens": count, "out": str(out)})
    else:
        say(f"{count:,} tokens for the task {name[:16]} are in {out}; each pays for one report.")


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
