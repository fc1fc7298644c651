"""The stability-based histogram of Bun, Nissim and Stemmer (2016) over all strings, in the central model.

A trusted party adds noise to the count of every string that occurs and releases those that reach a threshold. It
needs no list of strings: one that nobody holds is never released.

Accounting: ``shuffledp.privacy.stability``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Numbered, Strings
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.protocols.strings.clear import ClearStrings
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class StabilityStrings(ClearStrings):
    """Strings with noise on those that occur, and a threshold (Bun, Nissim and Stemmer 2016); central."""

    name: ClassVar[str] = "stability"

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""
    threshold: int
    """The least count that is released."""

    @classmethod
    def for_target(cls, target: Target, domain: Strings) -> Self:
        """The noise and the threshold of the histogram."""
        histogram = StabilityHistogram.for_target(target, Numbered(2))
        return cls(target, domain, histogram.ratio, histogram.threshold)

    def histogram(self, strings: int) -> StabilityHistogram:
        """The histogram of these strings."""
        return StabilityHistogram(self.target, self.ratio, self.threshold, strings)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy with respect to everyone except the collecting party; the number of strings does not matter."""
        return self.histogram(2).guarantee
