"""The ``shuffledp`` program: loads subcommands on demand and reports every error in one line."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

import shuffledp
from shuffledp.cli.options import as_flags
from shuffledp.cli.screen import one_line
from shuffledp.errors import DomainError, ParameterError, ShuffledpError, StoppedError
from shuffledp.native import STATUS

_INTERRUPTED = "interrupted; no partially written file is left."
_INTERRUPT_STATUS = 130

_COMMANDS = {
    "plan": "plan.plan_app",
    "app": "app.app",
    "run": "run.run_app",
    "run-all": "run_all.run_all",
    "solve": "solve.solve_app",
    "task": "task.task_app",
    "series": "series.series_app",
    "keys": "keys.keys_app",
    "init": "init.init_app",
    "serve": "serve.serve_app",
    "survey": "survey.survey_app",
    "rounds": "rounds.rounds_app",
    "backup": "backup.backup_app",
    "restore": "backup.restore_app",
    "account": "account.account",
    "audit": "audit.audit",
    "reproduce": "reproduce.reproduce",
    "report": "report.report",
    "release": "release.release",
    "budget": "budget.budget_app",
    "demo": "demo.demo",
    "doctor": "doctor.doctor",
}
"""The module and attribute of each command, loaded on demand."""


def command_line(command: str = "") -> typer.Typer:
    """The command line; given the name of a command, only that command, to avoid loading the modules of the others."""
    app = typer.Typer(
        name="shuffledp",
        help="Differential privacy in the shuffled model: private counts, histograms, sums, means and quantiles.",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in [command] if command in _COMMANDS else _COMMANDS:
        module, _, attribute = _COMMANDS[name].rpartition(".")
        loaded = getattr(import_module(f"shuffledp.cli.{module}"), attribute)
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=name)
        else:
            app.command(name, cls=getattr(loaded, "command_class", None))(loaded)
    return app


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"shuffledp {shuffledp.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Differential privacy in the shuffled model: private counts, histograms, sums, means and quantiles."""


def main() -> None:
    """Run the command line; exit with 2 for invalid usage and 1 for a failed run, after one line with the reason."""
    if not callable(signal.getsignal(signal.SIGTERM)):  # a server installs its own handler
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # raised while another exception was handled
        status = _fail(_INTERRUPTED, _INTERRUPT_STATUS)
    if status == _INTERRUPT_STATUS:
        _exit_after_interrupt(status)
    sys.exit(status)


def _exit_after_interrupt(status: int) -> None:
    """Exit with the status after an interrupt.

    After an interrupt during ``exec``, which dataclasses use, Python exits by the signal although it was caught.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(status)


def _interrupt(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C, so that unfinished files are removed."""
    raise KeyboardInterrupt


def _run(arguments: list[str]) -> int:
    if STATUS.wrong and arguments[:1] != ["doctor"]:
        return _fail(STATUS.reason, 2)
    try:
        app = command_line(next((argument for argument in arguments if not argument.startswith("-")), ""))
        status: int = app(arguments, prog_name="shuffledp", standalone_mode=False) or 0
        return _fail(_INTERRUPTED, status) if status == _INTERRUPT_STATUS else status
    except TyperException as error:
        message = error.format_message()
        return _fail(message, 2) if message else 2  # no arguments at all: the help was shown
    except (ParameterError, DomainError) as error:
        return _fail(str(error), 2)
    except StoppedError as error:
        return _fail(str(error), _INTERRUPT_STATUS)
    except ShuffledpError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_INTERRUPTED, _INTERRUPT_STATUS)
    except MemoryError:
        return _fail("not enough memory; try --route counts.", 1)
    except BrokenPipeError:  # the reader closed the pipe: no traceback at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # a bug: one line for the user, the traceback on request
        if os.environ.get("SHUFFLEDP_TRACEBACK"):
            raise
        hint = "this is a bug in shuffledp; set SHUFFLEDP_TRACEBACK=1 to see the traceback."
        return _fail(f"{type(error).__name__}: {error}; {hint}", 1)


def _fail(message: str, status: int) -> int:
    typer.echo(f"error: {one_line(as_flags(message))}", err=True)
    return status
