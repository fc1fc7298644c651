"""The command line, called as a user would."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from shuffledp.datasets import COMMUTE_MODES, commute_path
from shuffledp.protocols.protocol import Protocol


class ReportOutcome:
    def __init__(self, status: int, out: str, err: str):
        self.status, self.out, self.err = status, out, err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error; anything else on either stream fails the test."""
        assert self.out == "", self.out
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


@pytest.fixture(scope="session", autouse=True)
def calibrated_once():
    """Protocols cannot be changed, and tests of one file ask for the same ones: each is calibrated once."""
    calibrate = Protocol.__dict__["calibrate"].__func__
    kept = functools.lru_cache(maxsize=None, typed=True)(calibrate)

    @functools.wraps(calibrate)
    def calibrate_once(cls, **options):
        try:
            hash(tuple(options.values()))
        except TypeError:
            return calibrate(cls, **options)
        return kept(cls, **options)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Protocol, "calibrate", classmethod(calibrate_once))
        yield


@pytest.fixture(scope="session")
def commands():
    """All commands, made from their functions once: that takes longer than most of them run."""
    from shuffledp.cli.main import command_line

    return typer.main.get_command(command_line())


@pytest.fixture
def shuffledp(tmp_path, capfd, monkeypatch, commands):
    """Run a command line in an empty folder, in this process."""
    from shuffledp.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(main, "command_line", lambda _: commands)

    def run(*arguments: object) -> ReportOutcome:
        capfd.readouterr()
        status = main._run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return ReportOutcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def shuffledp_process(tmp_path):
    """Run a command line in a process of its own."""

    def run(*arguments: object, **options) -> ReportOutcome:
        done = subprocess.run(
            [sys.executable, "-m", "shuffledp", *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "COLUMNS": "100"},
            **options,
        )
        return ReportOutcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def commute() -> Path:
    return commute_path()


@pytest.fixture
def modes(tmp_path) -> Path:
    path = tmp_path / "modes.txt"
    path.write_text("\n".join(COMMUTE_MODES) + "\n")
    return path
