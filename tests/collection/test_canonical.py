"""Signed documents have one form as bytes; everything else is refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.task.canonical import LARGEST_NUMBER, canonical, parse_canonical, portable
from shuffledp.errors import ParameterError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST_NUMBER, LARGEST_NUMBER) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def parse(content: bytes):
    return parse_canonical(content, max_bytes=10_000)


@given(DOCUMENTS)
def test_there_and_back(document):
    assert parse(canonical(document)) == document


@given(DOCUMENTS, st.integers(0, 3))
def test_any_other_form_is_refused(document, style):
    other = [
        json.dumps(document, sort_keys=True, separators=(", ", ":"), ensure_ascii=False),
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True),
        json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False),
        " " + json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
    ][style].encode()
    if other != canonical(document):
        with pytest.raises(ParameterError):
            parse(other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"b":1,"a":2}', "canonical form"),
        (b'{"a":1,"a":1}', "occurs twice"),
        (b'{"a":1.0}', "write it as a string"),
        (b'{"a":1e3}', "write it as a string"),
        (b'{"a":NaN}', "write it as a string"),
        (b'{"a":-0}', "canonical form"),
        (b'{"a":9007199254740992}', "too large"),
        ('{"\u00e9":1}'.encode(), "ASCII"),
        (b'"\\u00e9"', "canonical form"),
        (b'"\\ud800"', "not valid Unicode"),
        (b'"\xff"', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{}{}", "not valid JSON"),
        (b"{}\n", "canonical form"),
        (b"[" * 40 + b"]" * 40, "nested too deeply"),
        (b"[" * 5000, "nested too deeply"),
        (b'"' + b"a" * 20_000 + b'"', "at most 10,000"),
        (b"1" * 6000, "not valid JSON"),
    ],
)
def test_bad_bytes(content, words):
    with pytest.raises(ParameterError, match=words):
        parse(content)


@pytest.mark.parametrize("value", [1.5, math.nan, {1: 2}, {"a": b"b"}, ("a",), 1 << 53, -(1 << 53), "\udc00"])
def test_values_that_no_signed_document_holds(value):
    with pytest.raises(ParameterError):
        canonical(value)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(1 << 200), 1 << 200))
def test_other_numbers_travel_as_text(real, whole):
    told = parse(canonical(portable({"real": real, "whole": (whole,), "flag": True})))
    assert float(told["real"]) == real
    assert told["flag"] is True
    [text] = told["whole"]
    assert (int(text, 16) if isinstance(text, str) else text) == whole
