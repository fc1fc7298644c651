"""Strings over a public alphabet: how alphabets are written, indices, normalization, refusals."""

import itertools

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.domain.strings import alphabet_pattern, parse_alphabet
from shuffledp.errors import DomainError


@pytest.mark.parametrize(
    ("alphabet", "symbols"),
    [
        ("a-e", "abcde"),
        (r"a-c\-", "abc-"),
        (r"\-\\", "-\\"),
        (r"\a-\c", "abc"),
        ("lowercase", "abcdefghijklmnopqrstuvwxyz"),
        ("hostname", "abcdefghijklmnopqrstuvwxyz0123456789-."),
        (r"\hostname", "hostname"),
        ("ba", "ba"),
        ("é-ë", "éêë"),
        ("bytes", None),
    ],
)
def test_alphabets(alphabet, symbols):
    assert parse_alphabet(alphabet) == symbols
    domain = sdp.Strings(alphabet, 2)
    assert domain.symbols == symbols
    assert sdp.Strings(domain.alphabet, 2) == domain  # the canonical way to write it is one


@pytest.mark.parametrize("bad", ["", "a-", "-a", "z-a", "aba", "a\\", "a--b", "\x01", "\ud800", 7])
def test_an_alphabet_that_is_none_is_refused_in_one_line(bad):
    with pytest.raises(DomainError) as refused:
        sdp.Strings(bad, 2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("symbols", ["abcdz-", "hostname", "a-c", "\\"])
def test_the_canonical_pattern_gives_the_same_symbols(symbols):
    assert parse_alphabet(alphabet_pattern(symbols)) == symbols


@pytest.mark.parametrize("length", [-1, 65, 1000, True, 2.0, None])
def test_impossible_lengths_are_refused(length):
    with pytest.raises(DomainError):
        sdp.Strings("bytes", length)


@pytest.mark.parametrize("alphabet", ["a", "ab", "a-c", "".join(map(chr, range(0x4E00, 0x4E00 + 40)))])
def test_every_string_has_its_own_index(alphabet):
    domain = sdp.Strings(alphabet, 3)
    listed = ["".join(s) for m in range(4) for s in itertools.product(domain.symbols, repeat=m)]
    assert domain.size == len(listed)
    assert [domain.encode(text) for text in listed] == list(range(len(listed)))
    assert [domain.string(index) for index in range(len(listed))] == listed


def test_text_in_bytes():
    domain = sdp.Strings("bytes", 6)
    for text in ("", "abc", "höf", "日本"):
        assert domain.string(domain.encode(text)) == text
    assert domain.find("日本語") is None  # nine bytes
    assert domain.find("\ud800") is None
    assert domain.find(b"\xff") is None
    assert domain.string(domain.index_of(1, 0xFF)) is None


def test_values_are_normalized_as_the_domain_says():
    assert sdp.Strings("a-z", 5).find(" Ab ") is None
    assert sdp.Strings("a-z", 5, trim=True, case_fold=True).parse(" Ab ") == "ab"
    composed = sdp.Strings("é", 2, nfc=True)
    assert composed.parse("e\u0301") == "é"
    assert sdp.Strings("é", 2).find("e\u0301") is None


def test_other_strings_become_the_empty_one():
    domain = sdp.Strings("a-c", 2, other=True)
    assert domain.encode_all(["a", "abc", "x", ""]).tolist() == [1, 0, 0, 0]
    assert domain.find(None) is None


def test_a_value_outside_is_refused_with_an_example_and_a_remedy():
    domain = sdp.Strings("a-c", 2)
    with pytest.raises(DomainError, match=r"2 of 3 values .*'abc'.*other=True"):
        domain.encode_all(["a", "abc", "x"])
    with pytest.raises(DomainError, match="missing value"):
        domain.encode(None)


def test_indices_have_the_type_that_they_need():
    assert sdp.Strings("a-z", 13).encode_all(["z" * 13]).dtype == np.int64
    large = sdp.Strings("a-z", 14).encode_all(["z" * 14, "a"])
    assert large.dtype == object
    assert large[0] == sdp.Strings("a-z", 14).size - 1
