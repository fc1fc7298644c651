"""Colours of curves: a protocol or a trust model has the same colour in every figure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shuffledp.figures.rendering import Theme

_SLOTS = {
    # protocols, by their name in the registry
    "balcer-cheu": 0,
    "cheu": 1,
    "correlated-noise": 2,
    "hadamard-blanket": 3,
    "count-min": 4,
    "privacy-blanket": 5,
    "stability": 6,
    "discrete-laplace": 7,
    "almost-central": 8,
    "split-and-mix": 9,
    "bassily-smith": 10,
    "hadamard-response": 11,
    "unary": 8,
    "shuffler-laplace": 5,
    "shuffler-geometric": 3,
    # trust models
    "shuffled": 0,
    "local": 10,
    "central": 7,
    "counting-shuffler": 4,
    "augmented": 5,
    # calibrations
    "paper": 1,
    "tight": 2,
}
"""Positions in ``Theme.curves``. Names that share a position do not occur in one figure."""


def curve_colours(names: Iterable[str], theme: Theme) -> dict[str, str]:
    """A colour for each name: its own if it is a protocol or a trust model, else the next free one."""
    distinct = list(dict.fromkeys(names))
    chosen: dict[str, int] = {}
    for name in distinct:
        slot = _SLOTS.get(_key(name))
        if slot is not None and slot not in chosen.values():
            chosen[name] = slot
    free = [slot for slot in range(len(theme.curves)) if slot not in chosen.values()] or [0]
    unassigned = [name for name in distinct if name not in chosen]
    chosen |= {name: free[position % len(free)] for position, name in enumerate(unassigned)}
    return {name: theme.curves[chosen[name]] for name in distinct}


def _key(name: str) -> str:
    """The longest key that the label begins with: ``cheu [8], all bits`` has the key ``cheu``."""
    begin = re.sub(r"\s+", "-", name.strip().lower())
    return max((key for key in _SLOTS if re.match(rf"{re.escape(key)}(?![a-z])", begin)), key=len, default="")
