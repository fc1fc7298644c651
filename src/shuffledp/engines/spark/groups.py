"""Groups of users by a column of Spark: the counts of each group, or the positions of its users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.engines.distinct import MISSING, index_distinct_values
from shuffledp.engines.encoding import Encoder, natural_order
from shuffledp.engines.groups import MAX_GROUPS, ColumnByGroup
from shuffledp.engines.spark.columns import canonical, column, is_float, kind_of
from shuffledp.engines.spark.partial import SparkGroup
from shuffledp.engines.spark.session import Frame, explained_failures
from shuffledp.engines.spark.table import Chosen, SparkColumn
from shuffledp.engines.spark.users import GROUP
from shuffledp.engines.spark.workers import CODE, PART
from shuffledp.errors import DataError
from shuffledp.extras import extra

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark.sql import functions as sf

MAX_CELLS = 1 << 26
"""Maximum number of groups times values, whose counts are in memory."""


@dataclass(frozen=True)
class SparkMembers:
    """Users of groups: their counts per group and index, or where their positions are."""

    names: tuple[str, ...]
    cells: NDArray[np.int64]
    """One row per group: the number of users per index, or their number if the size is 0."""
    size: int
    frame: Callable[[], Frame]
    """The code and the number of the group of each user."""

    def product_counts(self) -> NDArray[np.int64]:
        """The number of users per group and index, group by group."""
        return self.cells.reshape(-1)

    def by_group(self) -> Iterator[tuple[str, Any]]:
        """Per group, the number of users per index, or the positions of its users."""
        indices = {name: index for index, name in enumerate(self.names)}
        frame = None if self.size else self.frame()
        for name, index in indices.items():
            if frame is None:
                yield name, self.cells[index]
            else:
                yield name, SparkGroup(int(self.cells[index, 0]), name, indices, self.cells[:, 0], frame)


class SparkGroupedColumn(ColumnByGroup[SparkColumn, SparkMembers]):
    """A column of Spark whose users belong to groups."""

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        return self._counts(lambda: (self._column.bit_encoder(equals), 2))

    def histogram(self, domain: Any, *, other: str | None = None, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per value of the domain."""
        return self._counts(lambda: self._column.histogram_encoder(domain, other=other, clip=clip))

    def positions(self, domain: Interval, *, clip: bool = False) -> Any:
        """The positions of all users, which stay in Spark; only their number is known here."""
        members = self._read(lambda: (self._column.number_encoder(domain, clip=clip), 0))
        return range(int(members.cells.sum()))

    def _counts(self, make: Callable[[], tuple[Encoder, int]]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self._read(make).cells.sum(axis=0)
        return counts

    def _read(self, make: Callable[[], tuple[Encoder, int]]) -> SparkMembers:
        values = self._column
        encoding = values.encoding(make)
        group = self._group_expression()
        keys = [GROUP] if not encoding.size else [GROUP, CODE]
        if self.users is not None:
            self._check_rows(encoding.with_codes({GROUP: group}))
            chosen = Chosen(values, encoding, group, "public" if self.listed is None else "private")
            table, rows = chosen.counted(keys), chosen
        else:
            rows = encoding.with_codes({GROUP: group})
            with explained_failures():
                table = rows.groupBy(*keys).agg(sf.count(sf.lit(1)).alias("users")).toArrow()
            table = self._without_missing(table)
        names, groups = self._names(table[GROUP].combine_chunks())
        size = encoding.size or 1
        if len(names) * size > MAX_CELLS:
            raise DataError(f"{len(names):,} groups of {size:,} values are too many: at most {MAX_CELLS:,} cells.")
        codes = table[CODE].to_numpy() if encoding.size else np.zeros(len(table), dtype=np.int64)
        cells = np.zeros((len(names), size), dtype=np.int64)
        np.add.at(cells, (groups, codes), table["users"].to_numpy())
        numbers = pa.table({"raw": table[GROUP].combine_chunks(), "number": pa.array(groups, type=pa.int32())})
        self._members = SparkMembers(
            tuple(names), cells, encoding.size, lambda: _with_numbers(rows, numbers, values.frame)
        )
        return self._members

    def _group_expression(self) -> Any:
        frame = self._column.frame
        kind, group = kind_of(frame, self.by, f"The column of groups ({self.by})"), column(frame, self.by)
        if is_float(kind):
            return sf.when(~sf.isnan(group), group)
        return canonical(group, kind) if kind.simpleString() in ("string", "binary") else group

    def _check_rows(self, rows: Frame) -> None:
        """Refuse rows without a group, and groups that are not listed, also among rows that are not chosen."""
        with explained_failures():
            table = rows.groupBy(GROUP).agg(sf.count(sf.lit(1)).alias("users")).limit(MAX_GROUPS + 2).toArrow()
        self._names(self._without_missing(table)[GROUP].combine_chunks())

    def _without_missing(self, table: Any) -> Any:
        """The rows that have a group; others are an error unless they are left out."""
        markers = self._column.missing_rules.markers
        distinct = index_distinct_values([table[GROUP].combine_chunks()], self.by, markers)
        absent = distinct.indices == MISSING
        missing = int(table["users"].to_numpy()[absent].sum())
        self._check_missing(missing)
        table = table.filter(~absent)
        if not len(table):
            raise DataError("No row has a group, so there are no users.")
        return table

    def _names(self, groups: Any) -> tuple[list[str], NDArray[np.int64]]:
        """The names of groups, sorted or as listed, and the index of each row's group."""
        distinct = index_distinct_values([groups], f"The column of groups ({self.by})")
        names = distinct.names()
        if self.listed is not None:
            return list(self.listed.names), self._indices_in_list(distinct.values, self.listed)[distinct.indices]
        if len(names) > MAX_GROUPS:
            raise DataError(f"{self.by} has more than {MAX_GROUPS:,} groups; there may be at most that many.")
        order = sorted(range(len(names)), key=lambda index: natural_order(names[index]))
        index_of = np.zeros(len(names), dtype=np.int64)
        index_of[order] = np.arange(len(order))
        return [names[index] for index in order], index_of[distinct.indices]


def _with_numbers(rows: Frame | Chosen, numbers: Any, frame: Frame) -> Frame:
    """The codes of users with the number of their group; -1 for users who do not count."""
    unique = numbers.group_by(["raw", "number"]).aggregate([])
    lookup = sf.broadcast(frame.sparkSession.createDataFrame(unique)).alias("lookup")
    if isinstance(rows, Chosen):
        rows = rows.picks.filter(rows.counts_as_user)
    joined = rows.join(lookup, sf.col(GROUP).eqNullSafe(sf.col("lookup.raw")))
    return joined.select(CODE, sf.col("number").alias(PART))
