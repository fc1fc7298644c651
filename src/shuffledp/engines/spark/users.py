"""One row of each user on Spark: contribution bounding by aggregations, without a sort.

The choice depends on the rows of the user alone, and on a salt that is drawn per question. It is the same when a task
is computed again: otherwise a lost executor could make a user count twice. Value v of a user, in c of the user's rows,
gets the key ln(u) / c, where u is uniform between 0 and 1: a hash of the salt, the user and v. The largest key wins, so
each value wins with probability proportional to c: an exponential race.

Privacy needs one row per user, whichever it is: for every fixed salt, replacing all rows of a user replaces at most one
value. That the choice is uniform matters for the estimate only. So the hash (xxhash64 after 128 bits of salt) need not
resist attacks: users who want another row to be chosen can as well send only that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shuffledp.domain import Categories
from shuffledp.engines.spark.columns import (
    canonical,
    column,
    is_float,
    is_integer,
    kind_of,
    number_of,
    text,
    without_markers,
)
from shuffledp.engines.spark.session import Frame
from shuffledp.engines.spark.workers import CODE
from shuffledp.engines.users import UserIds
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.randomness import RandomSource
from shuffledp.randomness.source import draw_bytes
from shuffledp.text_values import MISSING_MARKERS

with extra("spark", "The Spark engine"):
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

USER, ORDER, GROUP, ROWS, EXCLUDED, MARK = "user", "order", "group", "rows", "excluded", "mark"
NO_USER = ""
"""The mark of the rows without a user id."""
_ROWS_AT_ONCE = 1 << 18
"""Rows of a partition: their distinct values are in memory, and few of them stay in the cache of the processor."""
_LONGEST_MARKER = max(map(len, MISSING_MARKERS))


def draw_salt(source: RandomSource) -> str:
    """A new salt of 128 bits."""
    return draw_bytes(16, source).tobytes().hex()


def user_of(frame: Frame, users: UserIds, missing: Categories | None) -> Any:
    """The id of each row's user, in one spelling; null if it is missing."""
    kind = kind_of(frame, users.column, f"The column of user ids ({users.column})")
    if is_integer(kind) and missing is None:
        return column(frame, users.column)  # integers are cheaper to group than strings
    return without_markers(canonical(column(frame, users.column), kind), missing)


def order_of(frame: Frame, name: str, missing: Categories | None) -> Any:
    """A key per row that is larger for a later row; null if it is missing."""
    value, kind = column(frame, name), kind_of(frame, name, f"The column {name}")
    if is_float(kind) or isinstance(kind, (st.NumericType, st.DateType, st.TimestampType, st.TimestampNTZType)):
        key = sf.when(~sf.isnan(value), value) if is_float(kind) else value
        present = without_markers(canonical(value, kind), missing).isNotNull()
        return key if missing is None else sf.when(present, key)
    if not isinstance(kind, st.StringType):
        raise DataError(f"The column {name} is of type {kind.simpleString()}; it must be a number, a date or a time.")
    string = without_markers(text(value, kind), missing)
    number, time = number_of(string, st.StringType()), sf.try_to_timestamp(string)
    wrong = frame.select(
        sf.count(sf.when(string.isNotNull() & number.isNull(), 1)),
        sf.count(sf.when(string.isNotNull() & time.isNull(), 1)),
    ).first()
    if wrong[0] and wrong[1]:
        raise DataError(
            f"The column {name} has values that are neither all numbers nor all dates or times such as 2026-01-31 or "
            "2026-01-31 12:30:00."
        )
    return time if wrong[0] else number


