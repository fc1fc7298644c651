"""Counts and positions from lists and NumPy arrays, encoded by the domain, for installations without Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, BinnedNumbers, Categories, DiscreteDomain, EqualTo, Interval, Periods, Strings
from shuffledp.errors import DataError
from shuffledp.messages import count_values


@dataclass(frozen=True)
class PlainColumn:
    """A list or an array, one value per user; a missing value or one outside the domain is an error."""

    column: Sequence[Any] | NDArray[Any]
    drop_missing: bool = False
    required: ClassVar[str] = "a value"
    """What a row must have to be counted."""
    users: ClassVar[None] = None
    """There are no user ids: every row is a user."""

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        domain = BIT if equals is None else EqualTo(equals)
        values = [domain.parse(value) if isinstance(value, str) else value for value in self.column]
        return self._counted(domain.encode_all(values), 2)

    def histogram(self, domain: DiscreteDomain, *, other: str | None = None, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per value of the domain; ``other`` counts values outside it, as for ``Column``."""
        if other is not None:
            other_index = len(domain) if isinstance(domain, (BinnedNumbers, Periods)) else int(domain.encode(other))
            indices = [domain.find(value) for value in self.column]
            counted = np.array([other_index if index is None else index for index in indices], dtype=np.int64)
            return self._counted(counted, max(len(domain), other_index + 1))
        if isinstance(domain, BinnedNumbers):
            return self._counted(domain.encode_all(self.column, clip=clip), len(domain))
        return self._counted(domain.encode_all(self.column), len(domain))

    def positions(self, domain: Interval, *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each user's number in the interval, from 0.0 to 1.0."""
        positions = domain.encode_all(self.column, clip=clip)
        _check_rows(positions)
        return positions

    def strings(self, domain: Strings) -> NDArray[Any]:
        """The index of each user's string."""
        indices = domain.encode_all(self.column)
        _check_rows(indices)
        return indices

    def distinct(self) -> Categories:
        """All distinct values; releasing this list is not private."""
        return Categories.of(sorted({str(value) for value in self.column}))

    def _counted(self, indices: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        _check_rows(indices)
        return count_values(indices, size)


def _check_rows(rows: NDArray[Any]) -> None:
    if len(rows) == 0:
        raise DataError("The column holds no rows, so there are no users.")
