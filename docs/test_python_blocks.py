"""Every Python block of the README and of these pages runs; the blocks of one page share their names.

A page is one test, so that tests may be spread over several processes.
"""

from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

DOCS = Path(__file__).parent
PAGES = sorted(
    [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("theory/*.md")]
)
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], pattern="*.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that a block writes do not land in the repository
    for example in SYBIL.parse(page).examples():
        example.evaluate()


def test_a_wrong_block_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nanswer = 41\n```\n\n```python\nassert answer == 42\n```\n")
    first, second = SYBIL.parse(page).examples()
    first.evaluate()
    with pytest.raises(AssertionError):
        second.evaluate()
