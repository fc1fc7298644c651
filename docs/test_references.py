"""The references page and the bibliography list the same works, and every citation resolves."""

import re
from pathlib import Path

DOCS = Path(__file__).parent
BIBLIOGRAPHY = (DOCS / "references.bib").read_text(encoding="utf-8")
PAGE = (DOCS / "references.md").read_text(encoding="utf-8")


def bib_entries():
    entries = re.split(r"^@\w+\{", BIBLIOGRAPHY, flags=re.MULTILINE)[1:]
    return {
        entry.partition(",")[0]: dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE)) for entry in entries
    }


def test_page_and_bibliography_agree():
    rows = dict(re.findall(r"^## (\w+)\n\n(.+?)(?=\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    entries = bib_entries()
    assert set(rows) == set(entries)
    for key, fields in entries.items():
        text = " ".join(rows[key].split())
        assert fields["title"].replace("\\&", "&") in text, key
        assert fields["year"] in text, key
        assert ("eprint" in fields) == ("arXiv" in text), key
        assert fields.get("eprint", "") in text, key


def test_citations_resolve():
    keys = set(bib_entries())
    for page in [*DOCS.glob("*.md"), *DOCS.glob("theory/*.md")]:
        cited = set(re.findall(r"references\.md#(\w+)", page.read_text(encoding="utf-8")))
        assert cited <= keys, page.name
