"""Reports of a hash function and a bucket: their format, and the number of reports that agree with each category."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.hashing import AffineHashes

_CHUNK_MESSAGES = 1 << 20


class HashedHistogram(HistogramProtocol):
    """A histogram from messages that each consist of a hash function and a bucket."""

    if TYPE_CHECKING:  # a field of the protocol, or derived from its fields

        @property
        def hashes(self) -> AffineHashes:
            """The public family of hash functions."""

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """The function's factor minus 1, its shift, and a bucket."""
        return MessageFormat((*self.hashes.bounds, self.hashes.buckets))

    def tally(self, messages: Messages) -> Tally:
        """The number of messages that agree with each category."""
        counts = np.zeros(self.domain_size, dtype=np.int64)
        for start in range(0, len(messages), _CHUNK_MESSAGES):
            chunk = self.message_format.check(messages.values[start : start + _CHUNK_MESSAGES])
            counts += self.hashes.supports(chunk[:, 0], chunk[:, 1], chunk[:, 2], self.domain_size)
        return Tally(counts, messages.users, messages.secure)
