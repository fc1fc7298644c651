"""Tables of Spark: a data frame whose columns the one-line functions, sessions and the command line take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Categories, EqualTo, Interval, Strings
from shuffledp.engines.encoding import BitEncoder, Encoder, distinct_values
from shuffledp.engines.local import Column
from shuffledp.engines.spark.choosing import KEY, count_chosen, derived_bytes, key_of
from shuffledp.engines.spark.columns import column, has_value, is_integer, kind_of
from shuffledp.engines.spark.counts import MAX_DISTINCT, VALUE, Encoding, usual_codes
from shuffledp.engines.spark.partial import CountedUsers, SparkRows
from shuffledp.engines.spark.session import Frame, check_session, explained_failures
from shuffledp.engines.spark.users import (
    EXCLUDED,
    MARK,
    NO_USER,
    ORDER,
    ROWS,
    USER,
    Race,
    draw_salt,
    order_of,
    suspicious_id,
    user_of,
)
from shuffledp.engines.spark.workers import CODE, PART
from shuffledp.engines.strings import as_strings
from shuffledp.engines.table import Progress, Table
from shuffledp.engines.users import UserIds
from shuffledp.errors import DataError, EngineError, ParameterError
from shuffledp.extras import extra
from shuffledp.protocols.flow import RemoteCounts, RemoteValues
from shuffledp.text_values import looks_missing

with extra("spark", "The Spark engine"):
    from pyspark.sql import functions as sf

_NO_USERS = "No row has a user id, so there are no users."


class SparkTable(Table):
    """The rows of a Spark data frame."""

    def __init__(self, frame: Frame, *, decimal: str = ".") -> None:
        if not hasattr(frame, "mapInArrow"):
            raise ParameterError(f"A Spark data frame is needed, not an object of type {type(frame).__name__}.")
        check_session(frame.sparkSession)
        self.frame, self._decimal = frame, decimal

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers that are strings."""
        return self._decimal

    def __getitem__(self, name: str) -> SparkColumn:
        """The column of this name, as the one-line functions take it."""
        return SparkColumn(self, name)

    def read(self, columns: Sequence[str], progress: Progress = lambda _: None) -> Iterator[tuple[Any, ...]]:
        """The given columns in batches, brought to this process: only for a few rows."""
        with explained_failures():
            table = self.frame.select(*(column(self.frame, name) for name in columns)).toArrow()
        for batch in table.to_batches():
            yield tuple(batch.columns)
        progress(1.0)

    def count_rows(self, columns: Sequence[str], progress: Progress = lambda _: None) -> int:
        """The number of rows, counted by Spark; ``columns`` are those that must exist."""
        frame = self.frame.select(*(column(self.frame, name) for name in columns))
        with explained_failures():
            rows = int(frame.count())
        progress(1.0)
        return rows

    def count_users(self, users: UserIds, missing: Categories | None = None) -> int:
        """The number of distinct users; missing ids are an error unless they are left out."""
        ids = user_of(self.frame, users, missing)
        with explained_failures():
            distinct, without = self.frame.select(sf.count_distinct(ids), sf.count(sf.when(ids.isNull(), 1))).first()
        _check_ids(users, int(without))
        if not distinct:
            raise DataError(_NO_USERS)
        return int(distinct)

    def complete(
        self, columns: Sequence[str], missing: Categories | None = None, user: str | None = None
    ) -> CompleteSparkTable:
        """The rows that have a value in each of these columns; ``user`` names the column of user ids, if there is one.

        One job counts them.
        """
        condition = sf.lit(True)
        for name in columns:
            condition &= has_value(column(self.frame, name), kind_of(self.frame, name), missing)
        return CompleteSparkTable(self.frame, condition, tuple(columns), self._decimal, user)


