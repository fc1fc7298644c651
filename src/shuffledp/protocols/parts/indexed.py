"""Base of protocols over finitely many values, each with an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts
from shuffledp.messages import Tally, count_values
from shuffledp.protocols.flow import sample_released_tally, user_ranges
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness import SYSTEM, RandomSource


class IndexedProtocol(Protocol):
    """A protocol over finitely many values, each with an index."""

    if TYPE_CHECKING:  # a field of the protocol, or always 2

        @property
        def domain_size(self) -> int:
            """The number of possible values."""

    @property
    def unit(self) -> float:
        """One user."""
        return 1.0

    def inputs(self, *, between: bool = False) -> tuple[int, ...]:  # noqa: ARG002
        """Every index."""
        return tuple(range(self.domain_size))

    def other_inputs(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next index."""
        return (values + 1) % self.domain_size

    def summary(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """How many users hold each index."""
        return count_values(values, self.domain_size)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from the true count of each value."""
        ends = np.cumsum(check_counts(counts, self.domain_size))
        ranges = user_ranges(self, int(ends[-1]))
        portions = (np.searchsorted(ends, np.arange(start, end), side="right") for start, end in ranges)
        return sample_released_tally(self, portions, source)
