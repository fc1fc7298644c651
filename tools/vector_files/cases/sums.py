"""Randomizer cases of sum protocols; values are written as their shortest decimal."""

from __future__ import annotations

from vector_files.cases.case import EIGHTH, HALF, QUARTER, Case, interval, local, over, terms

SUMS = (
    Case(
        "between levels",
        "sum/cheu",
        {"terms": terms(6, "1.0", "0.9"), "bits": 3, "flip": EIGHTH, **interval("-1.0", "4.0")},
        ("-1.0", "0.25", "1.5", "4.0"),
    ),
    Case(
        "whole numbers that are levels",
        "sum/cheu",
        {"terms": terms(6, "1.0", "0.9"), "bits": 6, "flip": QUARTER, **interval("-1.0", "2.0", whole=True)},
        ("-1.0", "0.0", "2.0"),
    ),
    Case(
        "between levels",
        "sum/privacy-blanket",
        {"terms": terms(6, "1.0", "0.9"), "levels": 2, "blanket": QUARTER, **interval("-1.0", "4.0")},
        ("-1.0", "0.25", "0.3", "4.0"),
    ),
    Case(
        "whole numbers that are no levels",
        "sum/privacy-blanket",
        {"terms": terms(6, "1.0", "0.9"), "levels": 2, "blanket": HALF, **interval("0.0", "3.0", whole=True)},
        ("0.0", "1.0", "3.0"),
    ),
    Case(
        "one honest user of two, whose noise is geometric; no task may say so",
        "sum/split-and-mix",
        {
            "terms": terms(2, "1.0", "0.5", "0.5"),
            "levels": 2,
            "ratio": HALF,
            "messages": 3,
            "modulus": 4,
            **interval("-1.0", "4.0"),
        },
        ("-1.0", "0.25", "4.0"),
    ),
    Case(
        "19 honest users",
        "sum/split-and-mix",
        {
            "terms": terms(19, "1.0", "0.9"),
            "levels": 2,
            "ratio": over((1 << 38) - 3**19, 38),
            "messages": 4,
            "modulus": 16,
            **interval("-1.0", "4.0"),
        },
        ("-1.0", "0.25", "4.0"),
    ),
    Case(
        "two levels",
        "sum/almost-central",
        {
            "terms": terms(2, "1.0", "0.75"),
            "noise": {"levels": 1, "ratio": over(3, 2), "shape": 2, "step": "0.5", "spare": "1.0"},
            **interval("-1.0", "4.0"),
        },
        ("-1.0", "0.25", "4.0"),
        4,
    ),
    Case(
        "three levels",
        "sum/almost-central",
        {
            "terms": terms(2, "2.0", "0.99"),
            "noise": {"levels": 2, "ratio": over(3, 2), "shape": 2, "step": "0.25", "spare": "4.0"},
            **interval("0.0", "2.0", whole=True),
        },
        ("0.0", "2.0"),
        3,
    ),
    Case(
        "an interval",
        "sum/duchi",
        {"terms": local("1.25"), "blanket": HALF, **interval("-1.0", "4.0")},
        ("-1.0", "0.25", "0.3", "4.0"),
    ),
    Case(
        "whole numbers",
        "sum/duchi",
        {"terms": local("2.0"), "blanket": QUARTER, **interval("0.0", "3.0", whole=True)},
        ("0.0", "1.0", "3.0"),
    ),
    Case(
        "windows that overlap",
        "sum/piecewise",
        {"terms": local("1.25"), "levels": 2, "step": 1, "window": 2, "outside": QUARTER, **interval("-1.0", "4.0")},
        ("-1.0", "0.25", "4.0"),
    ),
    Case(
        "windows apart",
        "sum/piecewise",
        {
            "terms": local("2.5"),
            "levels": 1,
            "step": 3,
            "window": 1,
            "outside": QUARTER,
            **interval("0.0", "1.0", whole=True),
        },
        ("0.0", "1.0"),
    ),
    Case(
        "a margin of one",
        "sum/local-laplace",
        {"terms": local("1.5"), "levels": 2, "ratio": HALF, "margin": 1, **interval("-1.0", "4.0")},
        ("-1.0", "0.25", "4.0"),
    ),
    Case(
        "no margin",
        "sum/local-laplace",
        {"terms": local("2.0"), "levels": 1, "ratio": QUARTER, "margin": 0, **interval("0.0", "1.0", whole=True)},
        ("0.0", "1.0"),
    ),
)
