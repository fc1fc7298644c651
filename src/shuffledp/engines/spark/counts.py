"""Exact counts on Spark: distinct values are counted by Spark, and encoded on the driver by the rules of local data."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.engines.encoding import Encoder, NumberEncoder, StringEncoder
from shuffledp.engines.spark.columns import column, is_float, is_integer, kind_of
from shuffledp.engines.spark.session import Frame, explained_failures
from shuffledp.engines.spark.workers import CODE, PARTIAL_SCHEMA, CountRows, EncodeRows, unpack_counts
from shuffledp.errors import EngineError
from shuffledp.extras import extra

with extra("spark", "The Spark engine"):
    import pyarrow as pa
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

MAX_DISTINCT = 1 << 20
"""Maximum number of distinct values that are brought to the driver."""
VALUE, ROWS = "value", "rows"
_CODE_TYPES = {"bigint": st.LongType(), "double": st.DoubleType(), "string": st.StringType()}


class Encoding:
    """The values of a column of Spark as indices or positions; raises DataError if one has none.

    Few distinct values are encoded on the driver: the workers need no Python. Many are encoded by Python workers.
    """

    def __init__(self, frame: Frame, name: str, encoder: Encoder, size: int) -> None:
        self.frame, self.name, self.encoder, self.size = frame, name, encoder, size
        self.kind = kind_of(frame, name)
        self._distinct: tuple[Any, NDArray[Any], NDArray[np.bool_] | None] | None = None
        self.counts = self._read()
        encoder.check()

    @property
    def users(self) -> int:
        """The number of rows that have a code."""
        return self.encoder.encoded

    @property
    def code_type(self) -> str:
        """Spark's type of codes: indices of strings may exceed 64 bits, so they are spelled."""
        return "string" if isinstance(self.encoder, StringEncoder) else "bigint" if self.size else "double"

    def _read(self) -> NDArray[np.int64]:
        """The number of rows per index."""
        if not _has_many_values(self.kind, self.encoder):
            table = self._count_distinct()
            if len(table) <= MAX_DISTINCT:
                values, rows = table[VALUE].combine_chunks(), table[ROWS].to_numpy()
                encoded = self.encoder.encode(values, rows)
                self._distinct = values, encoded.values, encoded.rows
                counts = np.zeros(self.size, dtype=np.int64)
                if self.size:
                    np.add.at(counts, encoded.values, rows if encoded.rows is None else rows[encoded.rows])
                return counts
        return self._count_in_workers()

    def _count_distinct(self) -> Any:
        """The distinct values with their numbers of rows; one more than the limit if there are too many."""
        counted = (
            self.frame.select(column(self.frame, self.name).alias(VALUE))
            .groupBy(VALUE)
            .agg(sf.count(sf.lit(1)).alias(ROWS))
        )
        with explained_failures():
            return counted.limit(MAX_DISTINCT + 1).toArrow()

    def _count_in_workers(self) -> NDArray[np.int64]:
        values = self.frame.select(column(self.frame, self.name).alias(VALUE))
        counts = np.zeros(self.size, dtype=np.int64)
        for _, packed in collect_partials(values.mapInArrow(CountRows(self.encoder, self.size), PARTIAL_SCHEMA)):
            for _, part, state in packed:
                counts += part
                self.encoder.merge(state)
        return counts

    def with_codes(self, others: Mapping[str, Any]) -> Frame:
        """The code of each row that has one, beside other expressions by their names."""
        value = column(self.frame, self.name).alias(VALUE)
        rows = self.frame.select(value, *(expression.alias(name) for name, expression in others.items()))
        if self._distinct is None:
            kind = self.code_type
            schema = st.StructType([st.StructField(CODE, _CODE_TYPES[kind]), *rows.schema.fields[1:]])
            return rows.mapInArrow(EncodeRows(self.encoder, kind), schema)
        values, codes, encoded = self._distinct
        if encoded is not None:
            values = values.filter(pa.array(encoded))
        table = pa.table({VALUE: values, CODE: pa.array(codes, type=pa.int64() if self.size else pa.float64())})
        lookup = sf.broadcast(self.frame.sparkSession.createDataFrame(table)).alias("lookup")
        # a comparison that knows null costs more, and is needed only if missing values have a code
        same = rows[VALUE].eqNullSafe(lookup[VALUE]) if values.null_count else rows[VALUE] == lookup[VALUE]
        joined = rows.join(lookup, same)
        return joined.select(sf.col(f"lookup.{CODE}"), *others)


def usual_codes(frame: Frame, name: str, encoder: Encoder, salt: bytes, others: Mapping[str, Any]) -> Frame | None:
    """The code of each row whose value is a usual name, and null for others, without a look at the data before.

    None if no names are known, or values are not strings or integers. Names are found by a salted hash of 64 bits,
    faster than by strings: a value outside the domain has the hash of a name with probability 2^-64 for each name.
    """
    kind, names = kind_of(frame, name), encoder.usual_names
    if not names or not (isinstance(kind, st.StringType) or is_integer(kind)):
        return None
    encoded = copy.deepcopy(encoder).encode(pa.array(names, type=pa.string()))
    if encoded.rows is not None:
        return None
    table = pa.table({VALUE: pa.array(names, type=pa.string()), CODE: pa.array(encoded.values, type=pa.int64())})
    lookup = frame.sparkSession.createDataFrame(table).select(sf.xxhash64(sf.lit(salt), VALUE).alias("hash"), CODE)
    value = column(frame, name)
    rows = frame.filter(value.isNotNull()) if encoder.drops_missing else frame
    hashed = sf.xxhash64(sf.lit(salt), value.cast("string")).alias("hash")
    rows = rows.select(hashed, *(expression.alias(other) for other, expression in others.items()))
    return rows.join(sf.broadcast(lookup), "hash", "left").select(CODE, *others)


def collect_partials(frame: Frame) -> list[tuple[int, list[tuple[int, NDArray[np.int64], dict[str, Any]]]]]:
    """Per part the users, counts and states of all partitions; an error if a partition occurs twice."""
    with explained_failures():
        rows = frame.toArrow()
    parts: dict[int, list[tuple[int, NDArray[np.int64], dict[str, Any]]]] = {}
    seen: set[tuple[int, int]] = set()
    states: set[int] = set()
    columns: Sequence[list[Any]] = [rows[name].to_pylist() for name in rows.column_names]
    for partition, part, users, state, counts in zip(*columns, strict=True):
        if (partition, part) in seen or partition < 0:
            raise EngineError("Spark returned a partition twice. Nothing was released.", partition=partition)
        seen.add((partition, part))
        read = json.loads(state) if partition not in states else _EMPTY
        states.add(partition)
        parts.setdefault(part, []).append((users, unpack_counts(counts), read))
    return sorted(parts.items())


_EMPTY: dict[str, Any] = {"encoded": 0, "missing": 0, "outside": 0, "examples": [], "markers": []}


def _has_many_values(kind: Any, encoder: Encoder) -> bool:
    """Whether nearly every row may have a value of its own, so that counting distinct values is no cheaper."""
    if isinstance(kind, (st.TimestampType, st.TimestampNTZType)) or isinstance(encoder, StringEncoder):
        return True
    return isinstance(encoder, NumberEncoder) and (is_float(kind) or not is_integer(kind))
