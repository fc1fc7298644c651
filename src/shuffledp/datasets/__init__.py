"""Bundled data to try things on: invented, documented, and small."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMMUTE_MODES", "commute_path"]

COMMUTE_MODES = (
    "walk",
    "bicycle",
    "e-scooter",
    "bus",
    "tram",
    "train",
    "car",
    "shared car",
    "motorcycle",
    "ferry",
    "cable car",
    "worked from home",
)
"""Every answer the commute questionnaire offers; nobody in the data took the cable car."""


def commute_path() -> Path:
    """A gzipped CSV of 25,000 invented commuters: person, district, mode, owns_car, minutes.

    Made by ``tools/make_commute.py``; no real person is in it.
    """
    return Path(__file__).parent / "commute.csv.gz"
