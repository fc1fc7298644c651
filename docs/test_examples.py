"""Every example runs by itself, quickly, and says something."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

MAX_SECONDS = 60
"""An example takes a second or two; the machine may be busy."""
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
EXAMPLES = [example for example in EXAMPLES if not example.stem.startswith("spark_")]  # make test-spark runs those


@pytest.mark.parametrize("example", EXAMPLES[:2], ids=lambda example: example.stem)
def test_example_runs(example, tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=MAX_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) >= 3


@pytest.mark.parametrize("example", EXAMPLES[2:], ids=lambda example: example.stem)
def test_example_runs_here(example, tmp_path, monkeypatch, capsys):
    """The same without a process of its own, whose imports take longest; warnings are errors here too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    captured = capsys.readouterr()
    assert captured.err == ""
    assert len(captured.out.splitlines()) >= 3


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
