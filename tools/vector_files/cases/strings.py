"""Cases of strings: trees of few buckets over few strings."""

from __future__ import annotations

from vector_files import Document
from vector_files.cases.case import HALF, QUARTER, Case, over, terms


def _strings(alphabet: str, max_length: int, **changes: bool) -> Document:
    flags = {"trim": False, "nfc": False, "case_fold": False, "other": False}
    return {"domain": {"alphabet": alphabet, "max_length": max_length, **flags, **changes}}


STRINGS = (
    Case(
        "two levels of three buckets over short strings",
        "strings/tree-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_strings("ab", 9),
            "blanket": {"whole": 1, "rest": QUARTER},
            "buckets": 3,
            "levels": 2,
            "tail": 1,
            "first_bits": 4,
            "seed": 7,
        },
        ("", "a", "ba", "abbababba"),
    ),
    Case(
        "words of several limbs, normalized",
        "strings/tree-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_strings("a-z", 40, trim=True, case_fold=True, other=True),
            "blanket": {"whole": 0, "rest": HALF},
            "buckets": 5,
            "levels": 4,
            "tail": 1,
            "first_bits": 16,
            "seed": "0xfedcba9876543210",
        },
        (" Hello", "counterrevolutionaries", "thelongestwordoffortysymbolsinthisexample", "no-letter"),
    ),
    Case(
        "text in bytes, one level",
        "strings/tree-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_strings("bytes", 6),
            "blanket": {"whole": 2, "rest": over(0, 64)},
            "buckets": 4,
            "levels": 1,
            "tail": 0,
            "first_bits": 16,
            "seed": 1,
        },
        ("", "h\u00f6f"),
    ),
)
