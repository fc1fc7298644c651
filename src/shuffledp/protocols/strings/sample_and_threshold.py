"""Sample and threshold over all strings, Bharadwaj and Cormode (2022): a trusted counter drops small counts.

The counting party, the shuffler or the analyzer, sees every string. It needs no list of strings: one that nobody holds
is never released.

Accounting: ``shuffledp.privacy.sample_and_threshold``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Numbered, Strings
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.strings.clear import ClearStrings
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

_TYPICAL_STRINGS = 1 << 20  # assumed when the sampling probability is chosen: the average count is then small


@dataclass(frozen=True)
class SampleAndThresholdStrings(ClearStrings):
    """Strings by sampling and a threshold (Bharadwaj and Cormode 2022); the shuffler counts in clear.

    Options of ``calibrate``:

    - ``sampling``: probability that a message is sampled; by default the best for a string that just reaches the
      threshold.
    """

    name: ClassVar[str] = "sample-and-threshold"
    trust: ClassVar[str] = "shuffled"
    trusts_shuffler: ClassVar[bool] = True

    sampling: Dyadic
    """The probability that the counting party samples a message."""
    threshold: int
    """The least sampled count that is released."""

    @classmethod
    def for_target(cls, target: Target, domain: Strings, *, sampling: float | Dyadic | None = None) -> Self:
        """The least threshold for ``sampling``, by default the best one for strings that just reach the threshold."""
        histogram = SampleAndThresholdHistogram.for_target(target, Numbered(_TYPICAL_STRINGS), sampling=sampling)
        return cls(target, domain, histogram.sampling, histogram.threshold)

    def histogram(self, strings: int) -> SampleAndThresholdHistogram:
        """The histogram of these strings."""
        return SampleAndThresholdHistogram(self.target, self.sampling, self.threshold, strings)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy with respect to everyone except the counting party; the number of strings does not matter."""
        return self.histogram(2).guarantee
