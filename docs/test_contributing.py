"""The tables of checks and faults in CONTRIBUTING are those of the conformance kit."""

import re
from pathlib import Path

from shuffledp.testing.conformance import CHECKS
from shuffledp.testing.faults import CAUGHT_BY

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def rows(heading):
    table = re.search(rf"^ +\| {heading} \|.*\n((?: +\|.*\n)+)", PAGE, re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in line.strip(" |").split("|")] for line in table[1].splitlines()[1:]]


def test_checks():
    assert [row[0] for row in rows("check")] == list(CHECKS)


def test_faults():
    assert {fault.removesuffix(" (central)"): check for fault, check in rows("fault")} == CAUGHT_BY
