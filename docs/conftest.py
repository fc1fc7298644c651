"""The command line, run within the process of the tests: what it imports is paid for once."""

import os
import signal
import sys
from dataclasses import dataclass

import pytest
import typer

# before numpy is imported: its threads for small matrices use processor time while they wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@dataclass
class Printed:
    """The exit status of a command, and what it wrote."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def commands():
    """All commands, made from their functions once: that takes longer than most of them run."""
    from shuffledp.cli.main import command_line

    return typer.main.get_command(command_line())


@pytest.fixture
def shuffledp(tmp_path, tmp_path_factory, monkeypatch, commands):
    """Run a command line in an empty directory, from ``main`` to the exit status.

    Its output goes to files, buffered as a program does; ``together`` sends both streams to one, as ``2>&1`` would.
    """
    from shuffledp.cli import main

    monkeypatch.setattr(main, "command_line", lambda _: commands)
    written = tmp_path_factory.mktemp("written")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    on_stop = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str, together: bool = False) -> Printed:
        with (
            (written / "out").open("w", encoding="utf-8") as out,
            (written / "err").open("w", encoding="utf-8", buffering=1) as err,
            monkeypatch.context() as changed,
        ):
            if together:
                os.dup2(out.fileno(), err.fileno())
            changed.setattr(sys, "argv", ["shuffledp", *arguments])
            changed.setattr(sys, "stdout", out)
            changed.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                main.main()
        texts = [(written / name).read_text(encoding="utf-8") for name in ("out", "err")]
        return Printed(int(ended.value.code or 0), *texts)

    yield run
    signal.signal(signal.SIGTERM, on_stop)
