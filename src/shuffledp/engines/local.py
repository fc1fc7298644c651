"""Columns of tables as counts, positions or values, read in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, BinnedNumbers, Categories, DiscreteDomain, Domain, EqualTo, Interval, Periods, Strings
from shuffledp.engines.encoding import (
    BitEncoder,
    CategoryEncoder,
    DateEncoder,
    Encoded,
    Encoder,
    NumberEncoder,
    Rules,
    StringEncoder,
    ValueParser,
    distinct_values,
)
from shuffledp.engines.rows import EncodedRows
from shuffledp.engines.strings import as_strings
from shuffledp.engines.table import Progress, Table
from shuffledp.engines.users import MissingRules, UserIds, one_row_per_user
from shuffledp.messages import count_values
from shuffledp.text_values import looks_missing

if TYPE_CHECKING:
    from shuffledp.engines.groups import GroupedColumn


@dataclass(frozen=True)
class Column:
    """A column of a table, one row per user; with ``users``, one row of each user is chosen."""

    required: ClassVar[str] = "a value"
    """What a row must have to be counted."""

    table: Table
    name: str
    drop_missing: bool = False
    """Whether rows without a value are left out; otherwise they are an error."""
    missing: tuple[str, ...] = ()
    """Strings that mean a missing value, besides an empty field."""
    progress: Progress = field(default=lambda _: None, repr=False)
    remark: Callable[[str], None] = field(default=lambda _: None, repr=False)
    """Called with remarks for the holder of the data: they are not private and must not be published."""
    users: UserIds | None = None
    """The user ids of a table with several rows per user."""

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        return self._counts(self.bit_encoder(equals), 2)

    def histogram(self, domain: DiscreteDomain, *, other: str | None = None, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per value of the domain: categories, bins of numbers, or periods of dates.

        ``other`` counts values outside the domain, and missing ones: it names a category of the domain, or is one more
        after bins and periods. ``clip`` clips numbers to the nearer bound.
        """
        return self._counts(*self.histogram_encoder(domain, other=other, clip=clip))

    def positions(self, domain: Interval, *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each user's number in the interval, from 0.0 to 1.0."""
        parts = [encoded.values for encoded in self._encoded(self.number_encoder(domain, clip=clip))]
        return np.concatenate(parts)

    def strings(self, domain: Strings) -> NDArray[Any]:
        """The index of each user's string in the domain."""
        return np.concatenate([encoded.values for encoded in self._encoded(self.string_encoder(domain))])

    def bit_encoder(self, equals: str | None = None) -> Encoder:
        """The encoder of yes and no, or of whether a value is ``equals``."""
        domain = BIT if equals is None else EqualTo(equals)
        return BitEncoder(domain, **self._rules(domain))

    def histogram_encoder(
        self, domain: DiscreteDomain, *, other: str | None = None, clip: bool = False
    ) -> tuple[Encoder, int]:
        """The encoder of a histogram, and its number of indices."""
        rules = self._rules(domain)
        if not isinstance(domain, (BinnedNumbers, Periods)):
            return CategoryEncoder(domain, other=other, **rules), len(domain)
        index, size = (None, len(domain)) if other is None else (len(domain), len(domain) + 1)
        if isinstance(domain, Periods):
            return DateEncoder(domain, other=index, **rules), size
        return NumberEncoder(domain, clip=clip, other=index, **rules), size

    def number_encoder(self, domain: Interval, *, clip: bool = False) -> Encoder:
        """The encoder of numbers as positions."""
        return NumberEncoder(domain, clip=clip, **self._rules(domain))

    def string_encoder(self, domain: Strings) -> Encoder:
        """The encoder of strings of an open domain."""
        return StringEncoder(domain, **self._rules(domain))

    def values(self, domain: Domain, *, limit: int | None = None) -> list[Any]:
        """The value of each user as the domain parses it; of at most ``limit`` users, the first ones."""
        parser = ValueParser(domain, **self._rules(domain))
        values = parser.parse(self._batches(), limit)
        self._finish(parser)
        return values

    def distinct(self) -> Categories:
        """All distinct values; releasing this list is not private."""
        categories = distinct_values(as_strings(batch, self._markers) for batch in self._batches())
        self._remark_on([name for name in categories.names if looks_missing(name)])
        return categories

    def grouped(self, by: str, listed: Categories | None = None) -> GroupedColumn:
        """This column with a group per user, by the column ``by`` of the same table."""
        from shuffledp.engines.groups import GroupedColumn

        return GroupedColumn(self, by, listed)

    def _counts(self, encoder: Encoder, size: int) -> NDArray[np.int64]:
        counts = np.zeros(size, dtype=np.int64)
        for encoded in self._encoded(encoder):
            counts += count_values(encoded.values, size)
        return counts

    def _encoded(self, encoder: Encoder) -> Iterator[Encoded]:
        """The rows that have a code, batch by batch; raises DataError at the end if others may not be left out."""
        if self.users is not None:
            yield Encoded(self._one_per_user(encoder, self.users))
            return
        for batch in self._batches():
            yield encoder.encode(batch)
        self._finish(encoder)

    def _one_per_user(self, encoder: Encoder, users: UserIds) -> NDArray[Any]:
        """The index or position of one row of each user."""
        rows = self.collect(encoder)
        values = rows.values()
        chosen: NDArray[Any] = values[one_row_per_user(users, rows, values, self.missing_rules)]
        return chosen

    def collect(self, encoder: Encoder, **columns: str) -> EncodedRows:
        """All rows that have a code, with their user ids and other ``columns``, by their roles.

        Raises DataError if there are rows without a code that may not be left out.
        """
        roles = (self.users.columns if self.users is not None else {}) | columns
        rows = EncodedRows(roles)
        for values, *others in self.table.read([self.name, *roles.values()], self.progress):
            rows.add(encoder.encode(values), others)
        self._finish(encoder)
        return rows

    @property
    def missing_rules(self) -> MissingRules:
        """What is done about missing values in columns beside this one."""
        return MissingRules(self._markers, self.drop_missing, self.remark)

    def _batches(self) -> Iterator[Any]:
        return (values for (values,) in self.table.read([self.name], self.progress))

    @property
    def _markers(self) -> Categories | None:
        return Categories.of(self.missing) if self.missing else None

    def _rules(self, domain: Domain) -> Rules:
        """How the encoder reads values, and what it does with missing ones."""
        domain.check_missing_markers(self.missing)
        return {"missing": self._markers, "drop_missing": self.drop_missing, "decimal": self.table.decimal}

    def _finish(self, encoder: Encoder) -> None:
        encoder.check()
        self._remark_on(encoder.markers)

    def _remark_on(self, markers: list[str]) -> None:
        for value in markers:
            self.remark(f"{value!r} is counted as a value; if it stands for a missing one, use `missing={(value,)}`.")
