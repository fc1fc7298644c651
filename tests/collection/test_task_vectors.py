"""Signed tasks of the vectors: the library and a reader written from the pages alone come to the verdict of each.

The verdicts are written by hand in tools/vector_files; neither of the two decides them.
"""

import functools
import importlib.util
import json
import math
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shuffledp.collection.task import signed_documents
from shuffledp.collection.task import task as task_module
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.errors import ParameterError

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("foreign_task", Path(__file__).parent / "foreign_task.py")
foreign = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(foreign)

TASKS = json.loads((ROOT / "vectors" / "v1" / "task.json").read_bytes())
AUTHOR = VerifyingKey(bytes.fromhex(TASKS["author"]["public"]))
CASES = [
    *TASKS["edge_cases"],
    *({**case, "verdict": "bad"} for case in TASKS["bad"]),
    *({**case, "verdict": "good", "reason": None} for case in TASKS["good"]),
]
READER = foreign.Reader(AUTHOR.raw)
EACH = [pytest.param(case, id=case["name"].replace(" ", "-")) for case in CASES]


def librarys(content):
    """The reason or None, and the id of a good task."""
    try:
        return None, authentic_task(content, AUTHOR).id.hex()
    except ParameterError as error:
        return error.values["reason"], None


def different(reader):
    """The cases that a reader accepts and should not, or the other way round."""
    for case in CASES:
        if (reader.verdict(case["content"].encode())[0] is None) != (case["verdict"] == "good"):
            yield case["name"]
    for case in TASKS["documents"]:
        if foreigns(case, reader) != (case["verdict"] == "good"):
            yield case["name"]


def foreigns(case, reader):
    """Whether the reader takes a document for canonical."""
    try:
        reader.document(case["content"].encode())
    except foreign.BadError:
        return False
    return True


def test_there_are_enough():
    assert len(TASKS["edge_cases"]) >= 123
    assert len({case["name"] for case in CASES}) == len(CASES)
    for case in TASKS["edge_cases"]:
        assert (case["verdict"], case["reason"] is None, "id" in case) in (
            ("good", True, True),
            ("bad", False, False),
        )


@pytest.mark.parametrize("case", EACH)
def test_the_library(case):
    assert librarys(case["content"].encode()) == (case["reason"], case.get("id"))


@pytest.mark.parametrize("case", EACH)
def test_another_reader(case):
    assert foreign.Reader(AUTHOR.raw).verdict(case["content"].encode()) == (case["reason"], case.get("id"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in TASKS["documents"]])
def test_canonical_documents(case):
    content = case["content"].encode()
    assert foreigns(case, foreign.Reader(AUTHOR.raw)) == (case["verdict"] == "good")
    if case["verdict"] == "good":
        assert canonical(parse_canonical(content, max_bytes=1000)) == content
    else:
        with pytest.raises(ParameterError):
            parse_canonical(content, max_bytes=1000)


@functools.cache
def parsed(content):
    """What a reader without faults makes of the bytes: the document, or why it is refused."""
    try:
        return READER.document(content), None
    except foreign.BadError as error:
        return None, error.reason


class FaultyReader(foreign.Reader):
    """A reader without one of its checks."""

    def __init__(self, fault):
        super().__init__(AUTHOR.raw)
        self.parses_itself = bool(fault.keys() & {"check_canonical", "deepest"})
        for name, value in fault.items():
            setattr(self, name, value)

    def document(self, content):
        """Each is parsed once for all faults elsewhere, which saves most of the time."""
        if self.parses_itself:
            return super().document(content)
        document, reason = parsed(content)
        if reason:
            raise foreign.BadError(reason)
        return document


