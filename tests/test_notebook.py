"""The HTML of notebooks: well-formed, and every value is escaped."""

from xml.etree import ElementTree

import pytest

from shuffledp.display import printable, shortened
from shuffledp.notebook import card, cell, facts, folded, note, table

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></tr></table></div><style>*{display:none}</style>",
    "a & b &amp; 'c' \"d\"",
    "\x00\x1b[31m\ud800\ufffe",
]


def texts(content, tag):
    """The strings of all elements with this tag; fails unless the HTML is well-formed."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(content).iter(tag)]


@pytest.mark.parametrize("value", HOSTILE)
def test_values_are_shown_and_never_markup(value):
    content = card(
        value,
        table([value, "n"], [[value, value]]),
        note(value),
        facts([(value, value)]),
        folded(value, note(value)),
        warnings=[value],
    )
    content.encode()  # a notebook sends UTF-8
    assert texts(content, "h4") == texts(content, "summary") == [printable(value)]
    assert texts(content, "td") == [printable(value)] * 3
    assert texts(content, "p") == [printable(value)] * 3
    assert {element.tag for element in ElementTree.fromstring(content).iter()} <= {
        *("div", "style", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "details", "summary")
    }
    attributes = [element.attrib for element in ElementTree.fromstring(content).iter()]
    assert all(set(each) <= {"class"} for each in attributes)
    assert {name for each in attributes for name in each.values()} <= {"shuffledp", "words", "note", "warning"}


def test_what_is_empty_is_left_out():
    assert note("") == ""
    assert "<h4>" not in card("", note("x"))


def test_words_are_aligned_left_and_numbers_right():
    content = ElementTree.fromstring(table(["name", "number"], [["a", "1"]]))
    assert [element.get("class") for element in content.iter("td")] == ["words", None]
    assert [element.get("class") for element in content.iter("th")] == ["words", None]


def test_a_row_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        table(["one", "two"], [["a"]])


def test_long_names_are_shortened():
    assert cell("x" * 10_000) == "x" * 59 + "…"
    assert cell("x" * 60) == "x" * 60
    assert shortened("abc", 3) == "abc"
