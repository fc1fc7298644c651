"""Every Python block of the README and of these pages runs; the blocks of one page share their names.

If a text block follows directly, it is what the Python block prints, up to numbers and spaces.
A page is one test, so that tests may be spread over several processes.
"""

import re
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
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
SPARK = ("spark.md", "spark-silos.md")
"""Their blocks need Spark: ``make test-spark`` runs them."""
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], pattern="*.md")
PRINTED = re.compile(r"\n*```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?")


def _run(page):
    for example in SYBIL.parse(page).examples():
        with redirect_stdout(StringIO()) as printed:
            example.evaluate()
        if shown := PRINTED.match(example.document.text, example.region.end):
            assert _shape(shown[1]) == _shape(printed.getvalue()), f"{page.name}, below line {example.line}"


def _shape(text):
    return " ".join(NUMBER.sub("0", text).split())


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in (PLANNING, *SPARK)], ids=lambda page: page.name
)
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


@pytest.mark.parametrize(
    ("shown", "same"), [("1.5 of 1,000\nusers", True), ("1 of 1,000 persons", False), ("1 of 2 users and 3", False)]
)
def test_what_a_block_prints_is_compared(shown, same, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint('7 of 9,999 users')\n```\n\n```text\n{shown}\n```\n")
    if same:
        _run(page)
        return
    with pytest.raises(AssertionError, match=re.escape("page.md, below line 1")):
        _run(page)


def test_a_wrong_block_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nanswer = 41\n```\n\n```python\nassert answer == 42\n```\n")
    first, second = SYBIL.parse(page).examples()
    first.evaluate()
    with pytest.raises(AssertionError):
        second.evaluate()
