"""The coverage page: each item of the five documents is listed once, and its code, study, test and page exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from shuffledp.lab.studies.registry import STUDIES

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGE = DOCS / "theory" / "coverage.md"
HEADER = ["item", "subject", "code", "study", "test", "page"]
KINDS = ("Theorem", "Definition", "Claim", "Lemma", "Corollary")


def read_rows(text):
    """The rows of all tables, each with the heading of its section."""
    rows, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] not in ("item", "---"):
            rows.append((section, *cells))
    return rows


@cache
def names_in(path):
    """The functions, classes and constants that a module defines at its top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return defined | assigned


def problems(row):
    """What is wrong with a row, in words."""
    _, item, subject, code, study, test, page = row
    wrong = [] if subject else ["no subject"]
    for reference in re.findall(r"`([^`]+)`", code) or ["(no code)"]:
        file, _, name = reference.partition("::")
        path = ROOT / "src" / "shuffledp" / file
        if not path.is_file():
            wrong.append(f"no module {file}")
        elif name and name not in names_in(path):
            wrong.append(f"no {name} in {file}")
    wrong += [f"no study {name}" for name in re.findall(r"`([^`]+)`", study) if name not in STUDIES]
    if not re.search(r"`", study) and study != "-":
        wrong.append(f"no study in {study!r}")
    for reference in re.findall(r"`([^`]+)`", test) or ["(no test)"]:
        file, _, name = reference.partition("::")
        path = ROOT / file
        if not path.is_file() or name not in names_in(path):
            wrong.append(f"no test {reference}")
    target = re.search(r"\]\(([^)#]+)", page)
    if target is None or not (PAGE.parent / target[1]).is_file():
        wrong.append(f"no page {page}")
    return [f"{item}: {fault}" for fault in wrong]


ROWS = read_rows(PAGE.read_text(encoding="utf-8"))


def test_everything_that_is_listed_exists():
    assert len(ROWS) >= 75
    assert [fault for row in ROWS for fault in problems(row)] == []


def test_every_numbered_item_of_the_paper_is_listed():
    items = [item for section, item, *_ in ROWS if section == "The paper"]
    numbers = [int(number) for item in items for number in re.findall(rf"^(?:{'|'.join(KINDS)}) (\d+)$", item)]
    assert numbers == list(range(1, 25))
    for kind, last in (("Figure", 2), ("Table", 2), ("Footnote", 3)):
        assert [item for item in items if item.startswith(kind)] == [f"{kind} {n}" for n in range(1, last + 1)]


def test_every_document_has_its_section_and_no_item_is_listed_twice():
    sections = list(dict.fromkeys(section for section, *_ in ROWS))
    assert len(sections) == 5
    assert [re.findall(r"\((\d{3})\)", section) for section in sections[1:]] == [["000"], ["001"], ["002"], ["003"]]
    for section in sections:
        items = [item for name, item, *_ in ROWS if name == section]
        assert len(items) == len(set(items))
    assert sum("uestion" in item for _, item, *_ in ROWS) >= 8


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("message_overlap.py::overlap_lower", "message_overlap.py::overlap_upper", "no overlap_upper"),
        ("lab/bounds/hyperbolic.py::crossing", "lab/bounds/hyper.py::crossing", "no module lab/bounds/hyper.py"),
        ("`structure`", "`structures`", "no study structures"),
        ("::test_claim_19", "::test_claim_190", "no test tests/lab/structure/test_counterexamples.py::test_claim_190"),
        ("(claim-18.md)", "(claim-118.md)", "no page [claim 18](claim-118.md)"),
    ],
)
def test_a_wrong_reference_is_noticed(old, new, fault):
    text = PAGE.read_text(encoding="utf-8")
    assert old in text
    faults = [wrong for row in read_rows(text.replace(old, new, 1)) for wrong in problems(row)]
    assert len(faults) == 1
    assert fault in faults[0]
