"""Histograms of values in the clear: users send their category as it is, to a party that is trusted with it."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from shuffledp.domain import check_index, check_indices
from shuffledp.messages import MessageFormat, Messages
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.questions import HistogramProtocol, one_message_each
from shuffledp.randomness import SYSTEM, RandomSource


class ClearHistogram(HistogramProtocol):
    """What users send; the noise comes with the release."""

    trust: ClassVar[str] = "central"

    @property
    def cost(self) -> Cost:
        """One category."""
        return Cost(1.0, 1, self.message_format.bits)

    @property
    def message_format(self) -> MessageFormat:
        """A category's index."""
        return MessageFormat((self.domain_size,))

    def report_pmf(self, value: int) -> Pmf:
        """The value as it is."""
        owned = check_index(value, self.domain_size)
        return {tuple(int(place == owned) for place in range(self.domain_size)): 1.0}

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """Nothing is randomized."""
        owned = check_indices(values, self.domain_size)
        return one_message_each(owned.astype(self.message_format.dtype), source)
