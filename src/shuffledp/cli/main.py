"""The ``shuffledp`` command: its subcommands, and one line for every error."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer
from typer.exceptions import TyperException

import shuffledp
from shuffledp.cli.account import account
from shuffledp.cli.audit import audit
from shuffledp.cli.backup import backup_app, restore_app
from shuffledp.cli.demo import demo
from shuffledp.cli.doctor import doctor
from shuffledp.cli.init import init_app
from shuffledp.cli.keys import keys_app
from shuffledp.cli.manage_rounds import rounds_app
from shuffledp.cli.plan import plan_count, plan_histogram, plan_mean, plan_sum
from shuffledp.cli.release import release
from shuffledp.cli.report import report
from shuffledp.cli.reproduce import reproduce
from shuffledp.cli.run import run_count, run_histogram
from shuffledp.cli.run_numbers import run_mean, run_sum
from shuffledp.cli.screen import one_line
from shuffledp.cli.serve import serve_app
from shuffledp.cli.solve import solve_chasing, solve_jumping, solve_support
from shuffledp.cli.task import task_app
from shuffledp.errors import DomainError, ParameterError, ShuffledpError, StoppedError
from shuffledp.native import STATUS

__all__ = ["app", "main"]

_INTERRUPTED = "interrupted; nothing half-written is left."
_INTERRUPT_STATUS = 130

app = typer.Typer(
    name="shuffledp",
    help="Differential privacy in the shuffled model: private counts, histograms, sums and means.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
plan_app = typer.Typer(help="Which protocol, at which cost and error, for a target?", no_args_is_help=True)
run_app = typer.Typer(help="From a data file to a private estimate with error bars.", no_args_is_help=True)
solve_app = typer.Typer(help="The problems that separate the models, solved privately.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")
app.add_typer(run_app, name="run")
app.add_typer(solve_app, name="solve")
app.add_typer(task_app, name="task")
app.add_typer(keys_app, name="keys")
app.add_typer(init_app, name="init")
app.add_typer(serve_app, name="serve")
app.add_typer(rounds_app, name="rounds")
app.add_typer(backup_app, name="backup")
app.add_typer(restore_app, name="restore")
plan_app.command("count")(plan_count)
plan_app.command("histogram")(plan_histogram)
plan_app.command("sum")(plan_sum)
plan_app.command("mean")(plan_mean)
run_app.command("count")(run_count)
run_app.command("histogram")(run_histogram)
run_app.command("sum")(run_sum)
run_app.command("mean")(run_mean)
solve_app.command("support")(solve_support)
solve_app.command("pointer-chasing")(solve_chasing)
solve_app.command("pointer-jumping")(solve_jumping)
app.command()(account)
app.command()(audit)
app.command()(reproduce)
app.command()(report)
app.command()(release)
app.command()(demo)
app.command()(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shuffledp {shuffledp.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Differential privacy in the shuffled model: private counts, histograms, sums and means."""


def main() -> None:
    """Run the command line; exit with 2 for wrong usage and 1 for a failed run, saying why in one line."""
    if not callable(signal.getsignal(signal.SIGTERM)):  # a server deals with it already
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while another exception was being dealt with
        status = _fail(_INTERRUPTED, _INTERRUPT_STATUS)
    if status == _INTERRUPT_STATUS:
        _leave(status)
    sys.exit(status)


def _leave(status: int) -> None:
    """End with the status, whenever the interrupt came.

    Python ends by the signal instead if it came while a string was executed, as when a dataclass is made, although
    the interrupt was caught.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(status)


def _interrupt(*_: object) -> None:
    """Being asked to stop is like Ctrl-C: what was begun is cleaned up."""
    raise KeyboardInterrupt


def _run(arguments: list[str]) -> int:
    if STATUS.wrong and arguments[:1] != ["doctor"]:
        return _fail(STATUS.reason, 2)
    try:
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
    except BrokenPipeError:  # the reader went away: no traceback at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # a fault of ours: one line for the user, all of it on request
        if os.environ.get("SHUFFLEDP_TRACEBACK"):
            raise
        hint = "this is a fault in shuffledp; set SHUFFLEDP_TRACEBACK=1 to see where."
        return _fail(f"{type(error).__name__}: {error}; {hint}", 1)


def _fail(message: str, status: int) -> int:
    typer.echo(f"error: {one_line(message)}", err=True)
    return status
