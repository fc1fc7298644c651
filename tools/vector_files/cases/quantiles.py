"""Cases of quantiles: trees of few bins."""

from __future__ import annotations

from vector_files import Document
from vector_files.cases.case import HALF, NOISE, QUARTER, Case, over, terms


def _bins(lower: str, upper: str, bins: int) -> Document:
    return {"domain": {"lower": lower, "upper": upper, "bins": bins}}


_LITTLE_NOISE = {"ratio": over(31, 8), "flood_shape": "1/1", "flood_ratio": over(31, 8)}  # 1 - ratio is a square

QUANTILES = (
    Case(
        "two levels over three bins",
        "quantiles/uniform-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_bins("0.0", "0.7", 3),
            "branching": [2, 2],
            "blankets": [{"whole": 1, "rest": over(0, 64)}, {"whole": 0, "rest": QUARTER}],
        },
        ("0.0", "0.3", "0.4666666666666666", "0.4666666666666667", "0.7"),
    ),
    Case(
        "three levels over eight bins",
        "quantiles/uniform-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_bins("-1.0", "4.0", 8),
            "branching": [2, 2, 2],
            "blankets": [{"whole": 0, "rest": HALF}, {"whole": 0, "rest": HALF}, {"whole": 1, "rest": QUARTER}],
        },
        ("-1.0", "0.25", "4.0"),
    ),
    Case(
        "one level, always one added",
        "quantiles/uniform-blanket",
        {
            "terms": terms(6, "1.0", "0.99"),
            **_bins("0.0", "10.0", 4),
            "branching": [4],
            "blankets": [{"whole": 1, "rest": over(0, 64)}],
        },
        ("2.4999999999999996", "2.5", "10.0"),
    ),
    Case(
        "two levels over three bins",
        "quantiles/correlated-noise",
        {"terms": terms(2, "1.0", "0.99"), **_bins("0.0", "0.7", 3), "branching": [2, 2], **_LITTLE_NOISE},
        ("0.0", "0.4666666666666667"),
        4,
    ),
    Case(
        "one level over two bins",
        "quantiles/correlated-noise",
        {"terms": terms(2, "1.0", "0.99"), **_bins("-1.0", "4.0", 2), "branching": [2], **NOISE},
        ("1.4999999999999998", "1.5"),
        3,
    ),
)
