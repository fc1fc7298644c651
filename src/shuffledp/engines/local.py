"""Columns of data files as counts, positions or values, read in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Bins, Categories, Domain, EqualTo, Interval
from shuffledp.engines.columns import Progress, read_column
from shuffledp.engines.encoding import (
    collect_positions,
    count_bins,
    count_bits,
    count_categories,
    distinct_values,
    parse_values,
)
from shuffledp.text_values import looks_missing


@dataclass(frozen=True)
class FileColumn:
    """A column of a data file, one row per user."""

    path: str | Path
    column: str
    drop_missing: bool = False
    progress: Progress = lambda _: None
    missing: tuple[str, ...] = ()
    """Strings that mean a missing value, besides an empty field."""
    remark: Callable[[str], None] = lambda _: None
    """Called with remarks about the data, for whoever holds them: they are not private, so do not publish them."""

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        if equals is not None:
            EqualTo(equals).check_missing_markers(self.missing)
        result = count_bits(self._batches(), equals=equals, drop_missing=self.drop_missing)
        self._remark_on(result.markers)
        return result.counts

    def histogram(self, domain: Categories, *, other: str | None = None) -> NDArray[np.int64]:
        """The number of users per category of the domain."""
        domain.check_missing_markers(self.missing)
        result = count_categories(self._batches(), domain, other=other, drop_missing=self.drop_missing)
        self._remark_on(result.markers)
        return result.counts

    def positions(self, domain: Interval, *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each user's number in the interval, from 0.0 to 1.0."""
        batches = self._batches(numeric=True)
        return collect_positions(batches, domain, clip=clip, drop_missing=self.drop_missing)

    def bins(self, domain: Bins, *, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per bin."""
        return count_bins(self._batches(numeric=True), domain, clip=clip, drop_missing=self.drop_missing)

    def values(self, domain: Domain, *, limit: int | None = None) -> list[Any]:
        """The value of each user as the domain parses it; of at most ``limit`` users, the first ones."""
        domain.check_missing_markers(self.missing)
        result = parse_values(self._batches(), domain, drop_missing=self.drop_missing, limit=limit)
        self._remark_on(result.markers)
        return result.values

    def distinct(self) -> Categories:
        """All distinct values; releasing this list is not private."""
        categories = distinct_values(self._batches())
        self._remark_on([name for name in categories.names if looks_missing(name)])
        return categories

    def _batches(self, *, numeric: bool = False) -> Any:
        return read_column(self.path, self.column, missing=self.missing, numeric=numeric, progress=self.progress)

    def _remark_on(self, markers: list[str]) -> None:
        for value in markers:
            self.remark(f"{value!r} is counted as a value; if it stands for a missing one, use `missing={(value,)}`.")