def utf16(self):
    def check(text, least, most):
        foreign.need(isinstance(text, str) and least <= len(text.encode("utf-16-le")) // 2 <= most, "length")
        foreign.need(not self.refused.search(text), "character")

    return check


def printable(text, least, most):
    """What was checked before: by the Unicode tables of the interpreter."""
    foreign.need(isinstance(text, str) and least <= len(text) <= most and text.isprintable(), "text")


def relative(told, computed):
    told, computed = (math.inf if each is None else each for each in (told, computed))
    return told == computed or abs(told - computed) <= 1e-9 * max(told, computed)


def last_wins(content):
    return json.loads(content.decode("utf-8-sig"))


FAULTS = {
    "strip() before parsing": {"without_line_feed": bytes.strip},
    "any number of line feeds": {"without_line_feed": lambda content: content.rstrip(b"\n")},
    "no line feed": {"without_line_feed": lambda content: content},
    "not written again and compared": {"check_canonical": lambda document, text: None},
    "the usual reader of JSON": {"document": last_wins},
    "one level less": {"deepest": 31},
    "one level more": {"deepest": 33},
    "isprintable": {"check_string": printable},
    "lengths in UTF-16": {"check_string": utf16(READER)},
    "only control characters": {"refused": re.compile("[\0-\x1f\x7f-\x9f]")},
    "names as they are written": {"comparable": lambda name: name},
    "NFKC": {"comparable": lambda name: unicodedata.normalize("NFKC", name)},
    "NFC of everything": {"comparable": lambda name: unicodedata.normalize("NFC", name)},
    "capitals do not matter": {"comparable": str.lower},
    "no check of low order": {"check_sealing_key": lambda raw: None},
    "zeros alone": {"check_sealing_key": lambda raw: foreign.need(any(raw), "zeros")},
    "no largest report": {"most_messages": 2**53},
    "no largest round": {"most_users": 2**53},
    "probabilities of any size": {"most_bits": 65536},
    "infinity is close to everything": {"close": relative},
    "a wide tolerance": {"close": lambda told, computed: told == computed or abs(told - computed) < 1e-7},
    "no tolerance": {"close": lambda told, computed: told == computed},
    "honest users by doubles": {
        "honest": lambda p, raw: math.floor(
            (p.get("terms") or p["noise"])["users"] * float((raw.get("terms") or raw["noise"])["honest_fraction"])
        )
    },
    "none honest": {"honest": lambda p, raw: max(1, foreign.client.honest(p, raw))},
    "true is 1": {"is_integer": lambda value: isinstance(value, int) or foreign.Reader.is_integer(READER, value)},
    "hexadecimal for small integers": {
        "is_integer": lambda value: type(value) is int or bool(re.fullmatch("0x[0-9a-f]+", str(value)))
    },
    "fractions in any form": {"is_fraction": lambda value: bool(re.fullmatch("[0-9]+/[1-9][0-9]*", str(value)))},
    "guarantees are believed": {"check_guarantee": lambda *_: None},
    "nothing is derived": {"check_derived": lambda *_: None},
}


def test_the_reader_without_a_fault():
    assert list(different(FaultyReader({}))) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault):
    """Each is accepted or refused wrongly by a reader with this fault in at least one case."""
    try:
        seen = next(different(FaultyReader(FAULTS[fault])), None)
    except (ArithmeticError, TypeError, ValueError) as error:  # it falls over
        seen = error
    assert seen


def test_a_fault_in_the_library_is_seen(monkeypatch):
    """Stripping white space before parsing, as was done with line feeds, accepts what nobody signed in that form."""
    parse = signed_documents.parse_canonical
    for module in (signed_documents, task_module):
        monkeypatch.setattr(module, "parse_canonical", lambda content, **rest: parse(content.strip(), **rest))
    accepted = [
        case["name"]
        for case in TASKS["edge_cases"]
        if case["verdict"] == "bad" and librarys(case["content"].encode())[0] is None
    ]
    assert {"two final line feeds", "a space at the end", "a final carriage return and line feed"} <= set(accepted)


@example(2.0**-24)  # 16 digits, but not those of the nearest decimal
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_shortest_decimal(number):
    """As vectors/README.md spells it out, it is Python's repr; no other decimal of the number is read."""
    text = repr(number)
    assert foreign.shortest(text) == number
    others = {f"{number:.17g}", f"{number:.16e}", f"{number:f}", f"+{text}", f"{text}0", text.replace("e-0", "e-")}
    for other in others - {text}:
        assert foreign.shortest(other) is None or repr(float(other)) == other, other


def test_the_decimals_of_the_page():
    readme = (ROOT / "vectors" / "README.md").read_text(encoding="utf-8")
    paragraph = re.search(r"The shortest decimal has.*?\n\n", readme, re.DOTALL)[0]
    examples = re.findall('`"([^"]+)"`', paragraph)
    assert len(examples) >= 7
    assert all(repr(float(each)) == each and foreign.shortest(each) == float(each) for each in examples)


def test_the_reasons_are_those_of_the_table():
    """The table of vectors/README.md has every reason that occurs, and no other."""
    readme = (ROOT / "vectors" / "README.md").read_text(encoding="utf-8")
    table = re.search(r"\| reason \| what is wrong \|\n\|[ |-]+\n((?:\|.*\n)+)", readme)[1]
    told = {}
    for row in table.splitlines():
        codes, meaning = (cell.strip() for cell in row.strip("|").split("|"))
        kind = re.match(r"of (reports|sealed messages|batches|chunks)", meaning)
        told.setdefault(kind[1] if kind else "tasks", set()).update(re.findall("`([^`]+)`", codes))
    folder = ROOT / "vectors" / "v1"
    report, sealing, batch = (
        json.loads((folder / f"{name}.json").read_bytes()) for name in ("report", "sealing", "batch")
    )
    occurring = {
        "tasks": CASES,
        "reports": report["bad"],
        "sealed messages": sealing["bad"],
        "batches": batch["bad"],
        "chunks": batch["bad_chunks"],
    }
    assert told == {kind: {case["reason"] for case in cases} - {None} for kind, cases in occurring.items()}
