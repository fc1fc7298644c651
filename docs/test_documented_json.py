"""The JSON keys on the command-line page are those that the program prints, no more and no fewer."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from shuffledp.datasets import commute_path

DOCS = Path(__file__).parent
PAGE = (DOCS / "command-line.md").read_text(encoding="utf-8")
TARGET = "--epsilon 1 --delta 1e-8 --json"

BOUNDS = "--lower 0 --upper 120"
OPAQUE = ("parameters", "plans[].parameters", "plans[].setting", "results[].result", "groups[].estimate")
"""Every protocol has its own keys there; results are those of other commands."""

QUESTIONS = """
[session]
epsilon = 1.0
delta = 1e-6

[[question]]
kind = "count"
column = "owns_car"
share = 0.6
protocol = "balcer-cheu"

[[question]]
kind = "histogram"
column = "owns_car"
categories = ["yes", "no"]
protocol = "uniform-blanket"
"""

# heading on the page, question, and commands which together print every key
CASES = {
    "plan count": ("plan", "count", [f"plan count --users 500 {TARGET}"]),
    "plan histogram": ("plan", "histogram", [f"plan histogram --users 500 --domain-size 5 {TARGET}"]),
    "plan sum": ("plan", "sum", [f"plan sum --users 500 {BOUNDS} {TARGET}"]),
    "plan mean": ("plan", "mean", [f"plan mean --users 500 {BOUNDS} {TARGET}"]),
    "plan quantiles": (
        "plan",
        "quantiles",
        [f"plan quantiles --users 500 --bins 16 --max-messages 8 {BOUNDS} {TARGET}"],
    ),
    "run count": ("run count", "count", [f"run count {commute_path()} --column owns_car {TARGET}"]),
    "run histogram": (
        "run histogram",
        "histogram",
        [f"run histogram {commute_path()} --column owns_car --domain yes,no {TARGET}"],
    ),
    "run sum": (
        "run sum` and `run mean",
        "sum",
        [f"run sum {commute_path()} --column minutes --clip --protocol cheu {BOUNDS} {TARGET}"],
    ),
    "run mean": (
        "run sum` and `run mean",
        "mean",
        [f"run mean {commute_path()} --column minutes --clip --protocol split-and-mix {BOUNDS} {TARGET}"],
    ),
    "run quantiles": (
        "run quantiles",
        "quantiles",
        [
            f"run quantiles {commute_path()} --column minutes --clip --bins 4 --protocol uniform-blanket {BOUNDS} "
            f"{TARGET}"
        ],
    ),
    "plan strings": (
        "plan",
        "strings",
        [f"plan strings --users 500 --alphabet ab --max-length 2 --max-messages 8 {TARGET}"],
    ),
    "run strings": (
        "run strings",
        "strings",
        [f"run strings {commute_path()} --column owns_car --alphabet a-z --max-length 3 {TARGET}"],
    ),
    "run-all": ("run-all", "all", [f"run-all questions.toml {commute_path()} --json"]),
    "run histogram by group": (
        "run --group-by",
        "histogram",
        [f"run histogram {commute_path()} --column owns_car --domain yes,no --group-by mode --protocol cheu {TARGET}"],
    ),
    "run count by group": (
        "run --group-by",
        "count",
        [f"run count {commute_path()} --column owns_car --group-by mode --protocol cheu {TARGET}"],
    ),
    "account count": ("account", "count", [f"account count/balcer-cheu --users 25000 --releases 2 {TARGET}"]),
    "account histogram": ("account", "histogram", [f"account histogram/unary --users 25000 {TARGET}"]),
    "account sum": ("account", "sum", [f"account sum/split-and-mix --users 25000 {TARGET}"]),
    "account quantiles": (
        "account",
        "quantiles",
        [f"account quantiles/uniform-blanket --users 25000 --bins 4 {TARGET}"],
    ),
    "solve support": (
        "solve",
        "support",
        [f"solve support --support-size 2 --domain-size 9 --search --trials 1300 {TARGET}"],
    ),
    "solve pointer-chasing": (
        "solve",
        "chasing",
        [f"solve pointer-chasing --steps 2 --length 9 --protocol stability --search --trials 1300 {TARGET}"],
    ),
    "solve pointer-jumping": (
        "solve",
        "jumping",
        [f"solve pointer-jumping --branching 9 --height 2 --protocol stability --search --trials 1300 {TARGET}"],
    ),
    "reproduce": ("reproduce", "all", ["reproduce theorem11 --quick --json --out studies"]),
    "doctor": ("doctor", "all", ["doctor --json"]),
    "audit": ("audit", "count", [f"audit count/cheu --users 50 --trials 100 --confidence 0.9999999 {TARGET}"]),
}


def documented(heading, question):
    """The keys in the first column of the table below the heading; the second says for which questions."""
    section = re.search(rf"^### JSON of `{heading}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"the page has no section for the JSON of {heading}"
    rows = re.findall(r"^\| `([^`]+)` \| ([\w, ]+) \|", section[1], re.MULTILINE)
    keys = [key for key, holds_for in rows if {question, "all"} & set(holds_for.split(", "))]
    assert len(keys) == len(set(keys)), "a key is documented twice"
    return set(keys)


def printed(commands, shuffledp):
    keys = set()
    for command in commands:
        result = shuffledp(*command.split())
        assert result.status == 0, result.err
        keys |= leaves(json.loads(result.out))
    return {key for key in keys if not any(other.startswith((f"{key}.", f"{key}[].")) for other in keys)}


def leaves(value, path=""):
    """``a.b`` for a key in an object, ``a[].b`` for a key in a list of objects."""
    if isinstance(value, dict) and path not in OPAQUE:
        return set().union(*(leaves(inner, f"{path}.{key}" if path else key) for key, inner in value.items()))
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return set().union(*(leaves(each, f"{path}[]") for each in value))
    return {path}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """The figures of a study, which take as long as the study, are drawn elsewhere; half of the study will do."""
    blank = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    monkeypatch.setattr(import_module("shuffledp.figures.curves"), "render", lambda *_, **__: blank)
    monkeypatch.setattr(import_module("shuffledp.lab.studies.theorem11"), "_DELTAS", (1e-6,))


@pytest.mark.parametrize("case", CASES)
def test_documented_keys_are_the_printed_ones(case, shuffledp):
    heading, question, commands = CASES[case]
    Path("questions.toml").write_text(QUESTIONS)  # in the directory of the commands
    assert documented(heading, question) == printed(commands, shuffledp)


def test_leaves():
    assert leaves({"a": {"b": 1}, "c": [{"d": None}, {"e": []}], "f": [1, 2]}) == {"a.b", "c[].d", "c[].e", "f"}