class CompleteSparkTable(SparkTable):
    """The rows of a data frame that have a value in each of the ``columns``."""

    def __init__(self, frame: Frame, condition: Any, columns: tuple[str, ...], decimal: str, user: str | None) -> None:
        super().__init__(frame.filter(condition), decimal=decimal)
        self.columns, self.user = columns, user
        with explained_failures():
            every, complete = frame.select(sf.count(sf.lit(1)), sf.count(sf.when(condition, 1))).first()
        self.rows, self.rows_left_out = int(complete), int(every - complete)
        if not every:
            raise DataError("The table has no rows.")
        if not complete:
            raise DataError(f"No row has a value in each of {', '.join(columns)}.")

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True)
class SparkColumn(Column):
    """A column of a Spark data frame; values are counted by Spark, and randomized by its workers."""

    table: SparkTable

    @property
    def frame(self) -> Frame:
        """The data frame."""
        return self.table.frame

    @property
    def values_frame(self) -> Frame:
        """The values of all rows, as the only column."""
        return self.frame.select(column(self.frame, self.name).alias(VALUE))

    @cached_property
    def salt(self) -> str:
        """The salt by which one row of each user is chosen: the same in all reads for one question."""
        if self.users is None:
            raise ValueError("There are no user ids.")
        return draw_salt(self.users.source)

    def bits(self, *, equals: str | None = None) -> NDArray[np.int64]:
        """The numbers of users with the index 0 (no) and 1 (yes)."""
        domain = BIT if equals is None else EqualTo(equals)
        return self.counts(lambda: (BitEncoder(domain, **self._rules(domain)), 2))

    def histogram(self, domain: Any, *, other: str | None = None, clip: bool = False) -> NDArray[np.int64]:
        """The number of users per value of the domain, as for a column of files."""
        return self.counts(lambda: self.histogram_encoder(domain, other=other, clip=clip))

    def positions(self, domain: Interval, *, clip: bool = False) -> RemoteValues:  # type: ignore[override]
        """The positions of the users' numbers, which stay in Spark; counting and checking them takes one job."""
        return self.rows(lambda: (self.number_encoder(domain, clip=clip), 0))

    def strings(self, domain: Strings) -> RemoteValues:  # type: ignore[override]
        """The indices of the users' strings, which stay in Spark; counting and checking them takes one job."""
        return self.rows(lambda: (self.string_encoder(domain), 0))

    def rows(self, make: Callable[[], tuple[Encoder, int]]) -> SparkRows:
        """The users' values in Spark, after all have been checked and counted; ``make`` gives encoder and size."""
        encoding = self.encoding(make)
        if self.users is None:
            return self._all_rows(encoding.users, make)
        chosen = Chosen(self, encoding)
        return SparkRows(int(chosen.count()), chosen.with_parts)

    def one_pass(self, make: Callable[[], tuple[Encoder, int]]) -> SparkRows | None:
        """The users' values in Spark, not yet counted or checked; None with user ids, which need another pass."""
        return None if self.users is not None else self._all_rows(-1, make)

    def _all_rows(self, users: int, make: Callable[[], tuple[Encoder, int]]) -> SparkRows:
        return SparkRows(users, lambda: self.values_frame, lambda: make()[0])

    def counts(self, make: Callable[[], tuple[Encoder, int]]) -> NDArray[np.int64]:
        """The number of users per index; ``make`` gives the encoder and the number of indices."""
        counts = self._users_per_index(make)
        return RemoteCounts.of(counts, CountedUsers(counts, self.frame.sparkSession))

    def _users_per_index(self, make: Callable[[], tuple[Encoder, int]]) -> NDArray[np.int64]:
        if self.users is not None and (usual := self._usual_counts(make)) is not None:
            return usual
        encoding = self.encoding(make)
        return encoding.counts if self.users is None else Chosen(self, encoding).counts(encoding.size)

    def _usual_counts(self, make: Callable[[], tuple[Encoder, int]]) -> NDArray[np.int64] | None:
        """The number of users per index if all values are usual names: then they need not be counted before."""
        if self.users is None or self.users.order_by is not None:
            return None
        encoder, size = make()
        user = {USER: user_of(self.frame, self.users, self.missing_rules.markers)}
        rows = usual_codes(self.frame, self.name, encoder, derived_bytes(self.salt, "value"), user)
        if rows is None:
            return None
        self.progress(0.0)
        number = self.table.count_rows([self.name])
        counts = _counts_by_workers(self, rows, number, size) if number else None
        self.progress(1.0)
        return counts

    def encoding(self, make: Callable[[], tuple[Encoder, int]]) -> Encoding:
        """The column, counted and checked, with remarks about it."""
        encoder, size = make()
        self.progress(0.0)
        encoding = Encoding(self.frame, self.name, encoder, size)
        self._remark_on(encoder.markers)
        self.progress(1.0)
        return encoding

    def distinct(self) -> Categories:
        """All distinct values; releasing this list is not private."""
        with explained_failures():
            found = (
                self.frame.select(column(self.frame, self.name).alias(VALUE)).distinct().limit(MAX_DISTINCT + 1)
            ).toArrow()
        if len(found) > MAX_DISTINCT:
            raise DataError(f"{self.name} has more than {MAX_DISTINCT:,} distinct values: list the categories.")
        kind_of(self.frame, self.name)
        categories = distinct_values([as_strings(found[VALUE].combine_chunks(), self._markers)])
        self._remark_on([name for name in categories.names if looks_missing(name)])
        return categories

    def grouped(self, by: str, listed: Categories | None = None) -> Any:
        """This column with a group per user."""
        from shuffledp.engines.spark.groups import SparkGroupedColumn

        return SparkGroupedColumn(self, by, listed)


