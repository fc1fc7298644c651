"""Randomizer cases of count protocols."""

from __future__ import annotations

from vector_files.cases.case import EIGHTH, HALF, NOISE, QUARTER, USUAL, Case, local, over, terms

COUNTS = (
    Case(
        "padded",
        "count/balcer-cheu",
        {"noise": {**terms(4, "1.0", "0.5"), "absence": QUARTER}, "padded": True},
        (0, 1),
    ),
    Case(
        "not padded, half of the users honest, a probability over 2^64",
        "count/balcer-cheu",
        {"noise": {**terms(9, "1.0", "0.9", "0.5"), "absence": over(0xD6BD091E8D90E00, 64)}, "padded": False},
        (0, 1),
    ),
    Case("an eighth flipped", "count/cheu", {"terms": terms(5, "1.0", "0.5"), "flip": EIGHTH}, (0, 1)),
    Case("a fair coin", "count/cheu", {"terms": terms(2, "1.0", "0.5"), "flip": HALF}, (0, 1)),
    Case(
        "signed",
        "count/correlated-noise",
        {"terms": terms(2, "1.0", "0.5"), **NOISE, "encoding": "signed"},
        (0, 1),
        5,
    ),
    Case(
        "unary, two of five users honest",
        "count/correlated-noise",
        {"terms": terms(5, "1.0", "0.9", "0.4"), **NOISE, "flood_shape": "1/1", "encoding": "unary"},
        (0, 1),
        3,
    ),
    Case(
        "three bits",
        "count/pure-sum",
        {
            "terms": terms(4, "3.0", "0.0"),
            "weights": [hex(weight << 61) for weight in (1, 3, 3, 1)],
            "mix": QUARTER,
            "certified_users": 3,
        },
        (0, 1),
    ),
    Case(
        "one bit",
        "count/pure-sum",
        {"terms": terms(2, "3.0", "0.0"), "weights": [hex(1 << 63)] * 2, "mix": HALF, "certified_users": 2},
        (0, 1),
    ),
    Case("half blind", "count/randomized-response", {"terms": local("1.25"), "blanket": HALF}, (0, 1)),
    Case("a probability over 2^64", "count/randomized-response", {"terms": local("1.0"), "blanket": USUAL}, (0, 1)),
)
