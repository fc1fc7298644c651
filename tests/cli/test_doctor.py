"""``shuffledp doctor`` tells which kernels are active, why, and what is missing."""

import json
import os
import subprocess
import sys

import pytest

from shuffledp.native import ACTIVE

pytestmark = pytest.mark.kernels


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "shuffledp", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_it_tells_which_kernels_are_active(shuffledp):
    told = json.loads(run("doctor", "--json").stdout)
    assert told["native"]["active"] is ACTIVE
    assert told["sound"]
    assert told["keystream_gigabytes_per_second"] > 0
    shown = shuffledp("doctor")
    assert shown.status == 0
    assert f"kernels: {'compiled' if ACTIVE else 'numpy'} ({told['native']['reason']})" in shown.out


def test_kernels_can_be_switched_off():
    told = json.loads(run("doctor", "--json", SHUFFLEDP_NATIVE="off").stdout)
    assert told["native"] == {"active": False, "reason": "switched off by SHUFFLEDP_NATIVE"}
    assert told["sound"]


@pytest.mark.parametrize("command", [["plan", "count", "--users", "9", "--epsilon", "1", "--delta", "0.1"], ["doctor"]])
def test_an_unknown_choice_is_refused(command):
    result = run(*command, SHUFFLEDP_NATIVE="maybe")
    assert result.returncode == (1 if command == ["doctor"] else 2)
    assert "SHUFFLEDP_NATIVE is 'maybe'; it can be auto, on, off." in result.stdout + result.stderr


def test_kernels_that_are_wanted_are_there():
    """A run with the kernels switched on must not silently take the other path."""
    wanted = os.environ.get("SHUFFLEDP_NATIVE", "auto")
    assert wanted in ("auto", "on", "off")
    assert ACTIVE or wanted != "on"


def test_missing_packages_are_named(monkeypatch, capsys):
    import typer

    from shuffledp.cli import doctor

    monkeypatch.setattr(doctor, "_PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setattr(doctor, "_EXTRAS", {"collection": ("no-such-server",)})
    with pytest.raises(typer.Exit):
        doctor.doctor()
    told = capsys.readouterr().out
    assert "no-such-package MISSING" in told
    assert "collection: missing no-such-server; pip install 'shuffledp[collection]'" in told.replace("\n", " ")
