"""Strings in the web client: normalized, numbered and hashed as in Python; and the page that asks for one."""

import dataclasses
import json
import random
import sys
import unicodedata
from contextlib import contextmanager
from itertools import product

import pytest
from survey_rounds import Round

import shuffledp as sdp
from shuffledp.collection.task.canonical import portable
from shuffledp.protocols.documents import to_document

# white space that only one of str.strip and String.trim removes, case that only folding removes, and composition
NASTY = [
    *("", " ", "\ufeffa", "\x1ca\x1f", "\x85a\u200b", "\u180ea", "\u3000a\u2028", "a\x00", "\ta\n", " a b "),
    *("\u00df", "\u1e9e", "SS", "\u017f", "\ufb00", "\u0149", "\u0131", "I", "\u0130", "i\u0307", "\u212a", "K"),
    *("\u03a3", "\u03c2", "\u03c3", "\u03a3\u0391\u03a3", "\u1fb3", "\u0390", "\u1fd3", "\u0587"),
    *("\u13a0", "\uab70", "\u13f8", "\U00010400", "\U0001f600", "\U0001f469\u200d\U0001f469", "\U0010ffff"),
    *("\u00e9", "e\u0301", "\u00c5", "\u212b", "A\u030a", "\ufb01", "\ud55c", "\u1112\u1161\u11ab"),
    *("q\u0307\u0323", "q\u0323\u0307", "\u0345\u0301", "\ud800", "a\udc00b"),
    *("-", "\\", "a-b", "__proto__", "constructor"),
]
TREE = {"buckets": 4093, "levels": 24, "tail": 5, "first_bits": 16, "seed": 0xFEDCBA9876543210}
ALPHABETS = [
    *(("a-z", 24), ("a-z", 0), ("a", 512), ("ab", 512), ("hostname", 40), ("bytes", 64), ("bytes", 3), (r"\bytes", 8)),
    *(("zyx", 5), ("\u03b1-\u03c9a-z \u00df", 40), (r"\-\\a", 9), ("\u4e00-\u9fff", 30), ("a-z0-9_", 98)),
    *(("\U00010400-\U0001044f", 20), ("\u202ea", 9), ("bytes", 64)),
]
RULES = [
    dict(zip(("trim", "nfc", "case_fold", "other"), flags, strict=True)) for flags in product([False, True], repeat=4)
]
DOMAINS = [sdp.Strings(*words, **rules) for words, rules in zip(ALPHABETS, RULES, strict=True)]
MARKS = "aeAE\u0131\u0130\u03c3\u03c2\u03a3\u00df\u1e9e\u0301\u0323\u0307\u0345\u030a \u00a0\u1112\u1161\u11ab"
ASSIGNED = [point for point in range(sys.maxunicode + 1) if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")]
# ideographs and syllables are many and alike: of those that are composed already, a 50th
FEWER = [
    point
    for point in ASSIGNED
    if point < 0x3400
    or unicodedata.category(chr(point)) != "Lo"
    or not unicodedata.is_normalized("NFC", chr(point))
    or random.randrange(50) == 0
]
CHARACTERS = pytest.mark.parametrize(
    "points", [FEWER, pytest.param(ASSIGNED, marks=pytest.mark.slow)], ids=["some", "all"]
)


def protocol_of(domain):
    kind = sdp.find("strings", "tree-blanket")
    return kind.calibrate(users=1000, epsilon=1.0, delta=1e-6, domain=domain, **TREE)


@pytest.fixture
def found(web, tmp_path):
    def run(cases):
        """What the web client says of each domain and its texts."""
        documents = [
            {"protocol": portable(to_document(protocol_of(domain))), "texts": texts} for domain, texts in cases
        ]
        (tmp_path / "cases.json").write_text(json.dumps(documents))
        done = web.run_node("test/strings.ts", tmp_path / "cases.json", capture_output=True, encoding="utf-8")
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    return run


def texts_of(domain, count):
    """Nasty strings, strings of the alphabet, and such of any characters that both sides know."""
    symbols = domain.symbols or "".join(map(chr, range(0x20, 0x250)))
    lengths = [random.randint(0, min(domain.max_length + 2, 60)) for _ in range(count)]
    own = ["".join(random.choices(symbols, k=length)) for length in lengths]
    folded = [text.swapcase() for text in own[: count // 3]] + [f" {text}\n" for text in own[: count // 3]]
    wild = ["".join(map(chr, random.choices(ASSIGNED, k=random.randint(1, 12)))) for _ in range(2 * count)]
    marks = ["".join(random.choices(MARKS, k=8)) for _ in range(2 * count)]
    return [*NASTY, *own, *folded, *wild, *marks]


def expected(domain, texts):
    normalized = [domain.normalized(text) for text in texts]
    indices = [sdp.Strings.find(domain, text) for text in texts]
    numbers = [domain._number(text) for text in normalized]
    tree = protocol_of(domain).tree
    return {
        "normalized": normalized,
        "counted": [None if number is None else text for text, number in zip(normalized, numbers, strict=True)],
        "numbers": [
            None if number is None else [length, hex(rest)]
            for number in numbers
            for length, rest in [(0, 0) if number is None else domain.length_and_number(number)]
        ],
        "cells": [
            "domain" if index is None else tree.cells([tree.word(index)])[0].tolist() for index in indices[:2000]
        ],
    }  # fmt: skip


@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_strings_are_those_of_python(found, count):
    """The random ones are drawn anew in every run; a failure shows the string."""
    cases = [(domain, texts_of(domain, count)) for domain in DOMAINS]
    for (domain, texts), answer in zip(cases, found(cases), strict=True):
        for part, values in expected(domain, texts).items():
            for text, value, other in zip(texts, values, answer[part], strict=True):
                assert value == other, (domain, part, text)


@CHARACTERS
def test_every_character_is_normalized_as_in_python(found, points):
    domain = sdp.Strings("bytes", 64, trim=True, nfc=True, case_fold=True)
    texts = [chr(point) for point in points]
    (answer,) = found([(domain, texts)])

    def differences(normalize):
        return [hex(ord(t)) for t, theirs in zip(texts, answer["normalized"], strict=True) if normalize(t) != theirs]

    assert differences(domain.normalized) == []
    faults = {
        "lowercase": lambda text: unicodedata.normalize("NFC", text.strip().lower()),
        "JavaScript's trim": lambda text: domain.normalized(text.strip("\ufeff")),
        "no trim": dataclasses.replace(domain, trim=False).normalized,
        "no composition": dataclasses.replace(domain, nfc=False).normalized,
    }
    assert [name for name, normalize in faults.items() if not differences(normalize)] == []


@CHARACTERS
def test_every_character_is_normalized_as_in_python_in_chromium(page, site, bundle, points):
    directory, address = site
    (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")
    page.goto(address)
    page.add_script_tag(url="test.js", type="module")
    page.wait_for_function("() => 'normalizedStrings' in globalThis")
    domain = sdp.Strings("bytes", 64, trim=True, nfc=True, case_fold=True)
    texts = [f"a{chr(point)}" for point in points]
    normalized = page.evaluate(
        "([domain, texts]) => normalizedStrings(domain, texts)", [dataclasses.asdict(domain), texts]
    )
    wrong = [text for text, theirs in zip(texts, normalized, strict=True) if domain.normalized(text) != theirs]
    assert wrong == []


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    round_ = Round.prepare(tmp_path_factory.mktemp("round"))
    yield round_
    round_.stop()


class TestPage:
    @pytest.fixture
    def opened(self, prepared, context, tmp_path):
        @contextmanager
        def asking(domain, **options):
            signed = prepared.task("strings/tree-blanket", domain={"domain": domain})
            with prepared.served(signed, tmp_path / "site", **options) as (origin, _):
                page = context.new_page()
                page.goto(origin)
                page.wait_for_selector("form")
                yield page

        return asking

    def test_says_what_is_counted(self, opened):
        with opened(sdp.Strings("a-z ", 12, case_fold=True, trim=True, other=True)) as page:
            field, said = page.get_by_label("How did you get to work today?"), page.locator("form [role=status]")
            assert "At most 12 of these characters: \u2068a\u2013z \u2423\u2069." in page.inner_text("form")
            for typed, shown in {
                "tram": "",
                " On Foot ": "It is counted as: on foot",
                "STRASSE": "It is counted as: strasse",
                "Straße": "It is counted as: strasse",
                "U-Bahn": "It is counted as “something else”.",
                "far too long a text": "It is counted as “something else”.",
            }.items():
                field.fill(typed)
                page.wait_for_function(
                    "(shown) => document.querySelector('form [role=status]').textContent === shown", arg=shown
                )
            field.fill("   ")
            page.get_by_role("button").click()
            page.wait_for_function("() => document.querySelector('#error').textContent.startsWith('Please enter')")
            assert page.evaluate("document.body.dataset.state") == "question"
            assert said.count() == 1

    def test_refuses_what_is_outside(self, opened):
        with opened(sdp.Strings("bytes", 4), language="de") as page:
            field, error = page.get_by_label("How did you get to work today?"), page.locator("#error")
            assert "erfundenen Codes" in page.inner_text("main")
            for typed in ("", "straß"):
                field.fill(typed)
                page.evaluate("() => { document.querySelector('#error').textContent = ''; }")
                page.get_by_role("button").click()
                page.wait_for_function("() => document.querySelector('#error').textContent !== ''")
                assert "Höchstens 4 Zeichen" in error.inner_text()
                assert page.evaluate("document.activeElement.id") == "answer"
            field.fill("Zug")
            page.get_by_role("button").click()
            page.wait_for_function("() => document.body.dataset.state === 'waiting'")  # sealed; no server runs
