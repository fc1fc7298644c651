"""One row of each user on Spark: contribution bounding by aggregations, without a sort.

The choice depends on the rows of the user alone, and on a salt that is drawn per question. It is the same when a task
is computed again: otherwise a lost executor could make a user count twice. Value v of a user, in c of the user's rows,
gets the key ln(u) / c, where u is uniform between 0 and 1: a hash of the salt, the user and v. The largest key wins, so
each value wins with probability proportional to c: an exponential race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shuffledp.domain import Categories
from shuffledp.engines.spark.columns import canonical, column, is_float, kind_of, number_of, text, without_markers
from shuffledp.engines.spark.session import Frame
from shuffledp.engines.spark.workers import CODE
from shuffledp.engines.users import UserIds
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.randomness import RandomSource
from shuffledp.randomness.source import draw_bytes
from shuffledp.text_values import MISSING_MARKERS

with extra("spark", "The Spark engine"):
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

USER, ORDER, GROUP, ROWS, EXCLUDED, MARK = "user", "order", "group", "rows", "excluded", "mark"
NO_USER = ""
"""The mark of the rows without a user id."""
_HEX_DIGITS = 13  # 52 bits


def draw_salt(source: RandomSource) -> str:
    """A new salt of 128 bits."""
    return draw_bytes(16, source).tobytes().hex()


def user_of(frame: Frame, users: UserIds, missing: Categories | None) -> Any:
    """The id of each row's user, in one spelling; null if it is missing."""
    kind = kind_of(frame, users.column, f"The column of user ids ({users.column})")
    return without_markers(canonical(column(frame, users.column), kind), missing)


def order_of(frame: Frame, name: str, missing: Categories | None) -> Any:
    """A key per row that is larger for a later row; null if it is missing."""
    value, kind = column(frame, name), kind_of(frame, name, f"The column {name}")
    if is_float(kind) or isinstance(kind, (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType)):
        key = F.when(~F.isnan(value), value) if is_float(kind) else value
        present = without_markers(canonical(value, kind), missing).isNotNull()
        return key if missing is None else F.when(present, key)
    if not isinstance(kind, T.StringType):
        raise DataError(f"The column {name} is of type {kind.simpleString()}; it must be a number, a date or a time.")
    string = without_markers(text(value, kind), missing)
    number, time = number_of(string, T.StringType()), F.try_to_timestamp(string)
    wrong = frame.select(
        F.count(F.when(string.isNotNull() & number.isNull(), 1)), F.count(F.when(string.isNotNull() & time.isNull(), 1))
    ).first()
    if wrong[0] and wrong[1]:
        raise DataError(
            f"The column {name} has values that are neither all numbers nor all dates or times such as 2026-01-31 or "
            "2026-01-31 12:30:00."
        )
    return time if wrong[0] else number


@dataclass(frozen=True)
class Race:
    """The choice of one of the rows of each user.

    ``frame`` has the columns user and code, perhaps order and group: rows without one of these do not take part.
    """

    users: UserIds
    salt: str
    groups: str = ""
    """``public`` or ``private`` if there are groups; the group of a user is that of the chosen row."""

    def picks(self, frame: Frame) -> Frame:
        """One row per user: code, group, the number of rows, and of those that did not take part; null user too."""
        optional = [name for name in (ORDER, GROUP) if name in frame.columns]
        takes_part = F.lit(True)
        for name in optional:
            takes_part &= F.col(name).isNotNull()
        counted = frame.groupBy(USER, CODE, *optional).agg(F.count(F.lit(1)).alias(ROWS))
        counted = counted.withColumn(EXCLUDED, F.when(takes_part, F.lit(0)).otherwise(F.col(ROWS)))
        counted = counted.withColumn("eligible", F.when(takes_part, F.col(ROWS)))
        if self.users.pick == "value":
            return self._distinct_values(counted)
        winner = [CODE, *([GROUP] if self.groups else [])]
        key = self._key("row", [CODE, *optional], F.col("eligible"))
        if self.users.pick == "latest":
            key = F.when(key.isNotNull(), F.struct(F.col(ORDER), key))
        return self._of_user(counted, winner, key)

    def _distinct_values(self, counted: Frame) -> Frame:
        """One of the user's distinct values; in the group of a row chosen regardless of values if groups are public."""
        one = F.when(F.col("eligible").isNotNull(), F.lit(1))
        if not self.groups:
            return self._of_user(counted, [CODE], self._key("value", [CODE], one))
        first, second = (GROUP, CODE) if self.groups == "public" else (CODE, GROUP)
        inner = self._key("inner", [CODE, GROUP], one if self.groups == "public" else F.col("eligible"))
        best = counted.groupBy(USER, first).agg(
            F.max_by(F.col(second), inner).alias(second),
            F.sum(ROWS).alias(ROWS),
            F.sum(EXCLUDED).alias(EXCLUDED),
            F.sum("eligible").alias("eligible"),
        )
        weight = F.col("eligible") if self.groups == "public" else F.when(F.col("eligible").isNotNull(), F.lit(1))
        return self._of_user(best, [CODE, GROUP], self._key("outer", [first], weight))

    def _of_user(self, counted: Frame, winner: Sequence[str], key: Any) -> Frame:
        chosen = counted.groupBy(USER).agg(
            F.max_by(F.struct(*winner), key).alias("winner"), F.sum(ROWS).alias(ROWS), F.sum(EXCLUDED).alias(EXCLUDED)
        )
        suspicious = F.when(F.lower(USER).isin(sorted(MISSING_MARKERS)), F.col(USER))
        mark = F.when(F.col(USER).isNull(), F.lit(NO_USER)).otherwise(suspicious)
        return chosen.select("winner.*", ROWS, EXCLUDED, mark.alias(MARK))

    def _key(self, purpose: str, columns: Sequence[str], weight: Any) -> Any:
        """The key of the race; null if the weight is."""
        strings = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in columns]
        lengths = [F.length(string).cast("string") for string in (F.coalesce(USER, F.lit("")), *strings[:-1])]
        content = F.concat_ws(":", F.lit(f"{self.salt}{purpose}"), *lengths, F.col(USER), *strings)
        digits = F.substring(F.sha2(content, 256), 1, _HEX_DIGITS)
        uniform = (F.conv(digits, 16, 10).cast("double") + F.lit(0.5)) / F.lit(2.0**52)
        return F.ln(uniform) / weight
