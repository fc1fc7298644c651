"""Protocols in which users send the true index of their value to a trusted party."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

from numpy.typing import NDArray

from shuffledp.domain import check_index, check_indices
from shuffledp.messages import MessageFormat, Messages
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.indexed import IndexedProtocol
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.protocol import Pmf
from shuffledp.randomness import SYSTEM, RandomSource


class ClearProtocol(SingleMessageProtocol, IndexedProtocol):
    """Users send the index of their value; noise is added at the release."""

    trust: ClassVar[str] = "central"

    @property
    def message_format(self) -> MessageFormat:
        """An index."""
        return MessageFormat((self.domain_size,))

    def report_pmf(self, value: int) -> Pmf:
        """The true index."""
        owned = check_index(value, self.domain_size)
        return {tuple(int(index == owned) for index in range(self.domain_size)): Fraction(1)}

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The true indices, without randomization."""
        owned = check_indices(values, self.domain_size)
        return one_message_each(owned.astype(self.message_format.dtype), source)


class ClearHistogram(ClearProtocol, HistogramProtocol):
    """Users send their category; noise is added at the release."""
