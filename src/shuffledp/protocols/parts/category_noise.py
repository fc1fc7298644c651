"""The distribution of what is observed of one category, where the categories of a histogram are independent."""

from __future__ import annotations

from dataclasses import dataclass

from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class Responses:
    """Every user says yes: holders of the category with probability ``own``, others with ``other``."""

    own: Dyadic
    other: Dyadic


@dataclass(frozen=True)
class MissingTokens:
    """One from every holder, and one more from every user except with probability ``absence``."""

    absence: Dyadic


@dataclass(frozen=True)
class LaplaceNoise:
    """The number of holders and noise x with a probability proportional to ratio^|x|."""

    ratio: Dyadic


CategoryNoise = Responses | MissingTokens | LaplaceNoise
