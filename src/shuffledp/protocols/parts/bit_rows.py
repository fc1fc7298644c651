"""Base of histograms from messages that are rows of bits, one per category."""

from __future__ import annotations

import numpy as np

from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.protocols.histogram.protocol import HistogramProtocol

_CHUNK_BITS = 1 << 22


class BitRowHistogram(HistogramProtocol):
    """A histogram from messages that each have a bit per category."""

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A row: a bit per category."""
        return MessageFormat((), flags=self.domain_size)

    def tally(self, messages: Messages) -> Tally:
        """The number of ones of each category."""
        counts = np.zeros(self.domain_size, dtype=np.int64)
        step = max(1, _CHUNK_BITS // self.domain_size)
        for start in range(0, len(messages), step):
            chunk = self.message_format.check(messages.values[start : start + step])
            counts += np.count_nonzero(chunk.reshape(-1, self.domain_size), axis=0)
        return Tally(counts, messages.users, messages.secure)
