"""Texts of tasks: fixed lists of code points, whatever Unicode tables the interpreter has."""

import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.collection.task.display_strings import (
    NORMALIZED,
    REFUSED,
    check_category_names,
    check_string,
    comparable,
)
from shuffledp.errors import ParameterError

PAGE = (Path(__file__).parents[2] / "docs" / "collection" / "task.md").read_text(encoding="utf-8")
CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"}
SINCE_UNICODE_15 = set(range(0x13439, 0x13440))
POINTS = range(0x110000)


def points(ranges):
    return {point for first, last in ranges for point in range(first, last + 1)}


def test_what_is_refused_is_what_the_categories_say():
    """For every assigned code point; unassigned ones pass, but those that Unicode 15 has assigned since."""
    refused = points(REFUSED)
    for point in POINTS:
        category = unicodedata.category(chr(point))
        if category == "Cn":
            assert point not in refused or point in SINCE_UNICODE_15, hex(point)
        else:
            assert (point in refused) == (category in CATEGORIES and point != 0x20), hex(point)


def test_each_code_point_is_refused_or_passes():
    refused = points(REFUSED)
    passing = "".join(chr(point) for point in POINTS if point not in refused)
    check_string("name", passing, min_length=1, max_length=len(passing))
    for first, last in REFUSED:
        for point in (first, last):
            with pytest.raises(ParameterError, match=rf"U\+{point:04X}, which is not allowed"):
                check_string("name", f"a{chr(point)}b", min_length=1, max_length=10)


def test_what_is_normalized_is_assigned():
    """So that NFC of it never changes, by the stability policy of Unicode."""
    for point in points(NORMALIZED):
        assert unicodedata.category(chr(point)) != "Cn", hex(point)


@pytest.mark.parametrize(
    ("heading", "ranges"), [("Characters that are refused", REFUSED), ("Names that look the same", NORMALIZED)]
)
def test_the_page_has_the_same_lists(heading, ranges):
    section = PAGE[PAGE.index(f"### {heading}\n") :]
    words = re.search(r"\n\n((?:    [0-9A-F -]+\n)+)", section)[1].split()
    assert words == [f"{a:04X}" if a == b else f"{a:04X}-{b:04X}" for a, b in ranges]
    for lists in (REFUSED, NORMALIZED):
        assert all(last < following for (_, last), (following, _) in pairwise(lists))


@given(st.text(st.sampled_from([chr(point) for point in sorted(points(NORMALIZED))]), max_size=8))
def test_within_the_ranges_it_is_nfc(name):
    assert comparable(name) == unicodedata.normalize("NFC", name)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_names_are_compared_alike_however_often(name):
    assert comparable(comparable(name)) == comparable(name)


@pytest.mark.parametrize("point", [0x0378, 0x0897, 0x1ACF, 0x105C9, 0x10FFFF, 0x1FAE8])
def test_code_points_of_later_versions_stay_as_they_are(point):
    """U+0897 and U+1ACF became marks, U+105C9 a letter with a decomposition, after Unicode 14."""
    for name in (chr(point), f"a{chr(point)}\u0323", f"\u0301{chr(point)}"):
        assert comparable(name) == name


def test_names_are_different():
    check_category_names(["bus", "Bus", "b us", "\u0628", "\u092c"])
    for pair in (["a", "a"], ["\u00e9", "e\u0301"], ["\u1e69", "s\u0307\u0323"], ["\u03ac", "\u1f71"]):
        with pytest.raises(ParameterError, match="look the same"):
            check_category_names(pair)
