"""``shuffledp reproduce``: pages, and a loud failure."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest


def test_one_study(shuffledp, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("shuffledp.lab.studies.theorem11"), "_DELTAS", (1e-6,))  # half of the study
    result = shuffledp("reproduce", "theorem11", "--quick", "--out", tmp_path / "studies")
    assert result.status == 0
    assert "theorem11.html" in result.out.replace("\n", "")
    assert (tmp_path / "studies/theorem11.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are drawn elsewhere, which takes as long as the study; half of the study will do."""
    blank = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    monkeypatch.setattr(import_module("shuffledp.figures.curves"), "render", lambda *_, **__: blank)
    monkeypatch.setattr(import_module("shuffledp.lab.studies.theorem11"), "_DELTAS", (1e-6,))


@pytest.mark.usefixtures("undrawn")
def test_json(shuffledp, tmp_path):
    result = shuffledp("reproduce", "theorem11", "--quick", "--out", tmp_path, "--insecure-seed", "3", "--json")
    document = json.loads(result.out)
    assert document["page"] == str(tmp_path / "theorem11.html")
    assert document["studies"][0]["holds"] is True
    assert document["studies"][0]["insecure_seed"] == 3


@pytest.mark.usefixtures("undrawn")
def test_a_broken_bound_fails_the_command(shuffledp, tmp_path, monkeypatch):
    from shuffledp.lab.studies import theorem11

    monkeypatch.setattr(theorem11, "theorem_11_alpha", lambda *arguments: 1e-5)
    result = shuffledp("reproduce", "theorem11", "--quick", "--out", tmp_path)
    assert result.status == 1
    assert "FAILS: theorem11: Theorem 11 (ii)" in result.out
    assert "checks fail" in (tmp_path / "theorem11.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing", "--out", "x"], "There is no study 'nothing'"),
        (["theorem11"], "--out"),
        (["--out", "x"], "NAME"),
    ],
)
def test_wrong_usage(shuffledp, arguments, words, tmp_path):
    result = shuffledp("reproduce", *arguments)
    assert result.status == 2
    assert words in result.err
    assert result.err.count("\n") == 1


def test_a_file_in_the_way(shuffledp, tmp_path):
    (tmp_path / "file").write_text("")
    result = shuffledp("reproduce", "theorem11", "--quick", "--out", tmp_path / "file")
    assert result.status == 1
    assert result.err.startswith("error: Cannot create the directory")


@pytest.mark.parametrize(
    "how", [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGKILL))]
)
def test_killed_in_the_middle(tmp_path, how):
    command = [sys.executable, "-m", "shuffledp", "reproduce", "theorem11", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONWARNINGS": ""},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "out").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(how)
    errors = process.communicate(timeout=60)[1].decode()
    assert process.returncode == (130 if how != signal.SIGKILL else -9)
    assert list((tmp_path / "out").iterdir()) == []
    if how != signal.SIGKILL:
        assert errors == "error: interrupted; no partially written file is left.\n"


def test_an_interrupt_while_a_string_is_executed_has_the_same_status():
    """Python notes such an interrupt, and would end by the signal although it was caught."""
    program = (
        "from shuffledp.cli import main; main.command_line = lambda _: exec('raise KeyboardInterrupt'); main.main()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 130
    assert result.stderr == "error: interrupted; no partially written file is left.\n"
