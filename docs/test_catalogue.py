"""The catalogue lists every protocol, with the numbers that the library computes.

``tools/refresh_docs.py`` writes those numbers; here they are compared.
"""

import math
import re
from functools import cache
from pathlib import Path

import pytest

from shuffledp.domain import Bins, Interval, Strings
from shuffledp.protocols.registry import PROTOCOLS

DOCS = Path(__file__).parent
CATALOGUE = DOCS / "protocols.md"
PAGES = {
    "count": DOCS / "protocols-counting.md",
    "histogram": DOCS / "protocols-histogram.md",
    "sum": DOCS / "protocols-summing.md",
    "quantiles": DOCS / "protocols-quantiles.md",
    "strings": DOCS / "protocols-strings.md",
}
SETTINGS = {
    "count": {},
    "histogram": {"domain_size": 1_000},
    "sum": {"domain": Interval(0.0, 1.0)},
    "quantiles": {"domain": Bins(0.0, 1.0, 1_024)},
    "strings": {"domain": Strings("a-z", 24)},
}
TARGET = {"users": 1_000_000, "epsilon": 1.0, "delta": 1e-6}
ROW = re.compile(r"^\| \[`([-\w]+)`\]\(([-\w.#]+)\) \| (.*) \|$", re.MULTILINE)
ENTRIES = [(question, name) for question, named in PROTOCOLS.items() for name in named]


@cache
def computed(question, name):
    """Trust, messages and bits per message, typical error, and local epsilon."""
    protocol = PROTOCOLS[question][name].calibrate(**TARGET, **SETTINGS[question])
    local_epsilon = protocol.guarantee.local_epsilon
    return {
        "trust": "counting shuffler" if protocol.trusts_shuffler else protocol.trust,
        "messages": f"{protocol.cost.messages_per_user:,.4g}",
        "bits": f"{protocol.cost.bits_per_message:,}",
        "error": _amount(protocol.expected_error().rmse),
        "local epsilon": "infinite" if math.isinf(local_epsilon) else f"{local_epsilon:,.4g}",
    }


def _amount(error):
    return f"{error:,.0f}" if error >= 1_000 else f"{error:.3g}"


COLUMNS = ["trust", "paper", "messages", "bits", "error", "local epsilon", "proof"]


def section(text, question):
    """Where the table of a question is, as start and end."""
    found = re.search(rf"^## {question.capitalize()}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"the catalogue has no section for a {question}"
    return found.span()


def rows(question):
    text = CATALOGUE.read_text(encoding="utf-8")
    start, end = section(text, question)
    return {
        name: dict(zip(COLUMNS, cells.split(" | "), strict=True)) for name, _, cells in ROW.findall(text[start:end])
    }


def refreshed(text):
    """The catalogue with its numbers computed anew."""
    for question in PAGES:
        start, end = section(text, question)

        def renewed(row, question=question):
            name, link, cells = row.groups()
            if name not in PROTOCOLS[question]:
                return row[0]
            new = dict(zip(COLUMNS, cells.split(" | "), strict=True)) | computed(question, name)
            return f"| [`{name}`]({link}) | {' | '.join(new[column] for column in COLUMNS)} |"

        text = text[:start] + ROW.sub(renewed, text[start:end]) + text[end:]
    return text


@pytest.mark.parametrize("question", PAGES)
def test_every_protocol_and_no_other_is_listed(question):
    assert set(rows(question)) == set(PROTOCOLS[question])


@pytest.mark.parametrize(("question", "name"), ENTRIES, ids=lambda each: each)
def test_numbers(question, name):
    row = rows(question)[name]
    assert {key: row[key] for key in computed(question, name)} == computed(question, name)


@pytest.mark.parametrize(("question", "name"), ENTRIES, ids=lambda each: each)
def test_every_protocol_has_its_section(question, name):
    page = PAGES[question].read_text(encoding="utf-8")
    found = re.search(rf"^## `{name}`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"{PAGES[question].name} has no section for {name}"
    assert f"`{PROTOCOLS[question][name].__module__.removeprefix('shuffledp.').replace('.', '/')}.py`" in found[1]
    assert "references.md#" in found[1], "it names no paper"
    assert f"[`{name}`]({PAGES[question].name}#{name})" in CATALOGUE.read_text(encoding="utf-8")
