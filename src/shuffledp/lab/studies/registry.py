"""The registry of studies, which are imported on demand."""

from __future__ import annotations

from importlib import import_module

from shuffledp.errors import UnknownNameError
from shuffledp.lab.studies.study import Study

STUDIES: dict[str, str] = {
    "table1": "table1",
    "table2": "table2",
    "survey": "survey",
    "theorem11": "theorem11",
    "theorem12": "theorem12",
    "structure": "structure",
    "bounds": "bounds",
    "calibration": "calibration",
    "amplification": "amplification",
    "frontier": "frontier",
    "open-domain": "open_domain",
    "published": "published",
}
"""The module of each study by its name, in the order of the index page."""


def find_study(name: str) -> Study:
    """The study with this name."""
    if name not in STUDIES:
        raise UnknownNameError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}, or all.", name=name)
    study: Study = import_module(f"shuffledp.lab.studies.{STUDIES[name]}").STUDY
    return study
