"""Distributions of the observed number of one category, for histograms with independent categories."""

from __future__ import annotations

from dataclasses import dataclass

from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class Responses:
    """A 1 from every holder with probability ``own``, and from every other user with probability ``other``."""

    own: Dyadic
    other: Dyadic


@dataclass(frozen=True)
class MissingTokens:
    """One token from every holder, and one from every user except with probability ``absence``."""

    absence: Dyadic


@dataclass(frozen=True)
class LaplaceNoise:
    """The number of holders plus noise x with a probability proportional to ratio^|x|."""

    ratio: Dyadic


CategoryNoise = Responses | MissingTokens | LaplaceNoise
