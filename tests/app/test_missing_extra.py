"""Without the packages of the extra, the command says in one line what to install."""

import pytest

from shuffledp.cli import main


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
def test_one_line(package, capsys, monkeypatch):
    monkeypatch.setattr("shuffledp.extras.find_spec", lambda name: None if name == package else object())
    assert main._run(["app"]) == 1
    line = f"error: The planner's page needs {package}: pip install 'shuffledp[collection]'.\n"
    assert capsys.readouterr().err == line