class Chosen:
    """One row of each user of a column with user ids."""

    def __init__(self, values: SparkColumn, encoding: Encoding, group: Any = None, groups: str = "") -> None:
        if values.users is None:
            raise ValueError("There are no user ids.")
        self._column, self.users, self._encoding = values, values.users, encoding
        markers = values.missing_rules.markers
        others: dict[str, Any] = {USER: user_of(values.frame, self.users, markers)}
        if self.users.order_by is not None:
            others[ORDER] = order_of(values.frame, self.users.order_by, markers)
        if group is not None:
            others["group"] = group
        self._race = Race(self.users, values.salt, encoding.users, groups)
        self._rows = encoding.with_codes(others)

    @property
    def picks(self) -> Frame:
        """The chosen row of each user, and one row about all rows without a user id."""
        return self._race.picks(self._rows)

    @property
    def counts_as_user(self) -> Any:
        """Whether a row of ``picks`` is a user."""
        return (sf.col(MARK).isNull() | (sf.col(MARK) != NO_USER)) & sf.col(CODE).isNotNull()

    def with_parts(self) -> Frame:
        """The codes of the chosen rows, all of one part."""
        return self.picks.filter(self.counts_as_user).select(CODE, sf.lit(0).alias(PART))

    def counts(self, size: int) -> NDArray[np.int64]:
        """The number of users per code: by Python workers, or by Spark alone if they lack this package."""
        counts = _counts_by_workers(self._column, self._rows, self._encoding.users, size)
        if counts is not None:
            return counts
        table = self.counted([CODE])
        counts = np.zeros(size, dtype=np.int64)
        np.add.at(counts, table[CODE].to_numpy(), table["users"].to_numpy())
        return counts

    def count(self) -> int:
        """The number of users."""
        return int(self.counted([])["users"].to_numpy().sum())

    def counted(self, keys: Sequence[str]) -> Any:
        """The number of users per key, after all rows have been checked."""
        chosen = sf.col(CODE).isNotNull()
        counted = self.picks.groupBy(*keys, chosen.alias("chosen"), MARK).agg(
            sf.count(sf.lit(1)).alias("users"), sf.sum(ROWS).alias(ROWS), sf.sum(EXCLUDED).alias(EXCLUDED)
        )
        with explained_failures():
            table = counted.toArrow()
        marks = table[MARK].to_pylist()
        without_id = np.array([mark == NO_USER for mark in marks], dtype=np.bool_)
        _check_ids(self.users, int(table[ROWS].to_numpy()[without_id].sum()))
        excluded = int(table[EXCLUDED].to_numpy()[~without_id].sum())
        if excluded and not self._column.drop_missing:
            self._refuse_excluded(excluded)
        _remark_on_ids(self._column, dict.fromkeys(mark for mark in marks if mark))
        chosen_users = table.filter(~without_id & table["chosen"].to_numpy(zero_copy_only=False))
        if not len(chosen_users):
            raise DataError(_NO_USERS)
        return chosen_users

    def _refuse_excluded(self, excluded: int) -> None:
        what = f"in {self.users.order_by}, by which rows are ordered" if self.users.order_by else "in a column"
        raise DataError(
            f"{'1 value is' if excluded == 1 else f'{excluded:,} values are'} missing {what}. Use "
            "`drop_missing=True` to leave these rows out.",
            missing=excluded,
        )


def _counts_by_workers(values: SparkColumn, rows: Frame, number: int, size: int) -> NDArray[np.int64] | None:
    """The number of users per code of their chosen row; None if rows have no code, or workers lack this package."""
    if values.users is None or values.users.order_by is not None:
        return None
    keyed = [key_of(sf.col(USER), values.salt).alias(KEY), sf.col(CODE)]
    if not is_integer(rows.schema[USER].dataType):
        keyed.append(suspicious_id(sf.col(USER)).alias(MARK))
    try:
        found = count_chosen(rows.select(*keyed), number, size, values.salt, distinct=values.users.pick == "value")
    except EngineError as error:
        if "workers" in error.values:
            return None
        raise
    if found.rows_without_code:
        return None
    _check_ids(values.users, found.rows_without_user)
    _remark_on_ids(values, found.marks)
    if not found.counts.any():
        raise DataError(_NO_USERS)
    return found.counts


def _remark_on_ids(values: SparkColumn, ids: Iterable[str]) -> None:
    for name in ids:
        values.remark(
            f"{name!r} is counted as the id of one user; if it stands for a missing id, use `missing={(name,)}`."
        )


def _check_ids(users: UserIds, missing: int) -> None:
    if missing and not users.drop_missing:
        raise DataError(
            f"{'1 user id is' if missing == 1 else f'{missing:,} user ids are'} missing in {users.column}. "
            "Use `drop_missing_users=True` to leave these rows out.",
            missing=missing,
        )