@dataclass(frozen=True)
class Race:
    """The choice of one of the rows of each user."""

    users: UserIds
    salt: str
    rows: int
    """The number of rows of the frame, which decides on the number of partitions."""
    groups: str = ""
    """``public`` or ``private`` if there are groups; the group of a user is that of the chosen row."""

    def picks(self, frame: Frame) -> Frame:
        """One row per user, and one for all rows without a user id: code, group, and the numbers of rows.

        ``frame`` has the columns user and code, and optionally order and group. Rows without a value in one of these do
        not take part; they are counted as excluded.
        """
        optional = [name for name in (ORDER, GROUP) if name in frame.columns]
        takes_part = sf.lit(True)
        for name in optional:
            takes_part &= sf.col(name).isNotNull()
        # all rows of a user meet in one partition, so none of the aggregations below shuffles again
        partitions = -(-max(1, self.rows) // _ROWS_AT_ONCE)
        counted = frame.repartition(partitions, USER).groupBy(USER, CODE, *optional)
        counted = counted.agg(sf.count(sf.lit(1)).alias(ROWS))
        counted = counted.withColumn(EXCLUDED, sf.when(takes_part, sf.lit(0)).otherwise(sf.col(ROWS)))
        counted = counted.withColumn("eligible", sf.when(takes_part, sf.col(ROWS)))
        if self.users.pick == "value":
            return self._distinct_values(counted)
        winner = [CODE, *([GROUP] if self.groups else [])]
        key = self._key(counted, "row", [CODE, *optional], sf.col("eligible"))
        if self.users.pick == "latest":
            key = sf.when(key.isNotNull(), sf.struct(sf.col(ORDER), key))
        return self._of_user(counted, winner, key)

    def _distinct_values(self, counted: Frame) -> Frame:
        """One of the user's distinct values, and a group.

        If groups are public, first a group is chosen by its number of rows, then one of the user's values in it. If
        they are private, first a value is chosen, then one of its groups by the number of rows.
        """
        one = sf.when(sf.col("eligible").isNotNull(), sf.lit(1))
        if not self.groups:
            return self._of_user(counted, [CODE], self._key(counted, "value", [CODE], one))
        first, second = (GROUP, CODE) if self.groups == "public" else (CODE, GROUP)
        inner = self._key(counted, "inner", [CODE, GROUP], one if self.groups == "public" else sf.col("eligible"))
        best = counted.groupBy(USER, first).agg(
            sf.max_by(sf.col(second), inner).alias(second),
            sf.sum(ROWS).alias(ROWS),
            sf.sum(EXCLUDED).alias(EXCLUDED),
            sf.sum("eligible").alias("eligible"),
        )
        weight = sf.col("eligible") if self.groups == "public" else sf.when(sf.col("eligible").isNotNull(), sf.lit(1))
        return self._of_user(best, [CODE, GROUP], self._key(best, "outer", [first], weight))

    def _of_user(self, counted: Frame, winner: Sequence[str], key: Any) -> Frame:
        # the winner is one number if possible: Spark sorts to find the largest key of anything else
        chosen = sf.col(CODE) if winner == [CODE] else sf.struct(*winner)
        is_number = is_integer(counted.schema[USER].dataType)
        # the key is a column of its own, since Spark would compute an argument of max_by several times per row
        best = counted.withColumn("key", key).groupBy(USER)
        best = best.agg(
            sf.max_by(chosen, "key").alias("winner"), sf.sum(ROWS).alias(ROWS), sf.sum(EXCLUDED).alias(EXCLUDED)
        )
        fields = [sf.col("winner").alias(CODE)] if winner == [CODE] else [sf.col("winner.*")]
        no_user = sf.when(sf.col(USER).isNull(), sf.lit(NO_USER))
        mark = no_user if is_number else no_user.otherwise(suspicious_id(sf.col(USER)))
        return best.select(*fields, ROWS, EXCLUDED, mark.alias(MARK))

    def _key(self, frame: Frame, purpose: str, columns: Sequence[str], weight: Any) -> Any:
        """The key of the race; null if the weight is."""
        # bytes, since Spark writes numbers into the code that it generates, and would compile it for every salt
        salt = sf.lit(hashlib.sha256(f"{self.salt}{purpose}".encode()).digest()[:16])
        hashed = sf.xxhash64(salt, *(_hashable(frame, name) for name in (USER, *columns)))
        uniform = (sf.shiftrightunsigned(hashed, 11).cast("double") + sf.lit(0.5)) / sf.lit(2.0**53)
        return sf.ln(uniform) / weight


def suspicious_id(user: Any) -> Any:
    """An id that looks like a missing value, such as NA; null for others."""
    short = sf.when(sf.length(user) <= _LONGEST_MARKER, sf.lower(user))
    return sf.when(short.isin(sorted(MISSING_MARKERS)), user)


def _hashable(frame: Frame, name: str) -> Any:
    """A column as ``xxhash64`` takes it: other types than numbers and strings by their spelling."""
    kind = frame.schema[name].dataType
    simple = is_integer(kind) or is_float(kind) or isinstance(kind, st.StringType)
    return sf.col(name) if simple else sf.col(name).cast("string")
