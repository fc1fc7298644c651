"""Every Python block of the README and of these pages runs; the blocks of one page share their names.

A page is one test, so that tests may be spread over several processes.
"""

from importlib import import_module
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from shuffledp.errors import InfeasibleError

DOCS = Path(__file__).parent
PAGES = sorted(
    [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("theory/*.md")]
)
PLANNING = "planning.md"
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], pattern="*.md")


def _run(page):
    for example in SYBIL.parse(page).examples():
        example.evaluate()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != PLANNING], ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that a block writes do not land in the repository
    _run(page)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_blocks_of_planning_run(every, tmp_path, monkeypatch):
    """Without the protocol whose calibration takes as long as that of all others together, or with it."""
    monkeypatch.chdir(tmp_path)
    if not every:
        longest = import_module("shuffledp.protocols.sum.almost_central").AlmostCentralSum

        def refused(*_, **__):
            raise InfeasibleError("It takes long.")

        monkeypatch.setattr(longest, "for_target", refused)
    _run(DOCS / PLANNING)


def test_a_wrong_block_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nanswer = 41\n```\n\n```python\nassert answer == 42\n```\n")
    first, second = SYBIL.parse(page).examples()
    first.evaluate()
    with pytest.raises(AssertionError):
        second.evaluate()
