"""Randomizer cases of histogram protocols."""

from __future__ import annotations

from vector_files.cases.case import EIGHTH, HALF, NOISE, QUARTER, Case, categories, local, over, terms

HISTOGRAMS = (
    Case(
        "three categories",
        "histogram/balcer-cheu",
        {
            "noise": {**terms(4, "1.0", "0.75"), "absence": QUARTER},
            **categories(3, "bus", "v\u00e9lo", "car"),
            "padded": False,
        },
        (0, 1, 2),
    ),
    Case(
        "padded",
        "histogram/balcer-cheu",
        {"noise": {**terms(4, "1.0", "0.75"), "absence": QUARTER}, **categories(2), "padded": True},
        (0, 1),
    ),
    Case(
        "a single category",
        "histogram/balcer-cheu",
        {"noise": {**terms(4, "1.0", "0.75"), "absence": QUARTER}, **categories(1), "padded": False},
        (0,),
    ),
    Case(
        "ones",
        "histogram/cheu",
        {"terms": terms(5, "1.0", "0.75"), "flip": EIGHTH, **categories(3), "form": "ones"},
        (0, 2),
    ),
    Case(
        "bits",
        "histogram/cheu",
        {"terms": terms(5, "1.0", "0.75"), "flip": EIGHTH, **categories(2), "form": "bits"},
        (0, 1),
    ),
    Case(
        "two rows of two buckets",
        "histogram/count-min",
        {
            "terms": terms(6, "1.0", "0.9"),
            "gamma": QUARTER,
            "buckets": 2,
            "hashes": [[0, 1], [1, 2]],
            **categories(3),
        },
        (0, 1, 2),
    ),
    Case(
        "one row, a prime above the domain",
        "histogram/count-min",
        {"terms": terms(6, "1.0", "0.9"), "gamma": HALF, "buckets": 3, "hashes": [[2, 4]], **categories(4)},
        (0, 3),
    ),
    Case(
        "two vectors of two bits",
        "histogram/hadamard-blanket",
        {
            "terms": terms(6, "1.0", "0.9"),
            "blanket": {"whole": 0, "rest": HALF},
            "hashes": 2,
            **categories(2),
        },
        (0, 1),
    ),
    Case(
        "one vector of three bits",
        "histogram/hadamard-blanket",
        {
            "terms": terms(6, "1.0", "0.9"),
            "blanket": {"whole": 1, "rest": over(0, 0)},
            "hashes": 1,
            **categories(4),
        },
        (0, 2),
    ),
    Case(
        "three categories",
        "histogram/shuffled-k-rr",
        {"terms": terms(6, "1.0", "0.5"), "blanket": QUARTER, **categories(3)},
        (0, 2),
    ),
    Case(
        "a single category",
        "histogram/shuffled-k-rr",
        {"terms": terms(6, "1.0", "0.5"), "blanket": over(0, 64), **categories(1)},
        (0,),
    ),
    Case(
        "fewer buckets than categories",
        "histogram/solh",
        {"terms": terms(6, "1.0", "0.9"), "blanket": QUARTER, "buckets": 2, **categories(3)},
        (0, 2),
    ),
    Case(
        "more buckets than categories",
        "histogram/solh",
        {"terms": terms(6, "1.0", "0.9"), "blanket": HALF, "buckets": 3, **categories(2)},
        (0, 1),
    ),
    Case(
        "one added and sometimes two",
        "histogram/uniform-blanket",
        {"terms": terms(6, "1.0", "0.9"), "blanket": {"whole": 1, "rest": QUARTER}, **categories(3)},
        (0, 2),
    ),
    Case(
        "always two added",
        "histogram/uniform-blanket",
        {"terms": terms(6, "1.0", "0.9"), "blanket": {"whole": 2, "rest": over(0, 64)}, **categories(2)},
        (0, 1),
    ),
    Case(
        "sometimes one added",
        "histogram/hashed-blanket",
        {
            "terms": terms(6, "1.0", "0.9"),
            "blanket": {"whole": 0, "rest": QUARTER},
            "buckets": 2,
            **categories(3),
        },
        (0, 2),
    ),
    Case(
        "always one added, three buckets",
        "histogram/hashed-blanket",
        {
            "terms": terms(6, "1.0", "0.9"),
            "blanket": {"whole": 1, "rest": over(0, 64)},
            "buckets": 3,
            **categories(2),
        },
        (0, 1),
    ),
    Case(
        "one fake row",
        "histogram/fake-users",
        {"terms": terms(6, "1.0", "0.9"), "flip": EIGHTH, "fake_rows": 1, **categories(2)},
        (0, 1),
    ),
    Case(
        "two fake rows, a single category",
        "histogram/fake-users",
        {"terms": terms(6, "1.0", "0.9"), "flip": QUARTER, "fake_rows": 2, **categories(1)},
        (0,),
    ),
    Case(
        "two categories",
        "histogram/correlated-noise",
        {"terms": terms(2, "1.0", "0.9"), **NOISE, **categories(2)},
        (0, 1),
        3,
    ),
    Case(
        "a single category",
        "histogram/correlated-noise",
        {"terms": terms(2, "1.0", "0.9"), **NOISE, "flood_shape": "1/1", **categories(1)},
        (0,),
        3,
    ),
    Case("three categories", "histogram/k-rr", {"terms": local("2.5"), "blanket": QUARTER, **categories(3)}, (0, 2)),
    Case(
        "a single category",
        "histogram/k-rr",
        {"terms": local("1.0"), "blanket": over(0, 0), **categories(1)},
        (0,),
    ),
    Case(
        "three categories",
        "histogram/unary",
        {"terms": local("1.25"), "own_one": HALF, "other_one": QUARTER, **categories(3)},
        (0, 2),
    ),
    Case(
        "a single category",
        "histogram/unary",
        {"terms": local("4.0"), "own_one": over(7, 3), "other_one": EIGHTH, **categories(1)},
        (0,),
    ),
    Case(
        "two buckets",
        "histogram/local-hashing",
        {"terms": local("2.0"), "blanket": QUARTER, "hashes": {"prime": 3, "buckets": 2}, **categories(3)},
        (0, 2),
    ),
    Case(
        "a larger prime than the domain needs",
        "histogram/local-hashing",
        {"terms": local("1.5"), "blanket": HALF, "hashes": {"prime": 5, "buckets": 3}, **categories(2)},
        (0, 1),
    ),
    Case(
        "one block",
        "histogram/hadamard-response",
        {"terms": local("2.0"), "blanket": QUARTER, "blocks": 1, **categories(3)},
        (0, 1, 2),
    ),
    Case(
        "two blocks",
        "histogram/hadamard-response",
        {"terms": local("2.0"), "blanket": HALF, "blocks": 2, **categories(4)},
        (0, 3),
    ),
    Case(
        "four rows",
        "histogram/bassily-smith",
        {"terms": local("2.0"), "blanket": QUARTER, **categories(3)},
        (0, 1, 2),
    ),
    Case(
        "a single category",
        "histogram/bassily-smith",
        {"terms": local("1.25"), "blanket": HALF, **categories(1)},
        (0,),
    ),
)
