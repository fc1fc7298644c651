"""Groups of users by a column: the indices or positions of the users of each group.

With user ids, the chosen row of a user says to which group the user belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, DiscreteDomain, Interval, Strings
from shuffledp.engines.distinct import MISSING, index_distinct_values
from shuffledp.engines.encoding import CategoryEncoder, Encoder, natural_order
from shuffledp.engines.local import Column
from shuffledp.engines.rows import EncodedRows
from shuffledp.engines.users import UserIds, one_row_per_user
from shuffledp.errors import DataError, ParameterError
from shuffledp.extras import extra
from shuffledp.messages import count_values

with extra("files", "Reading a table"):
    import pyarrow as pa

MAX_GROUPS = 100_000

ColumnType = TypeVar("ColumnType", bound=Column)
MembersType = TypeVar("MembersType")


@dataclass(frozen=True)
class Members:
    """Users of groups: the index or position of each, and the index of the group."""

    names: tuple[str, ...]
    """The groups."""
    values: NDArray[Any]
    groups: NDArray[np.int32]
    size: int
    """The number of indices; 0 for positions."""

    def product_counts(self) -> NDArray[np.int64]:
        """The number of users per group and index, group by group."""
        cells = self.groups.astype(np.int64) * self.size + self.values
        return count_values(cells, len(self.names) * self.size)

    def by_group(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Per group, the number of users per index, or the positions of its users."""
        order = np.argsort(self.groups, kind="stable")
        values = self.values[order]
        ends = np.cumsum(np.bincount(self.groups, minlength=len(self.names)))
        for name, start, end in zip(self.names, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            part = values[start:end]
            yield name, count_values(part, self.size) if self.size else part


class ColumnByGroup(Generic[ColumnType, MembersType]):
    """Base of columns whose users belong to groups by the column ``by``: those that occur, or ``listed`` ones.

    They have the methods of a column, which return results for the users of all groups together, and set ``members``.
    """

    required: ClassVar[str] = "a value or a group"
    """What a row must have to be counted."""

    def __init__(self, column: ColumnType, by: str, listed: Categories | None = None) -> None:
        self._column, self.by, self.listed = column, by, listed
        self._members: MembersType | None = None

    @property
    def drop_missing(self) -> bool:
        """Whether rows without a value or a group are left out."""
        return self._column.drop_missing

    @property
    def users(self) -> UserIds | None:
        """The user ids of a table with several rows per user."""
        return self._column.users

    @property
    def members(self) -> MembersType:
        """The users of all groups, after ``bits``, ``histogram`` or ``positions`` was called."""
        if self._members is None:
            raise ValueError("The column has not been read yet: call bits, histogram or positions first.")
        return self._members

    def strings(self, domain: Strings) -> NDArray[Any]:
        """Refused: strings are not asked for by group."""
        raise ParameterError(f"Strings ({domain.description}) cannot be asked for by group.")

    def distinct(self) -> Categories:
        """All distinct values; releasing this list is not private."""
        return self._column.distinct()

    def _check_missing(self, rows: int) -> None:
        """Refuse this number of rows without a group, unless they are left out."""
        if rows and not self.drop_missing:
            raise DataError(
                f"{'1 row has' if rows == 1 else f'{rows:,} rows have'} no group in {self.by}. Use "
                "`drop_missing=True` to leave these rows out.",
                missing=rows,
            )

    def _indices_in_list(self, groups: Any, listed: Categories) -> NDArray[Any]:
        """The index of each of these distinct groups in the list of groups; one that is not listed is an error."""
        encoder = CategoryEncoder(listed)
        indices = encoder.encode(groups).values
        if encoder.outside:
            raise DataError(
                f"{encoder.outside:,} of {len(groups):,} groups in {self.by} are not listed (for example "
                f"{encoder.examples[0][:40]!r}). List every group in `private_groups=LIST`."
            )
        return indices


class GroupedColumn(ColumnByGroup[Column, Members]):
    """A column of this process whose users belong to groups."""

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        return self._counts(self._column.bit_encoder(equals), 2)

    def histogram(self, domain: DiscreteDomain, *, other: str | None = None, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per value of the domain."""
        return self._counts(*self._column.histogram_encoder(domain, other=other, clip=clip))

    def positions(self, domain: Interval, *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each user's number in the interval, from 0.0 to 1.0."""
        positions: NDArray[np.float64] = self._read(self._column.number_encoder(domain, clip=clip), 0).values
        return positions

    def _counts(self, encoder: Encoder, size: int) -> NDArray[np.int64]:
        return count_values(self._read(encoder, size).values, size)

    def _read(self, encoder: Encoder, size: int) -> Members:
        column = self._column
        rows = column.collect(encoder, group=self.by)
        values = rows.values()
        names, groups = self._groups(rows)
        present = groups != MISSING
        self._check_missing(int(len(groups) - np.count_nonzero(present)))
        if column.users is not None:
            public = groups if self.listed is None else None
            chosen = one_row_per_user(column.users, rows, values, column.missing_rules, present, public)
        else:
            chosen = np.flatnonzero(present)
        if len(chosen) == 0:
            raise DataError("No row has a group, so there are no users.")
        groups = groups[chosen]
        if self.listed is None:
            names, groups = _occurring(names, groups)
        self._members = Members(tuple(names), values[chosen], groups, size)
        return self._members

    def _groups(self, rows: EncodedRows) -> tuple[list[str], NDArray[np.int32]]:
        """The names of groups, and the index of each row's group; ``MISSING`` if it has none."""
        batches, markers = rows.column("group"), self._column.missing_rules.markers
        distinct = index_distinct_values(batches, f"The column of groups ({self.by})", markers)
        names = distinct.names()
        if self.listed is not None:
            return list(self.listed.names), self._listed_groups(distinct.values, distinct.indices, self.listed)
        if len(names) > MAX_GROUPS:
            raise DataError(f"{self.by} has {len(names):,} groups; there may be at most {MAX_GROUPS:,}.")
        return names, distinct.indices

    def _listed_groups(self, values: Any, indices: NDArray[np.int32], listed: Categories) -> NDArray[np.int32]:
        """The index of each row's group in the list of groups; a row of another group is an error."""
        used = np.unique(indices[indices != MISSING])
        index_of = np.full(len(values) + 1, MISSING, dtype=np.int32)
        index_of[used] = self._indices_in_list(values.take(pa.array(used)), listed)
        return index_of[indices]


def _occurring(names: list[str], groups: NDArray[np.int32]) -> tuple[list[str], NDArray[np.int32]]:
    """The groups that have users, sorted: numbers by size, then names; and the index of each user's group."""
    occurring = np.flatnonzero(np.bincount(groups, minlength=len(names))).tolist()
    occurring.sort(key=lambda index: natural_order(names[index]))
    index_of = np.zeros(len(names), dtype=np.int32)
    index_of[occurring] = np.arange(len(occurring))
    return [names[index] for index in occurring], index_of[groups]
