"""Cases with calibrated parameters, for protocols whose delta is an exact sum; their reports are not enumerated."""

from __future__ import annotations

from vector_files.cases.case import Case, categories, interval, over, terms

_TERMS = terms(400, "1.0", "2e-06", "0.75")  # calibrated for half of this delta, so that rounding has no effect
_RATIO = over(0xA33B993A39755800, 64)

CALIBRATED = (
    Case(
        "as calibrated",
        "count/balcer-cheu",
        {"noise": {**_TERMS, "absence": over(0x1D69839E02DA4900, 64)}, "padded": True},
        (),
    ),
    Case(
        "as calibrated",
        "count/correlated-noise",
        {
            "terms": _TERMS,
            "ratio": _RATIO,
            "flood_shape": "8529/500",
            "flood_ratio": over(0xF1EEC6F6DE7CA800, 64),
            "encoding": "signed",
        },
        (),
        741,
    ),
    Case(
        "as calibrated",
        "histogram/balcer-cheu",
        {"noise": {**_TERMS, "absence": over(0x2833125F47036E00, 64)}, **categories(5), "padded": False},
        (),
    ),
    Case(
        "as calibrated",
        "histogram/correlated-noise",
        {
            "terms": _TERMS,
            "ratio": _RATIO,
            "flood_shape": "1999/125",
            "flood_ratio": over(0xF1EEE0176C5FA800, 64),
            **categories(5),
        },
        (),
        817,
    ),
    Case(
        "as calibrated",
        "histogram/count-min",
        {
            "terms": _TERMS,
            "gamma": over(0x2833127B76A13400, 64),
            "buckets": 5,
            "hashes": [[3, 4]],
            **categories(5),
        },
        (),
    ),
    Case(
        "as calibrated",
        "histogram/fake-users",
        {"terms": _TERMS, "flip": over(0x1991F6DE09859F00, 64), "fake_rows": 1, **categories(5)},
        (),
    ),
    Case(
        "as calibrated",
        "histogram/solh",
        {
            "terms": terms(120, "2.0", "2e-05"),
            "blanket": over(0x344E672F4DE6A000, 64),
            "buckets": 3,
            **categories(7),
        },
        (),
    ),
    Case(
        "as calibrated",
        "histogram/uniform-blanket",
        {"terms": _TERMS, "blanket": {"whole": 0, "rest": over(0xB2DC6C87865DF000, 64)}, **categories(5)},
        (),
    ),
    Case(
        "as calibrated",
        "sum/split-and-mix",
        {
            "terms": _TERMS,
            "levels": 20,
            "ratio": over(0xF383C58539353800, 64),
            "messages": 10,
            "modulus": 16384,
            **interval("-1.0", "4.0"),
        },
        (),
    ),
)
